"""Start-up: the seconds until each command has shown its help, with the limit beside them.

Each command runs in a new process, `--tries` times after one that is not counted, which reads the
packages from disk. The fastest counts: other work on the machine only makes a start slower. CPU
seconds are those of the same try.

    python -m benchmarks.start --json benchmarks/results/start.json
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.command import Row, parser_of, run_measured
from coder_jax.__main__ import VERBS
from data_pipeline.process import BadInput

# The limit in seconds.
_USAGE_LIMIT, _VERB_LIMIT, _TRAIN_LIMIT = 0.5, 2.0, 3.0
_COMMANDS = {
    "coder_jax --help": _USAGE_LIMIT,
    **{
        f"coder_jax {verb} --help": _TRAIN_LIMIT if verb == "train" else _VERB_LIMIT
        for verb in VERBS
    },
    "coder_jax train --recipe small --help": _TRAIN_LIMIT,
    "data_pipeline.build --help": _VERB_LIMIT,
    "data_pipeline.build_mentions --help": _VERB_LIMIT,
    "data_pipeline.skip_gram --help": _VERB_LIMIT,
}
_SETTINGS = ("command",)


def _start(words: Sequence[str]) -> tuple[float, float]:
    """(seconds, CPU seconds) of `python -m WORDS` in a process of its own.

    Raises:
        BadInput: if it fails.
    """
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "100"},
    )
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise BadInput(f"python -m {' '.join(words)} failed: {done.stderr.strip()}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(args: argparse.Namespace) -> list[Row]:
    """A row for each command."""
    rows = []
    for command, limit in args.commands.items():
        words = command.split()
        _start(words)
        seconds, cpu_seconds = min(_start(words) for _ in range(args.tries))
        rows.append(
            {
                "command": command,
                "seconds": round(seconds, 3),
                "cpu_seconds": round(cpu_seconds, 3),
                "limit_s": limit,
                "tries": args.tries,
            }
        )
    return rows


def table(rows: list[Row]) -> str:
    """Markdown: a line for each command."""
    lines = ["| python -m | seconds | CPU seconds | limit |", "|---|---:|---:|---|"]
    for row in rows:
        missed = "" if row["seconds"] <= row["limit_s"] else ": MISSED"
        lines.append(
            f"| `{row['command']}` | {row['seconds']:.2f} | {row['cpu_seconds']:.2f} | "
            f"at most {row['limit_s']:g}{missed} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module's docstring."""
    parser = parser_of("start", __doc__)
    parser.add_argument("--tries", type=int, default=3, help="starts of each (default: 3)")
    parser.set_defaults(commands=_COMMANDS)
    args = parser.parse_args(arguments)
    if args.tries < 1:
        parser.error(f"--tries is {args.tries}; expected 1 or more")
    return run_measured(args, measure, table, _SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
