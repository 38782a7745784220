"""Files of panels: what is written is read again, and nothing else is taken for one."""

import json

import pytest
from toy_report import LEARNING

from coder_jax.report.build import learning_panels
from coder_jax.report.panel_file import read_panels, write_panels
from data_pipeline.process.errors import BadInput


def test_what_is_written_is_read_again(tmp_path):
    write_panels([LEARNING], tmp_path / "curves.json")
    assert read_panels(tmp_path / "curves.json") == [LEARNING]
    write_panels([LEARNING], tmp_path / "others.json")
    paths = [str(tmp_path / name) for name in ("curves.json", "others.json")]
    assert learning_panels(paths[:1]) == [LEARNING]
    assert [one.note for one in learning_panels(paths)] == [f"{path}." for path in paths]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda panel: panel.update(curves=[]), "has 0 curves"),
        (lambda panel: panel["curves"][0].update(y=[1.0]), "has 2 x and 1 y"),
        (lambda panel: panel["curves"][0].update(y=[1.0, None]), "null; expected `float`|float"),
        (lambda panel: panel["curves"][0].update(errors=[1.0]), "2 y and 1 errors, the least 1"),
        (lambda panel: panel["curves"][0].update(errors=[1.0, -2.0]), "2 errors, the least -2"),
        (lambda panel: panel["curves"][0].update(x=[1000, 250]), "x rising"),
        (lambda panel: panel["curves"][0].update(x=[0, 250]), "the least x is 0"),
        (lambda panel: panel["curves"][0].update(x=["0", 250]), "expected int"),
        (lambda panel: panel["curves"][0].update(colour="red"), "colour is .red.; expected int"),
        (lambda panel: panel.update(title=3), "title is 3; expected str"),
        (lambda panel: panel.pop("x_range"), "x_range is missing"),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path, change, said):
    write_panels([LEARNING], tmp_path / "curves.json")
    found = json.loads((tmp_path / "curves.json").read_text())
    change(found["panels"][0])
    (tmp_path / "curves.json").write_text(json.dumps(found))
    with pytest.raises(BadInput, match=f"curves.json.*({said}).*write it again"):
        read_panels(tmp_path / "curves.json")


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 2, "panels": []}',
        '{"rows": []}',
        "[1]",
        '{"format": 1}',
        '{"format": 1, "panels": []}',
    ],
)
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(BadInput, match="table.json.*write it again"):
        read_panels(tmp_path / "table.json")
