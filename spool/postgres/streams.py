"""
Streams of unit costs and their totals on PostgreSQL. A commit of the log updates them in its transaction,
which holds the head lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from spool import streams
from spool.clock import Clock
from spool.log.planning.plan import CommitPlan
from spool.log.values import Submission
from spool.postgres.database import (
    Connection,
    Database,
    PipelinedTransaction,
    PostgresConnection,
    PostgresTransactions,
)
from spool.postgres.log.queries import KEEP_LATER, LOCK_HEAD
from spool.record import NS, UNIT_COST, Record, UnitCostOperation
from spool.registry import streams as shared
from spool.settings import SpoolSettings
from spool.sql import facts
from spool.sql import streams as tables
from spool.sql.streams import NEVER, STREAM, STREAMS, TOTAL, TOTALS, SqlStreamRows, SqlStreams, read_sizes
from spool.streams import StreamTotal, estimated_bytes, plan_freed_bytes

SINCE = "streams since"

Versions = Callable[[Connection, Sequence[bytes]], Callable[[], Mapping[bytes, int]]]

_NAMED = f"{STREAMS} WHERE name IN :names"
_COUNT = "SELECT count(*) FROM {schema}.streams"
_FIND = f"""
    {TOTALS} JOIN unnest(CAST(:streams AS text[]), CAST(:keys AS text[])) AS wanted (of_stream, of_key)
             ON stream = of_stream AND key = of_key"""
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


class PostgresStreamRows(SqlStreamRows):
    """The rows of streams. One round trip reads everything that the operations of a commit need."""

    def __init__(self, connection: Connection, database: Database) -> None:
        self._pipelined = PostgresConnection(connection, database.fill_in_table_names)
        super().__init__(self._pipelined)

    def query_rows_and_return_reader(self, operations: Sequence[UnitCostOperation]) -> Callable[[], None]:
        """Query the rows in a pipeline. Call the returned function after the pipeline ends."""
        names = sorted({operation.stream for operation in operations})
        rows = self._pipelined.send_query(_NAMED, names=names)
        sums = {
            (operation.stream, streams.operation_key(operation))
            for operation in operations
            if operation.operation in (streams.SUM, streams.REPLACE)
        }
        totals = self._pipelined.send_query(_FIND, **_key_parameters(sorted(sums))) if sums else ()

        def cache_fetched_streams_and_totals() -> None:
            self._streams = {**dict.fromkeys(names), **{row[0]: STREAM.read_row(row) for row in rows}}
            self._cache_rows(sums, totals)

        return cache_fetched_streams_and_totals

    def _stored_values(self, total: StreamTotal) -> Mapping[str, object]:
        # PostgreSQL rejects JSON with U+0000.
        dimensions = {
            _replace_nul(name): [_replace_nul(value) for value in values]
            for name, values in total.dimensions.items()
        }
        return super()._stored_values(replace(total, dimensions=dimensions))


class PostgresStreams(SqlStreams):
    has_value = """
    EXISTS (SELECT 1 FROM json_each(dimensions::json) AS named (dimension, accepted),
                          json_array_elements_text(named.accepted) AS one (value)
             WHERE named.dimension = :{name} AND one.value IN :{values})"""

    @classmethod
    async def open(cls, database: Database, clock: Clock) -> PostgresStreams:
        """Open the streams. The first call stores the present time, from which on totals are complete."""
        now = repr(clock.now()).encode()
        await database.run(
            lambda on: facts.add_fact(PostgresConnection(on, database.fill_in_table_names), SINCE, now)
        )
        return cls(PostgresTransactions(database))

    async def find_totals(self, keys: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], StreamTotal]:
        return {
            (row[0], row[1]): TOTAL.read_row(row)
            for row in await self._read_rows(_FIND, **_key_parameters(keys))
        }


def versions_with_stream_claims(database: Database, read_versions: Versions, *, max_streams: int) -> Versions:

    def query_stream_versions(
        connection: Connection, keys: Sequence[bytes]
    ) -> Callable[[], Mapping[bytes, int]]:
        claimed = shared.decode_claimed_streams(keys)
        rest = [key for key in keys if key not in claimed]
        other_versions = read_versions(connection, rest) if rest else dict
        names = sorted({stream.name for stream in claimed.values()})
        if not claimed:
            return other_versions
        rows = PostgresConnection(connection, database.fill_in_table_names).send_query(_NAMED, names=names)
        counted = connection.execute(database.fill_in_table_names(_COUNT))

        def read_stream_versions() -> Mapping[bytes, int]:
            [[count]] = counted
            known = {row[0]: STREAM.read_row(row) for row in rows}
            return {
                **other_versions(),
                **shared.versions_of_accepted_claims(claimed, known, free_streams=max_streams - count),
            }

        return read_stream_versions

    return query_stream_versions


def query_and_return_totals_writer(
    connection: Connection, database: Database, submissions: Sequence[Submission]
) -> Callable[[CommitPlan], None] | None:
    """
    Apply the unit-cost operations of a commit to the totals, in its transaction, which holds the lock for
    commits.

    Streams and totals are queried now. The returned function writes the totals after the commit is planned.
    """
    submitted = _unit_cost_operations(
        record for submission in submissions if submission.topic == UNIT_COST for record in submission.records
    )
    if not submitted:
        return None
    table = PostgresStreamRows(connection, database)
    note = table.query_rows_and_return_reader(submitted)
    stored = PostgresConnection(connection, database.fill_in_table_names).send_query(facts.FACT, name=SINCE)

    def write_stream_totals(plan: CommitPlan) -> None:
        note()
        operations = _unit_cost_operations(plan.records.get(UNIT_COST, ()))
        if operations:
            since = max((float(time) for (time,) in stored), default=plan.at)
            streams.apply_operations(table, operations, now=plan.at, began_at=since)
            table.flush()

    return write_stream_totals


def _unit_cost_operations(records: Iterable[Record]) -> list[UnitCostOperation]:
    return [record for record in records if isinstance(record, UnitCostOperation)]


class DeletableTotals(NamedTuple):
    """Totals that may be deleted, as they were read: one per index in each list."""

    streams: list[str]
    keys: list[str]
    updated: list[float]
    sizes: list[int]
    since: float  # time from which on totals count as complete, if they are not deleted


def oldest_deletable_totals(
    connection: Connection,
    database: Database,
    *,
    now: float,
    settings: SpoolSettings,
    oldest_at: float | None,
) -> DeletableTotals | None:
    """
    Return some of the oldest totals that may be deleted, or None.

    The log must have no operation on the total any more, because such an operation may still have to be sent.
    The total must also be older than `stream_retention`, or its key must be near its size limit. `oldest_at`:
    commit time of the oldest unit-cost entry in the log, or None.
    """
    settled = min(now - settings.retention_s, now if oldest_at is None else oldest_at)
    rows = PostgresConnection(connection, database.fill_in_table_names)
    streams = read_sizes(rows)
    bytes_to_free = plan_freed_bytes(streams, settings.max_stream_bytes)
    old = int((now - settings.stream_retention) * NS)
    removable: list[StreamTotal] = []
    for stream in streams:
        excess = bytes_to_free.get(stream.name, 0)
        before = NEVER if excess else old
        for total in tables.stream_totals_unchanged_since(
            rows, stream.name, changed_before=settled, started_before=before
        ):
            if total.start_time >= old and excess <= 0:
                break
            excess -= estimated_bytes(total)
            removable.append(total)
    if not removable:
        return None
    return DeletableTotals(
        [total.stream for total in removable],
        [total.key for total in removable],
        [total.updated_at for total in removable],
        [estimated_bytes(total) for total in removable],
        max(total.start_time for total in removable) / NS + 1,
    )


def delete_unchanged_totals(
    transaction: PipelinedTransaction, database: Database, *, totals: DeletableTotals
) -> None:
    """
    Delete the totals that have not changed since they were read. The lock for commits is held for one round
    trip.

    A later operation on the same record starts a new total. It is incomplete, so it never replaces the cost
    service's total. From now on, totals that start before `since` count as incomplete.
    """
    with transaction.begin_in_pipeline():
        pass
    with transaction.commit_in_pipeline():
        execute = transaction.connection.execute
        execute(database.fill_in_table_names(LOCK_HEAD))
        execute(database.fill_in_table_names(_REMOVE_SETTLED), totals._asdict())
        execute(
            database.fill_in_table_names(KEEP_LATER),
            {"since": totals.since, "text": repr(totals.since).encode(), "name": SINCE},
        )


def _key_parameters(keys: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    return {"streams": [stream for stream, _ in keys], "keys": [key for _, key in keys]}


def _replace_nul(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
