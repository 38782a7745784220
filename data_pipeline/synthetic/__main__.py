"""Writes an invented UMLS release of any size, for benchmarks and tests.

The files (MRCONSO, MRREL, MRSTY, MRCUI, MRFILES) have the UMLS's own shape: terms per concept,
lengths and languages of terms, relation labels, semantic types, retired concepts. Every term is put
together from word roots, so no licensed text is in it. The same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from data_pipeline.process.command import run_command
from data_pipeline.process.errors import BadInput
from data_pipeline.synthetic.release import (
    BAD_ROWS,
    CONCEPTS,
    RELATIONS,
    TERMS,
    Size,
    write_release,
)

EXAMPLES = """\
examples:
  a release of the size of UMLS 2020AA (9 GB), and one of a hundredth:
    python -m data_pipeline.synthetic --out META
    python -m data_pipeline.synthetic --out META --scale 0.01

  with a hundred relations to unknown concepts and ten terms with a lone quote:
    python -m data_pipeline.synthetic --out META --scale 0.01 --bad-rows dangling=100 quotes=10
"""


def _bad_rows(texts: Sequence[str]) -> dict[str, int]:
    """`KIND=COUNT` of the command line."""
    found = {}
    for text in texts:
        kind, _, count = text.partition("=")
        if kind not in BAD_ROWS or not count.isdecimal():
            raise BadInput(
                f"--bad-rows {text}: expected KIND=COUNT with a kind of {', '.join(BAD_ROWS)}"
            )
        found[kind] = int(count)
    return found


def scaled(scale: float, bad_rows: dict[str, int]) -> Size:
    """The size of UMLS 2020AA times `scale`."""
    return Size(
        concepts=round(CONCEPTS * scale),
        terms=round(TERMS * scale),
        relations=2 * round(RELATIONS * scale / 2),
        bad_rows=bad_rows,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; its exit status is that of `run_command`."""
    kinds = "; ".join(f"{kind}: {what}" for kind, (_, what) in BAD_ROWS.items())
    parser = argparse.ArgumentParser(
        prog="python -m data_pipeline.synthetic",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="X",
        help=f"size: 1 is {CONCEPTS:,} concepts, {TERMS:,} terms and {RELATIONS:,} relation rows, "
        "as UMLS 2020AA has (default: 1)",
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed, another release")
    parser.add_argument(
        "--bad-rows", nargs="+", default=(), metavar="KIND=COUNT", help=f"rows to spoil. {kinds}"
    )
    args = parser.parse_args(argv)

    def work() -> int:
        write_release(args.out, scaled(args.scale, _bad_rows(args.bad_rows)), args.seed)
        return 0

    return run_command(
        work,
        when_asked="stopping; the same command starts over",
        when_stopped="stopped; the same command starts over",
    )


if __name__ == "__main__":
    sys.exit(main())
