"""Moves a host's batches to the devices, in the order of the steps.

On several hosts each knows only its own blocks, signals and clock. So a few integers of each step
are compared over the devices: the rows that the fullest block needs (of a few static shapes all
must take the same), whether a host was asked to stop, whether the first host's clock says to save.
They are asked for one step ahead, so that no device waits for Python.
"""

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from coder_jax.devices.mesh import AXES, put_batch, replicated
from data_pipeline import process
from data_pipeline.batches.packing import packed_lengths
from data_pipeline.batches.spec import BatchSource


class Fed(NamedTuple):
    """The input of one step."""

    batch: dict[str, jax.Array]  # [P, B, ...], of all hosts
    rows: int  # packed rows of a block
    fill: float  # the part of this host's tokens that are no padding
    lengths: np.ndarray  # int, tokens of each of this host's terms


class SaveClock:
    """A timer that tells when the next checkpoint is due.

    Args:
        minutes: between two saves.
    """

    def __init__(self, minutes: float):
        self.seconds, self.last = 60 * minutes, time.monotonic()

    def due(self) -> bool:
        """Whether the interval has passed since this was last true, or since `restart`."""
        is_due = time.monotonic() - self.last > self.seconds
        if is_due:
            self.restart()
        return is_due

    def restart(self) -> None:
        """Restart the interval."""
        self.last = time.monotonic()


class Feed:
    """Places batches on the devices, ahead of the steps.

    Args:
        mesh: the devices of all hosts.
        clock: when to save.

    After each batch `stops` and `saves` say what all hosts are to do once its step is taken.
    """

    def __init__(self, mesh: Mesh, clock: SaveClock):
        self.mesh, self.clock = mesh, clock
        self.alone = jax.process_count() == 1
        self._agreed = (0, 0)
        self._largest = jax.jit(lambda flags: flags.max(axis=0), out_shardings=replicated(mesh))

    def stops(self) -> bool:
        """Whether the run should save and stop after this step."""
        return process.asked() if self.alone else bool(self._agreed[0])

    def saves(self) -> bool:
        """Whether the run should save after this step; ask once a step, as this restarts the
        clock.
        """
        return self.clock.due() if self.alone else bool(self._agreed[1])

    def __call__(self, source: BatchSource, first_step: int, last_step: int) -> Iterator[Fed]:
        """The batches of steps first_step to last_step - 1 of all hosts, on the devices."""
        batches = source.batches(first_step, last_step)
        if self.alone:
            for batch in batches:
                yield self._placed(source, batch, source.rows_in_use(batch))
            return
        ahead = None
        for batch in batches:
            asked = self._ask(source.rows_in_use(batch))
            if ahead is not None:
                yield self._answered(source, *ahead)
            ahead = batch, asked
        if ahead is not None:
            yield self._answered(source, *ahead)

    def _ask(self, rows: int) -> jax.Array:
        first = jax.process_index() == 0
        mine = [rows, process.asked(), first and self.clock.due()]
        flags = np.array([mine], np.int32)
        everyones = jax.make_array_from_callback(
            (self.mesh.size, len(mine)),
            NamedSharding(self.mesh, PartitionSpec(AXES)),
            lambda index: flags,
        )
        return self._largest(everyones)

    def _answered(
        self, source: BatchSource, batch: Mapping[str, np.ndarray], asked: jax.Array
    ) -> Fed:
        rows, stop, save = np.asarray(asked.addressable_data(0)).tolist()
        self._agreed = stop, save
        return self._placed(source, batch, rows)

    def _placed(self, source: BatchSource, batch: Mapping[str, np.ndarray], needed: int) -> Fed:
        rows = source.plan.rows(needed)
        cut_off = {
            name: array[:, :, :rows] if name in source.packed else array
            for name, array in batch.items()
        }
        return Fed(
            put_batch(self.mesh, source.cut, cut_off, source.packed),
            rows,
            source.fill(cut_off),
            packed_lengths(cut_off),
        )
