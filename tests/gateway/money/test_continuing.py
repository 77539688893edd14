"""Sessions with calls in the day before or after the period of a report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from gateway.money.costs.continuing import work_units_with_calls_in_adjacent_days
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.record import NS
from tests.spool.digests import as_shown
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger_log import FakeClock, FakeLog, call

MIDNIGHT = datetime(2026, 9, 21, tzinfo=UTC)
HALF_AN_HOUR, DAY = timedelta(minutes=30), timedelta(days=1)
SPENT = (
    ("over midnight", -HALF_AN_HOUR, "0.10"),
    ("over midnight", HALF_AN_HOUR, "0.20"),
    ("evening", -HALF_AN_HOUR, "0.40"),
    ("morning", HALF_AN_HOUR, "0.80"),
)


def asked(since: datetime, until: datetime, by: str = "session", per: str = TOTAL) -> CostQuery:
    return CostQuery(since=since, until=until, granularity=per, group_by=(by,))


async def costs(ledger: Ledger, query: CostQuery) -> dict[str | None, Decimal]:
    return {row.group[0]: Decimal(row.cost) for row in await ledger.costs(query)}


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_session_over_midnight_is_whole(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """
    A session over midnight has a part on each day, and both days together have the whole. A report of one day says
    that the session has more calls.
    """
    ledgers, log = Ledgers.of(engine, request, tmp_path), FakeLog()
    clock = FakeClock((MIDNIGHT + DAY).timestamp())
    ledger = await ledgers.open(clock=clock)
    calls = [
        call(
            id=number.to_bytes(16, "big"),
            session=session,
            estimated_cost=cost,
            start_time=int((MIDNIGHT + at).timestamp()) * NS,
        )
        for number, (session, at, cost) in enumerate(SPENT)
    ]
    log.add(calls, at=clock.at)
    await ledger.catch_up(log)
    both, evening, morning = (as_shown("session", name) for name in ("over midnight", "evening", "morning"))
    yesterday, today = asked(MIDNIGHT - DAY, MIDNIGHT), asked(MIDNIGHT, MIDNIGHT + DAY)
    two_days = asked(MIDNIGHT - DAY, MIDNIGHT + DAY)
    assert {both: Decimal("0.10"), evening: Decimal("0.40")} == await costs(ledger, yesterday)
    assert {both: Decimal("0.20"), morning: Decimal("0.80")} == await costs(ledger, today)
    assert Decimal("0.30") == (await costs(ledger, two_days))[both]
    per_day = await ledger.costs(asked(MIDNIGHT - DAY, MIDNIGHT + DAY, per="daily"))
    assert [Decimal("0.10"), Decimal("0.20")] == [
        Decimal(row.cost) for row in per_day if row.group == (both,)
    ]
    names = [both, evening, morning, None, "(other)"]
    for query, expected in ((yesterday, {both, morning}), (today, {both, evening}), (two_days, set())):
        assert expected == set(await work_units_with_calls_in_adjacent_days(ledger, query, "session", names))
    assert not set(
        await work_units_with_calls_in_adjacent_days(ledger, yesterday, "session", [None, "(other)"])
    )
    clock.at += 62 * DAY.total_seconds()
    await ledger.sum_up_and_delete_hours()  # the hours before tomorrow are now days, which no query may split
    tomorrow = asked(MIDNIGHT + DAY + 2 * HALF_AN_HOUR, MIDNIGHT + 2 * DAY)
    assert {both, morning} == set(
        await work_units_with_calls_in_adjacent_days(ledger, tomorrow, "session", names)
    )
    await ledgers.close()
