"""A connection to one of the files for the tables of `spool/sql`, and transactions over one."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, TypeVar

from spool.errors import SpoolUnavailable
from spool.sql.connection import SqlConnection
from spool.sqlite.database import Database

T = TypeVar("T")
_PARAMETER = re.compile(r":([a-z]\w*)")
_LIST = re.compile(r"\bIN :(\w+)")


class SqliteConnection:
    """See `spool.sql.connection.SqlConnection`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, /, **values: object) -> int:
        text, lists = _text(statement)
        return self._connection.execute(text, _bound(values, lists) if lists else values).rowcount

    def run_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        text, values = _of_rows(statement)
        self._connection.executemany(text, map(values, rows))

    def all(self, statement: str, /, **values: object) -> list[tuple[Any, ...]]:
        text, lists = _text(statement)
        return self._connection.execute(text, _bound(values, lists) if lists else values).fetchall()

    def one(self, statement: str, /, **values: object) -> Any:
        text, lists = _text(statement)
        return self._connection.execute(text, _bound(values, lists) if lists else values).fetchone()

    def folded(self, text: str) -> tuple[str, Mapping[str, object]]:
        return f"CASE WHEN {text} GLOB '*[^ -~]*' THEN folded({text}) ELSE lower({text}) END", {}


class SqliteTransactions:
    """See `spool.sql.connection.SqlTransactions`. Errors say what is kept: "billing hours"."""

    def __init__(self, database: Database, what: str) -> None:
        self._database = database
        self._what = what

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._reading(self._database.read(lambda connection: work(SqliteConnection(connection))))

    async def snapshot(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._reading(
            self._database.snapshot(lambda connection: work(SqliteConnection(connection)))
        )

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
def _text(statement: str) -> tuple[str, Sequence[str]]:
    """A text of `spool/sql` as SQLite takes it, and which of its parameters are lists."""
    plain = statement.replace("{schema}.", "").replace("{for_update}", "")
    return _LIST.sub(r"IN (SELECT value FROM json_each(:\1))", plain), _LIST.findall(plain)


@cache
def _of_rows(statement: str) -> tuple[str, Callable[[Mapping[str, Any]], Sequence[Any]]]:
    """The text with places, which are bound faster than names, and what orders a row's values."""
    text, _ = _text(statement)
    names = _PARAMETER.findall(text)
    places = _PARAMETER.sub("?", text)
    return places, itemgetter(*names) if len(names) > 1 else lambda row: [row[name] for name in names]


def _bound(values: dict[str, Any], lists: Sequence[str]) -> dict[str, Any]:
    return values | {name: json.dumps(values[name]) for name in lists}
