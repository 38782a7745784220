"""Our train step alone: seconds of compilation and of a step, memory planned and memory used.

Planned is what the compiled program says of itself; used is the most that the device's allocator
had given out, over the whole process. Flags of XLA are those of the environment.

    python -m benchmarks.accelerator.step --data OUT/prepared/dataset --encoder FOLDER
    XLA_FLAGS=--xla_gpu_enable_triton_gemm=false python -m benchmarks.accelerator.step ...
    python -m benchmarks.accelerator.step ... --pairs 4096 --cache-chunks 16     # a large group
"""

import argparse
import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import Row, add_batch_arguments, batches_of, parser_of, run_measured
from coder_jax.devices.xla_settings import set_up_xla
from data_pipeline.dataset.store import read_manifest
from data_pipeline.process import peak_memory

_SETTINGS = ("encoder", "dtype", "relations", "row_length", "flags", "device") + (
    *("terms", "cache_chunks"),
)
_USUAL = "none"  # flags


def _planned_memory(compiled: Any) -> dict[str, int] | None:
    """The device memory that a compiled program needs, in bytes; None if the compiler does not say.

    `state` is what it is given and keeps, `results` what it returns beside that, `work` what it
    needs meanwhile, `code` itself.
    """
    found = compiled.memory_analysis()
    if found is None:
        return None
    parts = {
        "state": found.argument_size_in_bytes,
        "results": found.output_size_in_bytes - found.alias_size_in_bytes,
        "work": found.temp_size_in_bytes,
        "code": found.generated_code_size_in_bytes,
    }
    return parts | {"all": sum(parts.values())}


def _memory_in_use() -> dict[str, int] | None:
    """The device's `bytes_in_use` and `peak_bytes_in_use`; None if not reported."""
    import jax

    stats = jax.devices()[0].memory_stats()
    return {name: stats[name] for name in ("bytes_in_use", "peak_bytes_in_use")} if stats else None


def measure(args: argparse.Namespace) -> list[Row]:
    """One row; call it in a process of its own."""
    set_up_xla()  # as `python -m coder_jax` does
    # Otherwise the compilation cache would be used, and the compile time would mean nothing.
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    import jax

    from benchmarks.our_step import Ours
    from benchmarks.train_step_work import Work

    manifest = read_manifest(args.data)
    work = Work(
        encoder=args.encoder,
        **batches_of(args),
        steps=args.batches,
        relations=max(args.relations, len(manifest.relations)),
        dtype=args.dtype,
        dropout=True,
        cache_chunks=args.cache_chunks,
    )
    if args.pairs:
        one = dataclasses.replace(
            work.spec, draw="synonyms", groups=1, triplets=args.pairs, repeats=1
        )
        without = dataclasses.replace(work.coder, mu=0.0)
        work = dataclasses.replace(work, spec=one, coder=without, relations=0)
    ours = Ours(work)
    ours.wait()
    before = _memory_in_use()
    batches = [ours.prepare(step, work.stored(step)) for step in range(work.steps)]
    compile_s = {}
    for rows in sorted({batch.rows for batch in batches}):
        started = time.perf_counter()
        ours.train_step.compile(ours.source, rows)
        compile_s[rows] = time.perf_counter() - started
    losses = [float(ours.step(batch)) for batch in batches]
    rounds = []
    for _ in range(args.rounds):
        started = time.perf_counter()
        for number in range(args.steps):
            ours.step(batches[number % len(batches)])
        ours.wait()
        rounds.append((time.perf_counter() - started) / args.steps)
    largest = ours.train_step.compiled[max(compile_s)]
    return [
        {
            "encoder": args.encoder.name,
            "dtype": args.dtype,
            "relations": work.relations,
            "row_length": work.spec.row_length,
            "terms": work.spec.terms,
            "cache_chunks": work.cache_chunks,
            "flags": args.flags,
            "device": jax.devices()[0].device_kind,
            "rows": list(compile_s),
            "compile_s": list(compile_s.values()),
            "planned": _planned_memory(largest),
            "before": before,
            "used": _memory_in_use(),
            "peak_memory": round(peak_memory() * 1e9),
            "losses": losses,
            "step_s": statistics.median(rounds),
            "rounds_s": rounds,
        }
    ]


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table; times are relative to the first of the same work and device."""
    lines = [
        "| encoder | flags of XLA | s/step | rounds, s | of the first | compilation, s | planned, "
        "GB: state | at work | in all | used at most, GB | first loss |",
        "|---|---|" + 9 * "---:|",
    ]
    first: dict[tuple[str, ...], float] = {}
    for row in rows:
        planned, used = row["planned"] or {}, row["used"] or {}
        names = ("encoder", "dtype", "terms", "relations", "device")
        work = tuple(str(row[name]) for name in names)
        usual = first.setdefault(work, row["step_s"])
        cells = [
            f"{row['encoder']}, {row['dtype']}, {row['terms']:,} terms, {_parts_of(row)}",
            f"`{row['flags']}`" if row["flags"] != _USUAL else _USUAL,
            f"{row['step_s']:.4f}",
            f"{min(row['rounds_s']):.4f}-{max(row['rounds_s']):.4f}",
            f"{row['step_s'] / usual:.3f}",
            " + ".join(f"{one:.1f}" for one in row["compile_s"]),
            _giga(planned.get("state")),
            _giga(planned and planned["work"] + planned["results"]),
            _giga(planned.get("all")),
            _giga(used.get("peak_bytes_in_use")),
            f"{row['losses'][0]:.6f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append(
        "\nCompilation: one for each number of rows. Planned: of the largest program. Used: by the "
        "whole process, which also makes the state and holds all batches; `-` where the device "
        "does not say. Peak memory of the processes on the host: "
        f"{', '.join(_giga(row['peak_memory']) for row in rows)} GB."
    )
    return "\n".join(lines)


def _parts_of(row: Row) -> str:
    """What else tells a row's work, in words."""
    if row["relations"]:
        return f"{row['relations']:,} matrices"
    return "one group" + (f" in {row['cache_chunks']} chunks" if row["cache_chunks"] > 1 else "")


def _giga(size: Any) -> str:
    """Bytes in billions; "-" where they are not known."""
    return f"{size / 1e9:.2f}" if size else "-"


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = parser_of("accelerator.step", __doc__)
    add_batch_arguments(parser)
    parser.add_argument("--encoder", type=Path, required=True, help="folder of a BERT")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--relations", type=int, default=1_200, help="matrices (default: 1200)")
    parser.add_argument(
        "--pairs", type=int, default=0, help="one group of so many pairs of synonyms instead"
    )
    parser.add_argument("--cache-chunks", type=int, default=1, help="of train (default: 1)")
    parser.add_argument("--flags", default=_USUAL, help="what the table calls XLA's flags")
    parser.add_argument("--batches", type=int, default=2, help="different ones (default: 2)")
    parser.add_argument("--steps", type=int, default=20, help="in a round (default: 20)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    return run_measured(parse(argv), measure, table, _SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
