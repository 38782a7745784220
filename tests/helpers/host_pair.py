"""Two real processes of one run on this machine, joined by jax over gloo, for tests."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

LONG = 180  # seconds, on a machine that is slow and busy: only 'not for ever'

WORKER = """
import os, sys, time
import numpy as np
from coder_jax.devices import hosts as agree
from coder_jax.devices import hosts
from data_pipeline import process as stopping
from data_pipeline.process import run_command
from data_pipeline.process import BadInput

def together():
    from jax.experimental import multihost_utils
    return multihost_utils.process_allgather(np.int32(agree.host_index())).tolist()

def steps(collective):
    for step in range(1200):
        if collective:
            together()
        if step == 3:
            print("ready", flush=True)
        if agree.first_decides(stopping.asked()):
            raise stopping.Stopped
        time.sleep(0.05)

def work():
    me = agree.host_index()
{body}
    return 0

sys.exit(run_command(lambda: hosts.run_on_hosts(work)))
"""


class Pair:
    """Two processes that do `body`; how they ended, in `status` and `output`, after `wait`."""

    def __init__(self, body: str, repo: Path, folder: Path, **environment: str):
        self.files = [folder / "host0.log", folder / "host1.log"]
        code = WORKER.format(body="\n".join("    " + line for line in body.splitlines()))
        common = {
            "JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}",
            "JAX_NUM_PROCESSES": "2",
            "CODER_JAX_START_TIMEOUT": str(LONG),
            "PYTHONPATH": str(repo),
        }
        self.processes = []
        for index, file in enumerate(self.files):
            with file.open("w") as log:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-c", code],
                        env=os.environ | common | environment | {"JAX_PROCESS_ID": str(index)},
                        stdout=log,
                        stderr=log,
                    )
                )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + LONG
        while not all("ready" in file.read_text() for file in self.files):
            assert time.monotonic() < deadline, self.output
            time.sleep(0.05)

    def wait(self) -> list[int]:
        """The statuses of both, of which none runs for ever."""
        deadline = time.monotonic() + LONG
        return [process.wait(deadline - time.monotonic()) for process in self.processes]

    @property
    def output(self) -> list[str]:
        return [file.read_text() for file in self.files]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def start_alone(repo: Path, index: int, address: str, wait: int) -> subprocess.Popen:
    """One process of two whose other one never comes; it waits so many seconds."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER.format(body="    pass")],
        env=os.environ
        | {
            "JAX_COORDINATOR_ADDRESS": address,
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": str(index),
            "CODER_JAX_START_TIMEOUT": str(wait),
            "PYTHONPATH": str(repo),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen) -> tuple[int, str]:
    """Its status, and all it said."""
    try:
        said = process.communicate(timeout=LONG)[0]
    finally:
        process.kill()
    return process.returncode, said
