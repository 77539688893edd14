"""A named day or week is compared with the day or week before it, also on the first of a month."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

from spool.ledger.periods import PREVIOUS, SAME_WEEKDAYS
from tests.integration.operations.server import operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, counted_from

NOW = datetime(2026, 12, 1, 13, 20, tzinfo=UTC)  # a Tuesday
# the first of the month before, the weeks before, the days before, and today
COSTS = {"11-01": 64, "11-16": 32, "11-17": 16, "11-23": 8, "11-24": 4, "11-30": 2, "12-01": 1}


async def test_the_first_of_a_month_has_the_day_before(tmp_path: Path) -> None:
    """Reports, comparisons and the overview compare today with yesterday, and a week with the week before."""
    expected = {
        ("today", PREVIOUS): (1, 2),
        ("today", SAME_WEEKDAYS): (1, 4),
        ("yesterday", PREVIOUS): (2, 0),
        ("yesterday", SAME_WEEKDAYS): (2, 8),
        ("this_week", PREVIOUS): (3, 12),
        ("last_week", PREVIOUS): (12, 48),
        ("this_month", PREVIOUS): (1, 64),
    }
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        calls = [
            call(
                number, at=datetime.fromisoformat(f"2026-{day}T05:00Z").timestamp(), cost=str(cost),
                cost_source="reported",
            )
            for number, (day, cost) in enumerate(COSTS.items())
        ]  # fmt: skip
        await add(server.services.spool.log, counted_from("2026-07-01"), *calls)
        for (named, against), sums in expected.items():
            report = await server.ask("GET", f"/report?{urlencode({'range': named, 'compare': against})}")
            total = report.payload["total"]
            assert sums == (float(total["cost"]), float(total["previous"]["cost"])), (named, against)
            change = await server.ask("GET", f"/comparison?{urlencode({'range': named, 'against': against})}")
            total = change.payload["total"]
            assert sums == (float(total["cost"]), float(total["against"]["cost"])), (named, against)
        overview = (await server.ask("GET", "/overview")).payload["overview"]
        assert 2 == float(overview["today"]["previous"]["cost"])
        assert 64 == float(overview["month"]["previous"]["cost"])
