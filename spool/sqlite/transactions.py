"""A connection to one of the files for the tables of `spool/sql`, and transactions over one."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from spool.errors import SpoolUnavailable
from spool.sql.connection import SqlConnection
from spool.sqlite.database import Database

T = TypeVar("T")
_LIST = re.compile(r"\bIN (:\w+)")


class SqliteConnection:
    """See `spool.sql.connection.SqlConnection`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, /, **values: object) -> int:
        return self._connection.execute(_text(statement), _bound(values)).rowcount

    def run_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        self._connection.executemany(_text(statement), rows)

    def all(self, statement: str, /, **values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(_text(statement), _bound(values)).fetchall()

    def one(self, statement: str, /, **values: object) -> Any:
        return self._connection.execute(_text(statement), _bound(values)).fetchone()


class SqliteTransactions:
    """See `spool.sql.connection.SqlTransactions`. `what` is kept there, as an error says it: "billing hours"."""

    def __init__(self, database: Database, what: str) -> None:
        self._database = database
        self._what = what

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._reading(self._database.read(lambda connection: work(SqliteConnection(connection))))

    async def snapshot(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._reading(self._database.snapshot(lambda connection: work(SqliteConnection(connection))))

    async def transaction(self, work: Callable[[SqlConnection], T]) -> T:
        try:
            return await self._database.transaction(lambda connection: work(SqliteConnection(connection)))
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"{self._what} cannot be written: {error}") from error

    async def _reading(self, running: Awaitable[T]) -> T:
        try:
            return await running
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"{self._what} cannot be read: {error}") from error


@cache
def _text(statement: str) -> str:
    """A text of `spool/sql` as SQLite takes it."""
    return _LIST.sub(
        r"IN (SELECT value FROM json_each(\1))", statement.replace("{schema}.", "").replace("{for_update}", "")
    )


def _bound(values: dict[str, object]) -> dict[str, object]:
    return {name: json.dumps(value) if isinstance(value, list) else value for name, value in values.items()}
