"""
One schema of a PostgreSQL, and the connections of one process to it.

All access to the database goes through this module. Only connections/ knows the driver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeVar

from spool.clock import Clock, SteadyClock, SystemClock
from spool.listing import small_letter_by_capital
from spool.postgres.connections.joined import Connection, PipelinedTransaction, QueryCursor
from spool.postgres.connections.lane import DatabaseConnectionPool, Reachability
from spool.postgres.connections.session import long_snapshot
from spool.postgres.connections.standby import STANDBY_NAMES, has_no_standby_names, no_standby_error
from spool.postgres.connections.target import (
    ALREADY_THERE,
    CommitUnknown,
    DatabaseTarget,
    LockWaitTimedOut,
    Unconfirmed,
    UniqueViolation,
    quote_name,
)
from spool.sql.connection import SqlConnection

__all__ = [
    "ALREADY_THERE",
    "STANDBY_NAMES",
    "CommitUnknown",
    "Connection",
    "Database",
    "DatabaseConnectionPool",
    "LockWaitTimedOut",
    "PipelinedTransaction",
    "Unconfirmed",
    "UniqueViolation",
]

# connections for ordinary work; appends and urgent work have one more each
POOL = 4
STATEMENT_S = 35.0  # time limit in seconds for ordinary statements; the server's own limit is shorter
NOW = "coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8)"


class Database:
    """
    One schema of a PostgreSQL database, with connections for three purposes.

    The methods of this class use `pool`, for ordinary work. `append` only commits records. `control` is for
    work that must not wait, such as renewing this process's session and leases. `needs_standby`: acknowledged
    changes must be on a standby.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "tollhouse",
        clock: Clock | None = None,
        pooled: bool = False,
        commit_timeout_s: float = 10.0,
        needs_standby: bool = False,
    ) -> None:
        self.needs_standby = needs_standby
        self._target = target = DatabaseTarget(dsn=dsn, pooled=pooled, commit_timeout_s=commit_timeout_s)
        self._reachability = Reachability()
        self.name = schema
        self.schema = quote_name(schema)  # name of the schema, quoted for SQL
        self._clock = clock
        self._texts: dict[str, bytes] = {}
        lane = partial(DatabaseConnectionPool, reachability=self._reachability)
        # A process that holds the head lock may be suspended, so other processes retry sooner than for other locks.
        self.append = lane(replace(target, settings={**target.settings, "lock_timeout": "1s"}), task="append")
        self.control = lane(target, task="control")
        self.pool = lane(target, task="verbs", size=POOL, statement_s=STATEMENT_S)
        self.run, self.transaction = self.pool.run, self.pool.transaction
        self.read, self.snapshot = self.pool.read, self.pool.snapshot

    @property
    def failed_connection_count(self) -> int:
        return self._reachability.pause.failures

    def fill_in_table_names(self, text: str) -> bytes:
        """
        Return a statement with the schema's name filled in, from a cache. `{now}` becomes the parameter
        `now`.
        """
        statement = self._texts.get(text)
        if statement is None:
            statement = self._texts[text] = (
                text.replace("{schema}", self.schema).replace("{now}", NOW).encode()
            )
        return statement

    def require_standby(self, connection: Connection) -> None:
        if not self.has_standby(connection):
            raise no_standby_error()

    def has_standby(self, connection: Connection) -> bool:
        return not (self.needs_standby and has_no_standby_names(connection.execute(STANDBY_NAMES)))

    async def wait_until_confirmed(self) -> None:
        """
        Wait until a standby has every earlier commit, if a standby is required. Raises Unconfirmed if that
        cannot be proven.

        Call it before reading data that will be sent elsewhere.
        """
        if self.needs_standby:
            await self.pool.wait_until_confirmed(needs_standby=True)

    def long_snapshot(self) -> AbstractContextManager[Connection]:
        """
        Open a connection on this thread for one long consistent snapshot.

        Use it only while no other process uses the schema, because rows deleted during the snapshot
        stay on disk.
        """
        return long_snapshot(self._target)

    def now_unless_database_clock(self) -> float | None:
        """Return the value of the parameter `now`: the time, or None to use the database's clock."""
        return (
            None
            if self._clock is None or isinstance(self._clock, SystemClock | SteadyClock)
            else self._clock.now()
        )

    async def close(self) -> None:
        for lane in (self.append, self.pool, self.control):
            await lane.close()


# -- connections and transactions for the tables of `spool/sql` ----------------------------------------------


T = TypeVar("T")
_NOT_IN = re.compile(r"\bNOT IN (:\w+)")
_IN = re.compile(r"\bIN (:\w+)")
_PARAMETER = re.compile(r"(?<!:):([a-z]\w*)")
# translate() is slow, so it is used only for texts with capital letters beyond ASCII
_FOLDED = """
    CASE WHEN {text} ~ :any_capital THEN translate(lower({text}), :capitals, :small) ELSE lower({text}) END"""


class PostgresConnection:
    def __init__(self, connection: Connection, sql: Callable[[str], bytes]) -> None:
        self._connection = connection
        self._sql = sql

    def run(self, statement: str, /, **values: object) -> int:
        return self._execute(statement, values).rowcount

    def run_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(self._sql(_translate_statement(statement)), rows)

    def all(self, statement: str, /, **values: object) -> list[tuple[Any, ...]]:
        return self._execute(statement, values).fetchall()

    def first_row(self, statement: str, /, **values: object) -> Any:
        return self._execute(statement, values).fetchone()

    def send_query(self, statement: str, /, **values: object) -> Iterable[tuple[Any, ...]]:
        """Send a query. Its rows may be read after the pipeline ends."""
        return self._execute(statement, values)

    def folded_expression(self, text: str) -> tuple[str, Mapping[str, object]]:
        return _FOLDED.format(text=f'{text} COLLATE "C"'), _case_folding_parameters()

    def _execute(self, statement: str, values: Mapping[str, object]) -> QueryCursor:
        return self._connection.execute(self._sql(_translate_statement(statement)), values)


class PostgresTransactions:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._database.read(self._wrap_work(work))

    async def snapshot(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._database.snapshot(self._wrap_work(work))

    async def transaction(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._database.transaction(self._wrap_work(work))

    def _wrap_work(self, work: Callable[[SqlConnection], T]) -> Callable[[Connection], T]:
        return lambda connection: work(PostgresConnection(connection, self._database.fill_in_table_names))


@cache
def _case_folding_parameters() -> Mapping[str, object]:
    letters = {letter: small for letter, small in small_letter_by_capital().items() if not letter.isascii()}
    capitals = "".join(letters)
    return {"any_capital": f"[{capitals}]", "capitals": capitals, "small": "".join(letters.values())}


@cache
def _translate_statement(statement: str) -> str:
    translated_text = statement.replace("%", "%%").replace("{for_update}", "FOR UPDATE")
    translated_text = _NOT_IN.sub(r"<> ALL(\1)", translated_text)
    return _PARAMETER.sub(r"%(\1)s", _IN.sub(r"= ANY(\1)", translated_text))


# -- sessions of nodes ---------------------------------------------------------------------------------------


SESSION_S = 5.0  # seconds after which a session ends if it is not renewed
LIVE = f"seen_at > {{now}} - {SESSION_S}"
