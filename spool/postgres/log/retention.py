"""
Deletion of old log entries. An entry is marked as deleted at once; its disk space is freed when its whole
period is dropped.

A period is one partition in each table. Rows are never deleted singly, so the tables need no vacuuming. This
module also checks whether the log has space within `spool.max_bytes`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import pairwise, takewhile
from typing import Any, NamedTuple, Protocol

from spool.clock import Clock
from spool.log import accounting, retention
from spool.log.commits.following import numbers_by_topic
from spool.log.counters import KNOWN_SINCE
from spool.log.retention import (
    DamagedCommits,
    DeletableEntry,
    DrainRate,
    RouteReadingProgress,
    sum_stored_accounting_counts,
)
from spool.postgres.database import Connection, Database, PipelinedTransaction
from spool.postgres.log import queries
from spool.postgres.log.commit_findings import add_accounting_counts
from spool.postgres.log.entries import highest_accepted_number, lowest_stored_number, topic_code
from spool.postgres.partial_reports import delete_old_rows
from spool.record import TOPICS

STEP = 256  # entries deleted per transaction
COMMITS = 2048  # commit rows that one transaction carries forward
HEARD_ROW_BYTES = 140  # bytes of a sender's row, measured, including the index
PERIOD_BYTES = 50 << 30
PERIOD_S = 86_400.0
PERIODS = 10  # a full queue has at least this number of periods

_log = logging.getLogger(__name__)


class RouteNeeds(Protocol):
    """Reads which records routes still need, inside the transaction that deletes entries."""

    def lowest_number_needed_by_routes(self, connection: Connection, topic: str) -> int | None: ...

    def skip_records_on_optional_routes(
        self, connection: Connection, first_kept_numbers: Mapping[str, int]
    ) -> Mapping[str, int]: ...


class LogPeriod(NamedTuple):
    """The first record numbers and the first commit of a period, and the bytes of the log before it."""

    number: int
    at: float
    firsts: Mapping[str, int]
    commit: int
    size: int


class PostgresRetention:
    """
    Deletes entries in steps. `limits`: the lowest number per topic that must stay, besides what routes need.
    `set_aside` counts damaged commit rows as deleted, if their counts can be computed.
    """

    def __init__(
        self,
        database: Database,
        routes: RouteNeeds,
        *,
        set_aside: Callable[[], Awaitable[None]],
        max_bytes: int,
        retention_s: float,
    ) -> None:
        self._database = database
        self._routes = routes
        self._set_aside = set_aside
        self._retention_s = retention_s
        # bytes above which entries are deleted before their retention time has passed
        self._goal = int(max_bytes * (1 - retention.ROOM))
        self.period_bytes = min(PERIOD_BYTES, max(1, max_bytes // PERIODS))

    async def delete_expired_or_excess_entries(
        self, now: float, read_lowest_kept_numbers: Callable[[], Mapping[str, int]]
    ) -> int:
        """Delete entries by age. If space is short, drop whole periods early, the oldest first."""
        removed = 0
        for topic in TOPICS:
            step = STEP
            while step == STEP:
                limit = read_lowest_kept_numbers().get(topic, 1)
                work = partial(
                    self._remove_old_entries, topic=topic, limit=limit, before_time=now - self._retention_s
                )
                step = await self._database.transaction(work)
                removed += step
        await self._delete_old_commits(now)
        await self._drop_partitions_of_finished_periods()
        while await self._database.read(self._bytes_above_goal) > 0:
            step = await self._database.transaction(
                partial(
                    self._delete_oldest_period_if_unneeded, lowest_kept_numbers=read_lowest_kept_numbers()
                )
            )
            if not step:
                break
            removed += step
            await self._delete_old_commits(now)
            await self._drop_partitions_of_finished_periods()
        return removed

    # -- periods ---------------------------------------------------------------------------------------------

    async def begin_partitions_if_full(self, now: float) -> bool:
        full = {"at": now, "bytes": self.period_bytes, "seconds": PERIOD_S}
        query = self._database.fill_in_table_names(queries.FULL_PERIOD)
        row = await self._database.read(lambda connection: connection.execute(query, full).fetchone())
        if row is None:
            return False
        number = row[0] + 1
        await self._database.transaction(partial(self._make_partitions, period_number=number))
        return await self._database.pool.run_pipelined(
            partial(self._begin_period, period_number=number, now=now)
        )

    def _make_partitions(self, connection: Connection, period_number: int) -> None:
        """Create the partitions of a period before it begins, so that no commit waits for them."""
        connection.execute(self._database.fill_in_table_names(queries.LOCK_PERIODS))
        for table in queries.PARTITIONED:
            names = {"table": table, "period": period_number, "after": period_number + 1}
            row = connection.execute(
                self._database.fill_in_table_names(queries.HAS_PARTITION % names)
            ).fetchone()
            if row is None or not row[0]:
                connection.execute(self._database.fill_in_table_names(queries.MAKE_PARTITION % names))
                connection.execute(self._database.fill_in_table_names(queries.ATTACH_PARTITION % names))

    def _begin_period(self, transaction: PipelinedTransaction, period_number: int, now: float) -> bool:
        """Begin a partition. The lock for commits is held for only one round trip."""
        with transaction.begin_in_pipeline():
            pass
        with transaction.commit_in_pipeline():
            transaction.connection.execute(self._database.fill_in_table_names(queries.LOCK_HEAD))
            facts = {"period": period_number, "at": now}
            begun = transaction.connection.execute(
                self._database.fill_in_table_names(queries.BEGIN_PERIOD), facts
            )
        return begun.rowcount == 1

    def _read_periods(self, connection: Connection) -> list[LogPeriod]:
        rows = connection.execute(self._database.fill_in_table_names(queries.PERIODS))
        return [
            LogPeriod(number, at, numbers_by_topic(firsts), commit, size)
            for number, at, firsts, commit, size in rows
        ]

    def bytes_freed_since_log_began(self, connection: Connection) -> int:
        return self._read_periods(connection)[0].size

    def estimated_bytes_of_stored_senders(self, connection: Connection) -> int:
        """Estimate the bytes of the stored senders (see `spool.log.recent_senders`)."""
        [rows] = connection.execute(self._database.fill_in_table_names(queries.HEARD_ROWS)).fetchone() or (0,)
        return int(rows) * HEARD_ROW_BYTES

    def used_bytes(self, connection: Connection) -> int:
        newest = connection.execute(self._database.fill_in_table_names(queries.NEWEST)).fetchone()
        log = newest[4] - self._read_periods(connection)[0].size if newest else 0
        return log + self.estimated_bytes_of_stored_senders(connection)

    def is_short_of_room(self, connection: Connection) -> bool:
        return self._bytes_above_goal(connection) > 0

    def _bytes_above_goal(self, connection: Connection) -> int:
        return self.used_bytes(connection) - self._goal

    async def _drop_partitions_of_finished_periods(self) -> None:
        for period in await self._database.read(self._deletable_period_numbers):
            for table in queries.PARTITIONED:
                await self._run_query(queries.DROP_PARTITION % {"table": table, "period": period})
            await self._run_query(queries.REMOVE_PERIOD, period)
            await self._run_query(queries.REMOVE_DAMAGED)

    async def _run_query(self, query: str, *parameters: object) -> None:
        text = self._database.fill_in_table_names(query)
        await self._database.run(lambda connection: connection.execute(text, parameters))

    def _deletable_period_numbers(self, connection: Connection) -> list[int]:
        marks = connection.execute(self._database.fill_in_table_names(queries.MARKS)).fetchone()
        compaction = connection.execute(self._database.fill_in_table_names(queries.FOLD)).fetchone()
        newest = connection.execute(self._database.fill_in_table_names(queries.NEWEST)).fetchone()
        if marks is None or compaction is None or newest is None:
            return []
        kept_from = numbers_by_topic(marks[2])
        through = min(marks[1], compaction[1], newest[0] - 1)  # the newest commit row must stay
        period_numbers = []
        for period, after in pairwise(self._read_periods(connection)):
            if after.commit > through + 1:
                continue
            if all(kept_from[topic] >= first for topic, first in after.firsts.items()):
                period_numbers.append(period.number)
        return period_numbers

    # -- entries ---------------------------------------------------------------------------------------------

    def _remove_old_entries(self, connection: Connection, topic: str, limit: int, before_time: float) -> int:
        """Delete entries committed before `before_time`, at most STEP. Return their number."""
        needed = self._routes.lowest_number_needed_by_routes(connection, topic)
        if needed is not None:
            limit = min(limit, needed)
        where = {"topic": topic_code(topic), "below": limit, "limit": STEP}
        rows = connection.execute(self._database.fill_in_table_names(queries.OLDEST_ENTRIES), where)
        candidates = [DeletableEntry._make(row) for row in rows]
        removable = retention.removable_entries(
            candidates, lowest_kept_number=limit, before_time=before_time, excess_bytes=0
        )
        if removable:
            self._skip_on_optional_routes_and_log(connection, {topic: removable[-1].last_number + 1})
            self._store_first_kept_number(
                connection, topic, removable[-1].last_number + 1, entries=len(removable), needed=needed
            )
        return len(removable)

    def _delete_oldest_period_if_unneeded(
        self, connection: Connection, lowest_kept_numbers: Mapping[str, int]
    ) -> int:
        """Delete the oldest partition of the log early if space is short and no reader needs it."""
        periods = self._read_periods(connection)
        removed = 0
        for after in periods[1:2]:
            needs = {
                topic: self._routes.lowest_number_needed_by_routes(connection, topic) for topic in TOPICS
            }
            for topic, needed in needs.items():
                limit = (
                    lowest_kept_numbers.get(topic, 1)
                    if needed is None
                    else min(needed, lowest_kept_numbers.get(topic, 1))
                )
                if after.firsts[topic] > limit:
                    return 0
            self._skip_on_optional_routes_and_log(connection, after.firsts)
            for topic, needed in needs.items():
                first = lowest_stored_number(self._database, connection, topic)
                if first >= after.firsts[topic]:
                    continue
                between = {"topic": topic_code(topic), "first": first, "below": after.firsts[topic]}
                row = connection.execute(
                    self._database.fill_in_table_names(queries.NUMBER_OF_ENTRIES), between
                ).fetchone()
                assert row is not None
                self._store_first_kept_number(
                    connection, topic, after.firsts[topic], entries=row[0], needed=needed
                )
                removed += row[0]
        return removed

    def _store_first_kept_number(
        self, connection: Connection, topic: str, below_number: int, *, entries: int, needed: int | None
    ) -> None:
        first = lowest_stored_number(self._database, connection, topic)
        mark = {"topic": topic_code(topic), "number": below_number, "entries": entries, "before": first}
        if connection.execute(self._database.fill_in_table_names(queries.REMOVED), mark).rowcount != 1:
            raise RemovedMeanwhile
        term = accounting.EXPIRED if needed is None else accounting.RETIRED
        add_accounting_counts(
            self._database, connection, queries.COUNT, Counter({(topic, term): below_number - first})
        )

    def _skip_on_optional_routes_and_log(
        self, connection: Connection, first_kept_numbers: Mapping[str, int]
    ) -> None:
        for topic, skipped in self._routes.skip_records_on_optional_routes(
            connection, first_kept_numbers
        ).items():
            if skipped:
                _log.warning(
                    "optional routes skipped their oldest records, because their entries were deleted",
                    extra={"action": "records_skipped", "topic": topic, "records": skipped},
                )

    # -- commit rows -----------------------------------------------------------------------------------------

    async def _delete_old_commits(self, now: float) -> None:
        try:
            while await self._database.transaction(
                partial(self._delete_some_old_commits_keeping_counts, now=now)
            ):
                pass
        except DamagedCommits:
            await self._set_aside()
            while await self._database.transaction(
                partial(self._delete_some_old_commits_keeping_counts, now=now, accepts_damaged_counts=True)
            ):
                pass

    def _delete_some_old_commits_keeping_counts(
        self, connection: Connection, now: float, *, accepts_damaged_counts: bool = False
    ) -> int:
        marks = connection.execute(self._database.fill_in_table_names(queries.MARKS)).fetchone()
        newest = connection.execute(self._database.fill_in_table_names(queries.NEWEST)).fetchone()
        if marks is None or newest is None:
            return 0
        booked, carried, kept_from, _ = marks
        before = now - self._retention_s
        after = now + self._retention_s
        emptied = (
            self._first_commit_with_entries(connection, numbers_by_topic(kept_from))
            if self.is_short_of_room(connection)
            else 0
        )
        where = {"after": carried, "until": min(booked, newest[0] - 1), "limit": COMMITS}
        rows = connection.execute(
            self._database.fill_in_table_names(queries.COMMITS_BETWEEN), where, binary=True
        ).fetchall()
        # A time far in the future was written before the clock was set back. Its row must not block
        # later rows forever.
        rows = list(takewhile(lambda row: row[0] < emptied or row[1] < before or row[1] > after, rows))
        if not rows:
            return 0
        sums = sum_stored_accounting_counts(
            ((commit, checksum, packed) for commit, _, checksum, packed in rows),
            skips_damaged=accepts_damaged_counts,
        )
        mark = {"before": carried, "after": rows[-1][0]}
        if connection.execute(self._database.fill_in_table_names(queries.CARRIED), mark).rowcount != 1:
            raise RemovedMeanwhile
        if sums:
            add_accounting_counts(self._database, connection, queries.CARRY, sums)
        return len(rows)

    def _first_commit_with_entries(
        self, connection: Connection, first_stored_numbers: Mapping[str, int]
    ) -> int:
        emptied = 0
        for period in self._read_periods(connection):
            if all(first_stored_numbers[topic] >= first for topic, first in period.firsts.items()):
                emptied = period.commit
        return emptied

    def reader_progress_over_all_topics(self, connection: Connection) -> RouteReadingProgress:
        progress = RouteReadingProgress(0, 0)
        for topic in TOPICS:
            progress = progress.with_topic(
                last_number=highest_accepted_number(self._database, connection, topic),
                lowest_stored_number=lowest_stored_number(self._database, connection, topic),
                lowest_needed_number=self._routes.lowest_number_needed_by_routes(connection, topic),
            )
        return progress


class RemovedMeanwhile(Exception):
    """
    Raised if another process has deleted the same rows, or added their counts to those of deleted rows. The
    next run continues after these rows.
    """


class RemainingSeriesCounts(NamedTuple):
    known: int
    pushed_out: int


async def remove_old_counter_series(
    database: Database, now: float, *, max_series: int
) -> RemainingSeriesCounts:
    """
    Delete series not reported for long. If there are still more than `max_series`, delete those reported longest
    ago.
    """

    def one_row_reader(
        query: str, values: Mapping[str, object]
    ) -> Callable[[Connection], tuple[Any, ...] | None]:
        return lambda connection: connection.execute(database.fill_in_table_names(query), values).fetchone()

    await delete_old_rows(database, "series", "seen_at", before_time=now - retention.SERIES_AGE_S)
    [count] = await database.read(one_row_reader(queries.COUNT_SERIES, {})) or (0,)
    if count <= max_series:
        return RemainingSeriesCounts(count, 0)
    [before] = await database.read(one_row_reader(queries.NEWEST_SERIES_SINCE, {"most": max_series})) or (
        0.0,
    )
    # A time in the future was written before the clock was set back. It would make every new series look known.
    since = min(before, now)
    fact = {"name": KNOWN_SINCE, "text": repr(since).encode(), "since": since}
    # stored before rows are deleted, so a commit in between finds a series' row or this time
    keep = database.fill_in_table_names(queries.KEEP_LATER)
    await database.transaction(lambda connection: connection.execute(keep, fact))
    pushed_out = await delete_old_rows(database, "series", "seen_at", before_time=before)
    return RemainingSeriesCounts(count - pushed_out, pushed_out)


class LogSpace:
    """
    The free space of the log. Used space is computed from the newest commit row, the bytes that retention has
    freed, and the size of data outside the log.
    """

    def __init__(
        self, database: Database, retention: PostgresRetention, clock: Clock, *, max_bytes: int
    ) -> None:
        self._database = database
        self._retention = retention
        self._clock = clock
        self._max_bytes = max_bytes
        self._drain = DrainRate()
        # Bytes that retention has freed since the log began, minus the bytes of senders' rows. Subtracted
        # from the log's size, it gives the used bytes.
        self._freed = 0

    async def read_bytes_freed_by_retention(self) -> None:
        await self._database.read(self._read_bytes_freed_by_retention)

    def _read_bytes_freed_by_retention(self, connection: Connection) -> None:
        self._freed = self._retention.bytes_freed_since_log_began(
            connection
        ) - self._retention.estimated_bytes_of_stored_senders(connection)

    def require_room(self, connection: Connection, size: int) -> None:
        """Raise SpoolFull if a log of `size` bytes has no space. Runs on the connection's thread."""
        if size - self._freed >= self._max_bytes:
            # another node may have dropped a period
            self._read_bytes_freed_by_retention(connection)
            if size - self._freed >= self._max_bytes:
                raise self._drain.spool_full_error()

    async def note_deleted_entries(self) -> None:
        """Note that entries were deleted, to measure how fast the log drains."""
        await self.read_bytes_freed_by_retention()
        self._drain.add_sample(
            self._clock.monotonic(),
            await self._database.snapshot(self._retention.reader_progress_over_all_topics),
        )
