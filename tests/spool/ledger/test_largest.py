"""The largest groups of a question, and all others as one: the sums stay exact, whatever they are made of."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spool.ledger import money
from spool.ledger.queries import CostQuery, CostRow, Group
from spool.ledger.sums import DAY_S, OTHER
from spool.record import NS
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call

FIRST = datetime.fromtimestamp(BEGIN, UTC)
WHOLE = CostQuery(
    since=FIRST, until=FIRST + timedelta(days=2), group_by=("team", "model"), granularity="total"
)
QUESTIONS = (
    WHOLE,
    replace(WHOLE, granularity="daily"),
    replace(WHOLE, group_by=("user",), currency="EUR"),
    replace(WHOLE, group_by=()),
)


def largest(rows: list[CostRow], top: int, by: str) -> frozenset[Group]:
    """Return the groups to keep, from the rows of the whole time."""

    def size(row: CostRow) -> int:
        value = getattr(row, by)
        return money.units(value) if by == "cost" else int(value)

    found = sorted(rows, key=lambda row: (-size(row), [value or "" for value in row.group]))[:top]
    return frozenset({(None,) * len(rows[0].group), *(row.group for row in found)})


@pytest.mark.asyncio
@pytest.mark.parametrize("engine", ENGINES)
async def test_the_largest_are_kept_and_the_others_are_one(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path
) -> None:
    """As if their groups were named; of cached calls, errors, unknown costs and other currencies, too."""
    ledgers = Ledgers.of(engine, request, tmp_path)
    try:
        ledger, log = await ledgers.open(clock=FakeClock(BEGIN + 3 * DAY_S)), FakeLog()
        log.add(
            [
                call(
                    start_time=(BEGIN + number % 2 * DAY_S) * NS,
                    team=(None, "a", "b", OTHER)[number % 4],
                    request_model=f"m{number % 3}",
                    user=(None, "ada", "bob", "eve", OTHER)[number % 5],
                    status=("ok", "cached", "error")[number % 3],
                    input_tokens=number,
                    cost=f"{number % 7}.000000000000000001" if number % 3 else None,
                    cost_source="reported" if number % 3 else None,
                    charges={} if number % 3 else {"EUR": f"{number}.5", "GBP": "1.25"},
                )
                for number in range(60)
            ]
        )
        await ledger.catch_up(log)
        for query in QUESTIONS:
            rows = list(await ledger.costs(replace(query, granularity="total")))
            for top, by in ((1, "cost"), (3, "cost"), (2, "input_tokens"), (100, "calls")):
                kept = replace(query, kept=largest(rows, top, by))
                assert await ledger.costs(kept) == await ledger.costs(replace(query, top=top, top_by=by))
    finally:
        await ledgers.close()
