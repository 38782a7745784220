"""The train step beside PyTorch: the same batches, the same losses, in turn on one machine.

Three systems take CODER's optimizer step:

  ours    this project's step, made as training makes it
  recipe  the paper's, in PyTorch: transformers, terms padded to 32, one group after the other,
          pytorch-metric-learning, AdamW; float32, or TF32 on a GPU
  tuned   the fastest that we could write in PyTorch: packed rows, all groups at once, masks for
          mining, fused AdamW; bfloat16 and torch.compile on a GPU

First each takes three steps of at most two groups, in float32 without dropout, from the same
weights; their losses must agree to 1e-4. Then, with dropout, each takes some steps in turn, several
rounds of them, in a process of its own that waits while it is not its turn, all with memory in huge
pages. The table has the median round.

    pip install -r requirements-test.txt                # the recipe needs pytorch-metric-learning
    python -m benchmarks.train_step --data datasets/umls --groups 1
    python -m benchmarks.train_step --data datasets/umls --groups 1 --encoder base --relations 1200

On a GPU:

    python -m benchmarks.train_step --data datasets/umls --encoder base --relations 1200 \\
        --dtype bfloat16 --steps 20 --json benchmarks/results/train_step.json

The paper's step is --groups 8 --triplets 16 --repeats 8: 2,048 terms, half a minute of two cores
for BERT-base. `useful` are the operations of matrix products for tokens that are not padding,
forward and backward; the peak is the fastest matrix product of jax and torch on this machine.
Time goes from the batch on the device to the new state: neither reading nor padding nor packing.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import add_batch_arguments, batches_of, plain_parser
from benchmarks.default_model import model_or_default, name_of
from benchmarks.limits import add_limit_seconds
from benchmarks.machine import machine, one_line
from benchmarks.process import huge_pages, in_a_process
from benchmarks.random_encoders import NAMES as ENCODER_NAMES
from benchmarks.random_encoders import save_random_encoder
from benchmarks.results_file import keep_rows
from benchmarks.train_step_process import NAMES, SystemProcess, loss_difference, time_steps
from benchmarks.train_step_work import Work, useful_flops
from coder_jax.devices.xla_settings import set_up_xla
from coder_jax.models.bert_config import BertConfig
from data_pipeline.dataset.store import read_manifest
from data_pipeline.process import BadInput, run_command

_CHECKED_STEPS = 3
_LARGEST_DIFFERENCE = 1e-4  # relative, of the losses of the checked steps
_PAPERS_STEPS = 100_000
_RANDOM = ("base", "minilm")  # shapes of --encoder
_WORK = ("encoder", "groups", "pairs", "row_length", "relations", "dtype")
_SETTINGS = (*_WORK, "device")


def _find_encoder(name: str | None, work: Path, vocabulary: int = 0) -> tuple[str, Path]:
    """The encoder's name in the table, and its folder.

    Args:
        name: of --encoder.
        work: where one of random weights is made.
        vocabulary: word pieces that this one must have at least.
    """
    from coder_jax.models.hf_files import find_folder

    if name not in _RANDOM:
        return name_of(name).rsplit("/", 1)[-1], find_folder(model_or_default(name))
    in_a_process(save_random_encoder, work / name, name, vocabulary)
    return f"{ENCODER_NAMES[name]}, random weights", work / name


def _check_losses(work: Work, systems: list[str]) -> dict[str, list[float]]:
    """The losses of each system's first steps, float32 and without dropout.

    Raises:
        BadInput: if a system's are not finite or differ from those of the first.
    """
    # Two groups have all that eight have, in a quarter of the memory: all systems start at once.
    spec = dataclasses.replace(work.spec, groups=min(2, work.spec.groups))
    exact = dataclasses.replace(
        work, spec=spec, dtype="float32", dropout=False, steps=_CHECKED_STEPS, shapes=1
    )
    processes = {name: SystemProcess(name, exact) for name in systems}
    losses = {name: process.losses for name, process in processes.items()}
    for process in processes.values():
        process.close()
    for name in systems:
        print(f"losses of {name}: {', '.join(f'{loss:.6f}' for loss in losses[name])}")
        if not np.isfinite(losses[name]).all():
            raise BadInput(
                f"the losses of {name} are {losses[name]}; expected finite ones: there is nothing "
                "to compare"
            )
    difference = loss_difference(losses)
    if not difference <= _LARGEST_DIFFERENCE:
        raise BadInput(
            f"the losses differ by {difference:.1e}, more than {_LARGEST_DIFFERENCE:.0e}: the "
            "systems do not do the same work, so there is nothing to compare"
        )
    return losses


def _measured_limits(dtype: str, seconds: float) -> dict[str, Any]:
    """The device and its measured limits; call it in a process of its own."""
    set_up_xla()  # the limits of what our step runs with
    import jax

    from benchmarks.limits import measured

    return {"device": jax.devices()[0].device_kind, **measured(dtype, seconds)}


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One row: all systems on one task."""
    manifest = read_manifest(args.data)
    name, encoder = _find_encoder(args.encoder, folder, manifest.tokenizer.vocab_size)
    relations = len(manifest.relations)
    if (args.relations or relations) < relations:
        raise BadInput(
            f"--relations is {args.relations}, but the data has {relations}; give at least that"
        )
    work = Work(
        encoder=encoder,
        **batches_of(args),
        steps=args.batches,
        relations=args.relations or relations,
        dtype=args.dtype,
        dropout=True,
    )
    losses = _check_losses(work, args.systems)
    with huge_pages():
        limits = in_a_process(_measured_limits, args.dtype, args.limit_seconds)
    processes = [SystemProcess(name, work) for name in args.systems]
    systems = time_steps(processes, args.rounds, dict.fromkeys(args.systems, args.steps))
    config = BertConfig.from_hf(json.loads((encoder / "config.json").read_text()), str(encoder))
    terms = [work.stored(step) for step in range(work.steps)]
    flops = statistics.mean(useful_flops(config, one) for one in terms)
    for found in systems.values():
        found["terms_per_s"] = work.spec.terms / found["step_s"]
        found["useful_flops"] = flops / found["step_s"]
        found["share_of_peak"] = found["useful_flops"] / limits["peak_flops"]
        found["hours"] = _PAPERS_STEPS * found["step_s"] / 3600
    return {
        "encoder": name,
        "groups": work.spec.groups,
        "pairs": work.spec.pairs,
        "relations": work.relations,
        "dtype": args.dtype,
        **limits,
        "terms": work.spec.terms,
        "tokens": statistics.mean(int(one.lengths.sum()) for one in terms),
        "flops": flops,
        "row_length": work.spec.row_length,
        "losses": losses,
        "largest_difference": loss_difference(losses),
        "systems": systems,
    }


def table(row: dict[str, Any]) -> str:
    """The systems of a row as a Markdown table, with the limits below."""
    first = next(iter(row["systems"]))
    lines = [
        f"| {row['encoder']}, {row['groups']} x {row['pairs']} pairs | s/step | times {first} "
        "| terms/s | useful GFLOP/s | of the peak | memory, GB | 100,000 steps, h |",
        "|---|" + 7 * "---:|",
    ]
    for name, found in row["systems"].items():
        memory = found["peak_device"] or found["peak_memory"]
        cells = [
            name,
            f"{found['step_s']:.3f}",
            f"{found['step_s'] / row['systems'][first]['step_s']:.2f}",
            f"{found['terms_per_s']:,.0f}",
            f"{found['useful_flops'] / 1e9:,.0f}",
            f"{found['share_of_peak']:.0%}",
            f"{memory / 1e9:.1f}",
            f"{found['hours']:,.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append(
        f"\n{row['device']}, {row['dtype']}: peak {row['peak_flops'] / 1e9:,.0f} GFLOP/s, copies "
        f"at {row['copy_bytes_per_s'] / 1e9:,.1f} GB/s. A step: {row['terms']:,} terms, "
        f"{row['tokens']:,.0f} tokens, {row['flops'] / 1e9:,.0f} GFLOP useful, "
        f"{row['relations']:,} relation matrices; rows of ours have {row['row_length']} tokens. "
        f"Losses of {_CHECKED_STEPS} steps differ by at most {row['largest_difference']:.0e}."
    )
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = plain_parser("train_step", __doc__)
    add_batch_arguments(parser)
    parser.add_argument(
        "--encoder",
        help="folder or hub id of a BERT; base or minilm: random weights in the shape of BERT-base "
        "or all-MiniLM-L6-v2 (default: all-MiniLM-L6-v2 itself)",
    )
    parser.add_argument("--relations", type=int, default=0, help="matrices (default: the data's)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--systems", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--batches", type=int, default=4, help="different ones (default: 4)")
    parser.add_argument("--steps", type=int, default=4, help="in a round (default: 4)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    add_limit_seconds(parser)
    parser.add_argument("--json", type=Path, help="file for the figures; earlier ones stay in it")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    args = parse(argv)

    def work() -> int:
        before = machine()
        with tempfile.TemporaryDirectory() as folder:
            row = measure(args, Path(folder)) | {"machine": before}
        print(f"\n{table(row)}\n\n{one_line(before)}")
        if args.json:
            keep_rows(args.json, [row], _SETTINGS)
        return 0

    return run_command(work, when_asked=None)


if __name__ == "__main__":
    sys.exit(main())
