"""Questions to the ledger are planned for the values that they name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.queries import TOTAL, CostQuery
from spool.ledger.sums import DAY_S
from spool.postgres.ledger import PostgresLedgerRows
from tests.spool.ledger.engines import POSTGRES, Ledgers

PREPARED = b"SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%ledger_days%'"
TIMES = 12  # psycopg prepares what is asked for the sixth time; five times later the server keeps its plan
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
    The plan of a prepared one is made for any values: with filters of hundreds, it went through the sums of the
    whole time once for each of them.
    """
    await ledgers.open()
    assert [] == await ledgers.store.read(prepared)


def prepared(rows: LedgerRows) -> list[tuple[str]]:
    """Return the questions that a connection has prepared after it asked one again and again."""
    assert isinstance(rows, PostgresLedgerRows)
    since = int(QUERY.since.timestamp())
    for _ in range(TIMES):
        assert [] == list(rows.totals(DAY_S, since, since + DAY_S, QUERY))
    return rows._connection.execute(PREPARED).fetchall()
