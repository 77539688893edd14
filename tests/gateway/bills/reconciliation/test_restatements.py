"""
Files of the simulated month in the store: restatements replace earlier rows, late rows are added, and days
stay open until they have settled. Then everything agrees.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.gathering import StatementSources
from gateway.bills.reconciliation.lines import AGREES, DIFFERS, EXPLAINED, OPEN, UNKNOWN
from gateway.bills.reconciliation.reconciler import BillReconciler
from gateway.bills.statements.importing import ReportFile, read_reports
from gateway.bills.statements.sources.list import SOURCES
from gateway.operations.list import declared_tables
from spool import money
from spool.engines import MEMORY, open_storage
from spool.ledger.ledger import Ledger
from spool.registry.operators import Actor
from spool.settings import SpoolSettings
from spool.sqlite.in_memory import new_in_memory_ledger
from spool.statements import StatementOutcome, billed_total, token_total
from spool.storage import StorageOptions
from tests.gateway.bills.reconciliation.report_files import files
from tests.gateway.bills.reconciliation.simulator import DAY_S, DAYS, PROVIDERS, Call, book, month, record
from tests.moved_clock import MovedClock
from tests.rounds import part
from tests.spool.ledger_log import FakeClock, FakeLog

CALLS = month(a_day=6)
NEWEST = 20  # number of the day that the provider restates
DAY = DAYS[NEWEST]
REPORTED = DAYS[: NEWEST + 1]
ADA = Actor("ada@example.com", "command")
ON_DAY = {name: [call for call in CALLS if (call.provider, call.day) == (name, DAY)] for name in PROVIDERS}
# Before its restatement, the provider counted these calls twice.
TWICE = [call for calls in ON_DAY.values() for call in calls[::3]]
LATE = {id(call) for calls in ON_DAY.values() for call in calls[1::2]}


@dataclass
class Books:
    """A ledger that counted every call, and a store of bills."""

    sources: StatementSources
    provider: str

    @property
    def settle_s(self) -> int:
        return max(SOURCES[name].settle_s for name in files(self.provider, CALLS, REPORTED))

    async def take(self, calls: Sequence[Call], *, read_at: float) -> list[StatementOutcome]:
        """Import the provider's reports about these calls."""
        outcomes = []
        for name, content in files(self.provider, calls, REPORTED).items():
            [report] = read_reports(
                [ReportFile(name=name, content=content, read_at=read_at)],
                source=None,
                account=None,
                max_unpacked_bytes=10_000,
            )
            assert report.source.name == name, report.named
            assert report.damaged == 0, report.named
            assert report.statement is not None
            outcomes.append(await self.sources.statements.import_statement(report.statement, actor=ADA))
        return outcomes

    async def compare(self, *, now: float) -> Reconciliation:
        reconciler = BillReconciler(self.sources, MovedClock(now))
        [result] = (await reconciler.reconcile(CalendarMonth.of("2026-03"), self.provider)).providers
        return result

    async def said(self) -> tuple[int, Decimal]:
        """Return the stored tokens and dollars of the whole month."""
        rows = await self.sources.statements.statement_rows(provider=self.provider, start=0, end=2**40)
        return int(token_total(rows)), billed_total(rows)

    def used(self, calls: Sequence[Call]) -> tuple[int, Decimal]:
        own = [call for call in calls if call.provider == self.provider and call.day in REPORTED]
        return sum(sum(call.tokens.values()) for call in own), sum((call.cost() for call in own), Decimal(0))

    async def holds(self, calls: Sequence[Call]) -> None:
        """Check that the stored amounts equal these calls once, except for the provider's rounding."""
        stated_sums, used_sums = await self.said(), self.used(calls)
        assert used_sums[0] == stated_sums[0]
        assert abs(used_sums[1] - stated_sums[1]) < Decimal("0.001")


@pytest_asyncio.fixture(params=part([*PROVIDERS], every=3))
async def books(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Books]:
    prices, log, clock = book(), FakeLog(), FakeClock(DAYS[-1] + 3 * DAY_S)
    records = [record(call) for call in CALLS if call.provider == request.param and call.day in REPORTED]
    for report in records:
        prices.price_record(report)
    log.add(records, at=clock.at)
    ledger = await Ledger(new_in_memory_ledger(), clock=clock).load()
    async with AsyncExitStack() as stack:
        options = StorageOptions(
            declared=declared_tables(),
            settings=SpoolSettings(hold=0),
            clock=MovedClock(clock.at),
            directory=tmp_path,
        )
        storage = await open_storage(options, engine=MEMORY)
        stack.push_async_callback(storage.close)
        assert storage.registry is not None
        statements = storage.registry.statements
        sources = StatementSources(ledger=ledger, log=log, prices=lambda: prices, statements=statements)  # type: ignore[arg-type]
        yield Books(sources, request.param)


async def test_a_restated_day_and_late_rows(books: Books) -> None:
    """
    A restated day with late rows is open and in no sum until it has settled. After the last
    file, everything agrees.
    """
    begun = [call for call in CALLS if id(call) not in LATE]
    over = DAY + DAY_S
    await books.take([*begun, *TWICE], read_at=over)
    await books.holds([*begun, *TWICE])
    first = await books.compare(now=over)
    states = {int(line.name): line.state for line in first.days}
    open_from = over - books.settle_s
    assert all(states[day] == (AGREES if day + DAY_S <= open_from else OPEN) for day in REPORTED), states
    assert {OPEN, UNKNOWN} >= {state for day, state in states.items() if day not in REPORTED}

    restated = await books.take(begun, read_at=over + 3600)
    await books.holds(begun)
    assert {DAY} == {revision.day for outcome in restated for revision in outcome.revisions}
    assert all(
        (revision.billed, revision.tokens) != (revision.billed_before, revision.tokens_before)
        and revision.billed <= revision.billed_before
        and revision.tokens <= revision.tokens_before
        for outcome in restated
        for revision in outcome.revisions
    )

    late = await books.take(CALLS, read_at=over + books.settle_s - 1)
    await books.holds(CALLS)
    assert {DAY} == {revision.day for outcome in late for revision in outcome.revisions}
    assert (
        OPEN
        == {int(line.name): line.state for line in (await books.compare(now=over + books.settle_s)).days}[DAY]
    )

    last = await books.take(CALLS, read_at=over + books.settle_s)
    await books.holds(CALLS)
    assert [] == [revision for outcome in last for revision in outcome.revisions]
    result = await books.compare(now=over + books.settle_s)
    states = {int(line.name): line.state for line in result.days}
    assert {AGREES} == {states[day] for day in REPORTED}
    used, dollars = books.used(CALLS)
    assert used == result.total.billed_tokens == result.total.counted_tokens == result.total.captured_tokens
    assert dollars == Decimal(money.units_to_text(result.total.counted))
    assert 0 == result.total.unexplained == result.total.parts["volume"]
    assert {"rounding"} >= {claim.cause for claim in result.claims}


async def test_the_same_file_again(books: Books) -> None:
    """A repeated file changes nothing. When the day has settled, missing rows are named."""
    begun = [call for call in CALLS if id(call) not in LATE]
    settled = DAY + DAY_S + books.settle_s
    await books.take(begun, read_at=settled)
    for _ in range(2):
        outcomes = await books.take(begun, read_at=settled)
        assert {(0, 0, ())} == {
            (outcome.days_new, outcome.days_changed, outcome.revisions) for outcome in outcomes
        }
    await books.holds(begun)
    result = await books.compare(now=settled)
    differing = {int(line.name) for line in result.days if line.state in (EXPLAINED, DIFFERS)}
    assert {DAY} == differing
    missing = books.used(CALLS)[0] - books.used(begun)[0]
    assert missing == result.total.counted_tokens - result.total.billed_tokens
