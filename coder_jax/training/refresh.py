"""Refreshes: indexes computed from a run's own parameters, on which later batches depend.

Three systems have them, every --refresh-steps: the nearest neighbours of CODER++, the hard
negatives of recall, and the candidates of MLNorm's second step.

OUT/index/N/  what `System.refresh` wrote after N steps; whole or not there

The batches of the steps N + 1 to N + `refresh_steps` depend on it. Its hash is in the notes of
their checkpoints, so that a run goes on with the index that it was stopped with or not at all; and
a checkpoint is kept at each refresh, from which a lost index is made again.
"""

import dataclasses
import hashlib
import shutil
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from coder_jax.devices.hosts import barrier, is_first, must_agree
from coder_jax.training.run_folder import INDEX, RunFiles
from coder_jax.training.state import TrainState
from coder_jax.training.system import IndexOfRun, System, View
from data_pipeline.batches.spec import BatchSource
from data_pipeline.process import BadInput

_KEPT = 2  # indexes that stay: the newest, and the one before in case a checkpoint is damaged


@dataclasses.dataclass
class Refresh:
    """The refreshes of a run; for a system without an index none is ever due.

    Attributes:
        system: what makes an index.
        files: of the run.
        mesh: the devices.
        recorded_start: of `System.load_initial`.
        computed: step and what was computed after it (`View.computed`).
    """

    system: System
    files: RunFiles
    mesh: Mesh
    recorded_start: Any
    computed: tuple[int, dict[str, Any]] = dataclasses.field(
        default_factory=lambda: (-1, {}), init=False
    )

    def computed_after(self, step: int) -> dict[str, Any]:
        """Results computed after this step, to be extended; those of other steps are dropped."""
        if self.computed[0] != step:
            self.computed = step, {}
        return self.computed[1]

    def due(self, step: int) -> bool:
        """Whether an index is due after this many steps."""
        return bool(self.system.refresh_steps) and step % self.system.refresh_steps == 0

    def until(self, step: int, steps: int) -> int:
        """The last step whose batches use the index that is valid after `step` steps."""
        every = self.system.refresh_steps
        return min(step - step % every + every, steps) if every else steps

    def at(
        self, step: int, state: TrainState, source: BatchSource, recorded: IndexOfRun | None
    ) -> tuple[BatchSource, IndexOfRun | None]:
        """The batches after `step` steps, with the index due then or the latest one.

        Args:
            step: steps that were taken.
            state: after them.
            source: the batches so far.
            recorded: step and hash of the index that the batch of `step` depended on.

        Returns:
            (source, note): the batches, and step and hash of the index that they depend on.

        Raises:
            BadInput: if the index is not the one that was noted.
        """
        if not self.system.refresh_steps:
            return source, None
        if self.due(step):
            folder = self._make(step, state, source)
            found = IndexOfRun(step, _hash_folder(folder))
            must_agree(f"the index of step {step}", found.hash)
        else:
            assert recorded is not None, "a run between two refreshes has an index"
            folder = self.files.folder / INDEX / str(recorded.step)
            found = IndexOfRun(recorded.step, _hash_folder(folder))
            if found != recorded:
                raise BadInput(
                    f"the index {folder}, which the run's batches depend on, has the hash "
                    f"{found.hash[:12]}; expected {recorded.hash[:12]}: it is lost or was "
                    f"changed. To make it again, go on from the checkpoint at which it was made: "
                    f"move the checkpoints after step {recorded.step} away, and give the same "
                    "command again"
                )
        return source.with_index(folder), found

    def _make(self, step: int, state: TrainState, source: BatchSource) -> Path:
        """Write the index of a step; the system may continue what a stopped run left.

        So it may with a whole one, of a run that was killed before it had a checkpoint after it.
        """
        folder = self.files.folder / INDEX / str(step)
        partial = folder.with_name(f".{step}.partial")
        if is_first():
            # Later ones belong to steps that the run will repeat.
            for number in self._made():
                if number > step:
                    shutil.rmtree(folder.with_name(str(number)))
            if folder.exists():
                shutil.rmtree(partial, ignore_errors=True)
                folder.rename(partial)
            partial.mkdir(parents=True, exist_ok=True)
        barrier("a folder for the index")
        view = View(
            step=step,
            params=state.params,
            extra=state.extra,
            mesh=self.mesh,
            recorded_start=self.recorded_start,
            computed=self.computed_after(step),
        )
        self.system.refresh(view, source, partial)
        self.computed = -1, {}  # it may be large
        barrier("the index is written")
        if is_first():
            partial.rename(folder)
            for number in self._made()[:-_KEPT]:
                shutil.rmtree(folder.with_name(str(number)))
            self.files.publish()
        barrier("the index is there")
        self.files.fetch()
        return folder

    def _made(self) -> list[int]:
        """The steps with an index, oldest first."""
        folder = self.files.folder / INDEX
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return sorted(int(name) for name in names if name.isdigit())


def _hash_folder(folder: Path) -> str:
    """SHA-256 of the names and contents of all files in a folder; of nothing if it does not
    exist.
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
