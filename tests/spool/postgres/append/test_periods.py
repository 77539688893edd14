"""A new period starts once, whichever gateway starts it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from spool.postgres.log import queries
from spool.postgres.log.log import PostgresLog
from spool.postgres.log.retention import PERIOD_S
from tests.spool.contract.examples import add, call, everything
from tests.spool.postgres.logs import LogOpener, clock, open_log

__all__ = ["clock", "open_log"]

PERIODS = "SELECT period FROM {schema}.periods ORDER BY period"
NEWEST = "SELECT max(at) FROM {schema}.periods"
HEAD = "SELECT period FROM {schema}.heads"
ENTRIES = "SELECT first, period FROM {schema}.entries ORDER BY first"


async def test_of_several_that_begin_a_period_one_does(open_log: LogOpener) -> None:
    """Simultaneous starts begin one period, and no period follows one without commits."""
    nodes = [await open_log(hold=0) for _ in range(3)]
    for number in (1, 2, 3):
        await add(nodes[0], call(number))
        [(at,)] = await rows(nodes[0], NEWEST)
        for expected in (1, 0):
            begun = await asyncio.gather(
                *[node._retention.begin_partitions_if_full(at + PERIOD_S) for node in nodes]
            )
            assert expected == sum(begun)
    assert [(1,), (2,), (3,), (4,)] == await rows(nodes[1], PERIODS)
    assert [(4,)] == await rows(nodes[1], HEAD)
    assert [(1, 1), (2, 2), (3, 3)] == await rows(nodes[1], ENTRIES)
    assert [call(number)[0] for number in (1, 2, 3)] == await everything(nodes[0])


async def test_partitions_that_were_left_are_used(open_log: LogOpener) -> None:
    """
    A gateway ended after it made the partitions of a period and before it started the period. The next
    gateway uses these partitions.
    """
    log = await open_log(hold=0)
    await add(log, call(1))
    await log._database.transaction(partial(log._retention._make_partitions, period_number=2))
    [(at,)] = await rows(log, NEWEST)
    assert not await log._retention.begin_partitions_if_full(at + PERIOD_S - 1)
    assert await log._retention.begin_partitions_if_full(at + PERIOD_S)
    await add(log, call(2))
    assert [(1, 1), (2, 2)] == await rows(log, ENTRIES)


async def test_deleted_period_does_not_return(open_log: LogOpener) -> None:
    """
    A period that was deleted does not return: a gateway is suspended just before it starts a period, and the period
    is deleted meanwhile. The gateway does not create the period again.
    """
    late, log = [await open_log(hold=0) for _ in range(2)]
    for number in (1, 2):
        await add(log, call(number))
        [(at,)] = await rows(log, NEWEST)
        assert await log._retention.begin_partitions_if_full(at + PERIOD_S)
    await add(log, call(3))
    for table in queries.PARTITIONED:
        await log._retention._run_query(queries.DROP_PARTITION % {"table": table, "period": 2})
    await log._retention._run_query(queries.REMOVE_PERIOD, 2)
    await late._database.transaction(partial(late._retention._make_partitions, period_number=2))
    assert not await late._database.pool.run_pipelined(
        partial(late._retention._begin_period, period_number=2, now=at)
    )
    await add(log, call(4))
    assert [(3,)] == await rows(late, HEAD)
    assert [(1,), (3,)] == await rows(late, PERIODS)


async def rows(log: PostgresLog, query: str) -> list[Any]:
    return await log._database.read(
        lambda connection: connection.execute(log._database.fill_in_table_names(query)).fetchall()
    )
