"""A connection for the tables of `spool/sql`, and transactions over one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from spool.listing import small_letters
from spool.postgres.connections.joined import Answer
from spool.postgres.database import Connection, Database
from spool.sql.connection import SqlConnection

T = TypeVar("T")
_NOT_IN = re.compile(r"\bNOT IN (:\w+)")
_IN = re.compile(r"\bIN (:\w+)")
_PARAMETER = re.compile(r"(?<!:):([a-z]\w*)")
# translate() looks through all letters for each one: only texts with a capital beyond ASCII pay for that.
_FOLDED = """
    CASE WHEN {text} ~ :any_capital THEN translate(lower({text}), :capitals, :small) ELSE lower({text}) END"""


class PostgresConnection:
    """See `spool.sql.connection.SqlConnection`."""

    def __init__(self, connection: Connection, sql: Callable[[str], bytes]) -> None:
        self._connection = connection
        self._sql = sql

    def run(self, statement: str, /, **values: object) -> int:
        return self._execute(statement, values).rowcount

    def run_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(self._sql(_text(statement)), rows)

    def all(self, statement: str, /, **values: object) -> list[tuple[Any, ...]]:
        return self._execute(statement, values).fetchall()

    def one(self, statement: str, /, **values: object) -> Any:
        return self._execute(statement, values).fetchone()

    def ask(self, statement: str, /, **values: object) -> Iterable[tuple[Any, ...]]:
        """Send a query in a pipeline: its rows are read once that is over."""
        return self._execute(statement, values)

    def folded(self, text: str) -> tuple[str, Mapping[str, object]]:
        return _FOLDED.format(text=f'{text} COLLATE "C"'), _letters()

    def _execute(self, statement: str, values: Mapping[str, object]) -> Answer:
        return self._connection.execute(self._sql(_text(statement)), values)


class PostgresTransactions:
    """See `spool.sql.connection.SqlTransactions`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._database.read(self._within(work))

    async def snapshot(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._database.snapshot(self._within(work))

    async def transaction(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._database.transaction(self._within(work))

    def _within(self, work: Callable[[SqlConnection], T]) -> Callable[[Connection], T]:
        return lambda connection: work(PostgresConnection(connection, self._database.sql))


@cache
def _letters() -> Mapping[str, object]:
    """The letters that lower() of the collation C leaves, and what becomes of them."""
    letters = {letter: small for letter, small in small_letters().items() if not letter.isascii()}
    capitals = "".join(letters)
    return {"any_capital": f"[{capitals}]", "capitals": capitals, "small": "".join(letters.values())}


@cache
def _text(statement: str) -> str:
    """A text of `spool/sql` as psycopg takes it."""
    found = statement.replace("%", "%%").replace("{for_update}", "FOR UPDATE")
    found = _NOT_IN.sub(r"<> ALL(\1)", found)
    return _PARAMETER.sub(r"%(\1)s", _IN.sub(r"= ANY(\1)", found))
