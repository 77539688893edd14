"""
Waiting reports, and senders of recent calls. Every process reads the rows when it needs them, without a
cache.

`PostgresPartialReports.write_changes` writes a commit's changes to the reports, while the commit holds the
head lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from spool.log.partial_reports import SPANS, PartialReport, report_kind, report_version
from spool.log.pending_spans import change_given_values
from spool.log.planning.plan import CommitPlan
from spool.postgres.database import Connection, Database
from spool.sql.erasing import StoredSpans

# blocks per transaction: some 20,000 rows, which take a fraction of a second
STEP_BLOCKS = 256

_BLOCKS = "SELECT pg_relation_size('{{schema}}.{table}') / current_setting('block_size')::bigint"
# SKIP LOCKED skips rows that are being written, because they are not old. ARRAY() makes PostgreSQL find each
# row by its position.
_REMOVE = """
    DELETE FROM {{schema}}.{table}
     WHERE ctid = ANY(ARRAY(
           SELECT ctid FROM {{schema}}.{table}
            WHERE ctid >= %(begin)s::tid AND ctid < %(end)s::tid AND shard = 0 AND {column} < %(before)s
              FOR UPDATE SKIP LOCKED))"""


async def delete_old_rows(database: Database, table: str, column: str, *, before_time: float) -> int:
    """
    Delete the rows of a table whose time in `column` is before `before_time`.

    The table is read once in file order, a few blocks per transaction. So no statement takes long, no index
    is needed, and an error undoes no finished step.
    """
    count = database.fill_in_table_names(_BLOCKS.format(table=table))
    [blocks] = await database.read(lambda connection: connection.execute(count).fetchone() or (0,))
    remove = database.fill_in_table_names(_REMOVE.format(table=table, column=column))

    def delete_slice_of_rows(connection: Connection, begin: int) -> int:
        values = {"begin": f"({begin},0)", "end": f"({begin + STEP_BLOCKS},0)", "before": before_time}
        return connection.execute(remove, values).rowcount

    removed = 0
    for begin in range(0, blocks, STEP_BLOCKS):
        removed += await database.transaction(partial(delete_slice_of_rows, begin=begin))
    return removed


# -- waiting reports, and the senders that reported calls -----------------------------------------------------


SHARD = 0

_COLUMNS = "SELECT key, at, body FROM {schema}.partial_reports"
_ALL = f"{_COLUMNS} WHERE shard = {SHARD} ORDER BY at, key"
_FIND = f"{_COLUMNS} WHERE shard = {SHARD} AND key = ANY(%s)"
_UNDER = f"{_COLUMNS} WHERE shard = {SHARD} AND key >= %s AND key < %s"
_OLDEST = f"{_COLUMNS} WHERE shard = {SHARD} AND kind = %s AND at <= %s ORDER BY at, key LIMIT %s"
_OF_KIND = f"{_COLUMNS} WHERE shard = {SHARD} AND kind = %s ORDER BY at, key"
_COUNT = f"""
    SELECT COUNT(*), COALESCE(SUM(length(body)), 0)::bigint
      FROM {{schema}}.partial_reports WHERE shard = {SHARD} AND kind = %s"""
_VERSIONS = f"SELECT key, version FROM {{schema}}.partial_reports WHERE shard = {SHARD} AND key = ANY(%s)"
_FORGET = f"DELETE FROM {{schema}}.partial_reports WHERE shard = {SHARD} AND key = ANY(%s)"
_PUT = f"""
    INSERT INTO {{schema}}.partial_reports (shard, key, kind, version, at, body)
    SELECT {SHARD}, * FROM unnest(%s::bytea[], %s::bytea[], %s::bigint[], %s::float8[], %s::bytea[])
        ON CONFLICT (shard, key) DO UPDATE
       SET version = excluded.version, at = excluded.at, body = excluded.body"""
# Select all keys of a caller by their prefix. The upper bound is safe, because no digest begins with
# eight 0xff bytes.
_HEARD = f"""
    SELECT h.reporter, h.at
      FROM unnest(%s::bytea[]) AS asked (caller)
      JOIN {{schema}}.heard h
        ON h.shard = {SHARD} AND h.reporter >= asked.caller AND h.reporter < asked.caller || '\\xffffffffffffffff'"""
_NOTE = f"""
    INSERT INTO {{schema}}.heard AS old (shard, reporter, at) SELECT {SHARD}, each, %s FROM unnest(%s::bytea[]) each
        ON CONFLICT (shard, reporter) DO UPDATE SET at = GREATEST(old.at, excluded.at)"""


# rows of spans have no version, because no submission relies on one
STORED_SPANS = StoredSpans(
    f"""
    SELECT key, body, at FROM {{schema}}.partial_reports
     WHERE shard = {SHARD} AND key > :after AND key < CAST('spans0' AS bytea) ORDER BY key LIMIT :most""",
    f"UPDATE {{schema}}.partial_reports SET body = :packed WHERE shard = {SHARD} AND key = :key",
    SPANS,
    change_given_values,
)


class PostgresPartialReports:
    is_shared = True

    def __init__(self, database: Database) -> None:
        self._database = database

    def query_versions(
        self, connection: Connection, keys: Sequence[bytes]
    ) -> Callable[[], Mapping[bytes, int]]:
        """
        Query the versions of reports in a pipeline. The returned function reads them; keys without a report
        are left out.
        """
        cursor = connection.execute(self._database.fill_in_table_names(_VERSIONS), (list(keys),))
        return lambda: dict(cursor.fetchall())

    def write_changes(self, connection: Connection, plan: CommitPlan) -> None:
        deleted_keys = sorted(key for key, report in plan.partial_reports.items() if report is None)
        reports = sorted(report for report in plan.partial_reports.values() if report is not None)
        if deleted_keys:
            connection.execute(self._database.fill_in_table_names(_FORGET), (deleted_keys,))
        if reports:
            columns = (
                [report.key for report in reports],
                [report_kind(report.key) for report in reports],
                [report_version(report) for report in reports],
                [report.at for report in reports],
                [report.body for report in reports],
            )
            connection.execute(self._database.fill_in_table_names(_PUT), columns)

    async def load(self) -> Sequence[PartialReport]:
        return await self._read_reports(_ALL)

    async def find_reports(
        self, keys: Collection[bytes], *, key_prefixes: Collection[bytes] = ()
    ) -> Mapping[bytes, PartialReport]:
        def read_partial_reports(connection: Connection) -> dict[bytes, PartialReport]:
            rows = connection.execute(self._database.fill_in_table_names(_FIND), (list(keys),)).fetchall()
            for begin in key_prefixes:
                rows += connection.execute(
                    self._database.fill_in_table_names(_UNDER), (begin, _end_of_prefix(begin))
                ).fetchall()
            return {row[0]: PartialReport(*row) for row in rows}

        return await self._database.snapshot(read_partial_reports)

    async def oldest_reports(
        self, kind: bytes, *, before_time: float, max_reports: int
    ) -> Sequence[PartialReport]:
        return await self._read_reports(_OLDEST, kind, before_time, max_reports)

    async def count_reports_and_bytes(self, kind: bytes) -> tuple[int, int]:
        def count_partial_reports(connection: Connection) -> tuple[int, int]:
            [(number, size)] = connection.execute(
                self._database.fill_in_table_names(_COUNT), (kind,)
            ).fetchall()
            return number, size

        return await self._database.read(count_partial_reports)

    async def _read_reports(self, statement: str, *values: object) -> list[PartialReport]:
        def read_rows(connection: Connection) -> list[PartialReport]:
            return [
                PartialReport(*row)
                for row in connection.execute(self._database.fill_in_table_names(statement), values)
            ]

        return await self._database.read(read_rows)


def read_reports_of_kind(database: Database, connection: Connection, kind: bytes) -> list[PartialReport]:
    return [
        PartialReport(*row) for row in connection.execute(database.fill_in_table_names(_OF_KIND), (kind,))
    ]


class PostgresStoredSenders:
    is_shared = True
    has_any_sender = True

    def __init__(self, database: Database) -> None:
        self._database = database

    def store_senders(self, connection: Connection, plan: CommitPlan) -> None:
        if plan.heard:
            senders = set[bytes]().union(*plan.heard.values())
            connection.execute(self._database.fill_in_table_names(_NOTE), (plan.at, sorted(senders)))

    async def find_senders_of_callers(self, callers: Collection[bytes]) -> Sequence[tuple[bytes, float]]:
        return await self._database.read(
            lambda connection: connection.execute(
                self._database.fill_in_table_names(_HEARD), (list(callers),)
            ).fetchall()
        )

    async def delete_old(self, before_time: float) -> int:
        """
        Delete old senders without waiting for a standby: if a failover restores them, they are deleted again.
        """
        return await delete_old_rows(self._database, "heard", "at", before_time=before_time)


def _end_of_prefix(prefix: bytes) -> bytes:
    """Return the lowest bytes that are greater than all bytes with this prefix."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1])
