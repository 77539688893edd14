"""Streams and totals in the spool's own file, so that they move with the log."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from spool import streams
from spool.clock import Clock
from spool.errors import SpoolUnavailable
from spool.listing import ListPage, ListQuery
from spool.log.plan import Plan
from spool.record import NS, UNIT_COST, UnitCostOperation
from spool.settings import SpoolSettings
from spool.sql.lists import read_page
from spool.sqlite.database import Database
from spool.sqlite.log import queries
from spool.sqlite.transactions import SqliteConnection
from spool.stream_limits import TotalsInHand, size_of, to_free
from spool.streams import ALL_TOTALS, Stream, StreamSize, Total, TotalsPart

T = TypeVar("T")
SINCE = "streams since"
TRIMMED_AT_ONCE = 500  # totals of a stream in one transaction
_NEVER = 2**63 - 1  # nanoseconds since 1970

_STREAM = "SELECT name, type, granularity, keys, created_at FROM streams"
_PUT_STREAM = "INSERT OR REPLACE INTO streams (name, type, granularity, keys, created_at) VALUES (?, ?, ?, ?, ?)"
_NAMES = ("stream", "key", "start_time", "granularity", "element_name", "dimensions", "value", "whole", "updated_at")
_COLUMNS = ", ".join(_NAMES)
_TOTAL = f"SELECT {_COLUMNS} FROM stream_totals WHERE stream = ?"
_SIZES = "SELECT name, created_by, bytes FROM stream_sizes"
_GROW = """
    INSERT INTO stream_sizes (name, created_by, bytes) VALUES (?, '', ?)
        ON CONFLICT (name) DO UPDATE SET bytes = bytes + excluded.bytes"""
_OWN = """
    INSERT INTO stream_sizes (name, created_by, bytes) VALUES (?, ?, 0)
        ON CONFLICT (name) DO UPDATE SET created_by = excluded.created_by WHERE created_by = ''"""
# What no operation in the log is about any more.
_SETTLED = f"{_TOTAL} AND updated_at < ? AND start_time < ? ORDER BY start_time LIMIT ?"
_HAS_VALUE = """
    EXISTS (SELECT 1 FROM json_each(dimensions) AS named, json_each(named.value) AS one
             WHERE named.key = :{name} AND one.value IN :{values})"""
_PUT_TOTAL = f"INSERT OR REPLACE INTO stream_totals ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


class SqliteStreamRows:
    """
    Streams and totals on a connection, inside its transaction.

    Many operations of a commit are on few records: totals are read once and written by `flush`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._streams: dict[str, Stream | None] = {}
        self._totals = TotalsInHand()

    def stream(self, name: str) -> Stream | None:
        if name not in self._streams:
            row = self._connection.execute(f"{_STREAM} WHERE name = ?", (name,)).fetchone()
            self._streams[name] = _stream(row) if row else None
        return self._streams[name]

    def put_stream(self, stream: Stream) -> None:
        keys = None if stream.keys is None else json.dumps(stream.keys)
        self._connection.execute(_PUT_STREAM, (stream.name, stream.type, stream.granularity, keys, stream.created_at))
        self._streams[stream.name] = stream

    def drop_stream(self, name: str) -> None:
        self.flush()
        self._connection.execute("DELETE FROM streams WHERE name = ?", (name,))
        self._connection.execute("DELETE FROM stream_totals WHERE stream = ?", (name,))
        self._connection.execute("DELETE FROM stream_sizes WHERE name = ?", (name,))
        self._streams.clear()
        self._totals.clear()

    def total(self, stream: str, key: str) -> Total | None:
        place = (stream, key)
        if place not in self._totals:
            row = self._connection.execute(f"{_TOTAL} AND key = ?", place).fetchone()
            self._totals.note(place, _total(row) if row else None)
        return self._totals[place]

    def put_total(self, total: Total) -> None:
        self.total(total.stream, total.key)  # for the size that it had
        self._totals.put(total)

    def totals_at(self, stream: str, start_time: int) -> Sequence[Total]:
        self.flush()
        rows = self._connection.execute(f"{_TOTAL} AND start_time = ?", (stream, start_time)).fetchall()
        return [_total(row) for row in rows]

    def remove_total(self, stream: str, key: str) -> None:
        self.total(stream, key)
        self._totals.remove((stream, key))
        self._connection.execute("DELETE FROM stream_totals WHERE stream = ? AND key = ?", (stream, key))

    def flush(self) -> None:
        changed, growth = self._totals.settle()
        self._connection.executemany(_PUT_TOTAL, [_row(total) for total in changed])
        self._connection.executemany(_GROW, growth)


class SqliteStreams:
    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(cls, database: Database, clock: Clock) -> SqliteStreams:
        """Notes when totals began, the first time."""

        def begin(connection: sqlite3.Connection) -> None:
            if connection.execute(queries.FACT, (SINCE,)).fetchone() is None:
                connection.execute(queries.KEEP_FACT, (SINCE, repr(clock.now()).encode()))

        try:
            await database.transaction(begin)
        except sqlite3.Error as error:  # a full disk: what is there can still be read, and no total counts as whole
            if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_FULL:
                raise SpoolUnavailable(f"streams cannot be read: {error}") from error
        return cls(database)

    async def streams(self) -> Sequence[Stream]:
        return await self._read(
            lambda connection: [_stream(row) for row in connection.execute(f"{_STREAM} ORDER BY name")]
        )

    async def totals(self, stream: str) -> Sequence[Total]:
        def work(connection: sqlite3.Connection) -> list[Total]:
            rows = connection.execute(f"{_TOTAL} ORDER BY start_time, key", (stream,))
            return [_total(row) for row in rows]

        return await self._read(work)

    async def find(self, keys: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Total]:
        def work(connection: sqlite3.Connection) -> dict[tuple[str, str], Total]:
            table = SqliteStreamRows(connection)
            found = ((place, table.total(*place)) for place in keys)
            return {place: total for place, total in found if total is not None}

        return await self._read(work)

    async def page(self, stream: str, query: ListQuery, part: TotalsPart = ALL_TOTALS) -> ListPage[Total]:
        within = _within(stream, part)
        return await self._guarded(
            self._database.snapshot(
                lambda connection: read_page(
                    SqliteConnection(connection), "stream_totals", _NAMES, query, _total, within=within
                )
            )
        )

    async def sizes(self) -> Sequence[StreamSize]:
        return await self._read(_sizes)

    async def own(self, stream: str, key: str) -> None:
        await self._guarded(self._database.transaction(lambda connection: connection.execute(_OWN, (stream, key))))

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._guarded(self._database.read(work))

    async def _guarded(self, reading: Awaitable[T]) -> T:
        try:
            return await reading
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"streams cannot be read: {error}") from error


def _within(stream: str, part: TotalsPart) -> tuple[str, Mapping[str, object]]:
    """A condition for totals of a stream, and its values."""
    terms = ["stream = :of_stream"]
    values: dict[str, object] = {"of_stream": stream}
    for name, term in (("since", "start_time >= :since"), ("until", "start_time < :until")):
        bound = getattr(part, name)
        if bound is not None:
            terms.append(term)
            values[name] = bound
    for n, (name, accepted) in enumerate(part.dimensions.items()):
        terms.append(_HAS_VALUE.format(name=f"dimension_{n}", values=f"values_{n}"))
        values |= {f"dimension_{n}": name, f"values_{n}": list(accepted)}
    return " AND ".join(terms), values


def follow(connection: sqlite3.Connection, plan: Plan) -> None:
    """What a commit's operations do to the totals, in its transaction."""
    records = plan.records.get(UNIT_COST)
    if not records:
        return
    row = connection.execute(queries.FACT, (SINCE,)).fetchone()
    since = float(row[0]) if row else plan.at
    operations = [record for record in records if isinstance(record, UnitCostOperation)]
    table = SqliteStreamRows(connection)
    streams.apply(table, operations, now=plan.at, since=since)
    table.flush()


def trim(connection: sqlite3.Connection, *, now: float, settings: SpoolSettings) -> bool:
    """
    Remove some of the oldest totals that may go; False when none went.

    A total may go when no operation on it is in the log any more, so that nothing that is still to be sent is about it:
    once it is older than `stream_retention`, or when its key has nearly what it may hold. What comes later for the same
    record begins anew and is no longer whole, so it never replaces the service's.
    """
    oldest = connection.execute(queries.OLDEST_COMMITTED_AT, (UNIT_COST,)).fetchone()
    settled = min(now - settings.retention, oldest[0] if oldest else now)
    sizes = _sizes(connection)
    wanted = to_free(sizes, settings.max_stream_bytes)
    old = int((now - settings.stream_retention) * NS)
    table = SqliteStreamRows(connection)
    newest = 0
    for stream in sizes:
        excess = wanted.get(stream.name, 0)
        before = _NEVER if excess else old
        for row in connection.execute(_SETTLED, (stream.name, settled, before, TRIMMED_AT_ONCE)).fetchall():
            total = _total(row)
            if total.start_time >= old and excess <= 0:
                break
            excess -= size_of(total)
            newest = max(newest, total.start_time)
            table.remove_total(total.stream, total.key)
    table.flush()
    if newest:
        _begin_after(connection, newest)
    return newest > 0


def _begin_after(connection: sqlite3.Connection, start_time: int) -> None:
    """From now on totals that start at `start_time` or before are taken for parts of longer histories."""
    row = connection.execute(queries.FACT, (SINCE,)).fetchone()
    since = max(float(row[0]) if row else 0.0, start_time / NS + 1)
    connection.execute(queries.KEEP_FACT, (SINCE, repr(since).encode()))


def forget_whole(connection: sqlite3.Connection) -> None:
    """
    The file was salvaged: what was lost of it may be part of any total, so none may replace the service's.

    Sizes are counted again, because rows of either table may be lost.
    """
    connection.execute("UPDATE stream_totals SET whole = 0")
    connection.execute(queries.FORGET_FACT, (SINCE,))
    sizes = Counter({name: 0 for (name,) in connection.execute("SELECT name FROM streams")})
    for row in connection.execute(f"SELECT {_COLUMNS} FROM stream_totals"):
        total = _total(row)
        sizes[total.stream] += size_of(total)
    connection.execute("UPDATE stream_sizes SET bytes = 0")
    connection.executemany(_GROW, sizes.items())


def _sizes(connection: sqlite3.Connection) -> list[StreamSize]:
    return [StreamSize(*row) for row in connection.execute(_SIZES)]


def _row(total: Total) -> tuple[object, ...]:
    dimensions = json.dumps({name: list(values) for name, values in total.dimensions.items()}, sort_keys=True)
    return (
        total.stream, total.key, total.start_time, total.granularity, total.element_name, dimensions,
        total.value, total.whole, total.updated_at,
    )  # fmt: skip


def _total(row: Sequence[Any] | sqlite3.Row) -> Total:
    """A row of stream_totals, its columns in their order."""
    return Total(
        stream=row[0],
        key=row[1],
        start_time=row[2],
        granularity=row[3],
        element_name=row[4],
        dimensions=json.loads(row[5]),
        value=row[6],
        whole=bool(row[7]),
        updated_at=row[8],
    )


def _stream(row: Sequence[Any]) -> Stream:
    return Stream(
        name=row[0],
        type=row[1],
        granularity=row[2],
        keys=None if row[3] is None else tuple(json.loads(row[3])),
        created_at=row[4],
    )
