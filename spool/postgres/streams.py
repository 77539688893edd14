"""Streams and totals: they move with the log, in the transaction of the commit, which holds the head."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from spool import streams
from spool.clock import Clock
from spool.listing import ListPage, ListQuery
from spool.log.plan import Plan
from spool.log.values import Submission
from spool.postgres.database import Connection, Database, JoinedTransaction
from spool.postgres.log.queries import LOCK_HEAD
from spool.postgres.transactions import PostgresConnection
from spool.record import NS, UNIT_COST, Record, UnitCostOperation
from spool.registry.shared import streams as shared
from spool.settings import SpoolSettings
from spool.sql.lists import read_page
from spool.stream_limits import TotalsInHand, size_of, to_free
from spool.streams import ALL_TOTALS, Stream, StreamSize, Total, TotalsPart

SINCE = "streams since"
TRIMMED_AT_ONCE = 500  # totals of a stream in one transaction
_NEVER = 2**63 - 1  # nanoseconds since 1970

Versions = Callable[[Connection, Sequence[bytes]], Callable[[], Mapping[bytes, int]]]

_STREAM = "SELECT name, type, granularity, keys, created_at FROM {schema}.streams"
_COUNT = "SELECT count(*) FROM {schema}.streams"
_PUT_STREAM = """
    INSERT INTO {schema}.streams (name, type, granularity, keys, created_at) VALUES (%s, %s, %s, %s, %s)
        ON CONFLICT (name) DO UPDATE
       SET type = excluded.type, granularity = excluded.granularity, keys = excluded.keys,
           created_at = excluded.created_at"""
_DROP_STREAM = ("streams WHERE name", "stream_totals WHERE stream", "stream_sizes WHERE name")
_NAMES = ("stream", "key", "start_time", "granularity", "element_name", "dimensions", "value", "whole", "updated_at")
_COLUMNS = ", ".join(_NAMES)
_TOTAL = f"SELECT {_COLUMNS} FROM {{schema}}.stream_totals"
_FIND = f"""
    {_TOTAL} JOIN unnest(%(streams)s::text[], %(keys)s::text[]) AS wanted (of_stream, of_key)
             ON stream = of_stream AND key = of_key"""
_PUT_TOTAL = f"""
    INSERT INTO {{schema}}.stream_totals ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
        ON CONFLICT (stream, key) DO UPDATE
       SET start_time = excluded.start_time, granularity = excluded.granularity, element_name = excluded.element_name,
           dimensions = excluded.dimensions, value = excluded.value, whole = excluded.whole,
           updated_at = excluded.updated_at"""
_REMOVE_TOTAL = "DELETE FROM {schema}.stream_totals WHERE stream = %s AND key = %s"
_SIZES = "SELECT name, created_by, bytes FROM {schema}.stream_sizes ORDER BY name"
_GROW = """
    INSERT INTO {schema}.stream_sizes AS size (name, created_by, bytes) VALUES (%s, '', %s)
        ON CONFLICT (name) DO UPDATE SET bytes = size.bytes + excluded.bytes"""
_OWN = """
    INSERT INTO {schema}.stream_sizes AS size (name, created_by, bytes) VALUES (%s, %s, 0)
        ON CONFLICT (name) DO UPDATE SET created_by = excluded.created_by WHERE size.created_by = ''"""
# What no operation in the log is about any more.
_SETTLED = f"{_TOTAL} WHERE stream = %s AND updated_at < %s AND start_time < %s ORDER BY start_time, key LIMIT %s"
_REMOVE_SETTLED = """
    WITH gone AS (
        DELETE FROM {schema}.stream_totals
         USING unnest(%(streams)s::text[], %(keys)s::text[], %(updated)s::float8[], %(sizes)s::bigint[])
               AS going (of_stream, of_key, at, size)
         WHERE stream = of_stream AND key = of_key AND updated_at = at
     RETURNING stream, going.size)
    UPDATE {schema}.stream_sizes AS kept SET bytes = kept.bytes - freed.size
      FROM (SELECT stream, sum(size)::bigint AS size FROM gone GROUP BY stream) AS freed
     WHERE kept.name = freed.stream"""
_HAS_VALUE = """
    EXISTS (SELECT 1 FROM json_each(dimensions::json) AS named (dimension, accepted),
                          json_array_elements_text(named.accepted) AS one (value)
             WHERE named.dimension = :{name} AND one.value IN :{values})"""
_FACT = "SELECT value FROM {schema}.facts WHERE name = %s"
_BEGIN = "INSERT INTO {schema}.facts (name, value) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING"
_MOVE = """
    INSERT INTO {schema}.facts AS kept (name, value) VALUES (%(name)s, %(text)s)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value
     WHERE convert_from(kept.value, 'UTF8')::float8 < %(since)s"""


class PostgresStreamRows:
    """
    See `spool.streams.StreamRows`.

    Many operations of a commit are on few records: what they are about is read at once and written by `flush`.
    """

    def __init__(self, connection: Connection, database: Database) -> None:
        self._connection = connection
        self._sql = database.sql
        self._streams: dict[str, Stream | None] = {}
        self._totals = TotalsInHand()

    def ask(self, operations: Sequence[UnitCostOperation]) -> Callable[[], None]:
        """What these operations are about is read; call what is returned once the pipeline is over."""
        names = sorted({one.stream for one in operations})
        rows = self._run(f"{_STREAM} WHERE name = ANY(%s)", (names,))
        sums = {
            (one.stream, streams.key_of(one)) for one in operations if one.operation in (streams.SUM, streams.REPLACE)
        }
        totals = self._ask_totals(sorted(sums)) if sums else None

        def note() -> None:
            self._streams = {**dict.fromkeys(names), **{row[0]: _stream(row) for row in rows}}
            if totals is not None:
                totals()

        return note

    def fetch_totals(self, places: Sequence[tuple[str, str]]) -> None:
        if places:
            self._ask_totals(places)()

    def _ask_totals(self, places: Sequence[tuple[str, str]]) -> Callable[[], None]:
        values = {"streams": [stream for stream, _ in places], "keys": [key for _, key in places]}
        rows = self._run(_FIND, values)

        def note() -> None:
            found = {(row[0], row[1]): _total(row) for row in rows}
            for place in places:
                self._totals.note(place, found.get(place))

        return note

    def stream(self, name: str) -> Stream | None:
        if name not in self._streams:
            row = self._run(f"{_STREAM} WHERE name = %s", (name,)).fetchone()
            self._streams[name] = _stream(row) if row else None
        return self._streams[name]

    def put_stream(self, stream: Stream) -> None:
        keys = None if stream.keys is None else json.dumps(stream.keys)
        self._run(_PUT_STREAM, (stream.name, stream.type, stream.granularity, keys, stream.created_at))
        self._streams[stream.name] = stream

    def drop_stream(self, name: str) -> None:
        self.flush()
        for which in _DROP_STREAM:
            self._run(f"DELETE FROM {{schema}}.{which} = %s", (name,))
        self._streams.clear()
        self._totals.clear()

    def total(self, stream: str, key: str) -> Total | None:
        place = (stream, key)
        if place not in self._totals:
            self.fetch_totals([place])
        return self._totals[place]

    def put_total(self, total: Total) -> None:
        self.total(total.stream, total.key)  # for the size that it had
        self._totals.put(total)

    def totals_at(self, stream: str, start_time: int) -> Sequence[Total]:
        self.flush()
        found = self._run(f"{_TOTAL} WHERE stream = %s AND start_time = %s ORDER BY key", (stream, start_time))
        return [_total(row) for row in found]

    def remove_total(self, stream: str, key: str) -> None:
        self.total(stream, key)
        self._totals.remove((stream, key))
        self._run(_REMOVE_TOTAL, (stream, key))

    def flush(self) -> None:
        changed, growth = self._totals.settle()
        with self._connection.cursor() as cursor:
            if changed:
                cursor.executemany(self._sql(_PUT_TOTAL), [_row(total) for total in changed])
            if growth:
                cursor.executemany(self._sql(_GROW), growth)

    def _run(self, statement: str, values: Sequence[object] | Mapping[str, object]) -> Any:
        return self._connection.execute(self._sql(statement), values)


class PostgresStreams:
    """See `spool.streams.StreamReader`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(cls, database: Database, clock: Clock) -> PostgresStreams:
        """Notes when totals began, the first time."""
        values = (SINCE, repr(clock.now()).encode())
        await database.run(lambda connection: connection.execute(database.sql(_BEGIN), values))
        return cls(database)

    async def streams(self) -> Sequence[Stream]:
        return [_stream(row) for row in await self._all(f"{_STREAM} ORDER BY name")]

    async def totals(self, stream: str) -> Sequence[Total]:
        found = await self._all(f"{_TOTAL} WHERE stream = %s ORDER BY start_time, key", (stream,))
        return [_total(row) for row in found]

    async def find(self, keys: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Total]:
        values = {"streams": [stream for stream, _ in keys], "keys": [key for _, key in keys]}
        return {(row[0], row[1]): _total(row) for row in await self._all(_FIND, values)}

    async def page(self, stream: str, query: ListQuery, part: TotalsPart = ALL_TOTALS) -> ListPage[Total]:
        within, sql = _within(stream, part), self._database.sql
        return await self._database.snapshot(
            lambda connection: read_page(
                PostgresConnection(connection, sql), "stream_totals", _NAMES, query, _total, within=within
            )
        )

    async def sizes(self) -> Sequence[StreamSize]:
        return await self._database.read(lambda connection: _sizes(connection, self._database))

    async def own(self, stream: str, key: str) -> None:
        """Without asking for a standby: it says for whom a stream's room counts, and nothing leaves because of it."""
        await self._database.run(lambda connection: connection.execute(self._database.sql(_OWN), (stream, key)))

    async def _all(self, statement: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        sql = self._database.sql
        return await self._database.read(lambda connection: connection.execute(sql(statement), values).fetchall())


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


def with_claims(database: Database, versions: Versions, *, max_streams: int) -> Versions:
    """The versions of what a group was made from; those of what it takes its streams to be, too."""

    def ask(connection: Connection, keys: Sequence[bytes]) -> Callable[[], Mapping[bytes, int]]:
        claimed = shared.claims(keys)
        rest = [key for key in keys if key not in claimed]
        others = versions(connection, rest) if rest else dict
        names = sorted({stream.name for stream in claimed.values()})
        if not claimed:
            return others
        rows = connection.execute(database.sql(f"{_STREAM} WHERE name = ANY(%s)"), (names,))
        counted = connection.execute(database.sql(_COUNT))

        def found() -> Mapping[bytes, int]:
            [[count]] = counted
            known = {row[0]: _stream(row) for row in rows}
            return {**others(), **shared.versions(claimed, known, room=max_streams - count)}

        return found

    return ask


def follow(
    connection: Connection, database: Database, submissions: Sequence[Submission]
) -> Callable[[Plan], None] | None:
    """
    What a commit's operations do to the totals, in its transaction, which holds the head.

    What they are about is asked at once; what is returned writes, once the commit is planned. None: there are none.
    """
    told = _operations(record for one in submissions if one.topic == UNIT_COST for record in one.records)
    if not told:
        return None
    table = PostgresStreamRows(connection, database)
    note = table.ask(told)
    since = connection.execute(database.sql(_FACT), (SINCE,))

    def write(plan: Plan) -> None:
        note()
        operations = _operations(plan.records.get(UNIT_COST, ()))
        if operations:
            row = since.fetchone()
            streams.apply(table, operations, now=plan.at, since=float(row[0]) if row else plan.at)
            table.flush()

    return write


def _operations(records: Iterable[Record]) -> list[UnitCostOperation]:
    return [record for record in records if isinstance(record, UnitCostOperation)]


class SettledTotals(NamedTuple):
    """Totals that may go: of a stream each, with what they were read as."""

    streams: list[str]
    keys: list[str]
    updated: list[float]
    sizes: list[int]
    since: float  # when the totals that stay begin


def settled_totals(
    connection: Connection, database: Database, *, now: float, settings: SpoolSettings, oldest_at: float | None
) -> SettledTotals | None:
    """
    Some of the oldest totals that may go; None when none may.

    A total may go when no operation on it is in the log any more, so that nothing that is still to be sent is about it:
    once it is older than `stream_retention`, or when its key has nearly what it may hold. `oldest_at` is when the
    oldest unit-cost entry of the log was committed, None if there is none.
    """
    settled = min(now - settings.retention, now if oldest_at is None else oldest_at)
    sizes = _sizes(connection, database)
    wanted = to_free(sizes, settings.max_stream_bytes)
    old = int((now - settings.stream_retention) * NS)
    gone: list[Total] = []
    for stream in sizes:
        excess = wanted.get(stream.name, 0)
        values = (stream.name, settled, _NEVER if excess else old, TRIMMED_AT_ONCE)
        for total in map(_total, connection.execute(database.sql(_SETTLED), values).fetchall()):
            if total.start_time >= old and excess <= 0:
                break
            excess -= size_of(total)
            gone.append(total)
    if not gone:
        return None
    return SettledTotals(
        [total.stream for total in gone],
        [total.key for total in gone],
        [total.updated_at for total in gone],
        [size_of(total) for total in gone],
        max(total.start_time for total in gone) / NS + 1,
    )


def remove(transaction: JoinedTransaction, database: Database, *, totals: SettledTotals) -> None:
    """
    Remove those that are still as they were read: the head is held for one round trip.

    What comes later for the same record begins anew and is no longer whole, so it never replaces the service's: from
    now on totals that start before `since` are taken for parts of longer histories.
    """
    with transaction.begun():
        pass
    with transaction.committed():
        execute = transaction.connection.execute
        execute(database.sql(LOCK_HEAD))
        execute(database.sql(_REMOVE_SETTLED), totals._asdict())
        execute(database.sql(_MOVE), {"since": totals.since, "text": repr(totals.since).encode(), "name": SINCE})


def _sizes(connection: Connection, database: Database) -> list[StreamSize]:
    return [StreamSize(*row) for row in connection.execute(database.sql(_SIZES))]


def _row(total: Total) -> tuple[object, ...]:
    # PostgreSQL reads no JSON with this character, so that a list filtered by a dimension would fail.
    dimensions = {_readable(name): [_readable(one) for one in values] for name, values in total.dimensions.items()}
    return (
        total.stream, total.key, total.start_time, total.granularity, total.element_name,
        json.dumps(dimensions, sort_keys=True), total.value, total.whole, total.updated_at,
    )  # fmt: skip


def _readable(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _total(row: Sequence[Any]) -> Total:
    """A row of stream_totals, its columns in their order."""
    values = dict(zip(_NAMES, row, strict=True))
    return Total(**{**values, "dimensions": json.loads(values["dimensions"])})


def _stream(row: Sequence[Any]) -> Stream:
    name, type, granularity, keys, created_at = row
    named = None if keys is None else tuple(json.loads(keys))
    return Stream(name=name, type=type, granularity=granularity, keys=named, created_at=created_at)
