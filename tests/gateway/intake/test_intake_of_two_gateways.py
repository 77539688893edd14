"""
Two gateways on one PostgreSQL count each call once, because they share partial reports and the senders of calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.configuration.sections import Config
from gateway.intake.attribution import RecordAttributor
from gateway.intake.callers import KEEP_EVERY_S, WINDOW_S
from gateway.intake.intake import PayloadIntake
from gateway.intake.merge_window import SharedMergeWindow
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import ReportedCallers
from gateway.intake.waiting_counters import WaitingCounters
from gateway.normalise.outcome import ReadOutcome
from gateway.operations.list import declared_tables
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.engines import POSTGRES, open_storage
from spool.log.partial_reports import COUNTERS
from spool.log.recent_senders import caller_digest
from spool.record import AI_TELEMETRY, Inference, UsageMetric
from spool.settings import LOCAL, SpoolSettings, StorageSettings
from spool.storage import Storage, StorageOptions
from tests.gateway.intake.test_waiting_counters import FAMILIES, Family, call, counters, merged
from tests.gateway.normalise.formats.langfuse.events import batch, create, trace, update
from tests.gateway.normalise.formats.payloads import read_batch
from tests.moved_clock import MovedClock
from tests.spool.postgres_cluster import Schema

ALICE = AuthenticatedKey("alice", frozenset(), {"team": "search"})
CLAUDE_CODE = FAMILIES["Claude Code"]
PRICES = PriceBook.load()


@dataclass
class Gateway:
    """The intake of one process, assembled on shared storage."""

    storage: Storage
    intake: PayloadIntake
    counters: WaitingCounters
    window: SharedMergeWindow

    async def records(self) -> list[object]:
        log = self.storage.log
        entries = await log.read(AI_TELEMETRY, 1, log.lowest_open_number(AI_TELEMETRY) - 1)
        return [record for entry in entries for record in entry.records]

    async def merge(self, *events: object) -> None:
        outcome, reports = read_batch("langfuse", batch(*events))
        await self.window.store_outcome(outcome, ALICE, reports)


async def gateway(options: StorageOptions, clock: MovedClock) -> Gateway:
    storage = await open_storage(options, engine=POSTGRES)
    shadows = ReportedCallers(clock, heard=storage.heard)
    waiting = WaitingCounters(storage.log, shadows, clock, wait_s=90, max_items=1000, max_bytes=1 << 20)
    await waiting.load_waiting_counters(storage.partial_reports, record_hold_s=0)
    intake = PayloadIntake(
        storage.log, attributor=RecordAttributor(Config()), prices=PRICES, shadows=shadows, counters=waiting
    )
    window = SharedMergeWindow(
        storage.partial_reports,
        storage.log,
        intake,
        clock,
        window_s=600.0,
        hold_s=0,
        max_reports=1000,
        max_bytes=1 << 24,
    )
    return Gateway(storage, intake, waiting, window)


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest_asyncio.fixture
async def two(
    new_schema: Callable[[], Schema], tmp_path: Path, clock: MovedClock
) -> AsyncIterator[tuple[Gateway, Gateway]]:
    schema = new_schema()
    (tmp_path / "dsn").write_text(schema.dsn)
    (tmp_path / "secret").write_bytes(b"i" * 32)
    settings = StorageSettings(
        engine=POSTGRES,
        dsn_file=tmp_path / "dsn",
        schema=schema.name,
        secret_file=tmp_path / "secret",
        durability=LOCAL,
    )
    options = StorageOptions(
        declared=declared_tables(),
        directory=tmp_path / "node",
        settings=SpoolSettings(hold=0),
        clock=clock,
        storage=settings,
    )
    gateways = await gateway(options, clock), await gateway(options, clock)
    yield gateways
    for one in gateways:
        await one.storage.close()


async def test_the_parts_of_a_call(two: tuple[Gateway, Gateway]) -> None:
    """
    Parts sent to both gateways in any order make one record. Either gateway can add a report to it or
    recognize a duplicate.
    """
    a, b = two
    await asyncio.gather(a.merge(trace(), create()), b.merge(update()))
    await a.merge(update())
    await b.merge(create())
    (record,) = await a.records()
    assert isinstance(record, Inference)
    assert record.request_model == "gpt-4o-mini"
    assert record.input_tokens == 10
    books = await b.storage.log.verify()
    assert list(books.imbalances) == []
    assert books.topics[AI_TELEMETRY].get("pending", 0) == 0


async def test_counters_at_another_gateway_than_the_calls_are_duplicates(
    two: tuple[Gateway, Gateway], clock: MovedClock
) -> None:
    """Counters sent to the other gateway are kept for reference, even if they arrive before the calls."""
    a, b = two
    began = clock.now()
    await a.intake.store_outcome(counters(CLAUDE_CODE, 1, began), ALICE)
    assert (found := await b.storage.partial_reports.count_reports_and_bytes(COUNTERS))[0] == 1
    assert found[1] > 0
    await b.intake.store_outcome(call(CLAUDE_CODE, 1, began), ALICE)
    await a.intake.store_outcome(counters(CLAUDE_CODE, 2, began), ALICE)
    assert await b.counters.record_due_and_reverse_repeated_counters() // 2 == 1
    assert await a.counters.record_due_and_reverse_repeated_counters() == 0
    metrics = [record for record in await b.records() if isinstance(record, UsageMetric)]
    assert len(metrics) == 4
    assert {metric.shadow for metric in metrics} == {True}

    assert 0 == await a.storage.heard.delete_old(clock.now() - WINDOW_S)
    clock.move(KEEP_EVERY_S)
    assert 0 < await a.storage.heard.delete_old(clock.now())
    books = await a.storage.log.verify()
    assert list(books.imbalances) == []
    assert books.topics[AI_TELEMETRY].get("pending", 0) == 0


async def test_a_new_conversation_is_one_row(two: tuple[Gateway, Gateway], clock: MovedClock) -> None:
    """
    A new conversation adds one row, with its model, source and service. A user or service that is known
    already adds no further row.
    """
    a, _ = two
    together = ReadOutcome()
    for number in range(100):
        one = call(
            Family({"source": "codex", "session": f"s{number}", "user": "u1"}, {}), number, clock.now()
        )
        for record in one.records:
            assert isinstance(record, Inference)
            record.request_model, record.response_model = "gpt-5", "gpt-5-2025-08-07"
        together = merged([together, one])
    await a.intake.store_outcome(together, ALICE)
    asked = [caller_digest("session", f"s{number}") for number in range(100)]
    others = [caller_digest("user", "u1"), caller_digest("service", "svc")]
    assert 102 == len(await a.storage.heard.find_senders_of_callers([*asked, *others]))
    assert 102 == await a.storage.heard.delete_old(clock.now() + 1)
