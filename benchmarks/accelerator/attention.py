"""Fused attention beside the project's own, on packed rows: microseconds, and how far apart.

What the encoder's attention has: rows of several terms, each of which sees itself alone. Beside
`bert.attention`, as it is in training (with dropout) and without, `jax.nn`'s attention by
XLA and by cuDNN (a fused kernel, which needs a GPU and has no dropout of ours). All get the same
queries, keys, values and mask; forward alone, and forward and backward. It is measured here, not
used by the model.

    python -m benchmarks.accelerator.attention --data OUT/prepared/dataset
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.command import Row, add_batch_arguments, batches_of, parser_of, run_measured
from benchmarks.random_encoders import NAMES, SHAPES
from benchmarks.rounds import alternate, medians
from coder_jax.devices.xla_settings import set_up_xla
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.dataset.store import open_dataset

if TYPE_CHECKING:  # it imports jax, which reads the settings that `measure` makes
    from benchmarks.accelerator.attention_ways import Beside, Way, Ways

_SETTINGS = ("shape", "way", "device")


def _read_rows(data: Path, spec: BatchSpec) -> tuple[np.ndarray, np.ndarray]:
    """`segments` and `positions` of a dataset's first batch, int32 [R, L] each."""
    batch = BatchMaker(open_dataset(data), spec).batch(0)
    segments, positions = (
        batch[name].reshape(-1, batch[name].shape[-1]) for name in ("segments", "positions")
    )
    used = segments.any(axis=1)
    return segments[used], positions[used]


def _compiled_ways(ways: "Ways") -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Each implementation compiled, (forward, forward and backward); the outputs; reasons for
    failures.

    A way that cannot be on this device says so while it is traced, compiled or run.
    """
    import jax

    made, results, refused = {}, {}, {}
    for name, way in ways.all.items():

        def loss(q: Any, k: Any, v: Any, beside: "Beside", way: "Way" = way) -> Any:
            out = way(q, k, v, beside).astype(np.float32)
            return (out * beside.weights_RLHK).sum(), out

        try:
            given = ways.given[name]
            forward = jax.jit(way).lower(*given).compile()
            gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))
            backward = gradient.lower(*given).compile()
            results[name] = jax.block_until_ready(backward(*given))
            made[name] = forward, backward
        except (RuntimeError, ValueError) as error:
            refused[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"
    return made, results, refused


def _largest_differences(results: dict[str, Any], reference: str) -> dict[str, dict[str, float]]:
    """The largest difference of each implementation's output and gradients from the reference.

    None at all where the reference is not among the results.
    """

    def far(ours: Any, theirs: Any) -> float:
        return float(np.abs(np.asarray(ours, np.float32) - np.asarray(theirs, np.float32)).max())

    if reference not in results:  # it could not be computed here
        return {}
    exact_grads, exact_out = results[reference]
    return {
        name: {
            "output": far(out, exact_out),
            "gradients": max(far(*pair) for pair in zip(grads, exact_grads, strict=True)),
        }
        for name, (grads, out) in results.items()
    }


def _compare(shape: str, args: argparse.Namespace) -> list[Row]:
    """One row for each implementation, for the heads of one encoder."""
    import jax

    from benchmarks.accelerator.attention_ways import DROPPED, OURS, REFERENCE, make_ways

    sizes = SHAPES[shape]
    segments, positions = _read_rows(**batches_of(args))
    ways = make_ways(segments, positions, sizes["num_heads"], sizes["hidden_size"], args.dtype)
    made, results, refused = _compiled_ways(ways)
    compared = {name: found for name, found in results.items() if name != DROPPED}
    gaps = _largest_differences(compared, REFERENCE)
    from_ours = _largest_differences(compared, OURS)
    times: dict[str, dict[str, list[float]]] = {}
    for number, direction in enumerate(("forward", "both")):

        def repeated(name: str, number: int = number) -> None:
            call, given = made[name][number], ways.given[name]
            for _ in range(args.calls):
                last = call(*given)
            jax.block_until_ready(last)

        systems = {name: (lambda name=name, do=repeated: do(name)) for name in made}
        for system in systems.values():  # warm
            system()
        times[direction] = alternate(systems, args.rounds)  # type: ignore[arg-type]
    shared = {
        "shape": shape,
        "encoder": NAMES[shape],
        "rows": len(segments),
        "row_length": segments.shape[1],
        "heads": sizes["num_heads"],
        "width": sizes["hidden_size"] // sizes["num_heads"],
        "dtype": args.dtype,
        "device": jax.devices()[0].device_kind,
    }
    microseconds = {
        direction: {name: 1e6 * taken / args.calls for name, taken in medians(found).items()}
        for direction, found in times.items()
    }
    return [
        shared
        | {"way": name, "refused": refused.get(name)}
        | {f"{direction}_us": found.get(name) for direction, found in microseconds.items()}
        | {"from_float32": gaps.get(name), "from_ours": from_ours.get(name)}
        for name in ways.all
    ]


def measure(args: argparse.Namespace) -> list[Row]:
    """The rows; call it in a process of its own."""
    set_up_xla()  # as `python -m coder_jax` does
    return [row for shape in args.shapes for row in _compare(shape, args)]


def table(rows: Sequence[Row]) -> str:
    """The ways as a Markdown table."""
    lines = [
        "| heads x width | attention | forward, us | forward and backward, us | output, from "
        "float32 | gradients, from float32 | output, from ours | gradients, from ours |",
        "|---|---|" + 6 * "---:|",
    ]
    refused = {}
    for row in rows:
        cells = [f"{row['heads']} x {row['width']}", row["way"]]
        if row["refused"]:
            refused[row["way"]] = row["refused"]
        for name in ("forward_us", "both_us"):
            cells.append("-" if row[name] is None else f"{row[name]:,.0f}")
        for beside in ("from_float32", "from_ours"):
            for part in ("output", "gradients"):
                cells.append("-" if row[beside] is None else f"{row[beside][part]:.1e}")
        lines.append(f"| {' | '.join(cells)} |")
    first = rows[0]
    lines.append(
        f"\n{first['device']}, {first['dtype']} unless it says float32: {first['rows']} rows of "
        f"{first['row_length']} tokens. Largest differences; none with dropout, which differs."
    )
    lines += [f"Not measured: {way} ({why})." for way, why in refused.items()]
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = parser_of("accelerator.attention", __doc__)
    add_batch_arguments(parser)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["base", "minilm"])
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--calls", type=int, default=50, help="in a round (default: 50)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    return run_measured(parse(argv), measure, table, _SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
