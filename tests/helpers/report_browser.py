"""A headless Chromium for tests of pages, and what it saw."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def chromium() -> Iterator:
    """A Chromium driven by selenium; a skip, with what is missing, where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    names = {"Chromium": ("chromium", "chromium-browser", "google-chrome")}
    names["its driver"] = ("chromedriver", "chromium.chromedriver")
    found = {
        what: next(filter(None, map(shutil.which, these)), None) for what, these in names.items()
    }
    missing = [what for what, path in found.items() if path is None]
    if missing:
        pytest.skip(f"no {' and '.join(missing)} (apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = found["Chromium"]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    flags = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions"]
    flags += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
    flags += ["--no-sandbox"] * (os.geteuid() == 0)  # which root cannot have
    for flag in flags:
        options.add_argument(flag)
    service = webdriver.ChromeService(found["its driver"])
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield driver
    finally:
        driver.quit()


def console(driver) -> list[str]:
    """What the page wrote to the console since the last call: errors and refusals of its policy."""
    return [entry["message"] for entry in driver.get_log("browser")]


def requests(driver) -> list[str]:
    """The addresses that were asked for since the last call."""
    messages = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]


def find(page, selector):
    return page.find_elements("css selector", selector)


def until(page, condition):
    """Waits for what the browser does in its own time, such as going to another address.

    An element that the page replaces while the condition reads it is no failure: it is read anew.
    """
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    ignored = [StaleElementReferenceException]
    WebDriverWait(page, 180, 0.02, ignored_exceptions=ignored).until(lambda _: condition())


def scroll_to(page, element):
    """Brings an element into view; the page has heard of it, which would hide what shows later."""
    page.execute_async_script(
        "const [one, done] = arguments; one.scrollIntoView({block: 'center'});"
        "requestAnimationFrame(() => requestAnimationFrame(() => done()))",
        element,
    )
