"""What keeps the steps of a run waiting: checkpoints, evaluations, batches, compilation.

A real run in a folder that is deleted afterwards: synonyms, an encoder of random weights of
BERT-base's width with few layers. Its metrics say how long no step could begin, and why. A
checkpoint is written while steps go on; what they wait for is its copy and its checksums, so steps
after a save are shown beside the others.

    python -m benchmarks.stalls --data DATASET --json benchmarks/results/stalls.json
    python -m benchmarks.stalls --data DATASET --shape minilm --layers 6 --steps 40
"""

import argparse
import dataclasses
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import Row, parser_of, run_measured
from benchmarks.random_encoders import NAMES, SHAPES, save_random_encoder

_SETTINGS = ("shape", "layers", "terms", "steps", "save_steps", "eval_steps", "device")
_AFTER_A_SAVE = 2  # steps that are likely to run beside the writing of a checkpoint


def _waits(lines: Sequence[dict[str, Any]], save_steps: int, eval_steps: int) -> Row:
    """The figures of a run, from its metrics, a line for each step.

    What a line says of pauses has been before its step, or its own step's saves would count. None
    stands for what was not seen: a run may be too short for a save, or for steps beside one.
    """
    *_, before, last = lines
    took = [
        later["step_seconds"] - earlier["step_seconds"]
        for earlier, later in zip(lines, lines[1:], strict=False)
    ]
    beside: list[float] = []
    others: list[float] = []
    for taken, line in zip(took, lines[1:], strict=True):
        since = (line["step"] - 1) % save_steps if line["step"] > save_steps else _AFTER_A_SAVE
        (beside if since < _AFTER_A_SAVE else others).append(taken)
    saves, evaluations = before["step"] // save_steps, 1 + before["step"] // eval_steps
    return {
        "step_s": statistics.median(others),
        "step_beside_a_save_s": statistics.median(beside) if beside else None,
        "data_wait": statistics.median(line["data_wait"] for line in lines[1:]),
        "save_s": last["save_s"] / saves if saves else None,
        "eval_s": last["eval_s"] / evaluations,
        "compile_s": last["compile_s"],
        "saves": saves,
        "evaluations": evaluations,
    }


def measure(args: argparse.Namespace) -> list[Row]:
    """One row; call it in a process of its own."""
    from coder_jax.devices.xla_settings import set_up_xla

    set_up_xla()  # as `python -m coder_jax` does
    import jax

    from coder_jax.devices.mesh import make_mesh, step_cut
    from coder_jax.systems.coder import small_synonyms
    from coder_jax.training.train import train
    from data_pipeline.dataset.store import read_manifest

    recipe = small_synonyms()
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        encoder, out = Path(folder) / "encoder", Path(folder) / "run"
        vocabulary = read_manifest(args.data).tokenizer.vocab_size
        save_random_encoder(encoder, args.shape, vocabulary)
        shutil.copytree(args.data / "tokenizer", encoder, dirs_exist_ok=True)
        batch = dataclasses.replace(recipe.system.batch, triplets=args.pairs)
        model = dataclasses.replace(recipe.system.model, init=str(encoder), layers=args.layers)
        config = dataclasses.replace(
            recipe,
            system=dataclasses.replace(recipe.system, batch=batch, model=model),
            optimizer=dataclasses.replace(recipe.optimizer, steps=args.steps, warmup_steps=1),
            run=dataclasses.replace(
                recipe.run,
                data=str(args.data),
                out=str(out),
                log_steps=1,
                save_steps=args.save_steps,
                eval_steps=args.eval_steps,
                eval_terms=args.eval_terms,
            ),
        )
        cut = step_cut(make_mesh(batch.groups), 1)
        source = config.system.open(args.data, cut, rows=0, steps=args.steps)
        train(config, source)
        text = (out / "metrics.jsonl").read_text(encoding="utf-8")
        newest = out / "checkpoints" / str(args.steps)
        size = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
    lines = [line for line in map(json.loads, text.splitlines()) if "loss" in line]
    return [
        {
            "shape": args.shape,
            "layers": args.layers or SHAPES[args.shape]["num_layers"],
            "terms": config.system.terms,
            "steps": args.steps,
            "save_steps": args.save_steps,
            "eval_steps": args.eval_steps,
            "eval_terms": args.eval_terms,
            "device": jax.devices()[0].device_kind,
            "checkpoint_bytes": size,
            **_waits(lines, args.save_steps, args.eval_steps),
        }
    ]


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| encoder | terms | a step, s | beside a save, s | waits for a checkpoint, s "
        "| checkpoint, GB | waits for an evaluation, s | waits for data | compilation, s |",
        "|---|" + 8 * "---:|",
    ]
    for row in rows:
        cells = [
            f"{NAMES[row['shape']]}, {row['layers']} layers",
            str(row["terms"]),
            f"{row['step_s']:.3f}",
            _or_dash(row["step_beside_a_save_s"], 3),
            _or_dash(row["save_s"], 2),
            f"{row['checkpoint_bytes'] / 1e9:.2f}",
            f"{row['eval_s']:.2f} ({row['eval_terms']:,} terms)",
            f"{100 * row['data_wait']:.1f} %",
            f"{row['compile_s']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _or_dash(seconds: float | None, digits: int) -> str:
    return "-" if seconds is None else f"{seconds:.{digits}f}"


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = parser_of("stalls", __doc__)
    parser.add_argument("--data", type=Path, required=True, help="a dataset with held-out terms")
    parser.add_argument("--work", type=Path, help="disk for the run (default: that of /tmp)")
    parser.add_argument("--shape", choices=list(SHAPES), default="base", help="default: base")
    parser.add_argument("--layers", type=int, default=2, help="of them (default: 2; 0: all)")
    parser.add_argument("--pairs", type=int, default=32, help="of a step (default: 32)")
    parser.add_argument("--steps", type=int, default=40, help="default: 40")
    parser.add_argument("--save-steps", type=int, default=10, help="default: 10")
    parser.add_argument("--eval-steps", type=int, default=20, help="default: 20")
    parser.add_argument("--eval-terms", type=int, default=2_000, help="default: 2000")
    args = parser.parse_args(argv)
    if args.steps < _AFTER_A_SAVE + 1:
        parser.error(f"--steps: found {args.steps}; expected {_AFTER_A_SAVE + 1} or more")
    return args


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    return run_measured(parse(argv), measure, table, _SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
