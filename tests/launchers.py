"""Starting launch scripts in tests, with stand-ins for the commands that they call."""

import os
import signal
import subprocess
import time
from pathlib import Path

from data_pipeline.stopping import TRY_AGAIN

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


def start(*command: object, cwd: Path, **environment: object) -> subprocess.Popen:
    """Start a bash script; variables of the machine that runs the tests do not leak into it."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CODER_JAX_", "JAX_", "SLURM_", "PYTHONPATH"))
    }
    return subprocess.Popen(
        ["bash", *map(str, command)],
        cwd=cwd,
        env=clean | {name: str(value) for name, value in environment.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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
