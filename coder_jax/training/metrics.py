"""The metrics of a run: metrics.jsonl, TensorBoard, Weights & Biases, MLflow, progress bar."""

import contextlib
import importlib
import importlib.util
import json
import math
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import jax
from msgspec import Meta
from tqdm import tqdm

from coder_jax.devices.hosts import is_first
from data_pipeline.files.identity import Count, decoded_json, read_json, typed
from data_pipeline.files.whole import write_json, written_whole
from data_pipeline.process import BadInput, Stopped, is_quiet, progress_bar

# -------------------------------------------------------------------------------------------------
# A writer of TensorBoard event files.
#
# Written by the thread that calls, so that a process can be killed at any time and a full disk is
# this process's own affair: tensorboardX's own writer has a thread, a queue and a hook at exit,
# which all speak up then.

_SECONDS_BETWEEN_FLUSHES = 60.0


class _Board:
    """A writer of the curves of a run, which may resume at a step.

    Args:
        folder: made if it is not there.
        first_step: what processes before this one wrote after it is not shown.
    """

    def __init__(self, folder: Path, first_step: int):
        # tensorboardX imports torch if installed, which would cost two seconds at every start.
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
        init_params = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(step=first_step + 1, session_log=init_params)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """One point of the curve `name`."""
        point = self.summary.Summary.Value(tag=name, simple_value=float(value))
        self._write(step=step, summary=self.summary.Summary(value=[point]))

    def _write(self, **parts) -> None:
        event = self.event.Event(wall_time=time.time(), **parts)
        self.records.write(event.SerializeToString())
        if time.monotonic() - self.flushed > _SECONDS_BETWEEN_FLUSHES:
            self.records.flush()
            self.flushed = time.monotonic()

    def close(self) -> None:
        """Write remaining events and close the file."""
        self.records.close()


# -------------------------------------------------------------------------------------------------
# The curves of a run on Weights & Biases or MLflow (`train --track`).
#
# OUT/tracking.json   the id that the run has there: a run that goes on goes on there, too
#
# With whose rights, and under which name, is said as with any other program: WANDB_PROJECT,
# WANDB_MODE=offline, WANDB_API_KEY; MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME. What W&B has on
# this disk is in OUT/wandb (or WANDB_DIR). MLflow writes OUT/mlflow.db unless MLFLOW_TRACKING_URI
# says where.

_FILE = "tracking.json"
_PROJECT = "coder_jax"
# MLflow allows no other characters in metric names.
_NOT_OF_MLFLOW = re.compile(r"[^\w\-. :/]")


class Tracker:
    """The tracker that does nothing; subclasses track.

    Attributes:
        id: of the run where it is tracked.
    """

    id = ""

    def __init__(self) -> None:
        self.failed = False

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Send the values of a step; an unreachable service never ends a training."""
        with self.said_once():
            self.send(step, values)

    def close(self, error: BaseException | None) -> None:
        """Report how the run ended: successfully, or with an error."""
        with self.said_once():
            self.end(error)

    @contextmanager
    def said_once(self) -> Iterator[None]:
        """In the block, an error becomes a line on stderr, printed once."""
        try:
            yield
        except Exception as error:  # whatever a client of a service raises
            if not self.failed:
                print(
                    f"--track: what the run has to say could not be sent ({type(error).__name__}: "
                    f"{error}); training goes on, and metrics.jsonl has all of it",
                    file=sys.stderr,
                )
            self.failed = True

    def send(self, step: int, values: Mapping[str, float]) -> None:
        """Send the values of a step."""

    def end(self, error: BaseException | None) -> None:
        """End the run at the service."""


class _Wandb(Tracker):
    """Weights & Biases."""

    def __init__(self, run_id: str | None, name: str, config: Mapping[str, Any], folder: Path):
        super().__init__()
        wandb: Any = importlib.import_module("wandb")
        if is_quiet():
            os.environ.setdefault("WANDB_SILENT", "true")
        project = os.environ.get("WANDB_PROJECT", _PROJECT)
        self.run = wandb.init(
            project=project,
            id=run_id,
            resume="allow",
            name=name,
            config=dict(config),
            dir=os.environ.get("WANDB_DIR", str(folder)),  # in it, wandb/
        )
        # The service's own step counter cannot go back, as a run does that resumes from a
        # checkpoint.
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")
        self.id = self.run.id

    def send(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log({"step": step, **values})

    def end(self, error: BaseException | None) -> None:
        if isinstance(error, Stopped):
            self.run.mark_preempting()  # so that it is "preempted" there, not "failed"
        self.run.finish(exit_code=0 if error is None else 1)


class _Mlflow(Tracker):
    """MLflow."""

    def __init__(self, run_id: str | None, name: str, config: Mapping[str, Any], folder: Path):
        super().__init__()
        self.mlflow: Any = importlib.import_module("mlflow")
        file = (folder / "mlflow.db").resolve()
        # A run that began elsewhere, as older versions did, goes on there.
        if "MLFLOW_TRACKING_URI" not in os.environ and (file.exists() or not run_id):
            self.mlflow.set_tracking_uri(f"sqlite:///{file}")
        if run_id:
            self.mlflow.start_run(run_id=run_id)
        else:
            if not {"MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"} & os.environ.keys():
                self.mlflow.set_experiment(_PROJECT)
            self.mlflow.start_run(run_name=name)
            self.mlflow.log_params(dict(_flat(config, ".")))
        self.id = self.mlflow.active_run().info.run_id

    def send(self, step: int, values: Mapping[str, float]) -> None:
        names = {_NOT_OF_MLFLOW.sub("_", name.replace("@", "_at_")): name for name in values}
        sent = {new: values[name] for new, name in names.items()}
        self.mlflow.log_metrics(sent, step=step, synchronous=False)  # training does not wait for it

    def end(self, error: BaseException | None) -> None:
        stopped = "KILLED" if isinstance(error, Stopped) else "FAILED"
        self.mlflow.end_run("FINISHED" if error is None else stopped)


_KINDS: dict[str, type[_Wandb] | type[_Mlflow]] = {"wandb": _Wandb, "mlflow": _Mlflow}


def check_installed(kind: str) -> None:
    """Raise BadInput on the first host if the package of a service is missing.

    Args:
        kind: one of KINDS, or "none".
    """
    if kind != "none" and is_first() and importlib.util.find_spec(kind) is None:
        raise _not_installed(kind, kind)


def _not_installed(kind: str, package: str | None) -> BadInput:
    """The error for a missing package."""
    return BadInput(
        f"--track {kind}: the package {package} is not installed for {sys.executable}; "
        f"`{sys.executable} -m pip install {kind}`, or train without --track"
    )


@contextmanager
def tracking(kind: str, folder: Path, name: str, config: Mapping[str, Any]) -> Iterator[Tracker]:
    """Reports the run to a service, from the first host, until the context ends.

    Args:
        kind: one of KINDS, or "none".
        folder: folder of the run's small files.
        name: of the run, for people.
        config: of the run, as JSON.

    Raises:
        BadInput: if its package is not installed, or a new run cannot begin there.
    """
    tracker = (
        _start_tracker(kind, folder, name, config) if kind != "none" and is_first() else Tracker()
    )
    try:
        yield tracker
    except BaseException as error:
        tracker.close(error)
        raise
    tracker.close(None)


def _start_tracker(kind: str, folder: Path, name: str, config: Mapping[str, Any]) -> Tracker:
    """The run at the service: the one in OUT/tracking.json, or a new one.

    One that is there already and cannot be reached is a line on stderr: a run that was preempted
    goes on while the service is away.
    """
    file = folder / _FILE
    remedy = "delete the file, and a new run begins there"
    found = read_json(file, remedy) if file.exists() else {}
    ids = typed(found, dict[str, str], str(file), remedy)
    try:
        tracker = _KINDS[kind](ids.get(kind), name, config, folder)
    except ModuleNotFoundError as error:
        raise _not_installed(kind, error.name) from error
    except Exception as error:  # whatever a client of a service raises
        what = f"{type(error).__name__}: {error}"
        if kind in ids:
            print(
                f"--track {kind}: the run {ids[kind]} cannot go on there ({what}); training goes "
                f"on, and metrics.jsonl has all of it. If the run was deleted there, delete "
                f"{_FILE} in {name}: a new one begins with the next start",
                file=sys.stderr,
            )
            return Tracker()
        offline = ", keep it on this disk with WANDB_MODE=offline" if kind == "wandb" else ""
        raise BadInput(
            f"--track {kind}: a run cannot begin there ({what}); log in, see to the network"
            f"{offline}, or train without --track"
        ) from error
    write_json(file, {**ids, kind: tracker.id})
    return tracker


def _flat(values: Mapping[str, Any], between: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values, flattened under joined names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, between, f"{prefix}{name}{between}")
        else:
            yield prefix + name, value


# -------------------------------------------------------------------------------------------------
# The metrics of a run: metrics.jsonl, TensorBoard and the progress bar.

BOARD = "tensorboard"  # the folder of curves and profiles in that of a run
_WITHOUT = "delete the line, or move the file away: a run goes on without it"
# From this share of waiting on, the data is the bottleneck; and the interval of warnings.
_WAITS = 0.5
_SECONDS_BETWEEN_WARNINGS = 600.0


class _MetricsLine(TypedDict):
    """A line of metrics.jsonl; beside these the metrics of its step, a number each."""

    step: Count
    seconds: NotRequired[Annotated[float, Meta(ge=0)]]
    time: NotRequired[str]
    eval: NotRequired[dict[str, dict[str, float]]]


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl in order of step; the later of two lines of a step counts.

    A last line that was cut off by a kill is left out.

    Raises:
        BadInput: if the file cannot be read, or another line is broken.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error})") from error
    found: dict[tuple[int, bool], dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values = decoded_json(line.encode(), f"{path}:{number}", _WITHOUT)
            typed(values, _MetricsLine, f"{path}:{number}", _WITHOUT)
        except BadInput:
            if number == len(lines):  # no newline behind it: cut off
                break
            raise
        found[values["step"], "eval" in values] = values
    return sorted(found.values(), key=lambda values: values["step"])


def _keep_lines_until(path: Path, step: int) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl but those after `step`, which are dropped: a resumed run writes
    them again.
    """
    if not path.exists():
        return []
    kept = [values for values in read_metrics(path) if values["step"] <= step]
    with written_whole(path) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(values) + "\n" for values in kept)
    return kept


class MetricsLog:
    """Writes the metrics of a run that goes on from `first_step`; on the first host alone.

    Args:
        out: the run folder.
        first_step: the steps already taken.
        steps: the steps of the whole run.
        tracker: what else is told of it.
        began: when this process began with the run, in seconds since 1970; None: now.
    """

    def __init__(
        self,
        out: Path,
        first_step: int,
        steps: int,
        tracker: Tracker | None = None,
        began: float | None = None,
    ):
        self.first = is_first()
        self.began = time.monotonic()
        self.seconds_before = 0.0
        self.waiting, self.warned = False, -math.inf
        self.first_step = first_step
        if not self.first:
            return
        path = out / "metrics.jsonl"
        kept = _keep_lines_until(path, first_step)
        self.seconds_before = max((line.get("seconds", 0.0) for line in kept), default=0.0)
        self.in_steps = max((line.get("step_seconds", 0.0) for line in kept), default=0.0)
        # The first process's, told by any line: goodput is seconds in steps / seconds since then.
        self.run_began = min(
            (
                datetime.fromisoformat(line["time"]).timestamp()
                - line["step_seconds"] / line["goodput"]
                for line in kept
                if line.get("goodput")
            ),
            default=time.time() if began is None else began,
        )
        self.lines = path.open("a", encoding="utf-8")
        self.board = _Board(out / BOARD, first_step)
        self.tracker = tracker or Tracker()
        self.bar = progress_bar(
            total=steps, initial=first_step, unit="step", desc="train", smoothing=0.1
        )

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Log values (numbers, or nested dictionaries of them) at a step, with the time.

        A line has the seconds that the run took so far, and the time of day in UTC (ISO 8601). With
        `step_seconds`, those since the line before, it has the run's, and `goodput`: their share of
        the time since the run began, all that was lost or waited for included.
        """
        if not self.first:
            return
        if "step_seconds" in values:
            self.in_steps += values["step_seconds"]
            values = {**values, "step_seconds": self.in_steps, "goodput": self.goodput}
        values = {**values, "seconds": self.seconds}
        scalars = dict(_flat(values, "/"))
        line = {"step": step, **values, "time": datetime.now(UTC).isoformat(timespec="seconds")}
        try:
            for name, value in scalars.items():
                self.board.add_scalar(name, value, step)
            self.lines.write(json.dumps(line, allow_nan=False) + "\n")
            self.lines.flush()
        except OSError as error:
            raise BadInput(
                f"{self.lines.name} cannot be written to ({error.strerror}). Make room or mend the "
                "disk, and give the same command again: the run goes on from its checkpoints"
            ) from error
        self.tracker.write(step, scalars)
        self._warn_of_waiting(values.get("data_wait"))

    @property
    def goodput(self) -> float:
        """The share of steps in the time since the run began."""
        return self.in_steps / max(time.time() - self.run_began, self.in_steps)

    def log_end(self, values: Mapping[str, float]) -> None:
        """Tell what the run took, with the values of its last line."""
        if self.first:
            in_steps, memory = tqdm.format_interval(self.in_steps), values["peak_memory_gb"]
            self.log(
                f"{in_steps} in steps, {100 * self.goodput:.0f} % of the time since the run began; "
                f"peak memory {memory:.1f} GB"
            )

    def scores(self, step: int) -> dict[str, dict[str, float]]:
        """The logged scores of a step, if any; only on the first host."""
        lines = read_metrics(self.lines.name) if self.first else []
        found = [line["eval"] for line in lines if line["step"] == step and "eval" in line]
        return found[-1] if found else {}

    def _warn_of_waiting(self, share: float | None) -> None:
        """Warn that the data is slow, from the second slow line in a row on (pipelines start
        slowly).
        """
        if share is None:
            return
        before, self.waiting = self.waiting, share > _WAITS
        if not (before and self.waiting) or self.seconds < self.warned + _SECONDS_BETWEEN_WARNINGS:
            return
        self.warned = self.seconds
        self.bar.write(
            f"the run waits for its data {share:.0%} of the time: the disk or the input pipeline "
            "is slower than the devices (data_wait in metrics.jsonl)"
        )

    @property
    def seconds(self) -> float:
        """The run's time so far, earlier processes included, start-up excluded."""
        return self.seconds_before + time.monotonic() - self.began

    def show(self, step: int, values: Mapping[str, float] | None = None) -> None:
        """Move the progress bar to a step and show some other values."""
        if not self.first:
            return
        if self.bar.n == self.first_step:
            self.bar.unpause()  # compilation and first scores do not tell how long steps take
        if values is not None:
            shown = {name: f"{value:.4g}" for name, value in values.items()}
            self.bar.set_postfix(shown, refresh=False)
        self.bar.update(step - self.bar.n)

    def log(self, text: str) -> None:
        """Print a line without breaking the progress bar, unless quiet."""
        if self.first and not is_quiet():
            self.bar.write(text)

    def close(self) -> None:
        """Close the files and the bar."""
        if not self.first:
            return
        self.bar.close()
        for file in (self.board, self.lines):
            with contextlib.suppress(OSError):  # a full disk was said when a line was written
                file.close()


class Profile:
    """A trace of some steps of a run, for TensorBoard and Perfetto; on the first host alone.

    A context: a trace that was begun when it ends is written.

    Args:
        folder: OUT/tensorboard; the trace goes into plugins/profile/DATE in it.
        steps: which.
    """

    def __init__(self, folder: Path, steps: range):
        self.folder, self.steps = folder, steps if is_first() else range(0)
        self.running = False

    def begins(self, step: int) -> bool:
        """Whether a trace is to start before a step; after a restart it may be a later one."""
        return step in self.steps and not self.running

    def ends(self, step: int) -> bool:
        """Whether the trace that runs is to stop after a step."""
        return self.running and step == self.steps[-1]

    def start(self) -> None:
        """Start the trace."""
        jax.profiler.start_trace(self.folder, create_perfetto_trace=True)
        self.running = True

    def stop(self) -> str:
        """Write the trace; returns where, in words."""
        self.running = False
        try:
            jax.profiler.stop_trace()
        except Exception as error:  # of the profiler's own kinds; a run goes on without its trace
            return f"the profile could not be written: {error}"
        traces = self.folder / "plugins" / "profile"
        return f"profile of steps {self.steps[0]} to {self.steps[-1]}: {max(traces.iterdir())}"

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.stop()


def scores_in_words(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Scores by benchmark and metric, for the terminal."""
    return "; ".join(
        f"{benchmark} "
        + "  ".join(
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:.4f}"
            for name, value in metrics.items()
        )
        for benchmark, metrics in scores.items()
    )
