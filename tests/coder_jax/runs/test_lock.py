"""The lock of a run's folder: its holder on another machine, and file systems without locks."""

import os
import signal
import socket
import threading
import time

import pytest

from coder_jax.runs import lock as run_lock
from coder_jax.runs.lock import lock_run
from data_pipeline.process.errors import BadInput
from data_pipeline.process.stopping import Stopped, stop_when_asked


def test_a_lock_of_a_machine_that_died_is_waited_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run_lock, "RETRY_SECONDS", 0.05)
    held = lock_run(tmp_path)
    assert held is not None
    (tmp_path / "lock").write_text("process 7 on another-machine\n")
    with monkeypatch.context() as patch:
        patch.setattr(run_lock, "LEASE_SECONDS", 0.2)
        with pytest.raises(BadInput, match="process 7 on another-machine is training in"):
            lock_run(tmp_path)
    with stop_when_asked("stopping"), pytest.raises(Stopped):
        os.kill(os.getpid(), signal.SIGTERM)
        lock_run(tmp_path)
    lease = threading.Timer(1, held.close)
    lease.start()
    taken = lock_run(tmp_path)
    assert taken is not None and held.closed
    assert "locked by process 7 on another-machine; waiting 120 s" in capsys.readouterr().out
    began = time.monotonic()
    with pytest.raises(BadInput, match=f"process {os.getpid()} on {socket.gethostname()} is tr"):
        lock_run(tmp_path)
    assert time.monotonic() - began < 60, "this machine's processes are not waited for"
    taken.close()


def test_where_the_file_system_has_no_locks_the_run_goes_on_and_says_so(
    tmp_path, monkeypatch, capsys
):
    def no_locks(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("data_pipeline.files.file_lock.fcntl.flock", no_locks)
    assert lock_run(tmp_path) is None
    assert "cannot be locked (Function not implemented)" in capsys.readouterr().out
