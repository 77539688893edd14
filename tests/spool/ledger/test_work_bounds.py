"""
A sender of random session ids, for two months: the totals stay small, listed sessions are exact, and the most expensive
ones stay listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import OTHER
from spool.ledger.work import WorkLimits
from spool.log.values import LogEntry
from spool.record import NS, Inference
from spool.sqlite.ledger import open_ledger
from tests.rounds import IS_LONG
from tests.spool.digests import as_shown
from tests.spool.ledger.test_work_conserved import query, sums_of
from tests.spool.ledger_log import FakeClock, FakeLog, call

IDS = 10_000_000 if IS_LONG else 1000  # number of different ids in each month
LIMIT = 100_000 if IS_LONG else 100
MONTHS = [int(datetime(2026, month, 1, tzinfo=UTC).timestamp()) for month in (10, 11, 12)]
EVERY = 20  # every 20th call is of an expensive session
EXPENSIVE = min(1000, LIMIT // 10)
COST, HIGH_COST = Decimal("0.0001"), Decimal("0.01")


class RandomSessions(FakeLog):
    """A log that makes its records when they are read: mostly sessions and runs of one call."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = 1

    def lowest_open_number(self, topic: str = "ai-telemetry") -> int:
        return self.closed

    def time_of(self, number: int) -> float:
        month, place = divmod(number - 1, IDS)
        return MONTHS[month] + (MONTHS[month + 1] - MONTHS[month]) * place / IDS

    async def read(
        self, topic: str, first_number: int, last_number: int, **options: object
    ) -> Sequence[LogEntry]:
        records = [self._made(number) for number in range(first_number, last_number + 1)]
        return [
            LogEntry(topic=topic, first=first_number, committed_at=self.time_of(last_number), records=records)
        ]

    def _made(self, number: int) -> Inference:
        session, cost = f"random-{number}", COST
        if number % EVERY == 0:
            session, cost = f"expensive-{number // EVERY % EXPENSIVE}", HIGH_COST
        return call(
            id=number.to_bytes(16, "big"),
            session=session,
            run=f"{number:032x}",
            start_time=int(self.time_of(number)) * NS,
            estimated_cost=str(cost),
        )


def expensive_sessions(count: int) -> dict[str | None, tuple[int, Decimal]]:
    """Return calls and cost of the expensive sessions after `count` calls."""
    calls = dict.fromkeys(range(EXPENSIVE), 0)
    for number in range(1, count // EVERY + 1):
        calls[number % EXPENSIVE] += 1
    return {
        as_shown("session", f"expensive-{name}"): (count, count * HIGH_COST) for name, count in calls.items()
    }


def row_counts(ledger_rows: LedgerRows) -> dict[str, int]:
    tables = ledger_rows._tables  # type: ignore[attr-defined]
    return {
        table: tables.first_row(f"SELECT COUNT(*) FROM {table}")[0]
        for table in ("work", "work_units", "work_unlisted")
    }


async def test_random_sessions_push_out_only_cheaper_ones(tmp_path: Path) -> None:
    log, clock = RandomSessions(), FakeClock(MONTHS[0])
    ledger = await open_ledger(tmp_path, clock=clock, work=WorkLimits(ids_per_month=LIMIT))
    rows_by_month = []
    for month in (1, 2):
        while log.closed <= month * IDS:
            log.closed = min(log.closed + max(LIMIT // 5, 1), month * IDS + 1)
            clock.at = log.time_of(log.closed - 1)
            await ledger.catch_up(log)
            await ledger.sum_up_and_delete_hours()
        count = month * IDS
        times = {
            "since": datetime.fromtimestamp(MONTHS[0], UTC),
            "until": datetime.fromtimestamp(MONTHS[2], UTC),
        }
        found = {
            unit: values for (unit,), values in sums_of(await ledger.costs(query(times, "session"))).items()
        }
        expected = expensive_sessions(count)
        assert count == sum(calls for calls, _ in found.values())
        assert sum(cost for _, cost in found.values()) == (
            count // EVERY * HIGH_COST + (count - count // EVERY) * COST
        )
        assert expected == {unit: found[unit] for unit in expected}
        others = {unit: values for unit, values in found.items() if unit not in expected and unit != OTHER}
        assert {(1, COST)} == {*others.values()}
        assert len(others) + len(expected) <= month * LIMIT * 12 // 10
        rows_by_month.append(await ledger._read_rows(row_counts))
        size = sum(file.stat().st_size for file in tmp_path.iterdir())
        print(f"{count:,} sessions, {LIMIT:,} listed: {size / 1e6:,.1f} MB, {rows_by_month[-1]}")
    await ledger.close()
    first, second = rows_by_month
    assert second["work"] <= first["work"] * 2.2
    assert second["work_units"] <= first["work_units"] * 2.2
    assert second["work_unlisted"] <= 2 * 2 * IDS  # each call has a session and a run
