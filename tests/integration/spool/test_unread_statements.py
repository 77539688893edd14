"""After a query that ended in an error, later queries see what was committed since."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from spool.sqlite.database import Database

ROWS = 5000  # more rows than a statement reads ahead


class Refused(Exception):
    """An error in the middle of a query, such as too many rows."""


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    def prepare(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE numbers (number INTEGER)")
        connection.executemany("INSERT INTO numbers VALUES (?)", ((number,) for number in range(ROWS)))

    opened = await Database.open(tmp_path / "one.sqlite", prepare)
    yield opened
    await opened.close()


def numbers(connection: sqlite3.Connection) -> Iterator[int]:
    for (number,) in connection.execute("SELECT number FROM numbers"):
        yield number


def refused_half_way(connection: sqlite3.Connection) -> None:
    asked = numbers(connection)  # the local variable keeps the iterator alive as long as the error exists
    for number in asked:
        if number == ROWS // 2:
            raise Refused


@pytest.mark.parametrize("way", ["read", "snapshot"])
async def test_an_error_half_way_leaves_no_old_state(database: Database, way: str) -> None:
    """An error in the middle of a query keeps no old state, even if somebody keeps the error."""
    with pytest.raises(Refused) as kept:
        await getattr(database, way)(refused_half_way)
    await database.transaction(lambda connection: connection.execute("DELETE FROM numbers").rowcount)
    assert [] == await database.read(lambda connection: list(numbers(connection)))
    assert kept.value.__traceback__ is not None
