"""
One Chromium for the folder, a Tollhouse with a month of traffic that is only looked at, and others to change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.acceptance.conftest import Tollhouse, installations, wait_for
from tests.browser.console import CHROMIUM, PATIENCE_MS, WIDE, Console, filled, launched
from tests.browser.trouble import ARCHIVE, REFUSED, RefusingUpstream, in_trouble

__all__ = ["installations"]

OpenConsole = Callable[..., Console]

# A page that hears of a change loads again after up to 5 s, or after 20 times as long as the last time took.
expect.set_options(timeout=PATIENCE_MS)


# Ends with the folder, because an event loop of Playwright runs on this thread until then.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium as the machine has it; TOLLHOUSE_CHROMIUM names one that is not in the path."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: `make test` installs it on Debian; TOLLHOUSE_CHROMIUM names another")
    with sync_playwright() as playwright, launched(playwright) as chromium:
        yield chromium


@pytest.fixture(scope="package")
def month(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tollhouse]:
    """
    A running Tollhouse with two months of traffic and open insights. Tests look at it and change nothing.
    """
    plants = ("--days", "62", "--records", "6000", "--plant", "missing-price,retry-storm")
    tollhouse = filled(tmp_path_factory.mktemp("month"), *plants)
    tollhouse.start()
    yield tollhouse
    tollhouse.stop()


@pytest.fixture
def open_console(browser: Browser) -> Iterator[OpenConsole]:
    """Opens pages that are signed in; nothing may have gone wrong in any of them at the end."""
    made: list[Console] = []
    with ExitStack() as stack:

        def make(tollhouse: Tollhouse, *, role: str = "admin", url: str = "", **context: Any) -> Console:
            settings = {"viewport": WIDE, "reduced_motion": "reduce", **context}
            made.append(Console(stack.enter_context(browser.new_context(**settings)), tollhouse, url))
            made[-1].sign_in(role)
            return made[-1]

        yield make
        wrong = [text for console in made for text in console.wrong]
    assert [] == wrong


@pytest.fixture
def console(month: Tollhouse, open_console: OpenConsole) -> Console:
    """A page on the month of traffic, signed in as admin."""
    return open_console(month)


@pytest.fixture
def house(installations: Any) -> Tollhouse:
    """A running Tollhouse of the test's own, empty, with a record file as its only destination."""
    tollhouse: Tollhouse = installations()
    tollhouse.start()
    return tollhouse


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Tollhouse]:
    """A running Tollhouse of the test's own with a month of traffic, to change."""
    tollhouse = filled(tmp_path / "busy", "--days", "40", "--records", "1500")
    tollhouse.start()
    yield tollhouse
    tollhouse.stop()


@pytest.fixture
def refusing() -> Iterator[RefusingUpstream]:
    upstream = RefusingUpstream()
    yield upstream
    upstream.close()


@pytest.fixture
def troubled(refusing: RefusingUpstream, tmp_path: Path) -> Iterator[Tollhouse]:
    """A running Tollhouse on whose pages there is something to do; its upstream has refused its key."""
    tollhouse = in_trouble(tmp_path / "troubled", refusing.url)
    tollhouse.start(env={"UPSTREAM_SECRET": "s" * 40})
    wait_for(lambda: tollhouse.route(REFUSED)["state"] == "parked", 120, "the upstream refuses")
    tollhouse.wait_until_drained(ARCHIVE)
    yield tollhouse
    tollhouse.stop()
