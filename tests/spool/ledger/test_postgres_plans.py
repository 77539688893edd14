"""PostgreSQL plans each query of the ledger for its actual values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.queries import TOTAL, CostQuery
from spool.ledger.sums import DAY_S
from spool.postgres.ledger import PostgresLedgerRows
from tests.spool.ledger.engines import POSTGRES, Ledgers

PREPARED = b"SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%ledger_days%'"
# number of executions: psycopg prepares a query at the sixth, and the server reuses its plan five executions later
TIMES = 12
QUERY = CostQuery(
    since=datetime(2026, 11, 1, tzinfo=UTC),
    until=datetime(2026, 11, 2, tzinfo=UTC),
    granularity=TOTAL,
    group_by=("team",),
    include={"model": ("gpt-4o", "claude-sonnet-4-5")},
)


@pytest.mark.parametrize("ledgers", [POSTGRES], indirect=True)
async def test_no_question_is_prepared(ledgers: Ledgers) -> None:
    """
    A prepared query has one plan for all values. With hundreds of filter values, that plan scanned the sums
    of the whole time once per value.
    """
    await ledgers.open()
    assert [] == await ledgers.store.read(prepared)


def prepared(rows: LedgerRows) -> list[tuple[str]]:
    """Return the queries that a connection has prepared after many executions of one query."""
    assert isinstance(rows, PostgresLedgerRows)
    since = int(QUERY.since.timestamp())
    for _ in range(TIMES):
        assert [] == list(rows.totals([(DAY_S, since, since + DAY_S, 0)], QUERY))
    return rows._connection.execute(PREPARED).fetchall()
