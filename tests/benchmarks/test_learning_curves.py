"""The learning curves of docs/results/systems.md: table and figure are of the kept results."""

import re

import pytest

from benchmarks.learning_curves import _RESULTS, _rows_of, main
from coder_jax.report.curves import read_panels
from data_pipeline.files.identity import read_json

SCORES = ("own acc@1", "public acc@1", "cadec acc@1", "sim spearman", "rel spearman")
SCALES = {name: 100 if "acc" in name else 1 for name in (*SCORES, "ten languages acc@1")}


def test_the_table_tells_what_the_results_hold(repo):
    text = (repo / "docs" / "results" / "systems.md").read_text(encoding="utf-8")
    section = text.split("## Learning curves\n")[1].split("\n## ")[0]
    told = {}
    for line in re.findall(r"^\| (.+) \|$", section, re.MULTILINE)[1:]:
        system, steps, *scores = re.split(r" \| ", line)
        key = system.removesuffix(" alone"), int(steps.replace(",", ""))
        told[key] = [[float(part) for part in score.split(" ± ")] for score in scores]
    rows = _rows_of(read_json(_RESULTS / "systems.json")["runs"])
    kept = {
        (row["system"], row["steps"]): [
            [scale * part for part in row[name] if part is not None]
            for name, scale in SCALES.items()
        ]
        for row in rows
        if row["steps"]
    }
    assert told.keys() == kept.keys()
    for key, scores in kept.items():
        for found, shown, scale in zip(scores, told[key], SCALES.values(), strict=True):
            assert len(shown) <= len(found), key  # the errors of 250 steps stand in another table
            unit = 0.001 if scale == 1 else 0.1
            assert shown == pytest.approx(found[: len(shown)], abs=0.51 * unit), key


def test_it_draws_what_it_prints(tmp_path, capsys):
    assert main(["--out", str(tmp_path / "curves")]) == 0
    printed = capsys.readouterr().out
    assert "| CODER | 250 | 69.9 ± 0.0 |" in printed
    made = tmp_path / "curves"
    panels = read_panels(made / "learning_curves.json")
    assert [panel.title for panel in panels] == [*SCORES, "ten languages acc@1"]
    assert [curve.name for curve in panels[0].curves] == [
        "initial encoder",
        "CODER",
        "synonyms",
        "SapBERT",
        "CODER++",
    ]
    kept = _RESULTS / "learning_curves.json"
    assert (made / kept.name).read_bytes() == kept.read_bytes(), "draw the kept figure anew"
    assert (made / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
