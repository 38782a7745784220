"""One side of `benchmarks.accelerator.parity`: losses and vectors on jax's current platform."""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.command import add_batch_arguments, batches_of
from coder_jax.devices.xla_settings import set_up_xla
from data_pipeline.dataset.store import read_manifest
from data_pipeline.process import run_command


class SideResult(NamedTuple):
    """The results of a side."""

    losses: np.ndarray  # float64 [steps]
    vectors: np.ndarray  # float32 [terms, D], of length 1
    device: str


def read_found(path: Path) -> SideResult:
    """Reads the results of a side."""
    with np.load(path) as arrays:
        return SideResult(arrays["losses"], arrays["vectors"], str(arrays["device"]))


def _vectors_of(encoder: Path, tokens: np.ndarray, start: np.ndarray, dtype: str) -> np.ndarray:
    """Unit vectors by mean pooling, float32 [n, D]; term i is tokens[start[i]:start[i + 1]]."""
    import jax
    from flax import nnx

    from coder_jax.models.hf_weights import load_bert
    from data_pipeline.batches.packing import pack_rows

    bert, _, _ = load_bert(encoder, dtype=dtype)
    longest = int(np.diff(start).max())
    packed = pack_rows(tokens, start, row_length=max(128, longest))
    count = len(start) - 1

    @nnx.jit
    def embed(bert, tokens_RL, positions_RL, segments_RL):
        return bert.term_vectors(tokens_RL, positions_RL, segments_RL, count, "mean")

    given = (packed[name] for name in ("tokens", "positions", "segments"))
    vectors = np.asarray(jax.device_get(embed(bert, *given)), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _find(args: argparse.Namespace) -> int:
    """Computes and writes them; 0."""
    import jax

    from benchmarks.our_step import Ours
    from benchmarks.train_step_work import Work

    manifest = read_manifest(args.data)
    work = Work(
        encoder=args.encoder,
        **batches_of(args),
        steps=args.steps,
        relations=len(manifest.relations),
        dtype=args.dtype,
        dropout=False,
        shapes=1,  # each number of rows would be a program of its own, which takes longest
    )
    terms = work.stored(0)
    start = np.concatenate([[0], np.cumsum(terms.lengths.reshape(-1), dtype=np.int64)])
    start = start[: args.terms + 1]
    vectors = _vectors_of(args.encoder, terms.tokens[: start[-1]], start, args.dtype)
    ours = Ours(work)
    losses = [float(ours.step(ours.prepare(step, work.stored(step)))) for step in range(work.steps)]
    device = jax.devices()[0].device_kind
    np.savez(args.out, losses=np.array(losses), vectors=vectors, device=np.array(device))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accelerator.parity_side")
    add_batch_arguments(parser)
    parser.add_argument("--encoder", type=Path, required=True, help="folder of a BERT")
    parser.add_argument("--out", type=Path, required=True, help=".npz file")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), required=True)
    parser.add_argument("--terms", type=int, required=True, help="with vectors")
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args(argv)
    set_up_xla()  # as `python -m coder_jax` does
    return run_command(lambda: _find(args), when_asked=None)


if __name__ == "__main__":
    sys.exit(main())
