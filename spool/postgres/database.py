"""
One PostgreSQL: one schema of it, and the connections of one process to it.

Everything that is kept there goes through here; the driver is known to connections/ alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeVar

from spool.clock import Clock, SteadyClock, SystemClock
from spool.listing import small_letters
from spool.postgres.connections.joined import Answer, Connection, JoinedTransaction
from spool.postgres.connections.lane import Lane, Reachability
from spool.postgres.connections.session import long_snapshot
from spool.postgres.connections.standby import STANDBY_NAMES, are_empty, refused
from spool.postgres.connections.target import (
    ALREADY_THERE,
    CommitUnknown,
    DatabaseTarget,
    LockWaited,
    Unconfirmed,
    UniqueViolation,
    quoted,
)
from spool.sql.connection import SqlConnection

__all__ = [
    "ALREADY_THERE",
    "STANDBY_NAMES",
    "CommitUnknown",
    "Connection",
    "Database",
    "JoinedTransaction",
    "Lane",
    "LockWaited",
    "Unconfirmed",
    "UniqueViolation",
]

# connections for verbs and readers; one more each for appending and for what must never wait behind those
POOL = 4
STATEMENT_S = 35.0  # a statement of a verb or a reader: the server itself ends it before
NOW = "coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8)"


class Database:
    """
    One schema of one PostgreSQL. Its own verbs are those of `pool`, the connections of verbs and readers.

    `append` is the one connection on which records are committed. `control` is for what must not wait behind
    others: this process's session and its leases. `needs_standby`: what is answered is with a standby.
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
        self.schema = quoted(schema)  # as SQL texts have it
        self._clock = clock
        self._texts: dict[str, bytes] = {}
        lane = partial(Lane, reachability=self._reachability)
        # A process may stop while it has the head: others look after it sooner than they wait for other
        # locks.
        self.append = lane(replace(target, settings={**target.settings, "lock_timeout": "1s"}), task="append")
        self.control = lane(target, task="control")
        self.pool = lane(target, task="verbs", size=POOL, statement_s=STATEMENT_S)
        self.run, self.transaction = self.pool.run, self.pool.transaction
        self.read, self.snapshot = self.pool.read, self.pool.snapshot

    @property
    def failed_connections(self) -> int:
        """Attempts to connect that failed, since the start."""
        return self._reachability.pause.failures

    def sql(self, text: str) -> bytes:
        """An SQL text with the schema's name for `{schema}`, and the time for `{now}` (a parameter `now`)."""
        found = self._texts.get(text)
        if found is None:
            found = self._texts[text] = text.replace("{schema}", self.schema).replace("{now}", NOW).encode()
        return found

    def check_standby(self, connection: Connection) -> None:
        """SpoolUnavailable if a commit would wait for no standby, though it has to."""
        if not self.has_standby(connection):
            raise refused()

    def has_standby(self, connection: Connection) -> bool:
        """False if a commit would wait for no standby, though it has to."""
        return not (self.needs_standby and are_empty(connection.execute(STANDBY_NAMES)))

    async def confirm(self) -> None:
        """
        Returns when everything that was committed before is with a standby, if it has to be; else Unconfirmed.

        Who reads what is to leave asks for this before it does.
        """
        if self.needs_standby:
            await self.pool.confirm(needs_standby=True)

    def long_snapshot(self) -> AbstractContextManager[Connection]:
        """
        A connection of its own on this thread, all of whose reads are of one moment, however long they take.

        Only for work beside which nobody else uses the schema: what was removed stays on disk meanwhile.
        """
        return long_snapshot(self._target)

    def now(self) -> float | None:
        """The parameter `now` of an SQL text: None, so that the database's clock counts, or the time of a test."""
        return (
            None
            if self._clock is None or isinstance(self._clock, SystemClock | SteadyClock)
            else self._clock.now()
        )

    async def close(self) -> None:
        """Finish what is under way and disconnect; idempotent."""
        for lane in (self.append, self.pool, self.control):
            await lane.close()


# -- connections and transactions for the tables of `spool/sql` ----------------------------------------------


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


# -- sessions of nodes ---------------------------------------------------------------------------------------


SESSION_S = 5.0  # without a renewal, and it is over
LIVE = f"seen_at > {{now}} - {SESSION_S}"
