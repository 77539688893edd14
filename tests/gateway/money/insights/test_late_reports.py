"""Counts of reports that arrived too late for their calls, by source."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from gateway.core.kept_counts import DAY_S
from gateway.money.insights.detectors.records import late_reports
from gateway.monitoring.late_reports import LateReportCounter, LateReports, LateReportSaver
from spool.errors import SpoolUnavailable
from spool.log.values import Commit
from spool.registry.registry import Registry
from spool.registry.tables.late_reports import MAX_SOURCES, Counts, LateReportTable
from spool.sqlite.in_memory import new_in_memory_registry
from tests.gateway.money.insights.examples import found
from tests.moved_clock import MovedClock


def commit(**terms: int) -> Commit:
    """Create a commit with accounting terms. Each keyword has the form `source__term`."""
    counted = {("ai-telemetry", term, source): n for key, n in terms.items()
               for source, _, term in [key.partition("__")]}  # fmt: skip
    return Commit(seconds=0.0, flush_seconds=0.0, terms=Counter(counted))


def test_late_reports_of_a_source_are_one_finding() -> None:
    findings = found(late_reports, late_reports=[LateReports("bedrock", 3, 0), LateReports("kong", 1, 2)])
    titles = {finding.draft.title for finding in findings}
    assert {
        "3 reports of bedrock came too late for their calls",
        "3 reports of kong came too late for their calls",
    } == titles
    assert 2 == len({finding.key for finding in findings})
    [uncompared] = [
        finding.draft.description for finding in findings if "too old to compare" in finding.draft.description
    ]
    assert "2 of them repeat calls" in uncompared
    assert [] == found(late_reports)


@pytest_asyncio.fixture
async def table() -> AsyncIterator[LateReportTable]:
    registry = await Registry.open(new_in_memory_registry(), secret=b"s" * 32, clock=MovedClock())
    yield registry.late_reports
    await registry.close()


async def test_a_week_is_counted(table: LateReportTable) -> None:
    """The late reports of a week are counted by source, and old days are deleted."""
    clock = MovedClock(1_790_000_000)
    counter = LateReportCounter(clock)
    stored_reports = LateReportSaver(counter, table)
    counter.note_commit(commit(kong__uncompared=2, kong__duplicates=9, otel__corrected=1))
    clock.move(3 * DAY_S)
    counter.note_commit(commit(kong__amended_late=1))
    assert [LateReports("kong", 1, 2)] == await stored_reports.store_and_sum_recent_late_reports()
    clock.move(5 * DAY_S)
    assert [LateReports("kong", 1, 0)] == await stored_reports.store_and_sum_recent_late_reports()
    clock.move(5 * DAY_S)
    assert [] == await stored_reports.store_and_sum_recent_late_reports()


async def test_names_of_senders_are_bounded(table: LateReportTable) -> None:
    """The number of source names is limited per day. Further names are counted as "other"."""
    counter = LateReportCounter(MovedClock(1_790_000_000))
    stored_reports = LateReportSaver(counter, table)
    for number in range(MAX_SOURCES + 10):
        counter.note_commit(commit(**{f"s{number}__uncompared": 1}))
        if number == MAX_SOURCES // 2:
            await stored_reports.store_pending()
    recent = await stored_reports.store_and_sum_recent_late_reports()
    assert len(recent) == MAX_SOURCES + 1
    assert LateReports("other", 0, 10) == recent[0]


async def test_a_restart_and_another_gateway_count_on(table: LateReportTable) -> None:
    """Counts are stored at a stop. If storing fails, they are stored later."""
    clock = MovedClock(1_790_000_000)
    counters = [LateReportCounter(clock), LateReportCounter(clock)]
    for counter in counters:
        counter.note_commit(commit(kong__uncompared=2))
    running = asyncio.create_task(LateReportSaver(counters[0], table).run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    with pytest.raises(SpoolUnavailable):
        await LateReportSaver(counters[1], Away()).store_pending()
    assert [LateReports("kong", 0, 4)] == await LateReportSaver(
        counters[1], table
    ).store_and_sum_recent_late_reports()


class Away(LateReportTable):
    def __init__(self) -> None: ...

    async def add(self, days: Mapping[int, Counts], *, oldest: int) -> None:
        raise SpoolUnavailable("the database is away")
