"""PostgreSQL plans each query of the ledger for its actual values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spool.ledger.dimensions import TOTAL, DerivedDimension
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.queries import CostQuery
from spool.ledger.sums import DAY_S
from spool.postgres.ledger import PostgresLedgerRows, StatementParameters
from spool.record import NS
from tests.spool.ledger.engines import POSTGRES, Ledgers
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call

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
    No query is prepared. A prepared query has one plan for all values, and with hundreds of filter values that plan
    scanned the sums of the whole time once per value.
    """
    await ledgers.open()
    assert [] == await ledgers.store.read(prepared)


def prepared(ledger_rows: LedgerRows) -> list[tuple[str]]:
    """Return the queries that a connection has prepared after many executions of one query."""
    assert isinstance(ledger_rows, PostgresLedgerRows)
    since = int(QUERY.since.timestamp())
    for _ in range(TIMES):
        assert [] == list(ledger_rows.totals_by_group([(DAY_S, since, since + DAY_S, 0)], QUERY))
    return ledger_rows._connection.execute(PREPARED).fetchall()


@pytest.mark.parametrize("ledgers", [POSTGRES], indirect=True)
async def test_numbers_of_a_filter_are_read_in_three_ways(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The numbers of a filter are read in three ways with the same sums: looked up, listed, or selected by the server.
    They are listed, because the server would scan the index once per number that a derived dimension selects.
    """
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + 3 * DAY_S)), FakeLog()
    log.add([call(start_time=BEGIN * NS, user=f"u{place}", team=f"t{place % 3}") for place in range(40)])
    await ledger.catch_up(log)
    even = DerivedDimension(
        name="own:even",
        label="",
        sources=("user", "team"),
        value=lambda each: "yes" if int(each[0][1:]) % 2 == 0 else "",
    )
    begin = datetime.fromtimestamp(BEGIN, UTC)
    query = CostQuery(
        since=begin,
        until=begin + timedelta(days=2),
        group_by=("team",),
        include={even.name: ("yes",)},
        derived={even.name: even},
    )
    statements = list[str]()
    ask = PostgresLedgerRows._run_unprepared

    def noted(self: PostgresLedgerRows, statement: str, parameters: StatementParameters) -> Any:
        statements.append(statement)
        return ask(self, statement, parameters)

    monkeypatch.setattr(PostgresLedgerRows, "_run_unprepared", noted)
    found = []
    for most_looked_up, most_listed in ((10_000, 50_000), (0, 50_000), (0, 0)):
        monkeypatch.setattr("spool.postgres.ledger.MOST_LOOKED_UP", most_looked_up)
        monkeypatch.setattr("spool.postgres.ledger.MOST_LISTED", most_listed)
        found.append(await ledger.costs(query))
        of_sums = [each for each in statements if "SUM" in each]
        statements.clear()
        assert of_sums
        for statement in of_sums:
            assert ("start = ANY" in statement) == (most_looked_up > 0)
            assert ("key = ANY" in statement) == (most_listed > 0)
    assert found[0] == found[1] == found[2] and sum(row.calls for row in found[0]) == 20
