"""
Measure the weight of each console page on its first visit: gzip file bytes, response bytes, requests.

    python -m tests.bench.server.page_weights
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import sync_playwright

from gateway.console.pages import load_console as files
from tests.browser.console import CHROMIUM, WIDE, Console, filled, launched, visited

LOADED = (
    # the result includes resources from the cache
    "performance.getEntriesByType('resource').map((each) => each.name)"
)
STREAMS = ("/changes", "/tail?")  # addresses with endless responses


@dataclass(frozen=True)
class Weight:
    """Bytes on the wire and requests of a first visit to a page."""

    files: int
    answers: int
    requests: int

    @property
    def bytes(self) -> int:
        return self.files + self.answers


def weights(console: Console) -> Iterator[tuple[str, Weight]]:
    """Yield each page and each of its tabs with its weight."""
    before = 0
    for name in visited(console):
        # count each address once, because a page repeats a request when it learns of a change
        addresses = list(
            {each.url: each for each in console.requests[before:] if "/console/api/" in each.url}.values()
        )
        loaded = [packed_size(url) for url in console.page.evaluate(LOADED)]
        ended = [each for each in addresses if not each.url.endswith(STREAMS) and each.response()]
        answers = [each.sizes()["responseBodySize"] for each in ended]
        files_of_page = [size for size in loaded if size]
        index = len(files().index)
        yield name, Weight(index + sum(files_of_page), sum(answers), 1 + len(files_of_page) + len(addresses))
        before = len(console.requests)  # requests of earlier clicks on the page are left out


def packed_size(url: str) -> int:
    """Return the compressed bytes of a console file, or 0 for other addresses."""
    asset = files().assets.get(url.partition(f"/{files().version}/")[2])
    return asset.size if asset else 0


def table(found: Iterable[tuple[str, Weight]]) -> str:
    """Format one line per page, the heaviest first."""
    head = f"{'page':<20} {'KB':>7} {'files':>7} {'answers':>8} {'requests':>9}"
    lines = [
        f"{name:<20} {each.bytes / 1000:>7.1f} {each.files / 1000:>7.1f} {each.answers / 1000:>8.1f} {each.requests:>9}"
        for name, each in sorted(found, key=lambda pair: -pair[1].bytes)
    ]
    return "\n".join([head, *lines])


def main() -> None:
    if CHROMIUM is None:
        sys.exit("needs Chromium: install it, or set TOLLHOUSE_CHROMIUM to the path of one")
    with (
        tempfile.TemporaryDirectory() as directory,
        sync_playwright() as playwright,
        launched(playwright) as browser,
    ):
        plants = ("--days", "62", "--records", "6000", "--plant", "missing-price,retry-storm")
        tollhouse = filled(Path(directory), *plants)
        tollhouse.start()
        try:
            with browser.new_context(viewport=WIDE, reduced_motion="reduce") as context:
                console = Console(context, tollhouse)
                console.sign_in()
                console.listen()
                print(table(weights(console)))
        finally:
            tollhouse.stop()


if __name__ == "__main__":
    main()
