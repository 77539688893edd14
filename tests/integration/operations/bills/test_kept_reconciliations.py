"""
Reconciled months in memory: unchanged months are not read again, and a change by any process is seen at once.

Each server of these tests has its own results and shares the database with the other one, as two gateways do.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace as change

from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation import reconciler
from gateway.bills.reconciliation.comparing import ComparisonInput, Reconciliation, compare_bill_with_ledger
from gateway.bills.reconciliation.gathering import StatementSources
from gateway.bills.reconciliation.lines import DayTolerance
from gateway.bills.reconciliation.reconciler import MOST_MONTHS, BillReconciler
from gateway.intake.prices import PriceBook
from spool import identity
from spool.ledger.days.usage import UsageSum
from spool.ledger.ledger import Ledger
from spool.registry.operators import Actor
from spool.statements import StatementRow
from tests.gateway.bills.reconciliation.simulator import (
    KEYS,
    MODELS,
    OPENAI,
    PROVIDERS,
    book,
    record,
    statements,
)
from tests.integration.operations.bills.test_reconciliation import CALLS, MARCH, NOW, put
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add

DAY_S = 86400


class Work:
    """Counts the days that are read from the ledger, and the comparisons with and without causes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.days = self.searches = self.totals = 0
        self.threads: set[int] = set()
        usage_of_day = Ledger.usage_of_day

        async def read(ledger: Ledger, day: int) -> Sequence[UsageSum]:
            self.days += 1
            return await usage_of_day(ledger, day)

        def compared(sides: ComparisonInput, *, has_causes: bool) -> Reconciliation:
            self.threads.add(threading.get_ident())
            if has_causes:
                self.searches += 1
            else:
                assert not sides.hours  # totals do not need the sums by hour
                self.totals += 1
            return compare_bill_with_ledger(sides, has_causes=has_causes)

        patch.setattr(Ledger, "usage_of_day", read)
        patch.setattr(reconciler, "compare_bill_with_ledger", compared)

    def take(self) -> tuple[int, int]:
        """Return the days and the searches since the last call."""
        done = self.days, self.searches
        self.days = self.searches = 0
        return done


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    clock, prices = MovedClock(NOW.timestamp()), book()
    async with operator_server(tmp_path, clock=clock, prices=lambda: prices) as server:
        await add_calls(server, [call for call in CALLS if call.key != KEYS[1]], prices)
        await put(server, statements(CALLS))
        yield server


async def add_calls(server: OperatorServer, calls: Sequence[Any], prices: PriceBook, first: int = 0) -> None:
    records = [record(call) for call in calls]
    for each in records:
        prices.price_record(each)
    known = [
        identity.call_identity(each, response_id=f"chatcmpl-{n:032d}")
        for n, each in enumerate(records, first)
    ]
    await add(server.services.spool.log, *zip(records, known, strict=True))


def gateways(server: OperatorServer, **settings: Any) -> tuple[BillReconciler, BillReconciler]:
    """Return the reconcilers of two gateways that share the database of the server."""
    sources = StatementSources(
        ledger=server.services.money.require_reconciler()._sources.ledger,
        log=server.services.spool.log,
        prices=settings.pop("prices", book),
        statements=server.registry.statements,
        **settings,
    )
    clock = MovedClock(NOW.timestamp())
    return BillReconciler(sources, clock), BillReconciler(sources, clock)


async def billed(gateway: BillReconciler, provider: str = OPENAI) -> tuple[int, int]:
    [found] = (await gateway.reconcile(CalendarMonth.of(MARCH), provider)).providers
    return found.total.billed, found.total.counted


async def test_an_unchanged_month_is_not_read_again(server: OperatorServer, work: Work) -> None:
    """
    The second request for the reconciliation of a closed month reads no day and runs no check, for one provider and
    for all.
    """
    first, _ = gateways(server)
    whole = await first.reconcile(CalendarMonth.of(MARCH))
    assert (len(CalendarMonth.of(MARCH).days), len(PROVIDERS)) == work.take()
    again = await first.reconcile(CalendarMonth.of(MARCH))
    one = await first.reconcile(CalendarMonth.of(MARCH), OPENAI)
    totals = await first.reconcile(CalendarMonth.of(MARCH), has_causes=False)
    assert (0, 0) == work.take()
    assert again.providers == whole.providers == totals.providers
    assert [OPENAI] == [each.provider for each in one.providers]


async def test_a_late_bill_a_deleted_bill_and_a_late_call_are_seen(
    server: OperatorServer, work: Work
) -> None:
    """
    A late bill, a deleted bill and a late call at one gateway change the reconciliation at both. A bill of another
    month changes nothing.
    """
    both = gateways(server)
    before = [await billed(gateway) for gateway in both]
    work.take()

    march = [row for row in statements(CALLS) if row.provider == OPENAI]
    dearer = [change(row, amount=row.amount * 2) if row.unit == "usd" else row for row in march]
    await put(server, dearer)
    late_bill = [await billed(gateway) for gateway in both]
    assert late_bill == [(2 * theirs, ours) for theirs, ours in before]

    await add_calls(server, [call for call in CALLS if call.key == KEYS[1]], book(), first=len(CALLS))
    late_calls = [await billed(gateway) for gateway in both]
    assert late_calls[0] == late_calls[1]
    assert late_calls[0][1] > before[0][1]

    for each in await server.registry.statements.imports():
        if each.source == "openai_costs":
            await server.registry.statements.undo(each.id, actor=Actor("ada@example.com", "command"))
    without = [await billed(gateway) for gateway in both]
    assert without[0] == without[1]
    assert without[0][0] < late_calls[0][0]
    work.take()

    april = [change(row, start=row.start + 40 * DAY_S, end=row.end + 40 * DAY_S) for row in march[:1]]
    await put_elsewhere(server, april)
    assert without == [await billed(gateway) for gateway in both]
    assert (0, 0) == work.take()


async def put_elsewhere(server: OperatorServer, rows: Sequence[StatementRow]) -> None:
    from spool.statements import Statement

    await server.registry.statements.import_statement(
        Statement(
            source=rows[0].source,
            account="",
            start=rows[0].start,
            end=rows[0].end,
            rows=tuple(rows),
            read_at=NOW.timestamp(),
            settled_until=NOW.timestamp(),
            name="later.json",
        ),
        actor=Actor("ada@example.com", "command"),
    )


async def test_new_prices_and_settings_are_seen(server: OperatorServer, work: Work) -> None:
    """A changed price list and a changed tolerance run the checks again, even if the list keeps its version."""
    cheap = {OPENAI: {name: replace(rates, input="0.01") for name, rates in MODELS[OPENAI].items()}}
    books, tolerances = [book()], [DayTolerance()]
    first, _ = gateways(server, prices=lambda: books[-1], tolerance=lambda: tolerances[-1])
    await billed(first)
    work.take()
    books.append(book())  # a price list that is equal to the first one, but was read again
    await billed(first)
    assert (0, 0) == work.take()
    books.append(book({**MODELS, **cheap}))
    await billed(first)
    assert work.take()[1]
    tolerances.append(DayTolerance(money=Decimal(90)))
    await billed(first)
    assert work.take()[1]


async def test_totals_need_no_search_and_wait_for_none(server: OperatorServer, work: Work) -> None:
    """
    The totals of a reconciliation equal those of the whole report. They run no check, and arrive while another
    request searches for causes. No comparison runs in the thread of the event loop.
    """
    first, second = gateways(server)
    whole = await second.reconcile(CalendarMonth.of(MARCH))
    work.take()
    async with first._turn:  # another search for causes is running
        totals = await first.reconcile(CalendarMonth.of(MARCH), has_causes=False)
    assert (len(CalendarMonth.of(MARCH).days), 0) == work.take()
    for quick, full in zip(totals.providers, whole.providers, strict=True):
        for name in ("billed", "counted", "billed_tokens", "counted_tokens", "captured_tokens"):
            assert getattr(quick.total, name) == getattr(full.total, name)
        assert quick.sources == full.sources
    assert len(PROVIDERS) == work.totals
    assert threading.get_ident() not in work.threads
    answer = await server.ask("GET", f"/reconciliation?month={MARCH}&causes=false")
    assert 200 == answer.status
    assert all("causes" not in each and "rows" not in each for each in answer.payload["providers"])
    assert "unexplained" not in answer.payload["providers"][0]["total"]
    wrong = await server.ask("GET", f"/reconciliation?month={MARCH}&causes=no")
    assert 400 == wrong.status


async def test_few_months_stay_in_memory(server: OperatorServer, work: Work) -> None:
    """
    Only few reconciled months are stored in memory: at the limit the oldest result is dropped, and is computed
    again when it is requested.
    """
    first, _ = gateways(server)
    march = CalendarMonth.of(MARCH)
    months = [march]
    while len(months) < MOST_MONTHS:
        months.append(months[-1].previous)
    for each in months:
        await first.reconcile(each)
    work.take()
    await first.reconcile(march)
    assert (0, 0) == work.take()
    # this drops the month after March from memory, because it was used least recently
    await first.reconcile(months[-1].previous)
    await first.reconcile(march)
    assert (0, 0) == work.take()
    assert len(first._known) == MOST_MONTHS
    assert months[1].name not in first._known
