"""The calls of the benchmark of the console are stored once and counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.acceptance.conftest import Tollhouse
from tests.bench.growth.console import PAGES, store_calls
from tests.browser.console import MONTH
from tests.browser.console import PAGES as ALL_PAGES

CALLS, DAYS = 400, 20


def test_the_pages_exist() -> None:
    assert set(PAGES) <= {path for path, _, _ in ALL_PAGES}


@pytest.mark.bench
def test_the_calls_are_stored_and_counted(tmp_path: Path) -> None:
    house = Tollhouse(tmp_path, MONTH)
    with ThreadPoolExecutor(1) as thread:  # Playwright's loop of another test may occupy this thread
        thread.submit(store_calls, house.directory, CALLS, DAYS).result()
    house.start()
    try:
        assert CALLS == house.asked("/report?range=last_90d&show=calls")["total"]["calls"]
        assert 5 == len(house.asked("/records?limit=5")["records"])
    finally:
        house.stop()
