"""Scalars in, TensorBoard's event files out.

Written by the thread that calls, so that a process can be killed at any time and a full disk is
this process's own affair: tensorboardX's own writer has a thread, a queue and a hook at exit, which
all speak up then.
"""

import os
import socket
import sys
import time
from pathlib import Path

SECONDS_BETWEEN_FLUSHES = 60.0


class Board:
    """The curves of a run that goes on from a step.

    Args:
        folder: made if it is not there.
        first_step: what processes before this one wrote after it is not shown.
    """

    def __init__(self, folder: Path, first_step: int):
        # tensorboardX imports torch where it is installed: two seconds of every start, for nothing.
        absent = sys.modules.setdefault("torch", None) is None  # type: ignore[arg-type]
        try:
            from tensorboardX.proto import event_pb2, summary_pb2
            from tensorboardX.record_writer import RecordWriter
        finally:
            if absent:
                del sys.modules["torch"]
        self.event, self.summary = event_pb2, summary_pb2
        folder.mkdir(parents=True, exist_ok=True)
        host = f"{socket.gethostname()}.{os.getpid()}"
        name = f"events.out.tfevents.{int(time.time())}.{host}.from_{first_step}"
        self.records = RecordWriter(str(folder / name))
        self.flushed = time.monotonic()
        self._write(file_version="brain.Event:2")
        begin = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(step=first_step + 1, session_log=begin)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """One point of the curve `name`."""
        point = self.summary.Summary.Value(tag=name, simple_value=float(value))
        self._write(step=step, summary=self.summary.Summary(value=[point]))

    def _write(self, **parts) -> None:
        event = self.event.Event(wall_time=time.time(), **parts)
        self.records.write(event.SerializeToString())
        if time.monotonic() - self.flushed > SECONDS_BETWEEN_FLUSHES:
            self.records.flush()
            self.flushed = time.monotonic()

    def close(self) -> None:
        """Write what is left."""
        self.records.close()
