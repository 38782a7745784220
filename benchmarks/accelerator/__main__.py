"""The project measured on an accelerator, part by part, within some minutes.

    bash benchmarks/accelerator.sh --prepare OUT       # where TensorFlow is
    bash benchmarks/accelerator.sh OUT                 # where the accelerator is

`bash benchmarks/accelerator.sh --help` says what is measured.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.accelerator.parts import (
    DEVICE,
    FULL,
    KINDS,
    MODELS,
    SMALL,
    Maker,
    MeasuredPart,
    make_parts,
)
from benchmarks.accelerator.report import page, summary
from benchmarks.accelerator.run_part import EndedPart, limit_of, run_part
from benchmarks.accelerator.wheels import PACKAGES, unpack_missing
from benchmarks.command import Row
from benchmarks.machine import machine
from benchmarks.results_file import read_figures
from data_pipeline.files.whole import write_json, write_text
from data_pipeline.process import BadInput, run_command, tell

_ABOUT = "prepared.json"
# The files of results, and their names with --small, which must not replace real ones.
_NAME, _SMALL_NAME = "accelerator", "accelerator_small"
# A constant of `data_pipeline.dataset.store`, whose imports may have to be unpacked from wheels
# first.
_MANIFEST = "manifest.json"
_NOT_MEASURED = (DEVICE, MODELS)  # kinds that only help


def _what_was_prepared(prepared: Path) -> tuple[int, Row]:
    """The number of relations of the prepared dataset, and the notes on it.

    Raises:
        BadInput: nothing was prepared.
    """
    manifest = prepared / "dataset" / _MANIFEST
    absent = [path for path in (manifest, prepared / _ABOUT) if not path.exists()]
    if absent:
        raise BadInput(
            f"found no {absent[0]}; expected what `bash benchmarks/accelerator.sh --prepare OUT` "
            "writes on a machine with TensorFlow; copy it here, and name it with --prepared"
        )
    found, about = (
        json.loads(path.read_text(encoding="utf-8")) for path in (manifest, prepared / _ABOUT)
    )
    return len(found["relations"]), about


def _chosen_parts(parts: Sequence[MeasuredPart], kinds: Sequence[str]) -> list[MeasuredPart]:
    """The parts of some kinds with those that they need; all if no kind is given."""
    if not kinds:
        return list(parts)
    needed = {name for part in parts if part.kind in kinds for name in part.needs} | {DEVICE}
    return [part for part in parts if part.kind in kinds or part.name in needed]


def _take(
    part: MeasuredPart,
    later: Sequence[MeasuredPart],
    left: float,
    failed: Mapping[str, str],
    log: Path,
) -> Row:
    """Runs a part, or says why it is skipped; returns its row of the results.

    Args:
        part: the one.
        later: those after it.
        left: seconds that are left of the whole.
        failed: parts that gave nothing, and why.
        log: gets what it says.
    """
    before = machine()
    row: Row = {"part": part.name, "kind": part.kind, "command": part.command, "note": part.note}
    lacking = [f"{name} is missing: {failed[name]}" for name in part.needs if name in failed]
    limit = limit_of(part, later, left)
    rows: list[Row] = []
    if lacking:
        ended, limit_s = EndedPart(0.0, lacking[0]), None
    elif limit < part.expected / 2:
        why = (
            f"{max(left, 0):.0f} s of the time are left, it is expected to take {part.expected:.0f}"
        )
        ended, limit_s = EndedPart(0.0, why), None
    else:
        tell(f"{part.name} (at most {limit:.0f} s)")
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "rows.json"
            ended, limit_s = run_part(part, found, limit, log), limit
            if ended.missing is None:
                rows = read_figures(found)
    if ended.missing:
        tell(f"{part.name}: left out: {ended.missing}")
    row |= {"seconds": ended.seconds, "limit_s": limit_s, "missing": ended.missing}
    return row | {"rows": rows, "machine": before}


def measure(args: argparse.Namespace) -> int:
    """Runs the parts; 0 if at least one measured what was asked for, else 1.

    Raises:
        BadInput: nothing was prepared, or the file of results is of what was prepared before.
    """
    until = time.monotonic() + 60 * args.minutes
    if args.small:  # programs that run for a moment: compilation would take most of the time
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    prepared = args.prepared or args.out / "prepared"
    there, about = _what_was_prepared(prepared)
    results, shown, log = (
        args.out / f"{_SMALL_NAME if args.small else _NAME}.{ending}"
        for ending in ("json", "md", "log")
    )
    rows = _rows_to_keep(results, about) if args.parts else []
    asked = set(args.parts) or set(KINDS) - set(_NOT_MEASURED)
    with tempfile.TemporaryDirectory() as folder:
        _use_wheels(prepared / "wheels", Path(folder) / "site")
        failed: dict[str, str] = {}
        measured = False
        parts = _parts_of(args, prepared.resolve(), Path(folder), there)
        args.out.mkdir(parents=True, exist_ok=True)
        for number, part in enumerate(parts):
            row = _take(part, parts[number + 1 :], until - time.monotonic(), failed, log)
            rows = [*(one for one in rows if one["part"] != part.name), row]
            if row["missing"]:
                failed[part.name] = row["missing"]
            measured |= part.kind in asked and not row["missing"]
            if measured:  # until then what was there stays; from then on all that is new does
                write_json(results, {"prepared": about, "rows": rows})
                write_text(shown, page(rows, about))
    where = f"All of it: {shown}, {results}" if measured else f"Nothing was measured; see {log}"
    print(f"\n{summary(rows)}\n\n{where}")
    return 0 if measured else 1


def _parts_of(
    args: argparse.Namespace, prepared: Path, work: Path, there: int
) -> list[MeasuredPart]:
    """The parts that the command line selects.

    Args:
        args: of the command line.
        prepared, work: folders of what was prepared, and for the encoders.
        there: relations of the prepared dataset.
    """
    # As many as the paper's UMLS; in a trial no more than the data has.
    relations = max(0 if args.small else args.relations, there)
    maker = Maker(prepared, work, SMALL if args.small else FULL, relations)
    return _chosen_parts(make_parts(maker, tuple(args.systems)), args.parts)


def _rows_to_keep(results: Path, about: Row) -> list[Row]:
    """The existing rows; BadInput if they are of other data."""
    rows = read_figures(results)
    if rows and json.loads(results.read_text(encoding="utf-8")).get("prepared") != about:
        raise BadInput(
            f"{results} was measured on other data than what is prepared here; leave --parts out "
            "to measure everything anew, or give another OUT"
        )
    return rows


def _use_wheels(wheels: Path, site: Path) -> None:
    """Makes this process and those of the parts import packages from wheels."""
    unpacked = unpack_missing(wheels, site)
    if not unpacked:
        return
    tell(f"from wheels: {', '.join(unpacked)}")
    paths = [os.environ.get("PYTHONPATH", ""), str(site)]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    sys.path.append(str(site))


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(
        prog="bash benchmarks/accelerator.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the results")
    parser.add_argument("--small", action="store_true", help="everything tiny, to see that it runs")
    there = parser.add_argument_group("where the accelerator is")
    there.add_argument("--prepared", type=Path, help="default: OUT/prepared")
    there.add_argument("--minutes", type=float, default=9.0, help="for all (default: 9)")
    there.add_argument(
        "--parts", nargs="+", choices=KINDS, default=[], help="default: all of " + ", ".join(KINDS)
    )
    there.add_argument(
        "--systems",
        nargs="+",
        choices=("ours", "recipe", "tuned"),
        default=[],
        help="of the train step (default: all whose packages are here)",
    )
    there.add_argument("--relations", type=int, default=1_200, help="matrices (default: 1200)")
    there.add_argument("--list", action="store_true", help="print the parts, and run none")
    here = parser.add_argument_group("where TensorFlow is")
    here.add_argument("--prepare", action="store_true", help="write OUT/prepared")
    here.add_argument("--data", type=Path, help="built dataset (default: HPO, built as the demo's)")
    here.add_argument("--tokenizer", help="of the default (default: that of all-MiniLM-L6-v2)")
    here.add_argument("--wheels", metavar="3.X", help="add packages for this Python, x86-64 Linux")
    here.add_argument(
        "--packages", nargs="+", default=PACKAGES, help=f"default: {', '.join(PACKAGES)}"
    )
    args = parser.parse_args(argv)
    if not args.prepare and (args.data or args.tokenizer or args.wheels):
        parser.error("--data, --tokenizer and --wheels belong to --prepare")
    return args


def main(argv: list[str] | None = None) -> int:
    """Prepares, or measures."""
    args = parse(argv)

    def work() -> int:
        if args.list:
            parts = _parts_of(args, args.prepared or args.out / "prepared", args.out / "models", 0)
            print("\n".join(f"{part.kind}: {part.command}" for part in parts))
            return 0
        if not args.prepare:
            return measure(args)
        from benchmarks.accelerator.prepare import prepare

        prepare(args, args.out / "prepared")
        return 0

    return run_command(
        work,
        when_asked="stopping; what was measured stays",
        when_stopped="stopped; what was measured stays in the files",
    )


if __name__ == "__main__":
    sys.exit(main())
