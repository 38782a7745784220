"""The page of a report in light and in dark: it follows the reader's setting and can be read."""

from dataclasses import replace

import pytest
from report_browser import find, scroll_to, until
from toy_report import full_report

from coder_jax.report.build import left_out
from coder_jax.report.page.render import Report, write_page

SCHEMES = ("light", "dark")
LEAST = 4.5  # WCAG 2, success criterion 1.4.3, for text of any size
LEAST_OF_MARKS = 3  # success criterion 1.4.11, for what must be seen to understand a picture

# Each text that is to be seen: the element, the words, their colour and the colours behind it.
SEEN = """
const paints = (one, pseudo) => {
  const style = getComputedStyle(one, pseudo);
  return one.namespaceURI.endsWith("svg") ? style.fill : style.color;
};
const behind = (one) => {
  const layers = [];
  for (; one; one = one.parentElement) {
    const style = getComputedStyle(one);
    layers.push([style.backgroundColor, style.opacity]);
  }
  return layers;
};
const path = (one, pseudo) => [
  one.closest("[id]")?.id, one.tagName.toLowerCase(), one.getAttribute("class"), pseudo,
].filter(Boolean).join(" ");
const seen = [];
for (const one of document.querySelectorAll("body, body *")) {
  const own = [...one.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
  const words = own.map((node) => node.data).join(" ").trim();
  const shown = one.getClientRects().length && getComputedStyle(one).visibility === "visible";
  if (shown && words) seen.push([path(one), words, paints(one), behind(one)]);
  const hint = one.value === "" && one.placeholder;
  const pseudo = "::placeholder";
  if (shown && hint) seen.push([path(one, pseudo), hint, paints(one, pseudo), behind(one)]);
}
return seen;
"""


def rgba(colour):
    """rgb(r, g, b), rgba(r, g, b, a) or color(srgb r g b), as browsers compute them, in [0, 1]."""
    name, values = colour.rstrip(")").split("(")
    if name == "color":
        space, *mixed = values.split()
        assert space == "srgb" and len(mixed) == 3, colour
        return [float(value) for value in mixed], 1.0
    assert name in ("rgb", "rgba"), colour
    red, green, blue, *alpha = (float(value) for value in values.split(","))
    return [red / 255, green / 255, blue / 255], alpha[0] if alpha else 1.0


def over(front, back, alpha):
    return [alpha * f + (1 - alpha) * b for f, b in zip(front, back, strict=True)]


def luminance(colour):
    """The relative luminance of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(text, layers):
    """The ratio of text in front of layers, the nearest first; each fades with its opacity."""
    ground, opacity = [1.0, 1.0, 1.0], 1.0
    for colour, own_opacity in reversed(layers):
        front, alpha = rgba(colour)
        opacity *= float(own_opacity)
        ground = over(front, ground, alpha * opacity)
    front, alpha = rgba(text)
    lighter, darker = sorted(map(luminance, (over(front, ground, alpha * opacity), ground)))[::-1]
    return (lighter + 0.05) / (darker + 0.05)


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


def prefer(page, scheme):
    """Sets what the reader asked the system for, with the page open."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    query = f"return matchMedia('(prefers-color-scheme: {scheme})').matches"
    until(page, lambda: page.execute_script(query))


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
