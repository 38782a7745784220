"""Learning curves of several systems: each benchmark's scores over the length of training.

`python -m launch.ablation` draws them where it is given several --steps.
"""

from collections.abc import Sequence
from pathlib import Path

from coder_jax.report.curves import Curve, Panel, curve_of, write_panels
from launch.experiment import SCORES, Row

KEYS = ("system", "steps", "pooling")


def plot_curves(rows: Sequence[Row], folder: Path) -> None:
    """Draw the curves of all systems: `curves.png`, and `curves.json` for a report.

    Args:
      rows: of `mean_rows`, by system, steps and pooling.
      folder: where both are written.
    """
    from coder_jax.report.pictures import plot_panels

    panels = _panels_of(rows)
    write_panels(panels, folder / "curves.json")
    plot_panels(panels, folder / "curves.png")


def _panels_of(rows: Sequence[Row]) -> list[Panel]:
    """A panel for each score, with a curve for each system that was trained for several lengths.

    By [CLS]. A row of 0 steps is the start of all. Shares are in percent. Means of several seeds
    have bars of their standard errors.

    Args:
      rows: of `mean_rows`, by system, steps and pooling.
    """
    rows = [row for row in rows if row["pooling"] == "cls"]
    trained = sorted({row["steps"] for row in rows if row["steps"]})
    systems = dict.fromkeys(row["system"] for row in rows)
    panels = []
    for score in dict.fromkeys(name for row in rows for name in row if name not in KEYS):
        share = next(form for name, form in SCORES.items() if score.endswith(f" {name}"))
        factor, unit = (100, "%") if share.endswith("%}") else (1, "")
        curves: list[Curve] = []
        for colour, system in enumerate(systems):
            points = sorted(
                (row["steps"], *(factor * (part or 0.0) for part in row[score]))
                for row in rows
                if row["system"] == system and row.get(score) is not None
            )
            if points and not points[0][0]:  # not trained: a level for all lengths
                points = [(steps, *points[0][1:]) for steps in (trained[0], trained[-1])]
            if points:
                means, errors = [point[:2] for point in points], tuple(point[2] for point in points)
                look = {"colour": colour, "dash": colour // 8}
                curves.append(curve_of(system, means, errors=errors, **look))
        reach = trained[0], trained[-1]
        if curves:  # the score is defined somewhere
            note = "By [CLS]."
            if any(any(curve.errors) for curve in curves):
                note += " Bars: standard errors of the means of several seeds."
            panels.append(
                Panel(score, unit, "steps", reach, curves, from_zero=False, log_x=True, note=note)
            )
    return panels
