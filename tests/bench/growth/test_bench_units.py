from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time

import pytest

from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.sums import HOUR_S
from spool.money import text_to_units
from spool.sqlite.ledger import open_ledger
from tests.bench.growth.units import END, fill, questions
from tests.spool.ledger_log import FakeClock

SESSIONS = 600
NOT_LISTED = {(None,), ("(other)",)}


@pytest.mark.bench
async def test_the_most_expensive_units_are_those_of_the_whole_list(tmp_path: Path) -> None:
    """
    A list of the most expensive units has the first units of the complete list, with the same sums, and its rest is
    the remainder.
    """
    ledger = await open_ledger(tmp_path, clock=FakeClock(END - HOUR_S), tags=("agent",))
    try:
        await fill(ledger, SESSIONS)
        for question in questions(SESSIONS, 2):
            for query in question.queries:
                listed = await ledger.costs(query)
                everything = await ledger.costs(replace(query, top=None))
                assert first(listed, query) == first(everything, query)
                if not query.aggregated:
                    assert sum(row.calls for row in listed) == sum(row.calls for row in everything)
        print(f"\n{await ratio(ledger)}")
    finally:
        await ledger.close()


def first(rows: Sequence[CostRow], query: CostQuery) -> list[tuple[object, str, int]]:
    named = [row for row in rows if row.group not in NOT_LISTED]
    named.sort(key=lambda row: (-text_to_units(row.cost), row.group))
    return [(row.group, row.cost, row.calls) for row in named[: query.top]]


async def ratio(ledger: Ledger) -> str:
    """Return the time of the first query in relation to the same query by model."""
    query = questions(SESSIONS, 1)[0].queries[0]
    taken: dict[str, list[float]] = {"session": [], "model": []}
    for _ in range(5):
        for name, times in taken.items():
            began = process_time()
            await ledger.costs(replace(query, group_by=(name,)))
            times.append(process_time() - began)
    session, model = map(median, taken.values())
    return f"top sessions of a day take {session / model:.1f} times as long as its models"
