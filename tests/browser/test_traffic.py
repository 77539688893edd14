"""What the console costs on the way: bytes of each answer, and silence while nothing happens."""

from __future__ import annotations

from pathlib import Path

from gateway.console.assets import console as files
from tests.browser.console import Console
from tests.browser.test_pages import visited

MOST_BYTES = 200_000
SCRIPT_AND_STYLE = 150_000  # of one page and what stands around it
QUIET_MS = 6_000  # a page hears of a change within 5 s
TRIES = 4  # a server that has just begun looks for insights, and says so to the page
AHEAD_MS = 600_000  # by the clock of the page, for what asks again by itself
LOADED = "performance.getEntriesByType('resource').map((each) => each.name)"  # of the cache, too


def test_nothing_is_asked_while_nothing_happens(console: Console) -> None:
    """A page that is open hears by its stream what changes; it never asks again by itself."""
    console.page.goto(
        "about:blank"
    )  # the page that signed in had a stream of its own, and would see a clock at 1970
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


def test_no_answer_is_large(console: Console) -> None:
    """
    Each file and each answer of a page is under 200 KB, its script and style together under 150 KB,
    uncompressed.
    """
    needed = {name: sum(map(script_and_style, console.page.evaluate(LOADED))) for name in visited(console)}
    sizes = {}
    for request in console.requests:
        response = request.response() if not request.url.endswith(("/changes", "/tail?")) else None
        if response is not None:
            assert "content-encoding" not in response.headers, request.url
            sizes[request.url.partition("/console/")[2]] = request.sizes()["responseBodySize"]
    print(dict(sorted(sizes.items(), key=lambda pair: -pair[1])[:5]))
    assert MOST_BYTES > max(sizes.values())
    print(f"script and style by page: {needed}")
    assert SCRIPT_AND_STYLE > max(needed.values())


def test_a_page_is_loaded_when_it_is_opened(console: Console) -> None:
    """Not before; and once."""
    console.open("/")
    assert ["overview"] == pages(console)
    for _ in range(2):
        for name in ("Devices", "Overview"):
            console.page.get_by_role("link", name=name, exact=True).click()
            console.settle()
    assert ["devices", "overview"] == sorted(pages(console))


def pages(console: Console) -> list[str]:
    """The files of pages that the open one has loaded since it was opened."""
    return [
        Path(url).stem for url in console.page.evaluate(LOADED) if "/pages/" in url and "/list." not in url
    ]


def script_and_style(url: str) -> int:
    """The bytes of a file of the console; 0 for all else."""
    asset = files().assets.get(url.partition(f"/{files().version}/")[2])
    return len(asset.body) if asset and url.endswith((".mjs", ".css")) else 0
