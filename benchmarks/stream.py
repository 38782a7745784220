"""The rate of our batches, measured for `umls_size` and `input_pipeline`."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from data_pipeline.batches.packing import rows_in_use

if TYPE_CHECKING:
    from data_pipeline.batches.batch_maker import BatchMaker

MADE_AHEAD = 20  # batches that may wait in a pipeline's buffers; taken before the clock starts


def stream(batches: Iterator[dict], maker: "BatchMaker", seconds: float) -> dict[str, Any]:
    """Takes batches for some seconds: terms and tokens per second, and the fill of the rows.

    Args:
        batches: of `maker.batches`.
        maker: what makes them.
        seconds: at least so long.
    """
    for _ in range(MADE_AHEAD):
        next(batches)
    begun, count, tokens, places = time.monotonic(), 0, 0, 0
    while time.monotonic() - begun < seconds:
        segments = next(batches)["segments"]
        tokens += int((segments > 0).sum())
        # Training trims the batch to this many rows (`coder_jax.devices.feed`).
        places += segments[..., : maker.plan.rows(rows_in_use(segments)), :].size
        count += 1
    taken = time.monotonic() - begun
    spec = maker.spec
    return {
        "terms_per_s": count * spec.terms / taken,
        "tokens_per_s": tokens / taken,
        "fill": tokens / places,
        "batches": count,
    }
