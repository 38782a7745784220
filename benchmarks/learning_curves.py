"""The learning curves of docs/results/systems.md: the table and figure, of results/systems.json.

Runs that belong to them have `curve` there: {system, steps}, of the initial encoder 0 steps. Runs
of one system and length are seeds; their means and standard errors are shown, as `python -m
launch.ablation` with several --steps does it of runs of its own.

    python -m benchmarks.learning_curves       # writes results/learning_curves.png and .json
    python -m coder_jax report --model RUN --curves benchmarks/results/learning_curves.json
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.command import plain_parser
from data_pipeline.files.identity import read_json
from data_pipeline.process import run_command
from launch.experiment import Row, markdown, mean_rows, without
from launch.learning_curves import KEYS, plot_curves

_RESULTS = Path(__file__).parent / "results"
_TEN = ("de", "fr", "es", "it", "pt", "nl", "cs", "tr", "ja", "zh")


def _row_of(run: dict[str, Any]) -> Row:
    """The scores of a run that are shown; the ten languages are averaged."""
    scores = run["scores"]
    return {
        **run["curve"],
        "pooling": "cls",
        **{f"{name} acc@1": scores[name]["acc@1"] for name in ("own", "public", "cadec")},
        **{f"{name} spearman": scores[name]["spearman"] for name in ("sim", "rel")},
        "ten languages acc@1": fmean(scores[name]["acc@1"] for name in _TEN),
    }


def _rows_of(runs: dict[str, dict[str, Any]]) -> list[Row]:
    """Means and standard errors, one row for each system and length, grouped by system.

    Args:
        runs: those of the file; of a run without `curve` there is nothing in the figure.
    """
    rows = mean_rows([_row_of(run) for run in runs.values() if "curve" in run], KEYS)
    systems = list(dict.fromkeys(row["system"] for row in rows))
    return sorted(rows, key=lambda row: (systems.index(row["system"]), row["steps"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the figure and print the table; returns the exit status."""
    parser = plain_parser("learning_curves", __doc__)
    parser.add_argument("--out", type=Path, default=_RESULTS, help="folder (benchmarks/results)")
    args = parser.parse_args(arguments)

    def work() -> int:
        rows = _rows_of(read_json(_RESULTS / "systems.json")["runs"])
        args.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            plot_curves(rows, Path(folder))
            for kind in ("json", "png"):
                shutil.copyfile(f"{folder}/curves.{kind}", args.out / f"learning_curves.{kind}")
        print(markdown([without(row, "pooling") for row in rows]))
        return 0

    return run_command(work, when_asked=None)


if __name__ == "__main__":
    sys.exit(main())
