"""
Writing of a commit's plan, and reading of the log's state at a start. All functions run inside one
transaction of the caller.
"""

from __future__ import annotations

import heapq
import logging
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from spool.log import accounting, counted_names, duplicates, log_positions, runs
from spool.log import conflicts as conflict_pairs
from spool.log.commits import following
from spool.log.commits.id_compaction import CompactedIds, UncompactedCommits
from spool.log.conflicts import OTHER, Conflict, Conflicts, Pair, pair_for_excess_conflicts
from spool.log.counted_names import max_rows_of_most_frequent_names
from spool.log.counters import SeriesState
from spool.log.duplicates import DuplicateIndex, IdCompaction
from spool.log.entries import codec
from spool.log.entries.cache import EntryCache, build_committed_entries
from spool.log.partial_reports import report_version
from spool.log.planning.plan import CommitPlan
from spool.log.receipts import CommitTerms
from spool.log.runs import NO_IDS, IdRun
from spool.log.values import LogEntry
from spool.log.watermarks import OpenRecords
from spool.record import BILLING_DATA, NS, TOPICS, UNIT_COST, Record
from spool.sql import billing, facts
from spool.sqlite import partial_reports, streams
from spool.sqlite.database import SqliteConnection, is_corrupt
from spool.sqlite.log import queries
from spool.sqlite.log.entries import EntryRow, lowest_stored_number, read_entries, read_record
from spool.sqlite.log.retention import RouteNeeds, last_report_time_of_dropped_series

_log = logging.getLogger(__name__)


NAMES = "names"  # kind of the names of earlier records, in UnfoldedCommits

_ids = msgspec.msgpack.Decoder(CompactedIds)
_conflict = msgspec.msgpack.Decoder(Conflict)


class SqliteCommitPlanReader:
    """
    The records and states that planning a commit reads, on the writing connection within its transaction.
    """

    def __init__(self, connection: sqlite3.Connection, cache: EntryCache) -> None:
        self._connection = connection
        self._cache = cache
        self._last_rows: dict[str, EntryRow] = {}
        self._series_known_since: float | None = None

    def read_record(self, topic: str, record_number: int) -> Record | None:
        return read_record(self._connection, topic, record_number, self._cache, self._last_rows)

    def read_series(self, series: bytes) -> SeriesState | None:
        row = self._connection.execute(queries.SERIES, (series,)).fetchone()
        return SeriesState(row[0], row[1], Decimal(row[2])) if row else None

    def dropped_series_last_reported_at(self) -> float:
        if self._series_known_since is None:
            self._series_known_since = last_report_time_of_dropped_series(self._connection)
        return self._series_known_since

    def partial_report_version(self, key: bytes) -> int:
        return report_version(partial_reports.find_reports(self._connection, [key]).get(key))


def write_commit_plan(
    connection: sqlite3.Connection,
    plan: CommitPlan,
    added_ids_number: int,
    check: Callable[[], None] | None = None,
    *,
    caches_copies: bool = False,
) -> int:
    """
    Write the plan of a commit. Return the id of the commit's row.

    `added_ids_number`: the number under which further ids are stored that the commit adds to earlier records. With
    `caches_copies`, the cache gets copies of the records. `check` is called between the steps, and may raise to
    cancel the commit.
    """
    for topic, records in plan.records.items():
        _write_entries(connection, plan, topic, records, caches_copies=caches_copies)
    if plan.amendments:
        _write_amendments(connection, plan)
    if UNIT_COST in plan.records:
        streams.apply_commit(connection, plan)
    if BILLING_DATA in plan.records:
        billing.apply_billing_drops_of_commit(SqliteConnection(connection), plan)
    if check is not None:
        check()
    if plan.partial_reports:
        partial_reports.write_changes(connection, plan.partial_reports)
    if check is not None:
        check()
    if plan.heard:
        partial_reports.store_senders(connection, plan)
    if plan.series:
        _write_series(connection, plan)
    if plan.apart:
        packed = following.pack_ids_added_to_earlier_records(plan.at, plan.apart)
        facts.store_fact(
            SqliteConnection(connection), following.fact_key_of_added_ids(added_ids_number), packed
        )
    if plan.conflicts:
        _write_conflicts(connection, plan.conflicts)
    if plan.unrecognised:
        _count_unrecognised_attribute_names(connection, plan)
    if plan.event_types:
        _write_event_types(connection, plan)
    counts = [{"topic": topic, "term": term, "n": n} for (topic, term), n in plan.accounting_counts().items()]
    connection.executemany(queries.COUNT, counts)
    terms = accounting.pack_submission_counts(plan.submissions)
    commit = connection.execute(queries.ADD_COMMIT, (plan.at, zlib.crc32(terms), terms)).lastrowid
    assert commit is not None
    return commit


def _write_entries(
    connection: sqlite3.Connection,
    plan: CommitPlan,
    topic: str,
    records: list[Record],
    *,
    caches_copies: bool,
) -> None:
    for entry in build_committed_entries(topic, plan.first[topic], records, caches_copies=caches_copies):
        body = entry.body
        connection.execute(
            queries.ADD_ENTRY,
            (topic, entry.first, entry.records, plan.at, body.version, body.checksum, body.data),
        )
        connection.execute(queries.COUNT_ENTRIES, (topic, 1))
        plan.entries.append(entry)


def _write_amendments(connection: sqlite3.Connection, plan: CommitPlan) -> None:
    for (topic, number), fields in plan.amendments.items():
        before = connection.execute(queries.AMENDMENT, (topic, number)).fetchone()
        merged = {**codec.unpack_checked_fields(topic, number, *before), **fields} if before else fields
        packed = codec.pack_fields(merged)
        checksum = codec.checksum_bound_to_location(packed, codec.amendment_location(topic, number))
        connection.execute(queries.AMEND, (topic, number, checksum, packed))


def _write_series(connection: sqlite3.Connection, plan: CommitPlan) -> None:
    rows = [
        (id, state.start_time, state.time, str(state.value), plan.at) for id, state in plan.series.items()
    ]
    connection.executemany(queries.KEEP_SERIES, rows)


def _write_conflicts(connection: sqlite3.Connection, conflicts: Conflicts) -> None:
    for pair, conflict in conflicts.items():
        is_known = connection.execute(queries.CONFLICT, pair).fetchone() is not None
        (pairs,) = connection.execute(queries.CONFLICT_PAIRS, (OTHER,)).fetchone()
        if not is_known and pairs >= conflict_pairs.MAX_PAIRS:
            *rarest, sums = connection.execute(queries.RAREST_CONFLICT, (OTHER,)).fetchone()
            connection.execute(queries.DROP_CONFLICT, rarest)
            _add_to_conflict_count(
                connection,
                pair_for_excess_conflicts((rarest[0], rarest[1], rarest[2])),
                _conflict.decode(sums),
            )
        _add_to_conflict_count(connection, pair, conflict)


def _add_to_conflict_count(connection: sqlite3.Connection, pair: Pair, conflict: Conflict) -> None:
    before = connection.execute(queries.CONFLICT, pair).fetchone()
    merged = _conflict.decode(before[0]).plus(conflict) if before else conflict
    connection.execute(queries.KEEP_CONFLICT, (*pair, merged.count, msgspec.msgpack.encode(merged)))


def _count_unrecognised_attribute_names(connection: sqlite3.Connection, plan: CommitPlan) -> None:
    for names, n in plan.unrecognised.items():
        connection.execute(
            queries.COUNT_SHAPE,
            {"names": counted_names.unrecognised_names_key(names), "n": n, "now": plan.at},
        )
    connection.execute(
        queries.BOUND_SHAPES,
        (max_rows_of_most_frequent_names(counted_names.MAX_SHAPES), counted_names.MAX_SHAPES),
    )


def decode_amount(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def _write_event_types(connection: sqlite3.Connection, plan: CommitPlan) -> None:
    for type, new in plan.event_types.items():
        row = connection.execute(queries.EVENT_AMOUNT, (type,)).fetchone()
        sum = counted_names.add_amounts(decode_amount(row[0]) if row else None, new.amount)
        event_row = {
            "type": type,
            "n": new.count,
            "amount": None if sum is None else str(sum),
            "now": plan.at,
        }
        connection.execute(queries.COUNT_EVENT_TYPE, event_row)
    connection.execute(
        queries.BOUND_EVENT_TYPES,
        (max_rows_of_most_frequent_names(counted_names.MAX_TYPES), counted_names.MAX_TYPES),
    )


def read_counts_of_commit(connection: sqlite3.Connection, commit: int) -> CommitTerms | None:
    row = connection.execute(queries.COMMIT, (commit,)).fetchone()
    return (row[0], accounting.unpack_submission_counts_if_intact(row[2], row[1])) if row else None


def read_conflicts(connection: sqlite3.Connection) -> Conflicts:
    rows = connection.execute(queries.CONFLICTS)
    return Conflicts({(topic, first, second): _conflict.decode(sums) for topic, first, second, sums in rows})


# -- known ids -----------------------------------------------------------------------------------------------


def write_compaction(
    connection: sqlite3.Connection,
    compaction: IdCompaction,
    first_uncompacted_numbers: Mapping[str, int],
    first_kept_added_ids_number: int | None,
) -> None:
    """
    Write new sorted lists of ids, delete the lists that they replace, and store up to which number ids are in
    lists.

    `first_uncompacted_numbers`: by topic, the first number whose ids are in no list.
    `first_kept_added_ids_number`: the first number under which further ids of earlier records stay stored, or
    None.
    """
    connection.executemany(queries.REMOVE_RUN, [(run.key,) for run in compaction.removed])
    for run in compaction.added:
        data, checksum = runs.pack_ids(run.ids)
        connection.execute(queries.ADD_RUN, (run.key, run.hour, len(run.ids), run.arrived_at, checksum, data))
    through = {topic: number - 1 for topic, number in first_uncompacted_numbers.items()}
    ids = CompactedIds(through=through, covered_since=compaction.covered_since)
    rows = SqliteConnection(connection)
    facts.store_fact(rows, "ids", msgspec.msgpack.encode(ids))
    end = (
        following.AFTER
        if first_kept_added_ids_number is None
        else following.fact_key_of_added_ids(first_kept_added_ids_number)
    )
    connection.execute(queries.FORGET_FACTS_BETWEEN, (following.FIRST, end))
    facts.delete_facts(
        rows,
        [
            log_positions.fact_key_of_position_block(block.run.key)
            for block in compaction.places_before.blocks_missing_in(compaction.places)
        ],
    )
    for block in compaction.places.blocks_missing_in(compaction.places_before):
        facts.store_fact(rows, *log_positions.encode_position_block(block))


class _Arrived(NamedTuple):
    """
    Ids that arrived together. `first`: the topic with the first record number or, for ids that a commit added
    to earlier records, NAMES with the commit's number.
    """

    at: float
    first: Mapping[str, int]
    ids: Iterable[tuple[int, int, int]]


def load_ids_into_index(
    connection: sqlite3.Connection, index: DuplicateIndex
) -> tuple[UncompactedCommits, int]:
    """
    Load the known ids in order of arrival: first the stored sorted lists, then newer ids from entries, and
    further ids that commits added to earlier records.

    After a crash, no id is missing. Returns the commits whose ids are not in the sorted lists, and the
    highest number under which further ids are stored.
    """
    id_runs = []
    for key, hour, arrived_at, checksum, data in _read_undamaged_rows(connection, queries.RUNS):
        ids = runs.unpack_ids(data, checksum)
        if ids is None:
            _log.error(
                "a run of known ids is damaged and ignored", extra={"action": "ids_damaged", "hour": hour}
            )
        id_runs.append(IdRun(key, hour, arrived_at, ids or NO_IDS))
    folded = facts.read_fact(SqliteConnection(connection), "ids")
    state = _ids.decode(folded) if folded else CompactedIds()
    recent = connection.execute(queries.FACTS_BETWEEN, (log_positions.FIRST, log_positions.AFTER))
    index.load_id_runs(
        id_runs, state.covered_since, log_positions.decode_recent_log_positions(recent, index.native)
    )
    unfolded = UncompactedCommits()
    names = 0
    by_topic_arrivals = [
        _arrived_records(connection, index, topic, state.first_uncompacted_number(topic)) for topic in TOPICS
    ]
    for arrived in heapq.merge(*by_topic_arrivals, _added_ids_with_arrival(connection), key=attrgetter("at")):
        new: dict[int, int] = {}
        hours = []
        for id, place, hour in arrived.ids:
            if id not in new and not index.is_among_newest_ids(id) and not index.is_in_id_runs(id, hour):
                new[id] = place
                hours.append(hour)
        index.add_ids(new, hours, arrived.at)
        unfolded.note_commit(len(new), arrived.first)
        names = max(names, arrived.first.get(NAMES, 0))
    return unfolded, names


def _added_ids_with_arrival(connection: sqlite3.Connection) -> Iterator[_Arrived]:
    between = (following.FIRST, following.AFTER)
    for name, value in connection.execute(queries.FACTS_BETWEEN, between):
        at, new = following.unpack_ids_added_to_earlier_records(value)
        yield _Arrived(at, {NAMES: following.commit_id_of_fact_key(name)}, zip(*new, strict=True))


def _arrived_records(
    connection: sqlite3.Connection, index: DuplicateIndex, topic: str, first_number: int
) -> Iterator[_Arrived]:
    last = next_record_numbers_by_topic(connection).get(topic, 1) - 1
    for begin in range(first_number, last + 1, codec.MAX_RECORDS):
        for entry in read_entries(connection, topic, begin, min(last, begin + codec.MAX_RECORDS - 1)):
            yield _Arrived(
                entry.committed_at, {topic: entry.first}, _short_ids_positions_and_hours(index, entry)
            )


def _short_ids_positions_and_hours(index: DuplicateIndex, entry: LogEntry) -> Iterator[tuple[int, int, int]]:
    now_ns = int(entry.committed_at * NS)
    for number, record in enumerate(entry.records, entry.first):
        if record is not None:
            place = duplicates.encode_log_position(entry.topic, number)
            for name, hour in duplicates.dedup_keys_with_storage_hours(record, now_ns):
                yield index.short_id(name), place, hour


def _read_undamaged_rows(connection: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield rows until a damaged page, after which rows cannot be read."""
    try:
        yield from connection.execute(query)
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        _log.error(
            "some runs of known ids are damaged and ignored: %s", error, extra={"action": "ids_damaged"}
        )


def next_record_numbers_by_topic(connection: sqlite3.Connection) -> Mapping[str, int]:
    """
    Return by topic the next record number, computed from the accounting or from the log's entries, whichever
    is higher.
    """
    numbers = {}
    for topic, term, n, _ in connection.execute(queries.BOOKS):
        if term == accounting.ACCEPTED:
            numbers[topic] = n + 1
    for topic in TOPICS:
        try:
            next_row = connection.execute(queries.NEXT_NUMBER, (topic,)).fetchone()
        except sqlite3.DatabaseError as error:
            if not is_corrupt(error):
                raise
            continue
        if next_row:
            numbers[topic] = max(next_row[0], numbers.get(topic, 1))
    return numbers


def commits_with_records_in_no_delivery(
    connection: sqlite3.Connection, routes: RouteNeeds, since: float, until: float
) -> list[OpenRecords]:
    """
    Return the commits between two times with records that are in no delivery, or none if damage prevents
    reading deliveries.

    A commit after `until` was written before the clock was set back. Reading stops there, because otherwise
    the whole log would be read.
    """
    commits = []
    try:
        for topic in TOPICS:
            cut_below = routes.first_number_in_no_delivery(connection, topic)
            for at, first, count in connection.execute(queries.NEWEST_ENTRIES, (topic,)):
                if not since < at <= until or first + count <= cut_below:
                    break
                commits.append(OpenRecords(at, topic, max(first, cut_below), first + count))
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        return []
    return commits


def count_stored_records(connection: sqlite3.Connection) -> Counter[tuple[str, str]]:
    """
    Return the number of stored records by topic, computed from record numbers. Only `verify` decodes the
    records.
    """
    sums: Counter[tuple[str, str]] = Counter()
    for topic, next_number in next_record_numbers_by_topic(connection).items():
        sums[topic, accounting.KEPT] = next_number - lowest_stored_number(connection, topic)
    return sums
