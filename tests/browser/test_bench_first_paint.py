"""Time to the first page on a ledger of a million rows, compared with one of a few thousand."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest

from spool.clock import SystemClock
from spool.sqlite.ledger import open_ledger
from tests.acceptance.conftest import Tollhouse
from tests.bench.many_rows import add_rows
from tests.browser.conftest import OpenConsole
from tests.browser.console import Console, filled
from tests.rounds import IS_LONG
from tests.spool.ledger_log import HOUR

DAY = 24 * HOUR
USERS, DAYS = (1400, 30) if IS_LONG else (140, 3)
MOST_BYTES = 200_000
TRIES = 4  # number of pairs of measurements; several, because the machine may be busy


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Tollhouse]:
    """A running Tollhouse whose ledger has a row per user and hour."""
    tollhouse = filled(tmp_path / "many", "--records", "300")
    data = tollhouse.directory / "tollhouse-data"
    begin = int(time.time()) // DAY * DAY - (DAYS - 1) * DAY
    connection = sqlite3.connect(data / "ledger.sqlite")
    with connection:
        connection.execute("DELETE FROM days WHERE start >= ?", (begin,))
        connection.execute("UPDATE state SET value = ? WHERE name = 'daily'", (begin,))
    add_rows(connection, USERS, DAYS * 24, begin)
    connection.close()
    with ThreadPoolExecutor(
        1
    ) as aside:  # a separate thread has its own event loop, because Playwright's loop occupies this thread
        aside.submit(asyncio.run, _sum_up_days(data)).result()
    tollhouse.start()
    yield tollhouse
    tollhouse.stop()


async def _sum_up_days(data: Path) -> None:
    ledger = await open_ledger(data, clock=SystemClock())
    await ledger.sum_up_and_delete_hours()
    await ledger.close()


@pytest.mark.proof
@pytest.mark.bench
@pytest.mark.timeout(600)
def test_first_paint(month: Tollhouse, many: Tollhouse, open_console: OpenConsole) -> None:
    """The overview's figures appear within about three times the time on a small ledger."""
    for _ in range(TRIES):
        few, paint = figures(open_console(month))
        console = open_console(many)
        console.listen()
        took, paint_of_many = figures(console)
        if took <= 3 * few + 0.5:
            break
    answered = [each for each in console.requests if "/overview" in each.url and each.failure is None]
    largest = max(request.sizes()["responseBodySize"] for request in answered)
    print(
        f"\n{USERS * DAYS * 24} rows: figures after {took:.2f} s, first paint {paint_of_many:.2f} s; small "
        "ledger"
        f" {few:.2f} s and {paint:.2f} s; largest answer {largest} bytes"
    )
    assert took <= 3 * few + 0.5
    assert largest < MOST_BYTES


def figures(console: Console) -> tuple[float, float]:
    """Return the seconds until the figures appear, and until the first paint: medians of five."""
    found = []
    for _ in range(5):
        console.page.goto("about:blank")
        begin = time.perf_counter()
        console.page.goto(f"{console.tollhouse.url}/console/#/")
        console.page.get_by_text("Spend in").first.wait_for()
        paint = console.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        found.append((time.perf_counter() - begin, paint / 1000))
    return median(took for took, _ in found), median(paint for _, paint in found)
