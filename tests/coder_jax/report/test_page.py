"""The page of a report: what it holds as text, and how it behaves in a real Chromium."""

import dataclasses
import json
import os
import re
import threading
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import quote

import numpy as np
import pytest
from contrast import LEAST, LEAST_OF_MARKS, SCHEMES, SEEN, contrast, luminance, prefer, rgba
from evaluating import ENCODER
from report_browser import console, find, requests, scroll_to, until
from toy_report import HOSTILE, TERMS, full_report

from coder_jax.evaluation.record import EvaluationRecord, Unreachable
from coder_jax.report.build import _left_out
from coder_jax.report.curves import training_panels
from coder_jax.report.page import Report, _render, write_page
from coder_jax.report.pictures import compare_relations
from coder_jax.report.results import result_tables
from data_pipeline.process import BadInput

BOUNDS = ("_pessimistic", "_optimistic")


def data_in(html, name):
    pattern = rf'<script type="application/json" id="{name}">(.*?)</script>'
    return json.loads(re.search(pattern, html, re.DOTALL)[1])


# As text


def test_the_page_needs_nothing_else():
    html = _render(full_report())
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", html)
    assert "url(" not in html and "@import" not in html and "fetch(" not in html
    assert html == _render(full_report()), "the same input gives the same page"


def test_strings_are_data_and_never_markup():
    html = _render(full_report())
    assert data_in(html, "explorer-data")["terms"] == TERMS
    assert data_in(html, "map-data")[0]["groups"][0] == "concept 0 </script>"
    assert data_in(html, "heat-data")["labels"] == full_report().relations.labels
    assert not any(term in html for term in HOSTILE[:3])
    assert html.count("<script") == 4 and html.count("</script") == 4
    assert "<b>" not in html.split("<title>")[1].split("</title>")[0]
    assert "&lt;/dd&gt;" in html and "window.hacked = 3</script>" not in html


def test_mentions_have_classes_and_terms_side_by_side():
    html = _render(full_report())
    for one in (
        *('href="#classes"', "a class for each of 13,255 concepts", "probable ones of 5 of 9"),
        *('<span class="number">1</span>, the first term for', "terms of the explorer"),
        'crise cardiaque <span class="tag">DISO</span><br><span class="unit">heart attack C1<',
        '<span class="number">0.71</span> heart attack <span class="unit">C1</span> '
        '<span class="same">right</span>',
    ):
        assert one in html
    without = _render(dataclasses.replace(full_report(), by_classes=None, by_candidates=None))
    assert "#classes" not in without and "guesses" not in without.partition("</style>")[2]


def test_mentions_have_candidates_by_distance_and_by_score():
    html = _render(full_report())
    for one in (
        *('href="#candidates"', "5 of the 787 mentions of dev", "nearest of 11,915 concepts"),
        *('<span class="number">0</span> of these', 'ranker for <span class="number">4</span>'),
        "said to mean 3 or more (0.66); 1 of 2 not among the candidates",
        '<span class="number">2.50</span> heart attack <span class="unit">C1</span> '
        '<span class="same">right</span>',
        '<span class="number">0.95</span> <span class="unit">0.97</span> heart attack '
        '<span class="unit">C1</span> <span class="tag">answer</span> '
        '<span class="same">right</span>',
    ):
        assert one in re.sub(r"\s+", " ", html)
    alone = dataclasses.replace(full_report().by_candidates, rankers=0)
    html = _render(dataclasses.replace(full_report(), by_candidates=alone))
    assert "by score, and probability" not in html
    answered = '2.50</span> heart attack <span class="unit">C1</span> <span class="tag">answer'
    assert answered in html
    without = _render(dataclasses.replace(full_report(), by_candidates=None))
    assert "#candidates" not in without and 'id="candidates"' not in without


def test_an_empty_report_names_every_part_and_its_command():
    missing = _left_out(Report(title="x"), model="a model", dictionary=None, run=False)
    parts = [one.part for one in missing]
    expected = ["Before and after", "Results", "Training", "Map of concepts"]
    assert parts == [*expected, "Map of semantic types", "Relations", "Explorer"]
    assert all("python -m coder_jax " in one.command for one in missing)
    for one in missing[:2]:
        assert "--model 'a model' --benchmark" in one.command
    assert "--results before=before.json after=after.json" in missing[0].command
    run = _left_out(Report(title="x"), model="a run", dictionary=None, run=True)
    of_classes = _left_out(Report(title="x"), model="a run", dictionary="d", run=True, classes=True)
    (added,) = (one for one in of_classes if one.part not in parts)
    assert added.part == "Answers by classes" and "holds no mentions out" in added.why
    assert "--model 'a run' --dictionary DATASET --mentions" in added.command
    of_stages = _left_out(Report(title="x"), model="r", dictionary=None, run=True, candidates=True)
    (added,) = (one for one in of_stages if one.part not in parts)
    assert added.part == "Candidates and ranks" and "--mentions LISTS" in added.command
    assert "export --checkpoint 'a run' --out EXPORT\n" in run[1].command
    assert all("evaluate --model EXPORT" in one.command for one in run[:2])
    assert "no metrics yet" in run[2].why
    html = _render(Report(title="x", left_out=missing))
    assert all(f"<h3>{part}</h3>" in html for part in parts)
    assert data_in(html, "explorer-data") is None and 'id="query"' not in html
    assert _left_out(full_report(), model="m", dictionary="d", run=True) == []


def test_answers_have_pictures_and_the_surest_errors():
    html = _render(full_report())
    for one in (
        *('href="#answers"', 'id="similarities-0"', 'id="cutoffs-0-0"', 'id="cutoffs-0-1"'),
        *("13 right and 7 wrong answers", "65.0% and 100.0% at 0.5, 100.0% and 45.0% at 0.9"),
        *("The 5 surest of 7 wrong answers:", "<td>Angina pectoris</td>", "all mentions"),
        *('<th scope="row">0.7000</th><td>85.7</td><td>70.0</td><td>14</td>', "<td>0.910</td>"),
    ):
        assert one in html, one
    assert "&lt;i&gt;FRE&lt;/i&gt;" in html and "<i>FRE" not in html
    (shown,) = full_report().given
    none, unknown = (
        _render(Report(title="x", given=[dataclasses.replace(shown, wrong_answers=some)]))
        for some in ([], None)
    )
    assert "No answer is wrong" in none and "--predictions" not in none
    assert "evaluate was given --predictions" in unknown and 'id="answers"' in unknown
    assert 'id="answers"' not in _render(Report(title="x"))


def test_learning_curves_have_pictures_and_numbers():
    html = _render(full_report())
    for one in (
        *(
            'href="#learning"',
            'id="learning-0"',
            "<b>own acc@1</b>",
            "coder &lt;b&gt;: 70 at steps",
        ),
        *('<th scope="row">1000</th><td>75.5</td><td>61</td>', 'id="panel-0"'),
    ):
        assert one in html, one
    without = _render(dataclasses.replace(full_report(), learning=[]))
    assert "#learning" not in without and 'id="learning"' not in without


def test_why_maps_are_left_out_of_a_dictionary():
    missing = _left_out(Report(title="x"), model="m", dictionary="terms.tsv", run=False)
    why = {one.part: one.why for one in missing}
    assert "few concepts" in why["Map of concepts"] and "--dictionary" not in why["Map of concepts"]
    assert "no semantic types" in why["Map of semantic types"]


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(BadInput, match="absent/r.html: cannot be written"):
        write_page(Report(title="x"), tmp_path / "absent" / "r.html")
    write_page(Report(title="x"), tmp_path / "r.html")
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_the_page_goes_into_a_pipe_that_stays_one(tmp_path):
    pipe, heard = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()), daemon=True)
    reader.start()
    size = write_page(Report(title="µ"), pipe)
    reader.join(300)
    assert heard == [_render(Report(title="µ")).encode()] and size == len(heard[0])
    assert pipe.is_fifo()


# In a browser


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(full_report(), path)
    return path.as_uri()


@pytest.fixture
def page(browser, address):
    """The page, freshly opened; at the end nothing went wrong and nothing was fetched."""
    browser.get("about:blank")
    console(browser), requests(browser)
    browser.get(address)
    until(browser, lambda: find(browser, "#tip") and browser.current_url == address)
    yield browser
    assert console(browser) == []
    asked = [url for url in requests(browser) if not url.startswith(("data:", "about:"))]
    assert {url.split("#")[0] for url in asked} <= {address}
    assert browser.execute_script("return window.hacked") is None


def until_shown(page, term):
    def shows():
        return [one.get_attribute("textContent") for one in find(page, "#term h3")] == [term]

    until(page, shows)


def test_every_figure_is_there(page):
    sections = [one.get_attribute("id") for one in find(page, "main > section")]
    parts = [
        "results",
        "answers",
        "training",
        "learning",
        "classes",
        "candidates",
        "by-concept",
        "by-type",
        "relations",
        "explorer",
    ]
    assert sections == ["answer", *parts, "about"], "first the answer, the settings last"
    assert len(find(page, "#answers .panel svg .curve")) == 6, "two of each picture"
    assert len(find(page, "#training .panel svg .curve")) == 2
    assert len(find(page, "#by-concept figure svg [data-i]")) == 120
    assert {one.tag_name for one in find(page, "#by-type figure [data-i]")} == {
        *("circle", "path", "rect")
    }
    assert len(find(page, "#relations .curve")) == 4
    assert len(find(page, "#heat .cells path")) == 16 and len(find(page, "#heat text")) == 8
    (published,) = find(page, "#results tr.published")
    assert "published · V1, 3" in published.text
    assert find(page, "#left-out") == []
    drawn = page.execute_script(
        "return [...document.querySelectorAll('.panel svg, #spectrum, .maps figure > svg, #heat')]"
        ".every((one) => one.getBoundingClientRect().height > 50)"
    )
    assert drawn


def test_type_ahead_by_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    (query,) = find(page, "#query")
    query.send_keys("InFARC")
    options = [one.text for one in find(page, "#matches [role=option]")]
    assert options == ["infarctus", "myocardial infarction"], "those that begin with it come first"
    assert query.get_attribute("aria-expanded") == "true"
    query.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert query.get_attribute("aria-activedescendant") == "match-1"
    assert find(page, "#match-1[aria-selected=true]")
    query.send_keys(Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ENTER)
    until_shown(page, "myocardial infarction")
    assert not find(page, "#matches")[0].is_displayed()
    query.clear()
    query.send_keys("heart", Keys.ESCAPE)
    assert query.get_attribute("aria-expanded") == "false"
    assert query.get_attribute("value") == "heart"
    query.send_keys(Keys.ESCAPE)
    assert query.get_attribute("value") == ""
    query.send_keys("zzz", Keys.ENTER)
    until_shown(page, "myocardial infarction")  # nothing found, nothing chosen
    assert find(page, "#found")[0].text == "0 terms match"


def test_a_neighbour_leads_to_its_neighbours_and_back(page, address):
    (query,) = find(page, "#query")
    query.send_keys("heart att")
    find(page, "#matches [role=option]")[0].click()
    until_shown(page, "heart attack")
    rows = find(page, "#term tbody tr")
    assert len(rows) == 3
    first = find(page, "#term tbody a")[0]
    assert first.text == "myocardial infarction" and "same concept" in rows[0].text
    assert re.search(r"0\.9\d\d.*C1 heart attack · <i>Type</i> · ENG", rows[0].text, re.DOTALL)
    first.click()
    until_shown(page, "myocardial infarction")
    assert page.current_url == f"{address}#term=myocardial%20infarction"
    page.back()
    until_shown(page, "heart attack")


@pytest.mark.parametrize("term", TERMS)
def test_a_link_to_any_term(page, address, term):
    page.get(f"{address}#term={quote(term)}")
    until_shown(page, term)
    assert find(page, "#query")[0].get_attribute("value") == " ".join(term.split("\n"))
    names = [one.get_attribute("textContent") for one in find(page, "#term tbody a")]
    assert len(names) == 3 and set(names) < set(TERMS)
    assert find(page, "#term b, #term img, #term script, #term i") == []


def test_a_link_to_a_term_in_other_letters(page, address):
    page.get(f"{address}#term=CROHN%20disease")
    until_shown(page, "Crohn disease")


def test_a_link_to_a_term_that_is_not_there(page, address):
    page.get(f"{address}#term=%E0%A4%A")
    until(page, lambda: "“%E0%A4%A” is not among the terms" in find(page, "#term")[0].text)


def test_filter_by_source(page, address):
    """A term of several vocabularies is found in each of them."""
    (source,), (query,) = find(page, "#vocabularies"), find(page, "#query")
    names = [one.text for one in find(page, "#vocabularies option")]
    assert names == ["all", "MSH", "MSHFRE", "NCI"]
    matches = {}
    for name in names:
        source.send_keys(name)
        query.clear()
        query.send_keys("heart")
        matches[name] = {one.text for one in find(page, "#matches [role=option]")}
    both = {"heart attack", "heart failure"}
    assert matches == {"all": both, "MSH": both, "MSHFRE": set(), "NCI": {"heart attack"}}
    page.get(f"{address}#term=heart%20attack")
    until_shown(page, "heart attack")
    assert find(page, "#term .facts")[0].text == "C1 · <i>Type</i> · ENG · MSH, NCI"


def test_filter_by_language(page, address):
    page.get(f"{address}#term=infarctus")
    until_shown(page, "infarctus")
    before = len(find(page, "#term tbody tr"))
    (language,) = find(page, "#languages")
    assert [one.text for one in find(page, "#languages option")] == ["all", "ENG", "FRE"]
    language.send_keys("FRE")
    assert before == 3 and "None of the 3 nearest" in find(page, "#term")[0].text
    (query,) = find(page, "#query")
    query.clear()
    query.send_keys("infarc")
    assert [one.text for one in find(page, "#matches [role=option]")] == ["infarctus"]


def test_pointing_at_things_names_them(page):
    from selenium.webdriver.common.action_chains import ActionChains

    def tip_at(element):
        scroll_to(page, element)
        ActionChains(page, duration=0).move_to_element(element).perform()
        (tip,) = find(page, "#tip")
        return tip.text if tip.is_displayed() else None

    point = find(page, "#by-concept figure [data-i='14']")[0]  # no other is near it
    assert tip_at(point) == f"{TERMS[2]}\nconcept 4 </script>"
    lit = find(page, "#by-concept [data-i].on")
    assert sorted(int(one.get_attribute("data-i")) for one in lit) == [12, 12, 13, 13, 14, 14]
    names = page.execute_script(
        "return JSON.parse(document.querySelector('#heat-data').text).labels"
    )
    squares = find(page, "#heat .cells path")
    assert tip_at(squares[0]) == f"{names[0]}\n{names[0]}\ncosine 1"
    assert re.fullmatch(
        rf"{re.escape(names[1])}\n{re.escape(names[3])}\ncosine -?0\.\d+", tip_at(squares[7])
    )
    lit = find(page, "#heat .on")
    assert {one.get_attribute("data-row") for one in lit} == {"1", None}
    assert {one.get_attribute("data-column") for one in lit} == {None, "3"}
    assert tip_at(find(page, "h1")[0]) is None and find(page, "#heat .on") == []


# What a browser shows of the element at a point of a curve, when one points at it.
TITLE_AT = """
const [curve, share] = arguments;
const path = curve.querySelector("path");
path.scrollIntoView({block: "center"});
const place = path.getPointAtLength(share * path.getTotalLength());
const at = place.matrixTransform(path.getScreenCTM());
const found = document.elementFromPoint(at.x, at.y).closest(".curve");
return found && found.querySelector("title").textContent;
"""


def test_pointing_at_a_curve_names_it(page):
    total, term = find(page, "#training .curve")
    assert page.execute_script(TITLE_AT, total, 0.3) == "total: 1 at step 1, 0.33333 at 3"
    assert page.execute_script(TITLE_AT, term, 0.9) == "term-term: 0.5 at step 1, 0.5 at 3"
    spectra = find(page, "#spectrum .curve")
    labels = full_report().relations.labels
    named = [page.execute_script(TITLE_AT, curve, 0.01).partition(": ") for curve in spectra]
    assert [name for name, _, _ in named] == labels
    assert all(re.fullmatch(r"[\d.]+ at rank 1, [\d.]+ at 6", said) for _, _, said in named)


def test_the_values_of_curves_can_be_read(page):
    (panel,) = find(page, "#training .panel")
    (table,) = panel.find_elements("css selector", "table")
    assert not table.is_displayed()
    panel.find_element("css selector", "summary").click()
    rows = [row.text for row in table.find_elements("css selector", "tr")]
    assert rows == ["step total term-term", "1 1 0.5", "2 0.5 0.5", "3 0.33333 0.5"]


def test_a_group_can_be_kept_lit(page):
    button = find(page, "#by-type button[data-group='2']")[0]
    page.execute_script("arguments[0].click()", button)
    assert button.get_attribute("aria-pressed") == "true"
    assert len(find(page, "#by-type [data-i].on")) == 6
    page.execute_script("arguments[0].click()", button)
    assert find(page, "#by-type .on") == []


@contextmanager
def screen(page, width):
    """A screen of so many pixels across."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_narrow_screen_scrolls_in_boxes_only(page):
    with screen(page, 390):
        wide = page.execute_script("return document.documentElement.scrollWidth")
        assert wide == 390


def test_all_of_a_neighbour_is_seen_on_a_narrow_screen(page, address):
    page.get(f"{address}#term=heart%20attack")
    until_shown(page, "heart attack")
    with screen(page, 400):
        rows = find(page, "#term tbody tr")
        for row in rows:
            cells = [one for one in row.find_elements("css selector", "td") if one.is_displayed()]
            assert len(cells) == 3, "the term, its cosine and its concept"
            assert min(one.rect["x"] for one in cells) >= 0
            assert max(one.rect["x"] + one.rect["width"] for one in cells) <= 400
        assert "C1 heart attack" in rows[0].text
    assert all(one.is_displayed() for one in find(page, "#term tbody td, #term .bar"))


def test_the_answer_comes_first_and_settings_are_folded_at_the_end(page):
    (answer,), (about,) = find(page, "#answer"), find(page, "#about")
    rows = [row.text for row in answer.find_elements("css selector", "tr")]
    assert rows == ["training acc@1, %", "before 45.3", "after 64.9", "change +19.6"]
    assert "1,149 mentions. Better." in answer.text
    assert "before: MiniLM <b>\nafter: ours" in answer.text
    assert answer.rect["y"] < 300, "it is seen without scrolling"
    (settings,) = about.find_elements("css selector", "dl")
    assert not settings.is_displayed()
    about.find_element("css selector", "summary").click()
    assert settings.is_displayed() and "pooling" in settings.text


def small_page(browser, folder, **parts):
    """A page with these parts alone, opened."""
    write_page(Report(title="x", **parts), folder / "small.html")
    console(browser)
    browser.get((folder / "small.html").as_uri())
    until(browser, lambda: find(browser, "#tip"))


def test_the_widest_tables_are_whole_at_1280_pixels(browser, tmp_path):
    """Mentions beside the papers' rows, with all columns that there are."""
    scores = {f"acc@{k}{end}": 0.5 for k in (1, 3, 5) for end in ("", *BOUNDS)} | {"mrr": 0.5}
    counts = {"mentions": 123_456, "unreachable": 1234, "tied": 1234, "missing": 1234, "folds": 5}
    model = "runs/a_name_that_is_as_long_as_people_make_them/export_of_the_best_step"
    record = EvaluationRecord(
        **{"benchmark": "cadec", "kind": "normalization", "path": "p", "content_hash": "h"},
        **{"scores": scores, "counts": counts, "scoring": {}, "stage": "before"},
        unreachable=Unreachable(mentions=1234, share=0.125, scores_of_reachable=scores),
        dictionary={"content_hash": "d", "terms": 12_345_678, "concepts": 1_234_567},
        encoder=dataclasses.replace(ENCODER, model=model),
    )
    small_page(browser, tmp_path, tables=result_tables([record]))
    with screen(browser, 1280):
        (box,) = find(browser, "#results .scroll")
        assert len(find(browser, "#results thead th")) == 15
        assert len(find(browser, "#results tr.published")) > 5
        assert box.get_property("scrollWidth") == box.get_property("clientWidth")
    assert console(browser) == []


def test_two_relations_are_a_sentence(browser, tmp_path):
    rng = np.random.default_rng(0)
    for count, squares in ((1, 0), (2, 0), (3, 9)):
        matrices = np.eye(6) + 0.1 * rng.normal(size=(count, 6, 6))
        relations = compare_relations(matrices, ["CHD|isa", "PAR|inverse_isa", "RO|x"][:count])
        small_page(browser, tmp_path, relations=relations)
        said = find(browser, "#relations")[0].text
        cosine = f"what the two learned is {relations.similarity[0, -1]:.3f}: 1 where"
        assert (cosine in said) == (count == 2)
        assert len(find(browser, "#heat .cells path")) == squares
        assert ("How alike" in said) == (squares > 0)
        assert len(find(browser, "#spectrum .curve")) == count
        assert len(find(browser, "#relations tbody tr")) == count, "their numbers are there"
        assert console(browser) == []


def test_a_panel_says_among_how_many_terms(browser, tmp_path):
    lines = [{"step": s, "eval": {"h": {"acc@1": 0.5, "terms": 10_000}}} for s in (0, 80)]
    small_page(browser, tmp_path, panels=training_panels(lines))
    (figure,) = find(browser, "#training .panel")
    assert "Evaluation, among 10,000 terms" in figure.text and "--eval-terms" in figure.text
    (curve,) = find(browser, "#training .curve title")
    assert curve.get_attribute("textContent") == "h acc@1: 50 at step 0, 50 at 80"


# -------------------------------------------------------------------------------------------------
# The page of a report in light and in dark: it follows the reader's setting and can be read.


def test_contrast_by_hand():
    white, clear = ("rgb(255, 255, 255)", "1"), ("rgba(0, 0, 0, 0)", "1")
    assert contrast("rgb(0, 0, 0)", [clear, white]) == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", [white]) == pytest.approx(4.48, abs=0.005)
    assert contrast("rgba(0, 0, 0, 0.5)", [white]) == pytest.approx(3.95, abs=0.05)
    assert contrast("rgb(0, 0, 0)", [("rgba(0, 0, 0, 0)", "0.5"), white]) == pytest.approx(
        3.95, abs=0.05
    )


@pytest.fixture(scope="module")
def address_of_colours(tmp_path_factory):
    report = full_report()
    missing = _left_out(Report(title="x"), model="a model", dictionary=None, run=False)
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(replace(report, left_out=missing), path)
    return path.as_uri()


@pytest.fixture
def page_of_colours(browser, address_of_colours):
    """The page, freshly opened."""
    browser.get("about:blank")
    browser.get(f"{address_of_colours}#term=heart%20attack")
    until(browser, lambda: find(browser, "#term h3"))
    yield browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def computed(page, selector, name):
    (one,) = find(page, selector)
    script = "return getComputedStyle(arguments[0])[arguments[1]]"
    return luminance(rgba(page.execute_script(script, one, name))[0])


def test_the_page_follows_the_reader_s_setting(page_of_colours):
    prefer(page_of_colours, "light")
    assert (
        computed(page_of_colours, "body", "backgroundColor")
        > 0.9
        > 0.1
        > computed(page_of_colours, "body", "color")
    )
    assert computed(page_of_colours, "#heat [data-row='0'] text", "fill") < 0.1
    prefer(page_of_colours, "dark")
    assert (
        computed(page_of_colours, "body", "backgroundColor")
        < 0.05
        < 0.7
        < computed(page_of_colours, "body", "color")
    )
    assert computed(page_of_colours, "#heat [data-row='0'] text", "fill") > 0.7
    assert computed(page_of_colours, "#query", "backgroundColor") < 0.05, "fields too"
    prefer(page_of_colours, "light")
    assert computed(page_of_colours, "body", "backgroundColor") > 0.9


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_text_can_be_read(page_of_colours, scheme):
    """As it opens; then with everything out that shows when one asks for it."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    prefer(page_of_colours, scheme)
    seen = page_of_colours.execute_script(SEEN)
    page_of_colours.execute_script(
        "for (const one of document.querySelectorAll('details')) one.open = true"
    )
    page_of_colours.execute_script("document.querySelector('#by-type button').click()")
    seen += page_of_colours.execute_script(SEEN)
    (query,) = find(page_of_colours, "#query")
    query.clear()
    seen += page_of_colours.execute_script(SEEN)  # the placeholder
    query.send_keys("heart", Keys.ARROW_DOWN)
    assert find(page_of_colours, "#match-0[aria-selected=true]")
    seen += page_of_colours.execute_script(SEEN)
    (cell, *_) = find(page_of_colours, "#heat .cells path")
    scroll_to(page_of_colours, cell)
    ActionChains(page_of_colours, duration=0).move_to_element(cell).perform()
    until(page_of_colours, find(page_of_colours, "#tip")[0].is_displayed)
    seen += page_of_colours.execute_script(SEEN)

    ratios = {}
    for where, words, colour, layers in seen:
        ratios[where, words] = min(contrast(colour, layers), ratios.get((where, words), 21))
    places = {where for where, _ in ratios}
    for part in ("p", "th", "td", "text", "button", "b", "h2", "dt", "code", "li", "a", "summary"):
        assert any(part in where.split() for where in places), f"no {part} was looked at"
    assert {"panel-0 text", "spectrum text", "heat text"} <= places, "ticks, legends and names"
    assert ("panel-0 text", "term-term") in ratios and ("panel-0 text", "step") in ratios
    classes = {name for where in places for name in where.split()}
    assert {"tip", "same", "tag", "unit", "number", "::placeholder"} <= classes
    faint = {one: round(ratio, 2) for one, ratio in ratios.items() if ratio < LEAST}
    assert faint == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_marks_of_maps_can_be_seen(page_of_colours, scheme):
    prefer(page_of_colours, scheme)
    edges = page_of_colours.execute_script(
        """return [...document.querySelectorAll(".maps figure > svg [data-i]")].map((one) => {
          const {stroke, strokeOpacity} = getComputedStyle(one);
          const ground = getComputedStyle(one.parentElement).backgroundColor;
          return [one.getAttribute("class"), stroke, ground, strokeOpacity];
        });"""
    )
    ratios = {
        kind: round(contrast(edge, [(ground, "1")]), 2)
        for kind, edge, ground, opacity in edges
        if opacity == "1"
    }
    assert len(ratios) == 8, "every colour"
    assert {kind: ratio for kind, ratio in ratios.items() if ratio < LEAST_OF_MARKS} == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_marks_of_curves_can_be_seen(page_of_colours, scheme):
    """All eight colours of curves and that of many curves, as they are drawn on the page."""
    prefer(page_of_colours, scheme)
    marks = page_of_colours.execute_script(
        """const ground = getComputedStyle(document.body).backgroundColor;
        const path = document.querySelector("#training .curve path");
        const strokes = [...document.querySelectorAll(".curve path")].map(
          (one) => [one.getAttribute("style").match(/stroke:([^;]+)/)[1], getComputedStyle(one)]);
        const found = strokes.map(
          ([name, style]) => [name, style.stroke, style.strokeOpacity, ground]);
        for (let number = 0; number < 8; number += 1) {
          path.style.stroke = `var(--c${number})`;
          found.push([`c${number}`, getComputedStyle(path).stroke, "1", ground]);
        }
        return found;"""
    )
    ratios = {name: round(contrast(ink, [(ground, "1")]), 2) for name, ink, _, ground in marks}
    assert {opacity for _, _, opacity, _ in marks} == {"1"}
    assert {"var(--c0)", "var(--c1)", "var(--quiet)"} <= set(ratios) and len(ratios) == 11
    assert {name: ratio for name, ratio in ratios.items() if ratio < LEAST_OF_MARKS} == {}
