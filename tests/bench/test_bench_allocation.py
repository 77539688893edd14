"""Time to publish a definition, and to query by its dimensions compared with the same query without them."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import process_time

import pytest

from gateway.money.allocation.language import join_definitions, parse_definition
from gateway.money.allocation.published import AllocationDefinitionHolder
from spool import money
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.sqlite.ledger import open_ledger
from tests.bench.definitions import definition
from tests.bench.many_rows import add_rows
from tests.rounds import IS_LONG
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock

DIMENSIONS = 20


@pytest.mark.bench
async def test_questions_by_published_dimensions(tmp_path: Path) -> None:
    """
    A definition of 20 dimensions takes effect within a second. A month by one of its dimensions, by day or in
    total, takes at most four times as long as by team, even the first time. The total is exactly the same.
    """
    keys, hours = (1400, 720) if IS_LONG else (140, 72)
    ledger = await open_ledger(tmp_path, clock=FakeClock())
    await ledger.close()
    connection = sqlite3.connect(tmp_path / "ledger.sqlite")
    add_rows(connection, keys, hours, BEGIN)
    connection.close()
    ledger = await open_ledger(tmp_path, clock=FakeClock(BEGIN + (hours + 48) * HOUR))
    await ledger.sum_up_and_delete_hours()
    try:
        start = process_time()
        published = AllocationDefinitionHolder(ledger)
        published.put_in_force(
            join_definitions(
                {"": parse_definition(definition(DIMENSIONS).encode(), ledger.builtin_and_tag_dimensions())}
            ),
            version="1",
        )
        publishing = process_time() - start
        since = datetime.fromtimestamp(BEGIN, UTC)
        for granularity, count in ((TOTAL, DIMENSIONS), ("daily", DIMENSIONS), ("hourly", 2)):
            query = CostQuery(since=since, until=since + timedelta(hours=hours), granularity=granularity)
            total, _ = await asked(ledger, query)
            _, plain = await asked(ledger, replace(query, group_by=("team",)))
            slowest = 0.0
            for dimension in published.dimensions()[:count]:
                found, took = await asked(ledger, replace(query, group_by=(dimension.id,)))
                assert summed(total) == summed(found)
                slowest = max(slowest, took)
            print(
                f"\n{keys * hours} rows, {granularity}: by team {plain:.3f} s; by one of {DIMENSIONS} "
                "dimensions at"
                f" most {slowest:.3f} s ({slowest / plain:.2f} times); published in {publishing * 1000:.0f} "
                "ms"
            )
            assert slowest <= 4 * plain + 0.5
        assert publishing <= 1
    finally:
        await ledger.close()


async def asked(ledger: Ledger, query: CostQuery) -> tuple[list[CostRow], float]:
    start = process_time()
    return list(await ledger.costs(query)), process_time() - start


def summed(rows: list[CostRow]) -> tuple[int, ...]:
    names = ("cost", "reported", "estimated", "saved")
    sums = [sum(money.text_to_units(getattr(row, name)) for row in rows) for name in names]
    return (
        *sums,
        *(sum(getattr(row, name) for row in rows) for name in ("calls", "input_tokens", "output_tokens")),
    )
