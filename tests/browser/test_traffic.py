"""Requests of the console: a page sends each request once, and none while nothing changes."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from gateway.console.pages import load_console as files
from tests.bench.server.page_weights import LOADED
from tests.browser.console import Console

QUIET_MS = 6_000  # longer than the 5 s in which a page learns of a change
TRIES = (
    4  # several, because a new server looks for insights and then notifies the page, or the machine is busy
)
AHEAD_MS = 600_000  # how far the test moves the page's clock, to trigger polling if there is any


def test_open_page_never_polls(console: Console) -> None:
    """An open page learns of changes by its event stream and never polls."""
    console.listen()
    console.page.goto(
        "about:blank"
    )  # use a new page, because the page that signed in has an event stream already; its fake clock starts at 1970
    console.requests.clear()
    console.page.clock.install()
    console.open("/")
    console.page.get_by_role("button", name="live").wait_for()
    console.page.wait_for_load_state("load")
    assert 1 == len([each for each in console.asked("/console/") if each.endswith("/changes")])
    for _ in range(TRIES):
        before = console.asked("/console/")
        console.page.clock.run_for(AHEAD_MS)
        console.page.wait_for_timeout(QUIET_MS)
        if before == console.asked("/console/"):
            return
    assert before == console.asked("/console/")


def test_overview_requests_its_figures_once(console: Console) -> None:
    """
    All figures of the overview are in one response, and what needs attention in another. The files are the page, its
    style, its icon, what all pages need, and what the overview needs.
    """
    console.listen()
    for _ in range(TRIES):
        console.page.goto("about:blank")
        console.requests.clear()
        console.open("/")
        console.page.get_by_text("Spend in").wait_for()
        paths = [each.partition("/console/api")[2] for each in console.asked()]
        if paths.count("/overview") == 1:  # a page whose event stream opens late loads its data again
            break
    # a pointer on the menu also loads the views
    assert {"/overview", "/attention", "/session", "/changes"} == set(paths) - {"/views?limit=1000"}
    assert 1 == paths.count("/overview")
    loaded = {url.partition(f"/{files().version}/")[2] for url in console.page.evaluate(LOADED)} - {""}
    assert {"style.css", "vendor/inter.woff2", "app.mjs", "pages/overview.mjs"} == loaded - {"icon.svg"}


def test_a_page_is_loaded_when_it_is_opened(console: Console) -> None:
    """
    A page's file is loaded once, when the page is opened.
    """
    console.open("/")
    assert ["overview"] == pages(console)
    for _ in range(2):
        for name in ("Fleet", "Overview"):
            console.follow(name)
            expect(console.page.get_by_role("heading", level=1)).to_have_text(name)
            console.settle()
    assert ["fleet", "fleet_parts", "overview"] == sorted(pages(console))


def pages(console: Console) -> list[str]:
    """Return the page files loaded since the open page was opened."""
    return [
        Path(url).stem for url in console.page.evaluate(LOADED) if "/pages/" in url and "/list." not in url
    ]
