"""
Writing of a plan under the head lock, and reading of the log's state at a start. All functions run inside one
transaction of the caller.
"""

from __future__ import annotations

import logging
import secrets
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from spool.log import accounting, log_positions, runs
from spool.log.commits.following import (
    CommitRow,
    FollowedLogState,
    NumbersByTopic,
    numbers_by_topic,
    numbers_in_topic_order,
    pack_ids_of_commit_plan,
)
from spool.log.counters import KNOWN_SINCE, SeriesState
from spool.log.duplicates import DuplicateIndex, IdCompaction
from spool.log.entries import codec
from spool.log.entries.cache import EntryCache, build_committed_entries
from spool.log.partial_reports import NOTHING, SPANS
from spool.log.planning.plan import CommitPlan
from spool.log.receipts import CommitTerms
from spool.log.runs import NO_IDS, IdRun
from spool.postgres import partial_reports
from spool.postgres.database import Connection, Database, PostgresConnection
from spool.postgres.log import queries
from spool.postgres.log.commit_findings import pack_commit_findings
from spool.postgres.log.entries import StoredRecordReader, topic_code
from spool.record import Record
from spool.settings import SpoolSettings
from spool.sql import facts

ROW_BYTES = 160  # bytes of a commit row, or of an entry without its body, including index entries
AMENDMENT_BYTES = 60
AT_ONCE = 2048  # rows per read
# rows followed in one step; few, because each may have the ids of many thousand records
FOLLOWED_AT_ONCE = 256

_log = logging.getLogger(__name__)


class LogHead(NamedTuple):
    """
    The end of the log, as an append reads it while it holds the lock for commits. `series`: the stored
    counter series. One that is missing was deleted before
    `dropped_series_last_reported_at`.
    """

    period: int
    rows: Sequence[CommitRow]  # rows from the last known one on, which is included
    now: float
    series: dict[bytes, SeriesState]
    dropped_series_last_reported_at: float
    is_all: bool  # True if no further rows exist


class PostgresCommitPlanReader(StoredRecordReader):
    """
    The records and states that planning a commit reads. Counters and versions of partial reports were read
    before, in one round trip.
    """

    def __init__(
        self,
        database: Database,
        connection: Connection,
        cache: EntryCache,
        *,
        read_log_positions: Callable[[], Iterable[int]],
        series: Mapping[bytes, SeriesState],
        dropped_series_last_reported_at: float,
        versions: Mapping[bytes, int],
    ) -> None:
        super().__init__(database, connection, cache, read_log_positions)
        self._series = series
        self._series_known_since = dropped_series_last_reported_at
        self._versions = versions

    def read_series(self, series: bytes) -> SeriesState | None:
        return self._series.get(series)

    def dropped_series_last_reported_at(self) -> float:
        return self._series_known_since

    def partial_report_version(self, key: bytes) -> int:
        return self._versions.get(key, NOTHING)


def lock_and_query_log_head(
    database: Database,
    connection: Connection,
    last: CommitRow,
    *,
    series_keys: Sequence[bytes] = (),
    wait: bool = True,
) -> Callable[[], LogHead | None]:
    """
    Queue the lock for commits (head lock), and queries, in a pipeline. Call the returned function after the
    pipeline ends: it returns the newest commits, or None if `wait` is False and another process holds the
    lock.
    """
    head = connection.execute(database.fill_in_table_names(queries.LOCK_HEAD if wait else queries.TRY_HEAD))
    read_since = query_commits_since(database, connection, last)
    known: Iterable[tuple[Any, ...]] = ()
    known_since: Iterable[tuple[Any, ...]] = ()
    if series_keys:
        known = connection.execute(database.fill_in_table_names(queries.SERIES), {"ids": list(series_keys)})
        # Any missing series was deleted before this time was read.
        known_since = PostgresConnection(connection, database.fill_in_table_names).send_query(
            facts.FACT, name=KNOWN_SINCE
        )

    def read_log_head() -> LogHead | None:
        period = head.fetchone()
        since = read_since()
        if period is None:
            return None
        return LogHead(
            period=period[0],
            rows=since.rows,
            now=since.now,
            is_all=since.is_all,
            series={id: SeriesState(start, time, Decimal(value)) for id, start, time, value in known},
            dropped_series_last_reported_at=max((float(time) for (time,) in known_since), default=0.0),
        )

    return read_log_head


def read_commit_row(row: Sequence[object]) -> CommitRow:
    row_values = CommitRow._make(row)
    return row_values._replace(next=tuple(row_values.next), closed=tuple(row_values.closed))


def write_commit_plan(
    database: Database,
    connection: Connection,
    plan: CommitPlan,
    reader: StoredRecordReader,
    log_state: FollowedLogState,
    *,
    period_number: int,
    closed: Sequence[int] | None,
    node: UUID,
    caches_copies: bool,
) -> CommitRow:
    """
    Write the plan of a commit. Return its row. If `closed` is None, all records close at once. With `caches_copies`,
    the cache gets copies of the records.
    """
    last = log_state.last
    size = ROW_BYTES
    entries = []
    for topic, records in plan.records.items():
        for row in _entry_rows(plan, period_number, topic, records, caches_copies=caches_copies):
            entries.append(row)
            size += ROW_BYTES + len(row[-1])
    amendments = _amendment_rows(plan, reader)
    size += sum(AMENDMENT_BYTES + len(fields) for *_, fields in amendments)
    terms = accounting.pack_submission_counts(plan.submissions)
    ids = pack_ids_of_commit_plan(plan)
    finds = pack_commit_findings(plan)
    size += len(terms) + len(ids) + len(finds or b"")
    numbers = {**numbers_by_topic(last.next), **plan.next_numbers()}
    ends = tuple(numbers_in_topic_order(numbers))
    row = CommitRow(
        id=last.id + 1,
        period=period_number,
        token=secrets.randbits(63),
        at=plan.at,
        next=ends,
        closed=ends if closed is None else tuple(closed),
        durable=log_state.durable_commit_id,
        entries=last.entries + len(entries),
        size=last.size + size,
        ids=ids,
    )
    values = {
        **row._asdict(),
        "next": list(row.next),
        "closed": list(row.closed),
        "node": node,
        "checksum": zlib.crc32(terms),
        "terms": terms,
        "found": finds,
    }
    for entry in entries:
        connection.execute(database.fill_in_table_names(queries.ADD_ENTRY), entry)
    if amendments:
        topics, numbers_of, checksums, fields = map(list, zip(*sorted(amendments), strict=True))
        parameters = {"topics": topics, "numbers": numbers_of, "checksums": checksums, "fields": fields}
        connection.execute(database.fill_in_table_names(queries.AMEND), parameters)
    if plan.series:
        _write_series(database, connection, plan)
    connection.execute(database.fill_in_table_names(queries.ADD_COMMIT), values)
    return row._replace(ids=b"")


def _entry_rows(
    plan: CommitPlan, period_number: int, topic: str, records: list[Record], *, caches_copies: bool
) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for entry in build_committed_entries(topic, plan.first[topic], records, caches_copies=caches_copies):
        body = entry.body
        rows.append(
            (
                topic_code(topic),
                entry.first,
                entry.records,
                period_number,
                plan.at,
                body.version,
                body.checksum,
                body.data,
            )
        )
        plan.entries.append(entry)
    return rows


def _amendment_rows(plan: CommitPlan, reader: StoredRecordReader) -> list[tuple[int, int, int, bytes]]:
    """
    Return the rows of reports added to records. Each row includes the fields of earlier reports, which
    `reader` has read.
    """
    rows = []
    for (topic, number), fields in plan.amendments.items():
        packed = codec.pack_fields({**reader.fields.get((topic, number), {}), **fields})
        rows.append(
            (
                topic_code(topic),
                number,
                codec.checksum_bound_to_location(packed, codec.amendment_location(topic, number)),
                packed,
            )
        )
    return rows


def _write_series(database: Database, connection: Connection, plan: CommitPlan) -> None:
    states = sorted(plan.series.items())
    connection.execute(
        database.fill_in_table_names(queries.KEEP_SERIES),
        {
            "ids": [id for id, _ in states],
            "starts": [state.start_time for _, state in states],
            "times": [state.time for _, state in states],
            "values": [str(state.value) for _, state in states],
            "at": plan.at,
        },
    )


# -- commits -------------------------------------------------------------------------------------------------


def read_commit_terms(database: Database, connection: Connection, commit: int) -> CommitTerms | None:
    row = connection.execute(
        database.fill_in_table_names(queries.COMMIT), {"id": commit}, binary=True
    ).fetchone()
    return (row[0], accounting.unpack_submission_counts_if_intact(row[2], row[1])) if row else None


class CommitsSince(NamedTuple):
    """The commit rows from a known row on, which is included."""

    rows: Sequence[CommitRow]
    now: float
    is_all: bool  # True if no further rows exist


def query_commits_since(
    database: Database, connection: Connection, last: CommitRow
) -> Callable[[], CommitsSince]:
    """Queue a query for the rows since `last`. Call the returned function after the pipeline ends."""
    limit = FOLLOWED_AT_ONCE
    where = {
        "id": last.id,
        "period": last.period,
        "limit": limit,
        "now": database.now_unless_database_clock(),
    }
    cursor = connection.execute(database.fill_in_table_names(queries.FOLLOW), where, binary=True)

    def read_commits_since() -> CommitsSince:
        rows = cursor.fetchall()
        now, *_ = rows[0]
        commit_rows = [read_commit_row(row) for _, *row in rows if row[0] is not None]
        return CommitsSince(commit_rows, now, is_all=len(commit_rows) < limit)

    return read_commits_since


# -- known ids -----------------------------------------------------------------------------------------------


def write_compaction_if_current(
    database: Database,
    connection: Connection,
    compaction: IdCompaction,
    *,
    commit: int,
    through: NumbersByTopic,
    seq: int,
) -> bool:
    """
    Write new sorted lists of ids. From then on, all ids up to `commit`, and up to the numbers in `through`,
    are in lists. Return False if another process has written lists meanwhile.
    """
    folded = {
        "seq": seq,
        "commit": commit,
        "through": list(through),
        "covered_since": compaction.covered_since,
    }
    if connection.execute(database.fill_in_table_names(queries.FOLDED), folded).rowcount != 1:
        return False
    connection.execute(
        database.fill_in_table_names(queries.REMOVE_RUNS), ([run.key for run in compaction.removed],)
    )
    for run in sorted(compaction.added, key=lambda run: run.key):
        data, checksum = runs.pack_ids(run.ids)
        row = (run.key, run.hour, len(run.ids), run.arrived_at, checksum, data)
        connection.execute(database.fill_in_table_names(queries.ADD_RUN), row)
    removed_places = [
        log_positions.fact_key_of_position_block(block.run.key)
        for block in compaction.places_before.blocks_missing_in(compaction.places)
    ]
    rows = PostgresConnection(connection, database.fill_in_table_names)
    facts.delete_facts(rows, removed_places)
    for block in compaction.places.blocks_missing_in(compaction.places_before):
        facts.store_fact(rows, *log_positions.encode_position_block(block))
    return True


class LoadedLogState(NamedTuple):
    """
    The state that was read at a start. `following`: the log as of the newest commit. `seq`: the version of
    the stored id lists.
    """

    following: FollowedLogState
    seq: int
    now: float
    # missing commits, whose ids were moved to runs that this process has not read
    gap: str


def load_log_state(
    database: Database, connection: Connection, index: DuplicateIndex, *, settings: SpoolSettings
) -> LoadedLogState:
    """Read the stored sorted lists of ids and then, from commit rows, newer ids, in one snapshot."""
    state = connection.execute(database.fill_in_table_names(queries.FOLD)).fetchone()
    moment = connection.execute(
        database.fill_in_table_names(queries.MOMENT), {"now": database.now_unless_database_clock()}
    ).fetchone()
    assert state is not None and moment is not None
    seq, commit, through, covered_since = state
    id_runs = []
    for key, hour, arrived_at, checksum, data in connection.execute(
        database.fill_in_table_names(queries.RUNS), binary=True
    ):
        ids = runs.unpack_ids(data, checksum)
        if ids is None:
            _log.error(
                "a run of known ids is damaged and ignored", extra={"action": "ids_damaged", "hour": hour}
            )
        id_runs.append(IdRun(key, hour, arrived_at, ids or NO_IDS))
    stored = connection.execute(
        database.fill_in_table_names(queries.FACTS_BETWEEN),
        (log_positions.FIRST, log_positions.AFTER),
        binary=True,
    )
    index.load_id_runs(
        id_runs, covered_since, log_positions.decode_recent_log_positions(stored, index.native)
    )
    following = FollowedLogState(index, hold_s=settings.hold, max_spans=settings.pending_spans)
    following.planner.load_spans(partial_reports.read_reports_of_kind(database, connection, SPANS))
    first = tuple(number + 1 for number in numbers_by_topic(through).values())
    gap = _load_commits_and_describe_gap(database, connection, following, commit, first)
    return LoadedLogState(following, seq, moment[0], gap)


def _load_commits_and_describe_gap(
    database: Database,
    connection: Connection,
    log_state: FollowedLogState,
    compacted_commit: int,
    first_numbers: NumbersByTopic,
) -> str:
    """
    Read the commit rows that have ids in no sorted list. `first_numbers`: by topic, the first numbers of such ids.

    Returns which commit rows are missing, so that their ids are unknown, or "".
    """
    newest = connection.execute(
        database.fill_in_table_names(queries.ROWS_BEFORE), {"id": 2**62, "limit": 1}, binary=True
    ).fetchone()
    if newest is None:
        return ""
    open_rows = [read_commit_row(newest)]
    closed = open_rows[0].closed
    durable = open_rows[0].durable
    while any(map(int.__gt__, open_rows[-1].next, closed)) or open_rows[-1].id > max(1, durable):
        before = {"id": open_rows[-1].id, "limit": AT_ONCE}
        fetched = connection.execute(
            database.fill_in_table_names(queries.ROWS_BEFORE), before, binary=True
        ).fetchall()
        open_rows += map(read_commit_row, fetched)
        if len(fetched) < AT_ONCE:
            break
    after, gap = compacted_commit, ""
    while True:
        where = {"id": after, "limit": AT_ONCE}
        rows = connection.execute(
            database.fill_in_table_names(queries.ROWS_AFTER), where, binary=True
        ).fetchall()
        if after == compacted_commit and rows and rows[0][0] > compacted_commit + 1:
            gap = f"commits {compacted_commit + 1} to {rows[0][0] - 1}"
        learned = [read_commit_row(row) for row in rows]
        log_state.load_rows_with_uncompacted_ids(
            learned, first_numbers, is_first_row_partly_compacted=after == compacted_commit
        )
        if len(rows) < AT_ONCE:
            break
        after, first_numbers = learned[-1].id, learned[-1].next
    log_state.load_commits_with_open_records(reversed(open_rows))
    return gap
