"""The metrics of a run: metrics.jsonl, TensorBoard and the progress bar."""

import contextlib
import json
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coder_jax.devices.agree import is_first
from coder_jax.runs.tensorboard import Board
from coder_jax.runs.tracking import Tracker, flat
from data_pipeline.files.contents import MetricsLine
from data_pipeline.files.json_files import decoded_json, typed
from data_pipeline.files.whole_files import written_whole
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import is_quiet, progress_bar

WITHOUT = "delete the line, or move the file away: a run goes on without it"
# A share of waiting from which on the data, not the devices, sets the pace; said at most so often.
WAITS = 0.5
SECONDS_BETWEEN_WARNINGS = 600.0


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl in order of step; of two of one step the later counts.

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
            values = decoded_json(line.encode(), f"{path}:{number}", WITHOUT)
            typed(values, MetricsLine, f"{path}:{number}", WITHOUT)
        except BadInput:
            if number == len(lines):  # no newline behind it: cut off
                break
            raise
        found[values["step"], "eval" in values] = values
    return sorted(found.values(), key=lambda values: values["step"])


def keep_lines_until(path: Path, step: int) -> float:
    """Drop the lines after `step`: a run that goes on from there writes them again.

    Returns the seconds that the run had taken by then.
    """
    if not path.exists():
        return 0.0
    kept = [values for values in read_metrics(path) if values["step"] <= step]
    with written_whole(path) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(values) + "\n" for values in kept)
    return max((values.get("seconds", 0.0) for values in kept), default=0.0)


class MetricsLog:
    """Writes the metrics of a run that goes on from `first_step`; on the first host alone.

    Args:
        out: the run folder.
        first_step: the steps already taken.
        steps: the steps of the whole run.
        tracker: what else is told of it.
    """

    def __init__(self, out: Path, first_step: int, steps: int, tracker: Tracker | None = None):
        self.first = is_first()
        self.began = time.monotonic()
        self.seconds_before = 0.0
        self.waiting, self.warned = False, -math.inf
        self.first_step = first_step
        if not self.first:
            return
        path = out / "metrics.jsonl"
        self.seconds_before = keep_lines_until(path, first_step)
        self.lines = path.open("a", encoding="utf-8")
        self.board = Board(out / "tensorboard", first_step)
        self.tracker = tracker or Tracker()
        self.bar = progress_bar(
            total=steps, initial=first_step, unit="step", desc="train", smoothing=0.1
        )

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Log values (numbers, or nested dictionaries of them) at a step, with the time.

        A line has the seconds that the run took so far, and the time of day in UTC (ISO 8601).
        """
        if not self.first:
            return
        values = {**values, "seconds": self.seconds}
        scalars = dict(flat(values, "/"))
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

    def scores(self, step: int) -> dict[str, dict[str, float]]:
        """The scores of a step that are there already; none but on the first host."""
        lines = read_metrics(self.lines.name) if self.first else []
        found = [line["eval"] for line in lines if line["step"] == step and "eval" in line]
        return found[-1] if found else {}

    def _warn_of_waiting(self, share: float | None) -> None:
        """Say that the data is slow, from the second line in a row on: pipelines start slowly."""
        if share is None:
            return
        before, self.waiting = self.waiting, share > WAITS
        if not (before and self.waiting) or self.seconds < self.warned + SECONDS_BETWEEN_WARNINGS:
            return
        self.warned = self.seconds
        self.bar.write(
            f"the run waits for its data {share:.0%} of the time: the disk or the input pipeline "
            "is slower than the devices (data_wait in metrics.jsonl)"
        )

    @property
    def seconds(self) -> float:
        """What the run has taken so far, with the processes before this one, without start-up."""
        return self.seconds_before + time.monotonic() - self.began

    def show(self, step: int, values: Mapping[str, float] | None = None) -> None:
        """Move the progress bar to a step, perhaps with a few other values beside it."""
        if not self.first:
            return
        if self.bar.n == self.first_step:
            self.bar.unpause()  # compilation and first scores do not tell how long steps take
        if values is not None:
            shown = {name: f"{value:.4g}" for name, value in values.items()}
            self.bar.set_postfix(shown, refresh=False)
        self.bar.update(step - self.bar.n)

    def say(self, text: str) -> None:
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
