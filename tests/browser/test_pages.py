"""Every page of the console: it loads, everybody can use it, and it keeps to its policy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

import gateway.console
from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, WIDE, Console

PAGES = Path(gateway.console.__file__).parent / "static/pages"
LISTED = re.findall(r'import\("\./(\w+)\.mjs"\)', (PAGES / "list.mjs").read_text())
TABBABLE = "a[href], button:not(:disabled), input, select, textarea, [tabindex='0']"


def visited(console: Console) -> Iterator[str]:
    """Opens each page of the menu and each of its tabs; the name of each, for a picture of it."""
    console.open("/")
    addresses = re.findall(r'path: "([^"]+)"', (PAGES / "list.mjs").read_text())
    assert len(LISTED) == len(addresses)
    for name, address in zip(LISTED, addresses, strict=True):
        console.open(address.removeprefix("#"))
        yield name
        tabs = console.page.locator("nav.tabs a").all()
        for number, tab in enumerate([tab.get_attribute("href") or "" for tab in tabs][1:], 2):
            console.open(tab.removeprefix("#"))
            yield f"{name}-{number}"


# What was not reached by Tab yet, or does not show that it has the focus.
LEFT = """() => {
  const at = document.activeElement;
  if (getComputedStyle(at).outlineStyle !== "none") window.wanted.delete(at);
  return [...window.wanted].map((each) => each.outerHTML.slice(0, 100));
}"""


# Colours depend on the theme and the layout on the width, and neither on the other: two visits see all of
# both.
@pytest.mark.parametrize(("width", "theme"), [("wide", "dark"), ("phone", "light")])
def test_every_page_with_data(month: Tollhouse, open_console: OpenConsole, width: str, theme: str) -> None:
    """
    Nothing serious for axe, nothing that stands out to the side; a picture of each, as it is and with a row
    open.
    """
    console = open_console(month, viewport=WIDE if width == "wide" else NARROW, color_scheme=theme)
    for name in visited(console):
        assert [] == console.audit(), name
        assert console.overhang() <= 0, name
        console.screenshot(f"{name}-{width}-{theme}")
        first = console.page.locator("main tbody a").first
        if first.count():
            first.click()
            console.settle()
            # What it opens before the page; the page behind it was looked at before. Others lead to another
            # page.
            opened = "dialog[open]" if console.page.locator("dialog[open]").count() else "html"
            assert [] == console.audit(within=opened), f"{name}, a row open"
            console.screenshot(f"{name}-open-{width}-{theme}")


def test_every_page_without_data(house: Tollhouse, open_console: OpenConsole) -> None:
    """Where nothing is, each page says what to do; none is blank."""
    console = open_console(house)
    for name in visited(console):
        assert [] == console.audit(), name
        assert len(console.page.get_by_role("main").inner_text()) > 100, name
        console.screenshot(f"{name}-empty")


def test_every_page_without_answers(month: Tollhouse, open_console: OpenConsole) -> None:
    """What the server says about its failure stands on each page, and a way to try again."""
    console = open_console(month)
    console.expects("500")

    def fails(route: Route) -> None:
        body = json.dumps({"error": {"type": "internal", "message": "the ledger cannot be read"}})
        route.fulfill(status=500, body=body, content_type="application/json")

    console.page.route(re.compile(r"/console/api/(?!session$|changes$)"), fails)
    for name in visited(console):
        if name == "delivery-5":  # settings to copy: it asks for nothing
            continue
        if name == "connect":  # asks for nothing until a key is made
            console.open("/connect?tool=litellm")
            console.page.get_by_role("button", name="Make a key").click()
        expect(console.page.get_by_role("alert").first).to_contain_text("the ledger cannot be read")
        assert [] == console.audit(), name
        console.screenshot(f"{name}-failed")


def test_a_page_whose_file_is_gone(console: Console) -> None:
    """As after an upgrade: the page that is open says so when another is asked for, and what to do."""
    console.expects("404")
    console.open("/")
    console.page.route(re.compile(r"/pages/keys\.mjs"), lambda route: route.fulfill(status=404))
    console.follow("API Keys")
    expect(console.page.get_by_role("alert")).to_contain_text("may be another release")
    console.page.unroute_all()
    console.page.get_by_role("button", name="Try again").click()
    expect(console.page.get_by_role("table", name="keys")).to_be_visible()


def test_every_control_is_reached_by_the_keyboard(console: Console) -> None:
    """With Tab alone, in every page; and the one that has the focus is marked."""
    for name in visited(console):
        many = console.page.evaluate(
            """(query) => {
              window.wanted = new Set([...document.querySelectorAll(query)].filter((each) => each.checkVisibility()));
              return window.wanted.size;
            }""",
            TABBABLE,
        )
        left: list[str] = []
        for _ in range(2 * many + 20):
            console.page.keyboard.press("Tab")
            left = console.page.evaluate(LEFT)
            if not left:
                break
        assert [] == left, name


def test_what_the_policy_refuses_is_seen(console: Console) -> None:
    """A style written into the page is refused by its policy, and the test would fail for it."""
    console.open("/")
    console.page.evaluate("document.body.setAttribute('style', 'color: red')")
    console.page.wait_for_function("document.body.style.color === ''")
    assert ["refused by policy: style-src-attr inline"] == [
        text[:40] for text in console.wrong if "refused by" in text
    ]
    console.wrong.clear()


def test_what_axe_finds_is_told(console: Console) -> None:
    """Of the impacts that matter, and no others: a page without a language, and with an empty heading."""
    console.open("/")
    console.page.evaluate("document.documentElement.removeAttribute('lang')")
    console.page.evaluate("document.querySelector('main').append(document.createElement('h6'))")
    assert ["serious html-has-lang"] == [line.partition(":")[0] for line in console.audit()]
