"""MLNorm's two steps by the number of concepts: seconds, terms/s and memory, beside PyTorch.

    python -m benchmarks.class_steps --classes 13255 300000 4270000 \\
        --json benchmarks/results/class_steps.json

Step 1 trains an encoder, a head and all classes, by a softmax over all of them. Step 2 trains
classes alone, on vectors that were made before, by a softmax over the candidates of its terms: at
most terms x (candidates + 1) rows, however many there are. Both are the train steps of the recipes
`mlnorm` and `mlnorm_classes`, without dropout, with a small encoder in step 1. Terms, classes and
candidates are invented, as only their shapes count. Batches lie on the device before the clock
starts.

The peers stand at the top of `torch_peers/classes.py`. For each step and number of classes, ours
and the peer take turns, each in a process of its own; the losses of their first steps must agree.
On a busy machine the seconds of all processors together, a step, say more than those of the clock.
What needs more memory than there is at the moment is left out, with what it would need. The peer of
step 1 is measured for the smallest number of classes alone, unless --all-peers. Needs no
TensorFlow; where torch is not installed there are no peers.
"""

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.class_work import ClassWork
from benchmarks.command import plain_parser
from benchmarks.machine import machine, one_line
from benchmarks.process import huge_pages, in_a_process
from benchmarks.results_file import keep_rows
from benchmarks.train_step_process import (
    MeasuredSystem,
    SystemProcess,
    loss_difference,
    time_steps,
)
from data_pipeline.process import BadInput, run_command

_OURS, _PEER = "ours", "torch"
_SETTINGS = ("step", "classes", "terms", "candidates", "width", "device")
_RESERVE = 1 << 30  # bytes beside tables: interpreter, libraries, batches
_LARGEST_DIFFERENCE = 1e-4  # of losses, relative


def _make_system(name: str, work: ClassWork) -> MeasuredSystem:
    """The system of a name; only its own libraries are imported."""
    if name == _OURS:
        from coder_jax.devices.xla_settings import set_up_xla

        set_up_xla()  # as `python -m coder_jax` does
        from benchmarks.our_class_step import OurClassStep

        return OurClassStep(work)
    from benchmarks.torch_peers.classes import AllClasses, CandidateClasses

    if work.step == 2:
        return CandidateClasses(work)
    os.environ["JAX_PLATFORMS"] = "cpu"  # a GPU is the peer's alone
    return AllClasses(work, _encoder_weights(work))


def _encoder_weights(work: ClassWork) -> dict[str, np.ndarray]:
    """The encoder from which all systems start, under the names of `BertModel`."""
    from coder_jax.models.hf_weights import random_bert, to_hf

    return to_hf(random_bert(work.encoder, 0))


def _planned(work: ClassWork) -> dict[str, Any]:
    """The memory that our compiled step needs; call it in a process of its own."""
    from coder_jax.devices.xla_settings import set_up_xla

    set_up_xla()
    from benchmarks.our_class_step import program_memory

    return program_memory(work)


def measure(args: argparse.Namespace, work: ClassWork) -> dict[str, Any]:
    """One row: a step with this many classes, by all systems that fit."""
    program = in_a_process(_planned, work)
    available, device = program.pop("available"), program.pop("device")
    row = {
        "step": work.step,
        "classes": work.classes,
        "terms": work.terms,
        "candidates": work.candidates,
        "width": work.width,
        "device": device,
        "program": program,
        "available": available,
        "rows_used": int(np.mean([np.unique(work.stored(n).classes).size for n in range(4)])),
        "systems": {},
    }
    needed = {_OURS: program["peak"] + _RESERVE}
    if _wants_peer(args, work):
        needed[_PEER] = work.peer_bytes() + _RESERVE
    fitting: list[str] = []
    for name, size in needed.items():
        if name in args.systems and sum(needed[one] for one in [*fitting, name]) <= available:
            fitting.append(name)
        elif name in args.systems:
            print(
                f"left out: {name}, step {work.step}, {work.classes:,} classes: needs "
                f"{size / 1e9:.1f} GB of the {available / 1e9:.1f} that are free",
                file=sys.stderr,
            )
    if fitting:
        row |= _time_systems(args, work, fitting)
    return row


def _wants_peer(args: argparse.Namespace, work: ClassWork) -> bool:
    """Whether the peer should and can be measured."""
    small = work.step == 2 or work.classes == min(args.classes)
    return (small or args.all_peers) and importlib.util.find_spec("torch") is not None


def _time_systems(args: argparse.Namespace, work: ClassWork, systems: list[str]) -> dict[str, Any]:
    """Seconds of a step in each round, and the memory, of each system.

    Raises:
        BadInput: if their losses are not finite, or differ.
    """
    processes = [SystemProcess(name, work, _make_system) for name in systems]
    losses = {process.name: process.losses for process in processes}
    difference = loss_difference(losses)
    if not difference <= _LARGEST_DIFFERENCE:  # catches NaN too
        raise BadInput(
            f"step {work.step}, {work.classes:,} classes: the losses are {losses}; expected finite "
            f"ones that differ by at most {_LARGEST_DIFFERENCE:.0e}: the systems do not do the "
            "same work, so there is nothing to compare"
        )
    steps = {one.name: max(1, round(args.seconds / one.take(1))) for one in processes}
    timed = time_steps(processes, args.rounds, steps)
    found = {name: {**one, "steps_a_round": steps[name]} for name, one in timed.items()}
    return {"systems": found, "losses": losses, "largest_difference": difference}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| step | classes | system | s/step | rounds, s | processor, s | terms/s | times ours "
        "| program: state, GB | at work, GB | memory, GB |",
        "|---:|---:|---|" + 8 * "---:|",
    ]
    for row in rows:
        program = row["program"]
        state, work = program["arguments"], program["peak"] - program["arguments"]
        if _OURS not in row["systems"]:
            cells = ["ours", *["-"] * 5, _giga(state), _giga(work), "does not fit"]
            lines.append(f"| {row['step']} | {row['classes']:,} | {' | '.join(cells)} |")
        for name, found in row["systems"].items():
            ours = row["systems"].get(_OURS)
            cells = [
                name,
                f"{found['step_s']:.4f}",
                f"{min(found['rounds_s']):.4f}-{max(found['rounds_s']):.4f}",
                f"{found['processor_s']:.3f}",
                f"{row['terms'] / found['step_s']:,.0f}",
                f"{found['step_s'] / ours['step_s']:.2f}" if ours else "-",
                *((_giga(state), _giga(work)) if name == _OURS else ("-", "-")),
                f"{(found['peak_device'] or found['peak_memory']) / 1e9:.2f}",
            ]
            lines.append(f"| {row['step']} | {row['classes']:,} | {' | '.join(cells)} |")
    row = rows[-1]
    used = ", ".join(f"{one['rows_used']:,}" for one in rows if one["step"] == 2)
    differences = [one["largest_difference"] for one in rows if "largest_difference" in one]
    lines.append(
        f"\n{row['device']}, float32: {row['terms']} terms a step, classes of {row['width']}, "
        f"{row['candidates']} candidates of a term (rows that a step 2 uses: {used}). "
        f"Losses of {ClassWork(step=1, classes=1).steps} steps differ by at "
        f"most {max(differences, default=0):.0e}."
    )
    return "\n".join(lines)


def _giga(number: int) -> str:
    """A number in billions."""
    return f"{number / 1e9:.2f}"


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = plain_parser("class_steps", __doc__)
    parser.add_argument(
        "--classes", type=int, nargs="+", default=[13_255, 300_000], help="default: 13255 300000"
    )
    parser.add_argument("--steps", type=int, nargs="+", choices=(1, 2), default=[2, 1])
    parser.add_argument("--systems", nargs="+", choices=(_OURS, _PEER), default=[_OURS, _PEER])
    parser.add_argument(
        "--all-peers", action="store_true", help="step 1 in PyTorch for all numbers of classes"
    )
    parser.add_argument("--terms", type=int, default=128, help="in a step (default: 128)")
    parser.add_argument("--candidates", type=int, default=100, help="of a term (default: 100)")
    parser.add_argument("--width", type=int, default=350, help="of a class (default: 350)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn, about (default: 3)")
    parser.add_argument("--json", type=Path, help="file for the figures; earlier ones stay in it")
    args = parser.parse_args(argv)
    args.classes.sort()
    return args


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    args = parse(argv)

    def work() -> int:
        rows = []
        with huge_pages():
            for step in args.steps:
                for classes in args.classes:
                    before = machine()
                    task = ClassWork(
                        step=step,
                        classes=classes,
                        terms=args.terms,
                        candidates=args.candidates,
                        width=args.width,
                    )
                    rows.append(measure(args, task) | {"machine": before})
                    if args.json:
                        keep_rows(args.json, rows[-1:], _SETTINGS)
        print(f"\n{table(rows)}\n\n{one_line(rows[0]['machine'])}")
        return 0

    return run_command(work, when_asked=None)


if __name__ == "__main__":
    sys.exit(main())
