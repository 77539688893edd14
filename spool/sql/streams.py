"""Unit-cost streams and their totals in SQL, written in the log's transactions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from spool.listing import ListPage, ListQuery
from spool.sql.columns import JSON_TUPLE, ColumnForm, RowColumns, select_sql, upsert_sql
from spool.sql.connection import SqlConnection, SqlTransactions
from spool.sql.lists import read_page
from spool.streams import (
    ALL_TOTALS,
    StreamSize,
    StreamTotal,
    TelemetryStream,
    TotalsInTransaction,
    TotalsPart,
    estimated_bytes,
    plan_freed_bytes,
)

TRIMMED_AT_ONCE = 500  # totals of a stream that one transaction deletes
NEVER = 2**63 - 1  # a time after every possible time, in nanoseconds


# json.dumps would create an encoder each time
_sorted_json = json.JSONEncoder(sort_keys=True)

STREAM = RowColumns(TelemetryStream, forms={"keys": JSON_TUPLE})
STREAMS = select_sql("streams", STREAM.names)
TOTAL = RowColumns(StreamTotal, forms={"dimensions": ColumnForm(_sorted_json.encode, json.loads)})
TOTALS = select_sql("stream_totals", TOTAL.names)
_SIZES = "SELECT name, created_by, bytes FROM {schema}.stream_sizes ORDER BY name"
# totals whose operations were all deleted from the log
_SETTLED = f"""
    {TOTALS} WHERE stream = :stream AND updated_at < :settled AND start_time < :before
  ORDER BY start_time, key LIMIT :at_most"""
GROW = """
    INSERT INTO {schema}.stream_sizes AS size (name, created_by, bytes) VALUES (:name, '', :bytes)
        ON CONFLICT (name) DO UPDATE SET bytes = size.bytes + excluded.bytes"""
_PUT_STREAM = upsert_sql("streams", STREAM.names, "name")
_PUT_TOTAL = upsert_sql("stream_totals", TOTAL.names, "stream", "key")
_TOTAL = f"{TOTALS} WHERE stream = :stream AND key = :key"
_THESE = f"{TOTALS} WHERE stream = :stream AND key IN :keys"
_DROP_STREAM = ("streams WHERE name", "stream_totals WHERE stream", "stream_sizes WHERE name")
_OWN = """
    INSERT INTO {schema}.stream_sizes AS size (name, created_by, bytes) VALUES (:name, :key, 0)
        ON CONFLICT (name) DO UPDATE SET created_by = excluded.created_by WHERE size.created_by = ''"""


class SqlStreamRows:
    """
    The rows of streams within a transaction.

    A commit's operations change few totals, so each total is read once and written by `flush`.
    """

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection
        self._streams: dict[str, TelemetryStream | None] = {}
        self._totals = TotalsInTransaction()

    def prefetch_totals(self, total_keys: Iterable[tuple[str, str]]) -> None:
        """
        Read totals with one statement per stream. With more statements, this thread would wait for the
        interpreter lock each time.
        """
        missing: dict[str, list[str]] = {}
        for stream, key in total_keys:
            if (stream, key) not in self._totals:
                missing.setdefault(stream, []).append(key)
        for stream, keys in missing.items():
            rows = self._connection.all(_THESE, stream=stream, keys=keys)
            self._cache_rows([(stream, key) for key in keys], rows)

    def _cache_rows(self, total_keys: Iterable[tuple[str, str]], rows: Iterable[Sequence[Any]]) -> None:
        stored = {(row[0], row[1]): TOTAL.read_row(row) for row in rows}
        for stream_key in total_keys:
            self._totals.note_total(stream_key, stored.get(stream_key))

    def find_stream(self, name: str) -> TelemetryStream | None:
        if name not in self._streams:
            row = self._connection.first_row(f"{STREAMS} WHERE name = :name", name=name)
            self._streams[name] = STREAM.read_row(row) if row else None
        return self._streams[name]

    def put_stream(self, stream: TelemetryStream) -> None:
        self._connection.run(_PUT_STREAM, **STREAM.stored_values(stream))
        self._streams[stream.name] = stream

    def drop_stream(self, name: str) -> None:
        self.flush()
        for table in _DROP_STREAM:
            self._connection.run(f"DELETE FROM {{schema}}.{table} = :name", name=name)
        self._streams.clear()
        self._totals.clear()

    def find_total(self, stream: str, key: str) -> StreamTotal | None:
        stream_key = (stream, key)
        if stream_key not in self._totals:
            row = self._connection.first_row(_TOTAL, stream=stream, key=key)
            self._totals.note_total(stream_key, TOTAL.read_row(row) if row else None)
        return self._totals[stream_key]

    def put_total(self, total: StreamTotal) -> None:
        # load the stored total, because `put_total` needs its size
        self.find_total(total.stream, total.key)
        self._totals.put_total(total)

    def totals_at(self, stream: str, start_time: int) -> Sequence[StreamTotal]:
        self.flush()
        statement = f"{TOTALS} WHERE stream = :stream AND start_time = :start_time ORDER BY key"
        rows = self._connection.all(statement, stream=stream, start_time=start_time)
        return [TOTAL.read_row(row) for row in rows]

    def remove_total(self, stream: str, key: str) -> None:
        self.find_total(stream, key)
        self._totals.note_deleted_total((stream, key))
        statement = "DELETE FROM {schema}.stream_totals WHERE stream = :stream AND key = :key"
        self._connection.run(statement, stream=stream, key=key)

    def flush(self) -> None:
        changed, growth = self._totals.take_changed_totals_and_growth()
        if changed:
            self._connection.run_each(_PUT_TOTAL, [self._stored_values(total) for total in changed])
        if growth:
            self._connection.run_each(GROW, [{"name": name, "bytes": size} for name, size in growth])

    def _stored_values(self, total: StreamTotal) -> Mapping[str, object]:
        return TOTAL.stored_values(total)


class SqlStreams:
    # condition that a dimension has one of these values
    has_value: ClassVar = """
    EXISTS (SELECT 1 FROM json_each(dimensions) AS named, json_each(named.value) AS one
             WHERE named.key = :{name} AND one.value IN :{values})"""

    def __init__(self, transactions: SqlTransactions) -> None:
        self._transactions = transactions

    async def streams(self) -> Sequence[TelemetryStream]:
        return [STREAM.read_row(row) for row in await self._read_rows(f"{STREAMS} ORDER BY name")]

    async def stream_totals(self, stream: str) -> Sequence[StreamTotal]:
        rows = await self._read_rows(
            f"{TOTALS} WHERE stream = :stream ORDER BY start_time, key", stream=stream
        )
        return [TOTAL.read_row(row) for row in rows]

    async def find_totals(self, keys: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], StreamTotal]:
        def read_totals(connection: SqlConnection) -> dict[tuple[str, str], StreamTotal]:
            table = SqlStreamRows(connection)
            totals = ((stream_key, table.find_total(*stream_key)) for stream_key in keys)
            return {stream_key: total for stream_key, total in totals if total is not None}

        return await self._transactions.read(read_totals)

    async def totals_page(
        self, stream: str, query: ListQuery, part: TotalsPart = ALL_TOTALS
    ) -> ListPage[StreamTotal]:
        within = self._part_condition(stream, part)
        return await self._transactions.snapshot(
            lambda on: read_page(on, "stream_totals", TOTAL.names, query, TOTAL.read_row, within=within)
        )

    async def stream_sizes(self) -> Sequence[StreamSize]:
        return await self._transactions.read(read_sizes)

    async def set_owner(self, stream: str, key: str) -> None:
        """
        Charge the size of a stream to `key`, without waiting for a standby, because losing this sends or
        deletes nothing.
        """
        await self._transactions.transaction(lambda connection: connection.run(_OWN, name=stream, key=key))

    async def _read_rows(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        return await self._transactions.read(lambda connection: connection.all(statement, **values))

    def _part_condition(self, stream: str, part: TotalsPart) -> tuple[str, Mapping[str, object]]:
        terms = ["stream = :of_stream"]
        values: dict[str, object] = {"of_stream": stream}
        for name, term in (("since", "start_time >= :since"), ("until", "start_time < :until")):
            bound = getattr(part, name)
            if bound is not None:
                terms.append(term)
                values[name] = bound
        for n, (name, accepted) in enumerate(part.dimensions.items()):
            terms.append(self.has_value.format(name=f"dimension_{n}", values=f"values_{n}"))
            values |= {f"dimension_{n}": name, f"values_{n}": list(accepted)}
        return " AND ".join(terms), values


def read_sizes(connection: SqlConnection) -> list[StreamSize]:
    return [StreamSize(*row) for row in connection.all(_SIZES)]


def delete_settled_totals(
    connection: SqlConnection, *, changed_before: float, started_before: int, max_bytes: int
) -> int:
    """
    Delete some of the oldest totals. Return the latest start among them, or 0.

    Two conditions: the total last changed before `changed_before`, so the log has no operation on it that may still
    have to be sent. And it starts before `started_before`, or the sender key of its stream nearly uses up its part of
    `max_bytes`.
    """
    stream_sizes = read_sizes(connection)
    bytes_to_free = plan_freed_bytes(stream_sizes, max_bytes)
    table = SqlStreamRows(connection)
    newest = 0
    for stream in stream_sizes:
        excess = bytes_to_free.get(stream.name, 0)
        before = NEVER if excess else started_before
        for total in stream_totals_unchanged_since(
            connection, stream.name, changed_before=changed_before, started_before=before
        ):
            if total.start_time >= started_before and excess <= 0:
                break
            excess -= estimated_bytes(total)
            newest = max(newest, total.start_time)
            table.remove_total(total.stream, total.key)
    table.flush()
    return newest


def stream_totals_unchanged_since(
    connection: SqlConnection, stream: str, *, changed_before: float, started_before: int
) -> Sequence[StreamTotal]:
    rows = connection.all(
        _SETTLED, stream=stream, settled=changed_before, before=started_before, at_most=TRIMMED_AT_ONCE
    )
    return [TOTAL.read_row(row) for row in rows]
