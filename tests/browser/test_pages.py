"""Every page of the console loads, is accessible, and keeps its content policy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import pytest
from playwright.sync_api import Route, ViewportSize, expect

from tests.acceptance.conftest import Tollhouse
from tests.bench.server.page_weights import table, weights
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, WIDE, Console, followed
from tests.browser.test_layout import EACH_LAYOUT, badly_laid_out, widths_of
from tests.rounds import IS_LONG

TABBABLE = "a[href], button:not(:disabled), input, select, textarea, [tabindex='0']"
MOST_BYTES = 200_000
# Limits in bytes of what a page loads if it has no cached files. Answers have a limit of their own, because they grow
# with the rows, and the rows of the demo depend on the hour.
FILES_OF_A_PAGE = 81 * 1024  # of which 21 are the font
ANSWERS_OF_A_PAGE = 50 * 1024
REQUESTS = {"overview": 10, "costs": 14}  # limits of a first visit
LAYOUTS: Mapping[str, tuple[ViewportSize, Literal["dark", "light"]]] = {
    "wide-dark": (WIDE, "dark"),
    "phone-light": (NARROW, "light"),
}

# `wanted` are the elements that have not yet shown a visible focus after Tab. Five rows per table suffice,
# because all have the same structure. The frame's links are checked again only when the menu shows other links.
FRAME = "document.querySelector('header').innerText"
MARKED = """([query, isKnown]) => {
  document.querySelectorAll("tbody tr:nth-child(n+6)").forEach((row) => { row.inert = true; });
  const main = document.querySelector("main");
  const isWanted = (each) => each.checkVisibility() && !each.closest("[inert]");
  const all = [...document.querySelectorAll(query)].filter(isWanted);
  window.wanted = new Set(isKnown ? all.filter((each) => main.contains(each)) : all);
  addEventListener("focusin", ({target}) => {
    if (getComputedStyle(target).outlineStyle !== "none") window.wanted.delete(target);
  });
  if (isKnown) main.focus();
  return [window.wanted.size, all.length];
}"""
LEFT = "[...window.wanted].map((each) => each.outerHTML.slice(0, 100))"
ALL_ROWS = "document.querySelectorAll('tr[inert]').forEach((row) => { row.inert = false; })"


def test_every_page_with_data(month: Tollhouse, open_console: OpenConsole) -> None:
    """
    No serious axe finding and no overflow, wide and on a phone, dark and light, also with a row open. Tab
    reaches each control. No page and no response is too large. In each layout nothing is clipped, and words
    and headings are in order. A screenshot is taken of each wide page.

    Colours depend only on the theme and the layout only on the width, so two looks cover both. A short run has one of
    them for each page, and the other one with a row open on every second page.
    """
    console = open_console(month, viewport=WIDE, color_scheme="dark")
    console.listen()
    found = {}
    wrong = {}
    frames: set[str] = set()
    for number, (name, weight) in enumerate(weights(console)):
        found[name] = weight
        frame = console.page.evaluate(FRAME)
        is_new = frame not in frames
        frames.add(frame)
        assert [] == unreached(console, is_framed=is_new), name
        look(console, name, layouts=layouts_of(number), is_framed=is_new)
        wrong[name] = badly_laid_out(console, widths_of(number))
        first = console.page.locator("main tbody a").first
        if (IS_LONG or number % 2) and first.count():
            first.click()
            console.settle()
            look(console, f"{name}-open", layouts=layouts_of(number + 1))
            wrong[f"{name}-open"] = badly_laid_out(console, widths=())
    assert {} == {name: each for name, each in wrong.items() if each}
    print(table(found.items()))
    assert {} == {name: each.files for name, each in found.items() if each.files > FILES_OF_A_PAGE}
    assert {} == {name: each.answers for name, each in found.items() if each.answers > ANSWERS_OF_A_PAGE}
    assert {} == {
        name: found[name].requests for name, most in REQUESTS.items() if found[name].requests > most
    }
    sizes = answer_sizes(console)
    print(dict(sorted(sizes.items(), key=lambda pair: -pair[1])[:5]))
    assert MOST_BYTES > max(sizes.values())


def layouts_of(number: int) -> Sequence[str]:
    """
    Return the layouts in which a page is looked at: both in long runs, else one, and the other one with a row open.
    """
    layouts = ("phone-light", "wide-dark")
    return layouts if IS_LONG else layouts[number % 2 :][:1]


def look(
    console: Console,
    name: str,
    *,
    layouts: Sequence[str] = ("phone-light", "wide-dark"),
    is_framed: bool = False,
) -> None:
    """
    Check each layout for serious axe findings and overflow. The window stays wide at the end.

    Both layouts have the same elements, so rules that do not depend on the look run only on the last one. The
    phone's menu button is checked together with the menu that it opens.
    """
    for layout in layouts:
        viewport, theme = LAYOUTS[layout]
        console.page.set_viewport_size(viewport)
        console.page.emulate_media(color_scheme=theme)
        console.drawn()
        found = console.audit(is_framed=is_framed, is_look=layout != layouts[-1])
        assert [] == found, f"{name}, {layout}"
        assert console.overhang() <= 0, f"{name}, {layout}"
    viewport, theme = LAYOUTS["wide-dark"]
    console.page.set_viewport_size(viewport)
    console.page.emulate_media(color_scheme=theme)
    console.screenshot(name)


def unreached(console: Console, *, is_framed: bool) -> list[str]:
    """
    Return the controls that Tab does not reach or that show no focus, including the frame if it `is_framed`.
    """
    count, all_count = console.page.evaluate(MARKED, [TABBABLE, not is_framed])
    left: list[str] = []
    for presses in (
        count,
        10,
        all_count + 10,
    ):  # Tab reaches some controls twice before others, such as those of an opening menu
        for _ in range(presses):
            console.page.keyboard.down("Tab")  # send Tab events as if the key is held down
        console.page.keyboard.up("Tab")
        left = console.page.evaluate(LEFT)
        if not left:
            break
    console.page.evaluate(ALL_ROWS)
    return left


def answer_sizes(console: Console) -> dict[str, int]:
    """
    Return the body bytes of each response so far by address. Only files of the console may be compressed, and its
    font is compressed already.
    """
    sizes: dict[str, int] = {}
    for request in console.requests:
        name = request.url.partition("/console/")[2]
        if name in sizes:  # each page loads the files of the console's frame again
            continue
        response = request.response() if not request.url.endswith(("/changes", "/tail?")) else None
        if response is not None:
            is_packed = "gzip" == response.headers.get("content-encoding")
            is_text = "/console/files/" in request.url and not request.url.endswith(".woff2")
            assert is_packed == is_text, request.url
            sizes[name] = request.sizes()["responseBodySize"]
    return sizes


@pytest.mark.proof
def test_every_page_without_data(house: Tollhouse, open_console: OpenConsole) -> None:
    """Without data, each page of the console explains what to do, in text that fits. No page is blank."""
    console = open_console(house)
    for name in followed(console):
        assert [] == console.audit(within="main"), name
        assert len(console.page.get_by_role("main").inner_text()) > 100, name
        assert [] == badly_laid_out(console, EACH_LAYOUT), name
        console.screenshot(f"{name}-empty")


@pytest.mark.proof
def test_every_page_without_answers(month: Tollhouse, open_console: OpenConsole) -> None:
    """If the server answers with an error, each page shows it with a button to retry."""
    console = open_console(month)
    console.expects("500")

    def fails(route: Route) -> None:
        body = json.dumps({"error": {"type": "internal", "message": "the ledger cannot be read"}})
        route.fulfill(status=500, body=body, content_type="application/json")

    console.page.route(re.compile(r"/console/api/(?!session$|changes$)"), fails)
    for name in followed(console):
        if name in (
            "delivery-5",
            "privacy",
            "person",
        ):  # settings to copy; a right that no built-in role has; nobody is named
            continue
        if name == "work":  # this page sends no request until it has a unit
            console.go("/work?unit=session&id=one")
        if name == "connect":  # this page sends no request until a key is created
            console.open("/connect?tool=litellm")
            console.page.get_by_role("button", name="Create a key").click()
        expect(console.page.get_by_role("alert").first).to_contain_text("The ledger cannot be read")
        assert [] == console.audit(within="main"), name


def test_page_whose_file_was_deleted_says_how_to_continue(console: Console) -> None:
    """After an upgrade, an open page that needs an old file reports that and how to continue."""
    console.expects("404")
    console.open("/")
    console.page.route(re.compile(r"/pages/keys\.mjs"), lambda route: route.fulfill(status=404))
    console.follow("API Keys")
    expect(console.page.get_by_role("alert")).to_contain_text("was upgraded or does not respond")
    console.page.unroute_all()
    console.page.get_by_role("button", name="Try again").click()
    expect(console.page.get_by_role("table", name="keys")).to_be_visible()


def test_what_the_policy_refuses_is_seen(console: Console) -> None:
    """The content policy of the console refuses an inline style, and the refusal fails a test."""
    console.open("/")
    console.page.evaluate("document.body.setAttribute('style', 'color: red')")
    console.page.wait_for_function("document.body.style.color === ''")
    assert ["refused by policy: style-src-attr inline"] == [
        text[:40] for text in console.wrong if "refused by" in text
    ]
    console.wrong.clear()


def test_axe_reports_only_findings_of_chosen_impacts(console: Console) -> None:
    """
    axe reports findings of the chosen impacts and no others. The test page has no language and an empty heading.
    """
    console.open("/")
    console.page.evaluate("document.documentElement.removeAttribute('lang')")
    console.page.evaluate("document.querySelector('main').append(document.createElement('h6'))")
    assert ["serious html-has-lang"] == [line.partition(":")[0] for line in console.audit(is_framed=True)]
