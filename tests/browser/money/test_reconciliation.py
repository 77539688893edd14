"""Reconciliation: what was billed and counted of a month, why they differ, and the way to the costs behind a row."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from playwright.sync_api import expect

from gateway.reconciliation.gathering import CalendarMonth
from spool.clock import SystemClock
from spool.engines import SQLITE, open_storage
from spool.registry.operators import Actor
from spool.settings import SpoolSettings
from spool.statements.values import Statement, StatementRow
from spool.storage import StorageOptions
from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, filled

MONTH = CalendarMonth.at(datetime.now(UTC).timestamp()).previous
MODEL = "model <b>of nobody"


def bill() -> Statement:
    """A model that the ledger has no call of, every day of last month, by tokens and money."""
    rows = [
        StatementRow(
            source="openai_costs", provider="openai", account=None, key=None, model=MODEL, start=day, end=day + 86400,
            unit=unit, kind="input", amount=Decimal(amount), currency=currency, tier=None, region=None, batch=None,
            settled=True,
        )
        for day in MONTH.days
        for unit, amount, currency in (("tokens", "1000000", None), ("usd", "2.5", "USD"))
    ]  # fmt: skip
    now = datetime.now(UTC).timestamp()
    return Statement(
        source="openai_costs", account="", start=MONTH.start, end=MONTH.end, rows=tuple(rows), read_at=now,
        settled_until=now, name="costs.json",
    )  # fmt: skip


async def put(directory: Path) -> None:
    options = StorageOptions(directory=directory, settings=SpoolSettings(), clock=SystemClock())
    storage = await open_storage(options, engine=SQLITE)
    assert storage.registry is not None
    await storage.registry.statements.put(bill(), actor=Actor("ada@example.com", "command"))
    await storage.close()


@pytest.fixture
def billed(tmp_path: Path) -> Iterator[Tollhouse]:
    """A running Tollhouse of the test's own with two months of traffic and a bill about the last one."""
    tollhouse = filled(tmp_path / "billed", "--days", "62", "--records", "1500")
    with ThreadPoolExecutor(1) as thread:  # the browser's own loop runs in this one
        thread.submit(lambda: asyncio.run(put(tollhouse.directory / "tollhouse-data"))).result()
    tollhouse.start()
    yield tollhouse
    tollhouse.stop()


def test_a_month_is_read(billed: Tollhouse, open_console: OpenConsole) -> None:
    """Totals, causes with their evidence, a row for each model; rows lead to costs; a month without a bill says so."""
    console = open_console(billed, role="viewer")
    page = console.page
    console.open(f"/reconciliation?month={MONTH.name}&by=model")
    answer = console.ask(f"/reconciliation?month={MONTH.name}&by=model")
    [found] = answer["providers"]
    assert "unreported_traffic" in [each["cause"] for each in found["causes"]]
    section = page.get_by_role("region", name="openai", exact=True)
    expect(section.locator("dd").first).to_have_attribute("title", f"${found['total']['billed']}")
    causes = page.get_by_role("region", name="Causes of openai")
    expect(causes).to_contain_text("unreported traffic")
    expect(causes).to_contain_text(MODEL)
    rows = page.get_by_role("region", name="openai by model").locator("tbody tr")
    assert len(found["rows"]) == rows.count()
    assert [] == console.audit()
    console.screenshot("reconciliation")
    page.get_by_role("link", name="By day", exact=True).click()
    expect(page.get_by_role("region", name="openai by day").locator("tbody tr")).to_have_count(len(MONTH.days))
    expect(page.get_by_role("region", name="openai by day").locator("tbody tr").first).to_contain_text("differs")
    page.set_viewport_size({"width": NARROW["width"], "height": NARROW["height"]})
    assert console.overhang() <= 0
    page.get_by_role("region", name="openai by day").locator("tbody a").first.click()
    expect(page).to_have_url(re.compile(rf"/costs\?from={MONTH.name}-01&.*provider=openai"))
    console.open("/reconciliation")
    expect(page.get_by_role("heading", name="There is no statement of this month")).to_be_visible()
    assert [] == console.audit()
