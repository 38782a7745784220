"""Starting launch scripts in tests, with stand-ins for the commands that they call."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from data_pipeline.process import TRY_AGAIN

# What launchers take for 'a new start mends it': asked to stop; ended by jax (SIGABRT) or killed;
# asked to stop before it could listen.
MENDED_BY_A_NEW_START = [
    TRY_AGAIN,
    *(128 + number for number in (signal.SIGABRT, signal.SIGKILL, signal.SIGTERM)),
]


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the variables that would tell scripts where and how to run."""
    prefixes = ("CODER_JAX_", "JAX_", "SLURM_", "PYTHONPATH")
    return {name: value for name, value in environment.items() if not name.startswith(prefixes)}


def start(*command: object, cwd: Path, **environment: object) -> subprocess.Popen:
    """Start a bash script; variables of the machine that runs the tests do not leak into it.

    Nor do signals that are blocked or ignored here, as Ctrl-C is in what a shell starts with `&`: a
    script would inherit that.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        ["bash", *map(str, command)],
        cwd=cwd,
        env=without_settings(os.environ)
        | {name: str(value) for name, value in environment.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def bash(*command: object, cwd: Path, **environment: object) -> subprocess.CompletedProcess:
    """Run a bash script to its end, as `start` starts it."""
    process = start(*command, cwd=cwd, **environment)
    status, out, err = finish(process, timeout=900)
    return subprocess.CompletedProcess(process.args, status, out, err)


def finish(process: subprocess.Popen, timeout: float = 180) -> tuple[int, str, str]:
    """Its exit status, stdout and stderr."""
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, out, err


def wait_for(*files: Path) -> None:
    deadline = time.monotonic() + 180
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline, f"waited for {files}"
        time.sleep(0.05)
