"""
Deletion of old log entries. The counts of their commit rows are carried forward, and empty pages are returned
to the disk.

Transactions are small, so that commits never wait long. After each transaction, the accounting balances.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import takewhile
from typing import NamedTuple, Protocol

from spool.log import accounting, retention
from spool.log.counters import KNOWN_SINCE
from spool.log.retention import (
    DamagedCommits,
    DeletableEntry,
    RouteReadingProgress,
    sum_stored_accounting_counts,
)
from spool.record import TOPICS
from spool.sql import facts
from spool.sqlite.database import PAGE, Database, SqliteConnection
from spool.sqlite.log import queries
from spool.sqlite.log.entries import highest_accepted_number, lowest_stored_number

STEP = 64  # entries per transaction
COMMITS = 512  # commit rows per transaction
SERIES = 2048  # counter series deleted per transaction
# empty pages that stay for the next commits (16 MiB); further ones are returned to the disk
FREE_PAGES = 2048
VACUUM_PAGES = 512  # pages returned to the disk per step
CHECKPOINT = "PRAGMA wal_checkpoint(TRUNCATE)"

_log = logging.getLogger(__name__)


class RouteNeeds(Protocol):
    """Reads which records routes still need, and their counters, inside a transaction of the log."""

    def accounting_counts_by_route(self, connection: sqlite3.Connection) -> dict[str, dict[str, int]]: ...

    def lowest_number_needed_by_routes(self, connection: sqlite3.Connection, topic: str) -> int | None: ...

    def skip_records_on_optional_routes(
        self, connection: sqlite3.Connection, topic: str, end_number: int
    ) -> int: ...

    def first_number_in_no_delivery(self, connection: sqlite3.Connection, topic: str) -> int: ...


class FileSpace(NamedTuple):
    used: int
    free: int


def measure_space(connection: sqlite3.Connection) -> FileSpace:
    """
    Return the used space, without the write-ahead log, stream totals and billing rows, which have limits of
    their own.
    """
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    (other_bytes,) = connection.execute(queries.BOUNDED_ELSEWHERE).fetchone()
    return FileSpace(max(0, (pages - free) * size - other_bytes), free * size)


def is_used_space_at_least(connection: sqlite3.Connection, size: int) -> bool:
    """
    Return whether at least `size` bytes are used. Every commit calls this, so it first checks the file size,
    which usually suffices.
    """
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    return pages * PAGE >= size and measure_space(connection).used >= size


class Retention:
    """
    Deletes entries in steps. `lowest_kept_numbers`: by topic, besides what routes need.
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
        self._max_bytes = max_bytes
        self._retention_s = retention_s

    async def delete_expired_or_excess_entries(
        self, now: float, read_lowest_kept_numbers: Callable[[], Mapping[str, int]], *, wanted_bytes: int = 0
    ) -> int:
        """
        Delete entries by age, and earlier if the file is nearly full or `wanted_bytes` must be freed on a
        full disk.
        """
        removed = 0
        goal = self._goal_bytes
        if wanted_bytes:
            goal = min(goal, (await self._database.read(measure_space)).used - wanted_bytes)
        step = 1
        while step:
            work = partial(
                self._delete_some_entries_of_each_topic,
                now=now,
                lowest_kept_numbers=read_lowest_kept_numbers(),
                goal_bytes=goal,
            )
            step = await self._database.transaction(work)
            removed += step
        await self._delete_old_commits(now)
        await self._release_empty_pages(everything=bool(wanted_bytes))
        return removed

    @property
    def _goal_bytes(self) -> int:
        return int(self._max_bytes * (1 - retention.ROOM))

    def is_short_of_room(self, connection: sqlite3.Connection) -> bool:
        return measure_space(connection).used > self._goal_bytes

    def _delete_some_entries_of_each_topic(
        self,
        connection: sqlite3.Connection,
        now: float,
        lowest_kept_numbers: Mapping[str, int],
        goal_bytes: int,
    ) -> int:
        removed = 0
        for topic in TOPICS:
            excess = max(0, measure_space(connection).used - goal_bytes)
            removed += self._delete_some_entries_of_topic(
                connection, topic, lowest_kept_numbers.get(topic, 1), now - self._retention_s, excess
            )
        return removed

    def _delete_some_entries_of_topic(
        self,
        connection: sqlite3.Connection,
        topic: str,
        lowest_kept_number: int,
        committed_before: float,
        excess_bytes: int,
    ) -> int:
        needed = self._routes.lowest_number_needed_by_routes(connection, topic)
        if needed is not None:
            lowest_kept_number = min(lowest_kept_number, needed)
        rows = connection.execute(queries.OLDEST_ENTRIES, (topic, lowest_kept_number, STEP))
        candidates = [DeletableEntry._make(row) for row in rows]
        removable = retention.removable_entries(
            candidates,
            lowest_kept_number=lowest_kept_number,
            before_time=committed_before,
            excess_bytes=excess_bytes,
        )
        if not removable:
            return 0
        last = removable[-1].last_number
        skipped = self._routes.skip_records_on_optional_routes(connection, topic, last + 1)
        if skipped:
            _log.warning(
                "optional routes skipped their oldest records, because their entries were deleted",
                extra={"action": "records_skipped", "topic": topic, "records": skipped},
            )
        connection.execute(queries.REMOVE_ENTRIES, (topic, last))
        connection.execute(queries.REMOVE_AMENDMENTS, (topic, last))
        connection.execute(queries.COUNT_ENTRIES, (topic, -len(removable)))
        term = accounting.EXPIRED if needed is None else accounting.RETIRED
        records = sum(entry.records for entry in removable)
        connection.execute(queries.COUNT, {"topic": topic, "term": term, "n": records})
        return len(removable)

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
        self, connection: sqlite3.Connection, now: float, *, accepts_damaged_counts: bool = False
    ) -> int:
        before = now - self._retention_s
        if self.is_short_of_room(connection):
            oldest = [
                connection.execute(queries.OLDEST_COMMITTED_AT, (topic,)).fetchone() for topic in TOPICS
            ]
            before = max(before, min((row[0] for row in oldest if row), default=now))
        rows = connection.execute(queries.OLDEST_COMMITS, (COMMITS,)).fetchall()
        # A time far in the future was written before the clock was set back. Its row must not block
        # later rows forever.
        after = now + self._retention_s
        rows = list(takewhile(lambda row: row[1] < before or row[1] > after, rows))
        sums = sum_stored_accounting_counts(
            ((commit, checksum, packed) for commit, _, checksum, packed in rows),
            skips_damaged=accepts_damaged_counts,
        )
        carried = [{"topic": topic, "term": term, "n": n} for (topic, term), n in sums.items()]
        connection.executemany(queries.CARRY, carried)
        connection.executemany(queries.REMOVE_COMMIT, [(row[0],) for row in rows])
        return len(rows)

    def reader_progress_over_all_topics(self, connection: sqlite3.Connection) -> RouteReadingProgress:
        progress = RouteReadingProgress(0, 0)
        for topic in TOPICS:
            progress = progress.with_topic(
                last_number=highest_accepted_number(connection, topic),
                lowest_stored_number=lowest_stored_number(connection, topic),
                lowest_needed_number=self._routes.lowest_number_needed_by_routes(connection, topic),
            )
        return progress

    async def _release_empty_pages(self, *, everything: bool) -> None:
        """Return empty pages to the disk. With `everything`, the write-ahead log is shortened as well."""
        keep = 0 if everything else FREE_PAGES

        def release_some_pages(connection: sqlite3.Connection) -> bool:
            free: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
            if free <= keep:
                return False
            connection.execute(f"PRAGMA incremental_vacuum({min(VACUUM_PAGES, free - keep)})").fetchall()
            free_pages: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
            return free_pages < free

        while await self._database.run(release_some_pages):
            pass
        if everything:
            await self._database.run(lambda connection: connection.execute(CHECKPOINT).fetchall())


def delete_old_counter_series(connection: sqlite3.Connection, now: float) -> int:
    return connection.execute(queries.REMOVE_OLD_SERIES, (now - retention.SERIES_AGE_S, SERIES)).rowcount


def delete_excess_counter_series(connection: sqlite3.Connection, now: float, excess_series_count: int) -> int:
    """
    Delete the counter series that were not reported for the longest time. Return their number, and store when
    the newest of them was last reported.
    """
    number = min(excess_series_count, SERIES)
    (newest,) = connection.execute(queries.NEWEST_OF_OLDEST_SERIES, (number,)).fetchone()
    # A time in the future was written before the clock was set back. It would make every new series look known.
    since = max(last_report_time_of_dropped_series(connection), min(newest, now))
    facts.store_fact(SqliteConnection(connection), KNOWN_SINCE, repr(since).encode())
    return connection.execute(queries.REMOVE_OLDEST_SERIES, (number,)).rowcount


def last_report_time_of_dropped_series(connection: sqlite3.Connection) -> float:
    return float(facts.read_fact(SqliteConnection(connection), KNOWN_SINCE) or 0)
