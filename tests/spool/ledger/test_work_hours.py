"""Costs of units of work by hour are those of each hour, asked one by one."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from spool.currencies import SCALE
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery, CostRow
from spool.record import NS
from tests.rounds import part
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger.test_deep_trees import run_id
from tests.spool.ledger.test_hidden_names import TIMES
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

QUERIES: tuple[dict[str, Any], ...] = (
    {"group_by": ("session",)},
    {"group_by": ("team", "ticket")},
    {"group_by": ("team",), "include": {"ticket": ("T-1", "")}},
    {"group_by": ("run",), "aggregated": True},
    {"group_by": ("session",), "aggregated": True, "top": 3},
    {"group_by": ("run",), "aggregated": True, "currency": "EUR"},
)


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_hours_of_units(ledgers: Ledgers) -> None:
    """
    The costs of units by hour are also right for agents with the runs that they started, for the largest groups,
    and in another currency.
    """
    chance, log = random.Random(5), FakeLog()
    ledger = await ledgers.open(clock=FakeClock(BEGIN + 25 * HOUR))
    ledger.rates = lambda currency, target, day: 2 * SCALE
    log.add(
        [
            call(
                id=number.to_bytes(16, "big"),
                session=f"s{chance.randrange(6)}",
                run=run_id(number % 12),
                parent_run=run_id(number % 12 // 2) if number % 12 else None,
                team=chance.choice(("ads", "search")),
                tags={"ticket": f"T-{number % 3}"} if chance.random() < 0.7 else {},
                estimated_cost=str(chance.randrange(1, 99)),
                start_time=(BEGIN + chance.randrange(24) * HOUR) * NS,
            )
            for number in range(200)
        ],
        at=BEGIN + 24 * HOUR,
    )
    await ledger.catch_up(log)
    for query in QUERIES:
        whole = CostQuery(**TIMES, granularity=TOTAL, **query)
        kept = None
        if "top" in query:
            kept = frozenset(row.group for row in await ledger.costs(whole)) | {(None,)}
        by_hour = CostQuery(**TIMES, granularity="hourly", **{**query, "top": None}, kept=kept)
        found = await ledger.costs(by_hour)
        expected = list[CostRow]()
        for hour in range(24):
            since = TIMES["since"] + timedelta(hours=hour)
            one = CostQuery(
                since=since,
                until=since + timedelta(hours=1),
                granularity=TOTAL,
                **{**query, "top": None},
                kept=kept,
            )
            expected += await ledger.costs(one)
        assert expected == found, query
        assert 20 < len({row.start for row in found})
