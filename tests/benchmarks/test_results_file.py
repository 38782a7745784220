"""The files of figures: a row for each setting, the newest."""

import json

from benchmarks.results_file import keep_rows, read_figures


def test_a_file_keeps_earlier_rows_and_the_newest_of_equal_ones(tmp_path):
    path = tmp_path / "new" / "figures.json"
    assert read_figures(path) == []
    for row in ({"width": 1, "s": 5.0}, {"width": 2, "s": 6.0}, {"width": 1, "s": 7.0}):
        keep_rows(path, [row], ["width"], chips=["v5e"])
    assert read_figures(path) == [{"width": 2, "s": 6.0}, {"width": 1, "s": 7.0}]
    assert json.loads(path.read_text())["chips"] == ["v5e"]
    keep_rows(path, [{"width": 1, "s": 1.0}, {"width": 2, "s": 2.0}], ["width"])
    assert [row["s"] for row in read_figures(path)] == [1.0, 2.0]
    keep_rows(path, [{"width": 1, "dtype": "float32", "s": 3.0}], ["width", "dtype"])
    assert [row["s"] for row in read_figures(path)] == [1.0, 2.0, 3.0]  # older rows say no dtype
    assert [file.name for file in path.parent.iterdir()] == ["figures.json"]
