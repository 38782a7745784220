"""The page of a leaderboard: what it holds as text, and how it sorts and draws in a browser."""

import dataclasses
import json
import re

import pytest
from contrast import LEAST, SCHEMES, SEEN, contrast, prefer
from evaluating import ENCODER
from report_browser import console, find, requests, until

from coder_jax.evaluation.leaderboard import (
    BoardCell,
    BoardModel,
    BoardSet,
    Speed,
    board_of,
    csv_of,
    latex_of,
    markdown_of,
)
from coder_jax.evaluation.record import EvaluationRecord, RatedPairs
from coder_jax.report.board import board_page

HOSTILE = '</script><b>"&'
# Name -> (parameters, terms/s, its score on each set).
SCORES = {
    "small": (22e6, 900.0, {"sim": 0.5, "fr": 0.25, HOSTILE: 0.4}),
    "large": (330e6, 40.0, {"sim": 0.75, "fr": 0.5, HOSTILE: 0.3}),
    "words": (None, None, {"sim": 0.25}),
}


def cell(model, one, value, **more):
    """A cell whose score is acc@1, or rho of four pairs."""
    scores = {"spearman": value} if one == "sim" else {"acc@1": value}
    near = {"small": [0.1, 0.3, 0.2, 0.4], "large": [0.1, 0.2, 0.3, 0.4]}
    pairs = RatedPairs(
        cosines=near.get(model, [0.4, 0.3, 0.2, 0.1]), ratings={"spearman": [1.0, 2.0, 3.0, 4.0]}
    )
    record = EvaluationRecord(
        benchmark=one,
        kind="similarity" if one == "sim" else "normalization",
        path="p",
        content_hash="h",
        scores=scores,
        counts={"pairs": 4} if one == "sim" else {"mentions": 200},
        scoring={},
        encoder=ENCODER,
        intervals={name: [value - 0.05, value + 0.05] for name in scores},
        pairs=pairs if one == "sim" else None,
    )
    parameters = SCORES[model][0]
    return BoardCell(
        key="ab" * 32,
        model=BoardModel(name=model, model=f"org/{model}", licence="MIT"),
        set=BoardSet(name=one, path="p", language={"fr": "FRE"}.get(one, "ENG"), **more),
        parameters=None if parameters is None else int(parameters),
        record=record,
    )


def toy_board(**more):
    cells = [
        cell(name, one, value) for name, row in SCORES.items() for one, value in row[2].items()
    ]
    times = {
        name: Speed(key="k", terms_per_s=row[1], machine="a CPU", date="2026-01-01")
        for name, row in SCORES.items()
        if row[1]
    }
    missing = [BoardSet(name="gone", path="g", source="example.org", needs="a licence")]
    return board_of(cells, times, ["fr", "sim"], compared_to="small", missing=missing, **more)


def test_rows_and_columns():
    board = toy_board()
    assert [one.name for one in board.sets] == ["fr", "sim", HOSTILE], "in order, then by name"
    assert [row.model.name for row in board.rows] == ["large", "small", "words"]
    assert board.rows[0].mean == pytest.approx((50 + 75 + 30) / 3)
    assert board.rows[2].mean is None, "it has no score on two of the sets"
    assert set(board.rows[0].differences) == {"sim"} and not board.rows[1].differences
    assert board.rows[0].differences["sim"].a == 0.5


def test_counts_and_files_that_are_not_the_same_are_noted():
    cells = [cell("small", "fr", 0.5, counts={"mentions": 300}), cell("large", "fr", 0.25)]
    other = dataclasses.replace(cells[1].record, content_hash="i")
    cells[1] = dataclasses.replace(cells[1], record=other)
    board = board_of(cells, {}, [])
    assert board.notes[0] == "fr: found 200 mentions; published are 300"
    assert "fr: its rows are of different files, so they do not compare" in board.notes[1]


def test_a_score_that_the_record_does_not_have():
    from data_pipeline.process import BadInput

    with pytest.raises(BadInput, match="the set fr: found the scores acc@1; expected score = 'f'"):
        csv_of(board_of([cell("small", "fr", 0.5, score="f")], {}, []))


def test_the_latex_table():
    tex = latex_of(toy_board())
    assert 'Encoder & M & fr & sim & </script><b>"\\& & Mean & terms/s' in tex
    large = next(line for line in tex.splitlines() if line.startswith("large"))
    assert large == (
        r"large & 330.0 & \textbf{50.0} {\scriptsize$\pm$5.0} & "
        r"\textbf{75.0} {\scriptsize$\pm$5.0} & 30.0 {\scriptsize$\pm$5.0} & 51.7 & 40 \\"
    )
    assert "% no test compares the rows with small on fr, " in tex
    words = next(line for line in tex.splitlines() if line.startswith("words"))
    assert words == r"words & - & -- & 25.0 {\scriptsize$\pm$5.0} & -- & -- & -- \\"


def test_the_table_for_a_page_of_documentation():
    head, line, large, small, words, blank, note = markdown_of(toy_board()).splitlines()
    assert not blank and note.startswith("- no test compares the rows with small on fr, ")
    assert head.startswith("| encoder | million parameters | fr | sim | ")
    assert line == "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    assert large == "| large | 330.0 | **50.0** ±5.0 | **75.0** ±5.0 | 30.0 ±5.0 | 51.7 | 40 |"
    assert words == "| words | - | - | 25.0 ±5.0 | - | - | - |"
    with_tests = toy_board()
    for row in with_tests.rows:
        for name, found in row.differences.items():
            row.differences[name] = dataclasses.replace(found, p=0.01)
    _, _, large, _, words, *_ = markdown_of(with_tests).splitlines()
    assert "| **75.0** ±5.0 ↑ |" in large and "| 25.0 ±5.0 ↓ |" in words
    row = with_tests.rows[0]
    row.differences["sim"] = dataclasses.replace(row.differences["sim"], a=0.7501, b=0.7504)
    assert "| **75.0** ±5.0 |" in markdown_of(with_tests), "scores that are shown alike"


def test_the_page_needs_nothing_else_and_names_are_never_markup():
    html = board_page(toy_board())
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", html)
    assert "url(" not in html and "@import" not in html and "fetch(" not in html
    assert html == board_page(toy_board())
    assert HOSTILE not in html and html.count("<script") == html.count("</script") == 3
    assert "a licence" in html and "example.org" in html


def test_times_are_in_one_place():
    board = toy_board()
    slower = [
        dataclasses.replace(row, speed=row.speed and dataclasses.replace(row.speed, terms_per_s=3))
        for row in board.rows
    ]
    pages = [board_page(board), board_page(dataclasses.replace(board, rows=slower))]
    one, other = (page.splitlines() for page in pages)
    differing = [a for a, b in zip(one, other, strict=True) if a != b]
    assert len(differing) == 1 and differing[0].startswith('<script type="application/json" id="t')
    assert json.loads(re.sub(r"<.*?>", "", differing[0]))["small"]["terms_per_s"] == 900.0


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("board") / "board.html"
    path.write_text(board_page(toy_board()), encoding="utf-8")
    browser.get(path.as_uri())
    return browser


def names(page):
    return [row.get_attribute("data-name") for row in find(page, "#board tbody tr")]


def click(page, head):
    (button,) = (one for one in find(page, "#board thead button") if one.text.startswith(head))
    button.click()


def test_it_sorts(page):
    assert names(page) == ["large", "small", "words"]
    assert [cell.text for cell in find(page, ".speed")] == ["40", "900", "-"]
    click(page, "terms/s")
    assert names(page) == ["small", "large", "words"], "the fastest first, those without behind"
    click(page, "terms/s")
    assert names(page) == ["large", "small", "words"]
    click(page, "encoder")
    assert names(page) == ["large", "small", "words"]
    click(page, "encoder")
    assert names(page) == ["words", "small", "large"]
    assert console(page) == [] and all(url.startswith("file:") for url in requests(page))


def test_the_sets_of_a_language(page):
    from selenium.webdriver.support.ui import Select

    Select(find(page, "#language")[0]).select_by_visible_text("French")
    heads = [one.text for one in find(page, "#board thead button") if one.is_displayed()]
    assert [head.split(" ")[0] for head in heads][4:] == ["fr"]
    assert [cell.text for cell in find(page, ".mean")] == ["50.0", "25.0", "-"]
    Select(find(page, "#language")[0]).select_by_visible_text("all languages")
    assert len([one for one in find(page, "#board thead button") if one.is_displayed()]) == 7


def test_the_picture(page):
    from selenium.webdriver.support.ui import Select

    Select(find(page, "#across")[0]).select_by_visible_text("million parameters")

    def drawn():
        return {one.text for one in find(page, "#picture text")} & set(SCORES)

    assert drawn() == {"small", "large"}, "what has no parameters has no place"
    x = [float(one.get_attribute("cx")) for one in find(page, "#picture circle")]
    Select(find(page, "#across")[0]).select_by_visible_text("terms/s")
    faster = [float(one.get_attribute("cx")) for one in find(page, "#picture circle")]
    assert (x[0] > x[1]) and (faster[0] < faster[1]), "the large one is slow"
    Select(find(page, "#up")[0]).select_by_visible_text("sim")
    until(page, lambda: drawn() == {"small", "large"})


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_text_can_be_read(page, scheme):
    prefer(page, scheme)
    for where, words, colour, behind in page.execute_script(SEEN):
        assert contrast(colour, behind) >= LEAST, (where, words)
