"""
One Chromium for the folder, one read-only Tollhouse with a month of traffic, and others that tests may change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from playwright.sync_api import Browser, StorageState, expect, sync_playwright

from tests.acceptance.conftest import Tollhouse, installations
from tests.browser.console import CHROMIUM, PATIENCE_MS, TWO_MONTHS, WIDE, Console, filled, launched
from tests.browser.trouble import ARCHIVE, REFUSED, RefusingUpstream, in_trouble
from tests.waiting import wait_until

__all__ = ["installations"]

OpenConsole = Callable[..., Console]
# sessions at read-only installations, by role and address
SignedIn = WeakKeyDictionary[Tollhouse, dict[str, StorageState]]

# After a change, a page reloads within 5 s, or within a minute if its last load was slow.
expect.set_options(timeout=PATIENCE_MS)


# package scope, because Playwright's event loop occupies this thread until the folder's tests end
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Start the machine's Chromium. TOLLHOUSE_CHROMIUM names one that is not in the path."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: `make test` installs it on Debian; TOLLHOUSE_CHROMIUM names another")
    with sync_playwright() as playwright, launched(playwright) as chromium:
        yield chromium


@pytest.fixture(scope="package")
def signed_in() -> SignedIn:
    """
    Keep one session per role at each read-only installation, so that later browser contexts reuse its cookie.
    """
    return WeakKeyDictionary()


@pytest.fixture(scope="package")
def month(tmp_path_factory: pytest.TempPathFactory, signed_in: SignedIn) -> Iterator[Tollhouse]:
    """A running Tollhouse with two months of traffic and open insights. Tests must not change it."""
    tollhouse = filled(tmp_path_factory.mktemp("month"), *TWO_MONTHS)
    tollhouse.start()
    signed_in[tollhouse] = {}
    yield tollhouse
    tollhouse.stop()


@pytest.fixture
def open_console(browser: Browser, signed_in: SignedIn) -> Iterator[OpenConsole]:
    """Return a function that opens signed-in pages. At the end, no page may have reported an error."""
    made: list[Console] = []
    with ExitStack() as stack:

        def make(tollhouse: Tollhouse, *, role: str = "admin", url: str = "", **context: Any) -> Console:
            known = signed_in.get(tollhouse, {})
            name = f"{role} {url}"
            state = known.get(name)
            settings = {"viewport": WIDE, "reduced_motion": "reduce", "storage_state": state, **context}
            made.append(Console(stack.enter_context(browser.new_context(**settings)), tollhouse, url))
            if state is None:
                made[-1].sign_in(role)
                known[name] = made[-1].context.storage_state()
            return made[-1]

        yield make
        wrong = [text for console in made for text in console.wrong]
    assert [] == wrong


@pytest.fixture
def console(month: Tollhouse, open_console: OpenConsole) -> Console:
    """A page of the console on a month of traffic, signed in as admin."""
    return open_console(month)


@pytest.fixture
def house(installations: Any) -> Tollhouse:
    """A running, empty Tollhouse for one test. Its only destination is a record file."""
    tollhouse: Tollhouse = installations()
    tollhouse.start()
    return tollhouse


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Tollhouse]:
    """A running Tollhouse with a month of traffic that the test may change."""
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
    """A running Tollhouse with a problem on every page. Its upstream has refused its key."""
    tollhouse = in_trouble(tmp_path / "troubled", refusing.url)
    tollhouse.start(env={"UPSTREAM_SECRET": "s" * 40})
    wait_until(lambda: tollhouse.route(REFUSED)["state"] == "parked", "the upstream refuses")
    tollhouse.wait_until_drained(ARCHIVE)
    yield tollhouse
    tollhouse.stop()
