"""The common SQL of both engines: permitted statements and returned values."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spool.errors import SpoolUnavailable
from spool.postgres.database import PostgresTransactions
from spool.sql.columns import JSON, JSON_TUPLE, RowColumns, insert_sql, select_sql, upsert_sql
from spool.sql.connection import SqlConnection, SqlTransactions
from spool.sqlite.database import Database, SqliteTransactions
from tests.spool.contract.conftest import migrated
from tests.spool.ledger.engines import POSTGRES, SQLITE, schemas_of


@dataclass(frozen=True, kw_only=True)
class Thing:
    name: str
    is_kept: bool
    words: tuple[str, ...]
    labels: dict[str, str] | None
    size: int = 0


THINGS = RowColumns(Thing, forms={"words": JSON_TUPLE, "labels": JSON}, without=("size",))
MILL = Thing(name="mill", is_kept=True, words=("a", "é"), labels=None)
TABLE = "CREATE TABLE {schema}.things (name text PRIMARY KEY, is_kept boolean, words text, labels text)"


@pytest.fixture(params=[SQLITE, POSTGRES])
async def transactions(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlTransactions]:
    if request.param == POSTGRES:
        async with migrated(schemas_of(request.param, request)()) as postgres:
            made: SqlTransactions = PostgresTransactions(postgres)
            await made.transaction(lambda connection: connection.run(TABLE))
            yield made
        return
    database = await Database.open(tmp_path / "things.sqlite", lambda connection: None)
    made = SqliteTransactions(database, "things")
    await made.transaction(lambda connection: connection.run(TABLE))
    yield made
    await database.close()


async def test_row_is_read_back_unchanged(transactions: SqlTransactions) -> None:
    """Booleans, null and JSON fields are read back. A second row with the same key replaces the first."""

    def write(connection: SqlConnection) -> None:
        connection.run(insert_sql("things", THINGS.names), **THINGS.stored_values(MILL))
        later = Thing(name="mill", is_kept=False, words=(), labels={"team": "x"})
        other = Thing(name="barn", is_kept=True, words=("%",), labels={})
        connection.run_each(
            upsert_sql("things", THINGS.names, "name"),
            [THINGS.stored_values(later), THINGS.stored_values(other)],
        )

    def read(connection: SqlConnection) -> list[Thing]:
        rows = connection.all(f"{select_sql('things', THINGS.names)} ORDER BY name")
        return [THINGS.read_row(row, size=3) for row in rows]

    await transactions.transaction(write)
    barn, mill = await transactions.read(read)
    assert Thing(name="barn", is_kept=True, words=("%",), labels={}, size=3) == barn
    assert Thing(name="mill", is_kept=False, words=(), labels={"team": "x"}, size=3) == mill


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("2 IN :numbers", True),
        ("2 NOT IN :numbers", False),
        ("name IN :texts", True),
        ("name NOT IN :texts", False),
        ("name IN :none", False),
        ("name NOT IN :none", True),
        ("name LIKE 'm%' AND '1:2::text' <> name", True),
        ("CAST(:nothing AS text) IS NULL", True),
    ],
)
async def test_a_condition_means_the_same(transactions: SqlTransactions, condition: str, holds: bool) -> None:
    """A list may be empty. Percent signs and colons in texts are ordinary characters."""
    await transactions.transaction(
        lambda connection: connection.run(insert_sql("things", THINGS.names), **THINGS.stored_values(MILL))
    )
    values = {"numbers": [1, 2], "texts": ["barn", "mill"], "none": [], "nothing": None}
    found = await transactions.snapshot(
        lambda connection: connection.first_row(
            f"SELECT name FROM {{schema}}.things WHERE {condition}", **values
        )
    )
    assert (("mill",) if holds else None) == found


async def test_an_error_leaves_everything_as_it_was(transactions: SqlTransactions) -> None:
    """
    If one of several statements fails, none of them has an effect. Each statement returns its number of rows.
    """

    def fail(connection: SqlConnection) -> None:
        assert 1 == connection.run(insert_sql("things", THINGS.names), **THINGS.stored_values(MILL))
        assert 0 == connection.run("DELETE FROM {schema}.things WHERE name = :name", name="barn")
        raise SpoolUnavailable("no")

    with pytest.raises(SpoolUnavailable):
        await transactions.transaction(fail)
    assert [] == await transactions.read(
        lambda connection: connection.all(select_sql("things", THINGS.names))
    )


async def test_errors_are_those_of_the_spool(transactions: SqlTransactions) -> None:
    """Errors from missing tables become SpoolUnavailable."""
    with pytest.raises(SpoolUnavailable):
        await transactions.read(lambda connection: connection.all(select_sql("barns", ("name",))))
    with pytest.raises(SpoolUnavailable):
        await transactions.transaction(
            lambda connection: connection.run(insert_sql("barns", ("name",)), name="x")
        )
