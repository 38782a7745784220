"""How fast our batches come: measured for `umls_size` and `input_pipeline` alike."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_pipeline.batches import BatchMaker

MADE_AHEAD = 20  # batches that may wait in a pipeline's buffers; taken before the clock starts


def stream(batches: Iterator[dict], maker: "BatchMaker", seconds: float) -> dict[str, Any]:
    """Takes batches for so many seconds: terms and tokens per second, and the fill of the rows.

    Args:
        batches: of `maker.batches`.
        maker: what makes them.
        seconds: at least so long.
    """
    for _ in range(MADE_AHEAD):
        batch = next(batches)
    begun, count, tokens = time.monotonic(), 0, 0
    while time.monotonic() - begun < seconds:
        tokens += int((next(batches)["segments"] > 0).sum())
        count += 1
    taken = time.monotonic() - begun
    spec = maker.spec
    blocks = batch["tokens"].size // (maker.plan.ample * spec.row_length)
    usual = blocks * maker.plan.usual * spec.row_length
    return {
        "terms_per_s": count * spec.terms / taken,
        "tokens_per_s": tokens / taken,
        "fill": tokens / count / usual,
        "batches": count,
    }
