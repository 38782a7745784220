"""A real S3 server on this machine, for tests: moto's, in a process of its own."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

BUCKET = "s3://bucket"


def environment(port: int) -> dict[str, str]:
    """What a process needs to use the server, as it would a real bucket."""
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextlib.contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """A server with an empty bucket; gives the environment to use it with."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 300
        request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
        while True:
            try:
                urllib.request.urlopen(request, timeout=60).close()
                break
            except OSError:  # not yet, or slow
                assert server.poll() is None and time.monotonic() < deadline, "no S3 server"
                time.sleep(0.2)
        yield environment(port)
    finally:
        server.kill()
        server.wait()


def use(monkeypatch, server: dict[str, str]) -> None:
    """Let this process use the server, and no longer the one before."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    for name, value in server.items():
        monkeypatch.setenv(name, value)


def with_server(server: dict[str, str]) -> dict[str, str]:
    """The environment of a subprocess that uses the server."""
    return os.environ | server
