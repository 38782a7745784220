"""The feed: rows as few as do, all of them where one block needs them; when to save."""

import dataclasses
import time

import jax
import numpy as np
import pytest

from coder_jax.devices.feed import Feed, SaveClock
from coder_jax.devices.mesh import make_mesh, step_cut
from data_pipeline import process
from data_pipeline.batches.packing import PackedGroups
from data_pipeline.batches.spec import RowPlan

PLAN = RowPlan((2, 4, 6))


def batch(in_use: int) -> dict[str, np.ndarray]:
    """One pass of two blocks of six rows, of which one uses `in_use` rows and the other one."""
    segments = np.zeros((1, 2, 6, 8), np.int32)
    segments[0, 0, 0, :4] = 1
    segments[0, 1, :in_use] = 1
    ids = np.zeros((1, 2, 1, 4), np.int32)
    return {
        "tokens": segments * 7,
        "positions": segments * 0,
        "segments": segments,
        "concepts": ids,
        "relations": ids[..., :2],
    }


class Source(PackedGroups):
    """Some batches, as those of a run that goes on from step 3."""

    def __init__(self, batches):
        self.cut, self.plan, self.made = step_cut(make_mesh(2, jax.devices()[:2]), 1), PLAN, batches

    def batches(self, first_step, last_step):
        assert (first_step, last_step) == (3, 3 + len(self.made))
        yield from self.made


@dataclasses.dataclass
class FeedOf:
    """A feed of these batches."""

    feed: Feed

    def __call__(self, batches):
        return self.feed(Source(batches), 3, 3 + len(batches))

    def __getattr__(self, name):
        return getattr(self.feed, name)


@pytest.fixture(params=[True, False], ids=["alone", "with others"])
def feed(request):
    """Alone, and as on several hosts, where all is agreed upon over the devices."""
    mesh = make_mesh(2, jax.devices()[:2])
    made = Feed(mesh, SaveClock(60))
    made.alone = request.param
    return FeedOf(made)


def test_the_fullest_block_decides_the_rows_of_all(feed):
    fed = list(feed([batch(2), batch(4), batch(5), batch(1)]))
    assert [item.batch["tokens"].shape[2] for item in fed] == [2, 4, 6, 2]
    np.testing.assert_array_equal(fed[2].batch["segments"], batch(5)["segments"])
    assert [item.rows for item in fed] == [2, 4, 6, 2]
    assert fed[0].fill == (4 + 2 * 8) / (2 * 2 * 8)


def test_each_batch_is_given_once_and_in_order(feed):
    batches = [batch(1) | {"concepts": np.full((1, 2, 1, 4), i, np.int32)} for i in range(5)]
    assert [int(fed.batch["concepts"][0, 0, 0, 0]) for fed in feed(batches)] == list(range(5))


def test_a_stop_is_seen_at_one_of_the_next_two_steps(feed, monkeypatch):
    asked = []
    monkeypatch.setattr(process, "_asked", asked)
    seen = []
    for number, _ in enumerate(feed([batch(1)] * 6)):
        if number == 2:
            asked.append(15)
        seen.append(feed.stops())
    assert not any(seen[:2]) and all(seen[4:])


def test_it_is_time_to_save_once(feed):
    feed.clock.last = time.monotonic() - 61 * 60
    saves = []
    for _ in feed([batch(1)] * 5):
        saves.append(feed.saves())
    assert sum(saves) == 1
