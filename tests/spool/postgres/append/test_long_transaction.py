"""
Appends stay as fast while another session's transaction is open for long.

PostgreSQL removes nothing that the open transaction might still see. If each commit updated a row, every
later read would search all old versions of this row. Tables that only grow do not have this problem.
`make proofs` tries 100,000 commits and also checks their time.
"""

from __future__ import annotations

import time
from statistics import median

import psycopg
import pytest

from spool.postgres.database import Database
from spool.postgres.log import queries
from spool.postgres.log.log import PostgresLog
from spool.postgres.log.store import FOLLOWED_AT_ONCE
from tests.rounds import IS_LONG
from tests.spool.contract.examples import add, call
from tests.spool.postgres.logs import LogOpener, clock, open_log
from tests.spool.postgres_cluster import Server

__all__ = ["clock", "open_log"]

COMMITS = 100_000 if IS_LONG else 2_000
SLOWER = 1.5  # maximum ratio of the last commit's cost to the first commit's cost
DEEPER = 4  # additional blocks that a commit may read, because each index may have one more level

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800 if IS_LONG else 300)]


@pytest.mark.proof
async def test_commits_cost_what_they_cost_at_first(
    open_log: LogOpener, cluster: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Commits cost at the end what they cost at first: appends read as many blocks. The test counts blocks instead of
    time, because they do not depend on the load of the machine.
    """
    nodes = [await open_log(hold=0) for _ in range(2)]
    database = nodes[0]._database
    for node in nodes:
        await add(node, call(COMMITS + 1))
    with psycopg.connect(cluster.dsn) as somebody, psycopg.connect(cluster.dsn) as looking:
        somebody.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        somebody.execute(f"SELECT count(*) FROM {database.schema}.commits".encode())
        tenth = COMMITS // 10
        first = await commits(nodes, range(tenth))
        blocks_at_first = blocks(looking, database, nodes[0])
        await commits(nodes, range(tenth, COMMITS - tenth))
        last = await commits(nodes, range(COMMITS - tenth, COMMITS))
        blocks_at_last = blocks(looking, database, nodes[0])
        seen = somebody.execute(f"SELECT count(*) FROM {database.schema}.commits".encode()).fetchone()
        assert (2,) == seen  # the open transaction still sees the old row versions
    took = f"{first * 1000:.2f} ms each at first, {last * 1000:.2f} ms at last, {last / first:.2f} times"
    with capsys.disabled():
        print(
            f"\n{COMMITS:,} commits under an open transaction: {took}; {blocks_at_first}, {blocks_at_last} "
            "blocks read"
        )
    assert blocks_at_last <= SLOWER * blocks_at_first + DEEPER
    if IS_LONG:
        assert last <= SLOWER * first


async def commits(nodes: list[PostgresLog], numbers: range) -> float:
    """Return the median time of a commit. The nodes alternate, so that each follows the other."""
    times = []
    for number in numbers:
        began = time.perf_counter()
        await add(nodes[number % 2], call(number))
        times.append(time.perf_counter() - began)
    return median(times)


def blocks(looking: psycopg.Connection[tuple[object, ...]], database: Database, node: PostgresLog) -> int:
    """Return the number of blocks that the server reads for the head and the newest commits."""
    last = node._memory.following.last
    since = {
        "id": last.id,
        "period": last.period,
        "limit": FOLLOWED_AT_ONCE,
        "now": database.now_unless_database_clock(),
    }
    asked: list[tuple[str, dict[str, object]]] = [(queries.LOCK_HEAD, {}), (queries.FOLLOW, {**since})]
    try:
        return sum(blocks_of(looking, database.fill_in_table_names(query), values) for query, values in asked)
    finally:
        looking.rollback()


def blocks_of(
    looking: psycopg.Connection[tuple[object, ...]], query: bytes, values: dict[str, object]
) -> int:
    row = looking.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query, values).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]  # type: ignore[index]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
