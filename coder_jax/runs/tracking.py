"""The curves of a run on Weights & Biases or MLflow, beside metrics.jsonl: `train --track`.

OUT/tracking.json   the id that the run has there: a run that goes on goes on there, too

Where they lie, and with whose rights, is said as with any other program: WANDB_PROJECT,
WANDB_MODE=offline, WANDB_API_KEY; MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME.
"""

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coder_jax.devices.agree import is_first
from data_pipeline.files.json_files import read_json, typed
from data_pipeline.files.whole_files import write_json
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import is_quiet
from data_pipeline.process.stopping import Stopped

FILE = "tracking.json"
PROJECT = "coder_jax"
# MLflow takes no other characters in names of metrics.
NOT_OF_MLFLOW = re.compile(r"[^\w\-. :/]")


class Tracker:
    """Nothing is tracked.

    Attributes:
        id: of the run where it is tracked.
    """

    id = ""

    def __init__(self) -> None:
        self.failed = False

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Send the values of a step; a service that cannot be reached never ends a training."""
        with self.said_once():
            self.send(step, values)

    def close(self, error: BaseException | None) -> None:
        """Say how the run ended: well, or with an error."""
        with self.said_once():
            self.end(error)

    @contextmanager
    def said_once(self) -> Iterator[None]:
        """Within, an error is a line on stderr."""
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
        """End the run there."""


class Wandb(Tracker):
    """Weights & Biases."""

    def __init__(self, there: str | None, name: str, config: Mapping[str, Any]):
        super().__init__()
        wandb: Any = importlib.import_module("wandb")
        if is_quiet():
            os.environ.setdefault("WANDB_SILENT", "true")
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self.run = wandb.init(
            project=project, id=there, resume="allow", name=name, config=dict(config)
        )
        # Steps of its own never go back, as those of a run do that goes on from a checkpoint.
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")
        self.id = self.run.id

    def send(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log({"step": step, **values})

    def end(self, error: BaseException | None) -> None:
        if isinstance(error, Stopped):
            self.run.mark_preempting()  # so that it is "preempted" there, not "failed"
        self.run.finish(exit_code=0 if error is None else 1)


class Mlflow(Tracker):
    """MLflow."""

    def __init__(self, there: str | None, name: str, config: Mapping[str, Any]):
        super().__init__()
        self.mlflow: Any = importlib.import_module("mlflow")
        if there:
            self.mlflow.start_run(run_id=there)
        else:
            if not {"MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"} & os.environ.keys():
                self.mlflow.set_experiment(PROJECT)
            self.mlflow.start_run(run_name=name)
            self.mlflow.log_params(dict(flat(config, ".")))
        self.id = self.mlflow.active_run().info.run_id

    def send(self, step: int, values: Mapping[str, float]) -> None:
        names = {NOT_OF_MLFLOW.sub("_", name.replace("@", "_at_")): name for name in values}
        sent = {new: values[name] for new, name in names.items()}
        self.mlflow.log_metrics(sent, step=step, synchronous=False)  # training does not wait for it

    def end(self, error: BaseException | None) -> None:
        stopped = "KILLED" if isinstance(error, Stopped) else "FAILED"
        self.mlflow.end_run("FINISHED" if error is None else stopped)


KINDS: dict[str, type[Wandb] | type[Mlflow]] = {"wandb": Wandb, "mlflow": Mlflow}


def check_installed(kind: str) -> None:
    """BadInput if the package of a service is missing where it is needed: on the first host.

    Args:
        kind: one of KINDS, or "none".
    """
    if kind != "none" and is_first() and importlib.util.find_spec(kind) is None:
        raise not_installed(kind, kind)


def not_installed(kind: str, package: str | None) -> BadInput:
    """The error that says so."""
    return BadInput(
        f"--track {kind}: the package {package} is not installed for {sys.executable}; "
        f"`{sys.executable} -m pip install {kind}`, or train without --track"
    )


@contextmanager
def tracking(kind: str, here: Path, name: str, config: Mapping[str, Any]) -> Iterator[Tracker]:
    """Tells a service of the run, from the first host alone, until the context ends.

    Args:
        kind: one of KINDS, or "none".
        here: folder of the run's small files.
        name: of the run, for people.
        config: of the run, as JSON.

    Raises:
        BadInput: if its package is not installed, or a new run cannot begin there.
    """
    tracker = begin(kind, here, name, config) if kind != "none" and is_first() else Tracker()
    try:
        yield tracker
    except BaseException as error:
        tracker.close(error)
        raise
    tracker.close(None)


def begin(kind: str, here: Path, name: str, config: Mapping[str, Any]) -> Tracker:
    """The run where it is tracked: that of OUT/tracking.json, or a new one.

    One that is there already and cannot be reached is a line on stderr: a run that was preempted
    goes on while the service is away.
    """
    file = here / FILE
    remedy = "delete the file, and a new run begins there"
    found = read_json(file, remedy) if file.exists() else {}
    ids = typed(found, dict[str, str], str(file), remedy)
    try:
        tracker = KINDS[kind](ids.get(kind), name, config)
    except ModuleNotFoundError as error:
        raise not_installed(kind, error.name) from error
    except Exception as error:  # whatever a client of a service raises
        what = f"{type(error).__name__}: {error}"
        if kind in ids:
            print(
                f"--track {kind}: the run {ids[kind]} cannot go on there ({what}); training goes "
                f"on, and metrics.jsonl has all of it. If the run was deleted there, delete "
                f"{FILE} in {name}: a new one begins with the next start",
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


def flat(values: Mapping[str, Any], between: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values, each by the names that lead to it."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, between, f"{prefix}{name}{between}")
        else:
            yield prefix + name, value
