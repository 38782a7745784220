"""The review page of 2,000 mentions in a real Chromium: deciding, filters, search and files."""

import csv
import math
from contextlib import contextmanager
from dataclasses import replace
from datetime import date

import pytest
from contrast import LEAST, SCHEMES, SEEN, contrast, prefer
from report_browser import console, find, requests, until
from toy_review import HOSTILE, ROWS, toy_answers, toy_columns, toy_dictionary

from coder_jax.mapping.coded_list import Decision, Status, check_decisions, decided, read_decisions
from coder_jax.report.review import write_review

keys = pytest.importorskip("selenium.webdriver.common.keys", reason="selenium is not installed")
keys_and_pointer = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
Keys = keys.Keys
ActionChains = keys_and_pointer.ActionChains
KEPT = "return Object.keys(localStorage).filter((key) => key.startsWith('coder_jax review '))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("review")


@pytest.fixture(scope="module")
def address(folder):
    path = folder / "review.html"
    write_review(
        path,
        toy_answers(),
        toy_dictionary(),
        title="Ward <b>list</b>.csv",
        encoder_line="coder_eng (768 wide)",
        columns=toy_columns(),
    )
    return path.as_uri()


def opened(browser, address):
    browser.get(address)
    until(browser, lambda: find(browser, "#list [role=option]"))


def forget(browser):
    """What the browser kept, but for the reviewer's name, which is asked for once."""
    browser.execute_script("localStorage.clear()")
    browser.execute_script("localStorage.setItem('coder_jax reviewer', 'Anna')")


def screen(page, width, height):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.fixture(autouse=True, scope="module")
def emulation(browser):
    """Afterwards the browser is as it was."""
    yield
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def page(browser, address):
    """The page with nothing decided; at the end nothing went wrong and nothing was fetched."""
    screen(browser, 1280, 860)
    browser.get(address)
    forget(browser)
    console(browser), requests(browser)
    opened(browser, address)
    yield browser
    assert console(browser) == []
    asked = [url for url in requests(browser) if not url.startswith(("data:", "blob:"))]
    assert set(asked) <= {address}
    assert browser.execute_script("return window.hacked") is None
    browser.execute_script("localStorage.clear()")


def press(page, *keys):
    for key in keys:
        page.switch_to.active_element.send_keys(key)


def text_of(page, selector):
    return page.execute_script("return document.querySelector(arguments[0])?.textContent", selector)


def option(page, row):
    """(class, answer) of a row in the list, read at once: the page may draw the list anew."""
    read = "const row = document.querySelector(arguments[0]);"
    read += "return [row.className, row.querySelector('.answer').textContent]"
    return tuple(page.execute_script(read, f"#row-{row}"))


def current(page):
    """The row that is looked at, as the list and what reads it aloud know it."""
    active = find(page, "#list")[0].get_attribute("aria-activedescendant")
    (selected,) = find(page, "#list [aria-selected=true]")
    assert selected.get_attribute("id") == active
    return int(active.removeprefix("row-"))


def choose_filter(page, *values):
    for value in values:
        find(page, f".chips [data-value='{value}']")[0].click()


def saved(page, folder):
    """The CSV that the page saves."""
    for path in folder.glob("*.csv"):
        path.unlink()
    page.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)}
    )
    find(page, "#save")[0].click()
    until(page, lambda: list(folder.glob("*.csv")))
    (path,) = folder.glob("*.csv")
    return path


def load(page, path):
    find(page, "#file")[0].send_keys(str(path))
    until(page, lambda: path.name in (text_of(page, "#said") or ""))
    return text_of(page, "#said")


# Deciding


def test_a_mention_and_its_candidates(page):
    assert text_of(page, "h1") == "Ward <b>list</b>.csv"
    assert text_of(page, "#decided") == f"0 of {ROWS:,} decided" and current(page) == 0
    press(page, *"jjj")
    assert current(page) == 3 and text_of(page, "#detail h2") == HOSTILE[3]
    assert find(page, "#detail .mapped")[0].text == "tied 1 other concept is as good"
    assert find(page, "#detail .cells")[0].text == "ward\nward 3 <b>\nseen\n3"
    second = find(page, ".candidate")[1].text.split("\n")
    about = ["Skin pain 0004", "MSH M4 · ICD10 I4.1 · T4 Kind", "C0004", "0.989"]
    assert second == ["2", *about], "the term is the preferred name"


def test_deciding_by_keyboard(page):
    press(page, "1")
    assert option(page, 0) == ("accepted", "Heart pain 0000") and current(page) == 1
    press(page, "x")
    assert option(page, 1) == ("rejected", "no concept fits") and current(page) == 2
    press(page, "j", "3", "k", "k")
    assert option(page, 3) == ("accepted", "Eye pain 0005") and current(page) == 2
    assert text_of(page, "#decided") == f"3 of {ROWS:,} decided"
    assert find(page, "#progress")[0].get_property("value") == 3
    press(page, "5")
    assert text_of(page, "#decided") == f"3 of {ROWS:,} decided", "there is no fifth candidate"


def test_what_is_decided_is_opened_again_by_the_same_key(page):
    press(page, "2", "k")
    verdict = find(page, ".verdict")[0].text.split("\n")
    assert verdict == ["Accepted Liver pain 0001 · C0001", f"Anna, {date.today():%Y-%m-%d}"]
    pressed = [one.get_attribute("aria-pressed") for one in find(page, ".candidate")]
    assert pressed == ["false", "true", "false"]
    press(page, "2")
    assert option(page, 0)[0] == "open" and current(page) == 0
    press(page, "x", "k", "x")
    assert option(page, 0)[0] == "open" and text_of(page, "#decided").startswith("0 of")


def test_undo_goes_back_step_by_step(page):
    press(page, "1", "x", "k", "2", "u")
    assert option(page, 1)[0] == "rejected" and current(page) == 1
    press(page, "u")
    assert option(page, 1)[0] == "open"
    press(page, "u")
    assert option(page, 0)[0] == "open" and current(page) == 0
    press(page, "u")
    assert text_of(page, "#said") == "There is nothing to undo."


def test_moving(page):
    press(page, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
    assert current(page) == 1
    press(page, Keys.END, "j")
    assert current(page) == ROWS - 1 and find(page, f"#row-{ROWS - 1}")[0].is_displayed()
    press(page, Keys.HOME, "k")
    assert current(page) == 0
    press(page, "1", "k", "o")
    assert current(page) == 1, "the next open one"
    press(page, Keys.PAGE_DOWN)
    assert current(page) == 11
    find(page, "#row-9")[0].click()
    assert current(page) == 9 and text_of(page, ".candidates") == "No candidates were looked up."


def test_by_pointer(page):
    find(page, ".candidate")[1].click()
    assert option(page, 0) == ("accepted", "Liver pain 0001") and current(page) == 1
    assert page.switch_to.active_element == find(page, "#list")[0], "not lost"
    find(page, "#reject")[0].click()
    assert option(page, 1)[0] == "rejected"
    press(page, "j")
    assert current(page) == 3, "keys go on from the list"


def test_keys_within_a_note_are_letters(page):
    press(page, "n", "x1 ju?", Keys.ESCAPE, "j")
    assert current(page) == 1 and option(page, 0)[0] == "open"
    assert find(page, "#row-0 .has-note")
    assert text_of(page, "#saved") == "1 not saved as CSV"
    press(page, "k")
    assert find(page, "#note")[0].get_property("value") == "x1 ju?"


def test_help(page):
    press(page, "?")
    assert find(page, "#help")[0].is_displayed() and "undo" in find(page, "#help")[0].text
    press(page, "x", Keys.ESCAPE)
    assert not find(page, "#help")[0].is_displayed() and option(page, 0)[0] == "open"
    find(page, "#keys")[0].click()
    find(page, "#help button")[0].click()
    assert not find(page, "#help")[0].is_displayed()
    press(page, "X")
    assert option(page, 0)[0] == "rejected", "with the caps lock, too"


def test_a_mention_of_two_concepts(page, folder):
    press(page, "a")
    assert find(page, "#more")[0].get_attribute("aria-pressed") == "true"
    press(page, "1", "2")
    assert (
        option(page, 0) == ("accepted", "Heart pain 0000 + Liver pain 0001") and current(page) == 0
    )
    press(page, "/", "c0999", Keys.ENTER, "2")
    assert option(page, 0)[1] == "Heart pain 0000 + Foot atrophy 0999", "and one taken off again"
    press(page, "j", "1", "k", "k")
    decisions = read_decisions(saved(page, folder)).of
    assert [one.concepts for one in decisions.values()] == [("C0000", "C0999"), ("C0001",)]
    press(page, "3")
    assert option(page, 0) == ("accepted", "Kidney pain 0002"), "without a, it replaces them"
    press(page, "k", "u", "u", "u")
    assert option(page, 0) == (
        "accepted",
        "Heart pain 0000 + Liver pain 0001 + Foot atrophy 0999",
    )


def test_the_reviewer_is_asked_once(page, address, folder):
    page.execute_script("localStorage.clear()")
    opened(page, address)
    press(page, "j", "1")
    assert find(page, "#who")[0].is_displayed() and option(page, 1)[0] == "open"
    press(page, "Dr. Ben x1", Keys.ENTER)
    until(page, lambda: option(page, 1)[0] == "accepted")
    press(page, "1")
    assert option(page, 2)[0] == "accepted" and not find(page, "#who")[0].is_displayed()
    opened(page, address)
    press(page, "x")
    assert text_of(page, "#reviewer") == "Reviewer: Dr. Ben x1"
    find(page, "#reviewer")[0].click()
    press(page, Keys.CONTROL + "a", "Carla", Keys.ENTER)
    until(page, lambda: text_of(page, "#reviewer") == "Reviewer: Carla")
    find(page, "#list")[0].send_keys("x")
    by = [one.reviewer for one in read_decisions(saved(page, folder)).of.values()]
    assert sorted(by) == ["Carla", "Dr. Ben x1", "Dr. Ben x1", "Dr. Ben x1"]


def test_who_gives_no_name_decides_nothing(page, address):
    page.execute_script("localStorage.clear()")
    opened(page, address)
    press(page, "j", "1", "Ben", Keys.ESCAPE)
    until(page, lambda: not find(page, "#who")[0].is_displayed())
    assert option(page, 1)[0] == "open" and text_of(page, "#reviewer") == "Reviewer"
    find(page, "#list")[0].send_keys("1")
    assert find(page, "#who")[0].is_displayed(), "it asks again"


def test_the_same_text_of_two_codes(browser, folder, write):
    path = folder / "codes.html"
    answers = [replace(one, mention="AP") for one in toy_answers(3)]
    codes = ["L1", "D2", ""]
    more = {"title": "codes", "encoder_line": "", "codes": codes, "most_terms": 100}
    write_review(path, answers, toy_dictionary(), **more)
    opened(browser, path.as_uri())
    forget(browser)
    opened(browser, path.as_uri())
    assert [one.text for one in find(browser, "#list .mention")] == ["AP L1", "AP D2", "AP"]
    assert find(browser, "#detail h2 .code")[0].text == "L1"
    head = "mention,code,concept,decision\n"
    load(browser, write("d.csv", f"{head}AP,D2,C0001|C0002,accepted\nAP,,,rejected\n"))
    assert [option(browser, row)[0] for row in range(3)] == ["open", "accepted", "rejected"]
    concepts = {key: one.concepts for key, one in read_decisions(saved(browser, folder)).of.items()}
    assert concepts == {("D2", "AP"): ("C0001", "C0002"), ("", "AP"): ()}
    press(browser, "u")
    load(browser, write("old.csv", "mention,concept,decision\nAP,C0001,accepted\n"))
    assert [option(browser, row)[0] for row in range(3)] == ["accepted"] * 3, "it has no codes"
    assert console(browser) == []
    browser.execute_script("localStorage.clear()")


# Filters


def test_filters(page):
    def count():
        return text_of(page, "#count")

    assert count() == "2,000 mentions"
    labels = [one.text for one in find(page, "#statuses button")]
    assert labels == ["exact 400", "near 800", "tied 400", "no answer 400"]
    choose_filter(page, "tied", "no answer")
    assert count() == "800 of 2,000 mentions" and current(page) == 3
    choose_filter(page, "tied")
    assert count() == "400 of 2,000 mentions" and current(page) == 4
    find(page, "#least")[0].send_keys("0.5")
    assert count() == "100 of 2,000 mentions", "half of those with candidates"
    find(page, "#most")[0].send_keys("0.75")
    assert count() == "50 of 2,000 mentions"
    find(page, "#text")[0].send_keys("PAIN")
    assert count() == "10 of 2,000 mentions"
    find(page, "#text")[0].send_keys(" zzz")
    assert find(page, "#none")[0].is_displayed() and not find(page, "#list [role=option]")
    find(page, "#clear")[0].click()
    assert count() == "2,000 mentions" and not find(page, "#none")[0].is_displayed()


def test_order_by_similarity(page):
    def order(name):
        find(page, f"#order [value='{name}']")[0].click()
        return current(page)

    assert order("least") == 9, "without a candidate"
    choose_filter(page, "near", "exact")
    assert order("most") == 0
    assert order("least") == ROWS - 3, "the last one but a tie and one without an answer"
    assert order("list") == 0


def test_decided_ones_leave_the_open_ones(page):
    choose_filter(page, "open")
    find(page, "#row-1")[0].click()
    press(page, "1")
    assert not find(page, "#row-1") and current(page) == 2
    assert text_of(page, "#count") == "1,999 of 2,000 mentions"
    labels = [one.text for one in find(page, "#verdicts button")]
    assert labels == ["open 1,999", "accepted 1", "rejected 0"]
    press(page, "u")
    assert current(page) == 1 and find(page, "#row-1"), "undone, it is back"
    choose_filter(page, "open", "rejected")
    assert find(page, "#none")[0].is_displayed()
    press(page, "x")
    assert text_of(page, "#count") == "1 of 2,000 mentions"
    until(page, lambda: option(page, 1)[0] == "rejected")


# Many at once


def label(page):
    return text_of(page, "#many-label")


def decided_as(page):
    return [one.text for one in find(page, "#verdicts button")]


def test_all_shown_are_accepted(page, folder):
    press(page, "x")
    assert label(page) == "Many at once: 2,000 shown"
    choose_filter(page, "near", "no answer")
    assert label(page) == "Many at once: 1,200 shown"
    assert find(page, "#accept-many")[0].text == "Accept all shown"
    find(page, "#accept-many")[0].click()
    said = "Accepted: 800 mentions. 400 without an answer stay open."
    assert text_of(page, "#said") == said
    assert decided_as(page) == ["open 1,199", "accepted 800", "rejected 1"]
    find(page, "#reject-many")[0].click()
    said = "No concept fits: 400 mentions. 800 decided before stay."
    assert text_of(page, "#said") == said and len(find(page, "#list")) == 1
    press(page, "u", "u")
    assert decided_as(page) == ["open 1,999", "accepted 0", "rejected 1"], "a step each"


def test_all_exact_are_accepted(page, folder):
    press(page, "2")
    choose_filter(page, "tied")
    assert text_of(page, "#accept-exact") == "Accept all exact (399)"
    find(page, "#accept-exact")[0].click()
    assert text_of(page, "#said") == "Accepted: 399 mentions. 1 decided before stay."
    assert find(page, "#accept-exact")[0].get_property("disabled")
    decisions = read_decisions(saved(page, folder)).of
    assert len(decisions) == 400 and {one.reviewer for one in decisions.values()} == {"Anna"}
    assert decisions["", HOSTILE[0]].concepts == ("C0001",), "as it was decided"
    assert decisions["", HOSTILE[5]].concepts == ("C0005",)


def test_selected_rows(page):
    press(page, " ", "j", "j", " ")
    assert label(page) == "Many at once: 2 selected"
    find(page, "#row-5 .mark")[0].click()
    assert label(page) == "Many at once: 3 selected" and current(page) == 5
    chain = ActionChains(page).key_down(Keys.SHIFT).click(find(page, "#row-7")[0])
    chain.key_up(Keys.SHIFT).perform()
    assert label(page) == "Many at once: 5 selected"
    press(page, " ")
    checked = [row for row in range(9) if find(page, f"#row-{row}[aria-checked=true].selected")]
    assert checked == [0, 2, 5, 6] and label(page) == "Many at once: 4 selected"
    assert find(page, "#reject-many")[0].text == "Map selected to none"
    find(page, "#reject-many")[0].click()
    assert [option(page, row)[0] for row in range(4)] == ["rejected", "open", "rejected", "open"]
    assert label(page) == "Many at once: 2,000 shown", "nothing is selected any more"
    find(page, "#select-all")[0].click()
    assert label(page) == "Many at once: 2,000 selected"
    find(page, "#open-many")[0].click()
    assert text_of(page, "#said") == "Opened again: 4 mentions."
    assert decided_as(page)[0] == "open 2,000" and not find(page, "#open-many")[0].is_displayed()
    press(page, " ")
    find(page, "#select-none")[0].click()
    assert label(page) == "Many at once: 2,000 shown"


def test_confidence_and_frequency(browser, folder, write):
    path = folder / "sure.html"
    sure = [None, 0.97, 0.4, 0.29]
    answers = [
        replace(one, confidence=value) for one, value in zip(toy_answers(4), sure, strict=True)
    ]
    more = {"title": "sure", "encoder_line": "", "frequencies": [10, 20, 1500, 470]}
    write_review(path, answers, toy_dictionary(), most_terms=100, **more)
    opened(browser, path.as_uri())
    forget(browser)
    opened(browser, path.as_uri())

    def order():
        return [int(one.get_attribute("data-row")) for one in find(browser, "#list [data-row]")]

    assert order() == [2, 3, 1, 0] and current(browser) == 2, "the most frequent one first"
    assert find(browser, "#row-2 .frequency")[0].text == "1,500×"
    assert [text_of(browser, f"#row-{row} .status") for row in range(4)] == [
        *("exact", "near 97 %", "near 40 %", "tied 29 %"),
    ]
    assert "the nearest term · confidence 40 %" in find(browser, ".mapped")[0].text
    assert "used 1,500 times" in find(browser, ".mapped")[0].text
    find(browser, "#least-sure")[0].send_keys("0.9")
    assert order() == [1, 0], "a string of the dictionary is sure"
    find(browser, "#accept-many")[0].click()
    assert text_of(browser, "#decided") == "2 of 4 decided, 1 % of uses"
    find(browser, "#clear")[0].click()
    find(browser, "#order [value='unsure']")[0].click()
    assert order() == [3, 2, 1, 0]
    find(browser, "#order [value='list']")[0].click()
    assert order() == [0, 1, 2, 3] and console(browser) == []
    browser.execute_script("localStorage.clear()")


def test_what_a_list_does_not_have_is_not_offered(page):
    assert not find(page, "#sure")[0].is_displayed()
    options = find(page, "#order option")
    assert [one.get_property("value") for one in options if one.is_enabled()] == [
        *("list", "least", "most"),
    ]


# Search


def test_search_by_words(page):
    press(page, "/")
    (query,) = find(page, "#query")
    assert query.get_property("value") == HOSTILE[0], "typing replaces the mention"
    query.send_keys("fracture SPI")
    names = [one.text for one in find(page, "#matches [role=option] b")]
    assert names[0] == "Spine fracture 0023" and len(names) == 30
    assert "60 concepts; the first 30 are listed" in find(page, "#found")[0].text
    query.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
    active = query.get_attribute("aria-activedescendant")
    assert active == "match-1" and find(page, "#match-1[aria-selected=true]")
    query.send_keys(Keys.ENTER)
    assert option(page, 0) == ("accepted", "Spine fracture 0073") and current(page) == 1
    press(page, "k")
    assert find(page, ".candidate")[0].text.startswith("✓\nSpine fracture 0073")
    assert len(find(page, ".candidate")) == 4


@pytest.mark.parametrize("text", [" c0777 ", "m777", "I777.1", "SYNDROME of eye infection 0785"])
def test_search_by_identifier_code_and_other_term(page, text):
    press(page, "/", text)
    (found,) = find(page, "#matches [role=option] b")
    number = 785 if "SYNDROME" in text else 777
    assert found.text == toy_dictionary().terms[2 * number]


def test_words_are_found_at_their_beginnings_first(page):
    """Ear infection before ear pain, which is shorter."""
    press(page, "/", "in ear")
    names = [one.text for one in find(page, "#matches [role=option] b")]
    assert len(names) == 30 and all(name.startswith("Ear infection") for name in names)


def test_a_search_that_is_given_up(page):
    press(page, "/", "zzz", Keys.ENTER)
    assert "0 concepts" in find(page, "#found")[0].text
    press(page, Keys.ESCAPE)
    assert find(page, "#query") == []
    press(page, "j")
    assert current(page) == 1 and text_of(page, "#decided").startswith("0 of")


def test_a_concept_is_chosen_by_pointer(page):
    press(page, "/", "c0100")
    find(page, "#match-0")[0].click()
    assert option(page, 0)[0] == "accepted" and current(page) == 1


# What is decided is kept, saved and taken back


def decide_some(page):
    """The hostile mentions: accepted, rejected, accepted by search, a note, ...; what that is."""
    press(page, "n", '=1+1, "quoted"; \u00e4', Keys.ESCAPE, "1", "x", "2", "3")
    press(page, "/", "c0999", Keys.ENTER, "x", "1")
    press(page, "n", "a note alone", Keys.ESCAPE, "j")
    accepted = ["C0000", None, "C0003", "C0005", "C0999", None, "C0006"]
    by = ("Anna", f"{date.today():%Y-%m-%d}")
    concepts = [(concept,) if concept else () for concept in accepted]
    notes = ['=1+1, "quoted"; \u00e4', *[""] * 6]
    return {
        ("", mention): Decision(some, note, *by)
        for mention, some, note in zip(HOSTILE, concepts, notes, strict=True)
    }


def test_saved_as_csv_and_read_back(page, folder):
    expected = decide_some(page)
    assert text_of(page, "#saved") == "8 not saved as CSV"
    path = saved(page, folder)
    assert path.name == "Ward_b_list_b_decisions.csv" and text_of(page, "#saved") == "saved as CSV"
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    named = ["mention", "concept", "preferred_name", "decision", "note", "reviewer", "date"]
    assert rows[0] == named
    assert not [field for row in rows for field in row if field.startswith(("=", "+", "-", "@"))]
    assert rows[8][3:] == ["open", "a note alone", "", ""]
    decisions = read_decisions(path)
    assert decisions.made == expected
    note = Decision((), "a note alone", is_open=True)
    assert decisions.of == expected | {("", toy_answers()[7].mention): note}
    check_decisions(decisions, toy_dictionary())
    said = [decisions.on(one.mention, None) for one in toy_answers()]
    first, second, *_, last = decided(toy_answers(), said, toy_dictionary())
    assert first.status == Status.DECIDED and first.concept == "C0000"
    assert second.reason == "rejected in review" and last == toy_answers()[-1]
    other = next(
        one for one in decided(toy_answers(), said, toy_dictionary()) if one.concept == "C0999"
    )
    assert math.isnan(other.candidates[0].similarity)


def test_loaded_into_an_empty_page(page, address, folder):
    expected = decide_some(page)
    path = saved(page, folder)
    before = path.read_bytes()
    forget(page)
    opened(page, address)
    assert text_of(page, "#decided").startswith("0 of")
    assert load(page, path) == f"Loaded 8 rows of {path.name}."
    assert text_of(page, "#decided") == f"{len(expected)} of 2,000 decided"
    assert text_of(page, "#row-1 .answer") == "no concept fits"
    assert saved(page, folder).read_bytes() == before
    find(page, "#list")[0].send_keys("u")
    assert text_of(page, "#decided").startswith("0 of"), "one step undoes all"


def test_a_file_takes_no_decision_back(page, write):
    press(page, *"j" * 10, "1", "x")
    ten, eleven = (f"{toy_dictionary().terms[::2][at].lower()} of unit {at}" for at in (10, 11))
    rows = f"{ten},,open,ask Dr X\n{eleven},C0012,accepted,sure\n"
    said = load(page, write("theirs.csv", f"mention,concept,decision,note\n{rows}"))
    assert said == (
        "Loaded 1 rows of theirs.csv. 1 were decided otherwise before; u undoes this. "
        "1 that it leaves open stay as they were decided."
    )
    assert option(page, 10)[0] == option(page, 11)[0] == "accepted"
    find(page, "#list")[0].send_keys("u")
    assert (option(page, 10)[0], option(page, 11)[0]) == ("accepted", "rejected")


def test_a_note_that_was_typed_since_is_not_undone(page):
    press(page, "1", "k", "n", "ask Dr X", Keys.ESCAPE, "u")
    assert option(page, 0)[0] == "open"
    assert find(page, "#note")[0].get_property("value") == "ask Dr X"


@pytest.mark.parametrize(
    "text, said",
    [
        ("mention,note\n", "expected mention, concept, decision and note"),
        ("mention,concept,decision\na,C0001,maybe\n", "line 2: found the decision “maybe”"),
        ("mention,concept,decision\na,,accepted\n", "line 2: accepted, with no concept"),
        ("mention,concept,decision\na,C0001\n", "line 2: 2 columns; expected 3"),
        ('mention,concept,decision\na,"C0001,accepted\n', "line 2: a double quote is not closed"),
        (
            "mention,concept,decision\na,,rejected\na,C0001,accepted\n",
            "line 3: another decision on “a”",
        ),
    ],
)
def test_a_broken_file_changes_nothing(page, write, text, said):
    message = load(page, write("broken.csv", text))
    assert "was not loaded" in message and said in message
    assert text_of(page, "#decided").startswith("0 of")


def test_rows_of_other_lists_are_told(page, write):
    text = "mention;concept;decision\nelsewhere;;rejected\n'=1+1;;open\n''=1+1;X1;accepted\n"
    message = load(page, write("other.csv", text))
    assert message.startswith("Loaded 0 rows of other.csv. 2 are not of this list, such as “els")
    assert message.endswith("1 name a concept that the dictionary does not have, such as X1.")


def test_decisions_survive_a_reload(page, address):
    decide_some(page)
    opened(page, address)
    assert text_of(page, "#decided") == "7 of 2,000 decided" and current(page) == 7
    assert option(page, 1)[0] == "rejected"
    press(page, "k", "k", "k", "k", "k", "k", "k")
    assert find(page, "#note")[0].get_property("value") == '=1+1, "quoted"; \u00e4'
    assert text_of(page, "#saved") == "8 not saved as CSV"
    assert len(page.execute_script(KEPT)) == 1


def test_two_windows_of_one_list(page, address):
    (first,) = page.window_handles
    page.switch_to.new_window("tab")
    try:
        opened(page, address)
        press(page, "1")
    finally:
        page.close()
        page.switch_to.window(first)
    until(page, lambda: text_of(page, "#decided").startswith("1 of"))
    assert option(page, 0)[0] == "accepted"


@contextmanager
def changed(page, script):
    """Pages that are opened now find the browser as the script leaves it."""
    added = page.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    try:
        yield
    finally:
        page.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_a_browser_that_keeps_nothing_is_told(page, address):
    full = "Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError') }"
    with changed(page, full):
        opened(page, address)
        (warning,) = find(page, "#warning")
        assert warning.is_displayed() and "its storage is full. Save it as CSV" in warning.text
        press(page, "1")
        assert option(page, 0)[0] == "accepted"
    page.execute_script("window.stop()")
    press(page, "s")
    until(page, lambda: text_of(page, "#saved") == "saved as CSV")
    opened(page, address)
    assert not find(page, "#warning")[0].is_displayed()


def test_a_browser_that_is_too_old_is_told(page, address):
    with changed(page, "delete window.DecompressionStream"):
        page.get(address)
        until(page, lambda: find(page, "#warning")[0].is_displayed())
        assert "This browser is too old" in find(page, "#warning")[0].text


def test_what_was_decided_before_is_there(browser, folder, write):
    path = folder / "again.html"
    write_review(
        path,
        toy_answers(20),
        toy_dictionary(),
        title="again",
        encoder_line="",
        decisions=[
            *(Decision(("C2999",), "as before"), Decision(()), None),
            *(Decision((), "ask Dr X", is_open=True), *[None] * 16),
        ],
        most_terms=100,
    )
    opened(browser, path.as_uri())
    assert text_of(browser, "#decided") == "2 of 20 decided" and current(browser) == 2
    assert option(browser, 0)[0] == "accepted" and option(browser, 1)[0] == "rejected"
    assert text_of(browser, "#saved") == "saved as CSV"
    assert option(browser, 3)[0] == "open"
    press(browser, "j")
    assert find(browser, "#note")[0].get_property("value") == "ask Dr X"
    assert "the search finds 78 of the dictionary’s 3,000 concepts" in text_of(browser, "footer")
    load(browser, write("far.csv", "mention,concept,decision\n''=1+1,C2500,accepted\n"))
    assert option(browser, 3) == ("accepted", "C2500"), "it may be one of those that are left out"
    assert console(browser) == []
    browser.execute_script("localStorage.clear()")


# Looks


def test_few_elements_for_many_mentions(page):
    assert len(find(page, "#list [role=option]")) < 40
    press(page, Keys.END)

    def shown():
        """(size of the list, place in it) of each row, at one moment: scrolling draws rows anew."""
        return page.execute_script(
            "return Array.from(document.querySelectorAll('#list [role=option]'), (row) => "
            "[row.getAttribute('aria-setsize'), row.getAttribute('aria-posinset')])"
        )

    until(page, lambda: shown()[-1][1] == "2000")
    assert len(shown()) < 40 and {size for size, _ in shown()} == {"2000"}
    began, ended = page.execute_script(
        """const began = performance.now();
        for (let time = 0; time < 20; time += 1) document.body.dispatchEvent(new KeyboardEvent(
          "keydown", {key: time % 2 ? "x" : "k", bubbles: true}));
        return [began, performance.now()];"""
    )
    assert ended - began < 20 * 100, "a decision takes less than a tenth of a second"


def test_a_narrow_screen(page):
    screen(page, 400, 800)
    opened(page, page.current_url)
    assert not find(page, "#text")[0].is_displayed(), "filters are folded"
    press(page, "/", "lung", Keys.ESCAPE, "f")
    assert find(page, "#text")[0].is_displayed()
    for selector in ("html", "#list", "#detail", "#filters"):
        (box,) = find(page, selector)
        assert box.get_property("scrollWidth") <= box.get_property("clientWidth") <= 400
    assert find(page, "#list")[0].rect["height"] > 100
    assert find(page, "#detail")[0].rect["height"] > 150


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_text_can_be_read(page, scheme):
    prefer(page, scheme)
    press(page, "1", "x", "n", "noted", Keys.ESCAPE, "k", "k")
    seen = page.execute_script(SEEN)
    press(page, "/", "lung")
    choose_filter(page, "near")
    seen += page.execute_script(SEEN)
    press(page, "?")
    seen += page.execute_script(SEEN)
    press(page, Keys.ESCAPE)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    faint = {
        (where, words): round(contrast(colour, layers), 2)
        for where, words, colour, layers in seen
        if contrast(colour, layers) < LEAST
    }
    assert faint == {}
    classes = {name for where, *_ in seen for name in where.split()}
    assert {"similarity", "status", "mark", "answer", "kbd", "unit", "said", "what"} <= classes | {
        "what"
    }
