"""The page of a report in light and in dark: it follows the reader's setting and can be read."""

from dataclasses import replace

import pytest
from contrast import LEAST, LEAST_OF_MARKS, SCHEMES, SEEN, contrast, luminance, prefer, rgba
from report_browser import find, scroll_to, until
from toy_report import full_report

from coder_jax.report.left_out import left_out
from coder_jax.report.page.render import Report, write_page


def test_contrast_by_hand():
    white, clear = ("rgb(255, 255, 255)", "1"), ("rgba(0, 0, 0, 0)", "1")
    assert contrast("rgb(0, 0, 0)", [clear, white]) == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", [white]) == pytest.approx(4.48, abs=0.005)
    assert contrast("rgba(0, 0, 0, 0.5)", [white]) == pytest.approx(3.95, abs=0.05)
    assert contrast("rgb(0, 0, 0)", [("rgba(0, 0, 0, 0)", "0.5"), white]) == pytest.approx(
        3.95, abs=0.05
    )


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    report = full_report()
    missing = left_out(Report(title="x"), model="a model", dictionary=None, run=False)
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(replace(report, left_out=missing), path)
    return path.as_uri()


@pytest.fixture
def page(browser, address):
    """The page, freshly opened."""
    browser.get("about:blank")
    browser.get(f"{address}#term=heart%20attack")
    until(browser, lambda: find(browser, "#term h3"))
    yield browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def computed(page, selector, name):
    (one,) = find(page, selector)
    script = "return getComputedStyle(arguments[0])[arguments[1]]"
    return luminance(rgba(page.execute_script(script, one, name))[0])


def test_the_page_follows_the_reader_s_setting(page):
    prefer(page, "light")
    assert computed(page, "body", "backgroundColor") > 0.9 > 0.1 > computed(page, "body", "color")
    assert computed(page, "#heat [data-row='0'] text", "fill") < 0.1
    prefer(page, "dark")
    assert computed(page, "body", "backgroundColor") < 0.05 < 0.7 < computed(page, "body", "color")
    assert computed(page, "#heat [data-row='0'] text", "fill") > 0.7
    assert computed(page, "#query", "backgroundColor") < 0.05, "fields too"
    prefer(page, "light")
    assert computed(page, "body", "backgroundColor") > 0.9


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_text_can_be_read(page, scheme):
    """As it opens; then with everything out that shows when one asks for it."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    prefer(page, scheme)
    seen = page.execute_script(SEEN)
    page.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    page.execute_script("document.querySelector('#by-type button').click()")
    seen += page.execute_script(SEEN)
    (query,) = find(page, "#query")
    query.clear()
    seen += page.execute_script(SEEN)  # the placeholder
    query.send_keys("heart", Keys.ARROW_DOWN)
    assert find(page, "#match-0[aria-selected=true]")
    seen += page.execute_script(SEEN)
    (cell, *_) = find(page, "#heat .cells path")
    scroll_to(page, cell)
    ActionChains(page, duration=0).move_to_element(cell).perform()
    until(page, find(page, "#tip")[0].is_displayed)
    seen += page.execute_script(SEEN)

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
def test_all_marks_of_maps_can_be_seen(page, scheme):
    prefer(page, scheme)
    edges = page.execute_script(
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
def test_all_marks_of_curves_can_be_seen(page, scheme):
    """All eight colours of curves and that of many curves, as they are drawn on the page."""
    prefer(page, scheme)
    marks = page.execute_script(
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
