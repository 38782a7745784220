"""Files of panels: what is written is read again, and nothing else is taken for one."""

import json

import pytest
from toy_report import LEARNING

from coder_jax.report.panel_file import read_panels, write_panels
from data_pipeline.process.errors import BadInput


def test_what_is_written_is_read_again(tmp_path):
    write_panels([LEARNING], tmp_path / "curves.json")
    assert read_panels(tmp_path / "curves.json") == [LEARNING]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda panel: panel.update(curves=[]), "a panel without curves"),
        (lambda panel: panel["curves"][0].update(y=[1.0]), "2 x and 1 y"),
        (lambda panel: panel["curves"][0].update(y=[1.0, None]), "not of numbers"),
        (lambda panel: panel.pop("x_range"), "KeyError: 'x_range'"),
        (lambda panel: panel.update(hue=1), "hue"),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path, change, said):
    write_panels([LEARNING], tmp_path / "curves.json")
    found = json.loads((tmp_path / "curves.json").read_text())
    change(found["panels"][0])
    (tmp_path / "curves.json").write_text(json.dumps(found))
    with pytest.raises(BadInput, match=said):
        read_panels(tmp_path / "curves.json")


@pytest.mark.parametrize("text", ['{"format": 2, "panels": []}', '{"rows": []}', "[1]"])
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(BadInput, match="table.json.*(expected|format)"):
        read_panels(tmp_path / "table.json")
