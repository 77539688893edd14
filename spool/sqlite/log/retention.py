"""
Deleting: entries that age and space allow; their commit rows are carried forward, free pages go back to the disk.

Small transactions, so that a commit never waits long behind one, and each leaves the books balanced.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import takewhile
from typing import NamedTuple, Protocol

from spool.log import books, retention
from spool.log.counters import KNOWN_SINCE
from spool.log.retention import Candidate, DamagedCommits, Progress, carried_sums
from spool.record import TOPICS
from spool.sqlite.database import PAGE, Database
from spool.sqlite.log import queries
from spool.sqlite.log.entries import accepted, oldest

STEP = 64  # entries in one transaction
COMMITS = 512  # commit rows in one transaction
SERIES = 2048  # series in one transaction
FREE_PAGES = 2048  # 16 MiB of empty pages stay for the next commits, the rest goes back to the disk
VACUUM_PAGES = 512  # given back in one step
CHECKPOINT = "PRAGMA wal_checkpoint(TRUNCATE)"

_log = logging.getLogger(__name__)


class RouteNeeds(Protocol):
    """What retention and the books ask of the deliveries, inside the log's transaction."""

    def route_terms(self, connection: sqlite3.Connection) -> dict[str, dict[str, int]]: ...

    def needed_from(self, connection: sqlite3.Connection, topic: str) -> int | None: ...

    def skip_below(self, connection: sqlite3.Connection, topic: str, number: int) -> int: ...

    def cut_below(self, connection: sqlite3.Connection, topic: str) -> int: ...


class Space(NamedTuple):
    """Bytes in use and bytes of empty pages."""

    used: int
    free: int


def space(connection: sqlite3.Connection) -> Space:
    """
    Room in the file, without the log beside it, and without what has a limit of its own: totals of streams,
    and the rows of billing drops.
    """
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    (others,) = connection.execute(queries.BOUNDED_ELSEWHERE).fetchone()
    return Space(max(0, (pages - free) * size - others), free * size)


def holds(connection: sqlite3.Connection, size: int) -> bool:
    """
    True if the records and indexes take at least that many bytes. Every commit asks: most know by the size
    of the file.
    """
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    return pages * PAGE >= size and space(connection).used >= size


class Retention:
    """
    Deletes in steps. `limits` says by topic which numbers must stay, whatever the routes say.

    `set_aside` has damaged commit rows count nothing any more, where what they counted is known.
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

    async def run(self, now: float, limits: Callable[[], Mapping[str, int]], *, wanted: int = 0) -> int:
        """
        Remove all that may go; return the number of entries removed. `wanted`: bytes to make room for, on
        a full disk.

        Entries go by age, and before their time when the file is nearly full or bytes are wanted.
        """
        removed = 0
        goal = self._goal
        if wanted:
            goal = min(goal, (await self._database.read(space)).used - wanted)
        step = 1
        while step:
            work = partial(self._step, now=now, limits=limits(), goal=goal)
            step = await self._database.transaction(work)
            removed += step
        await self._carry_all(now)
        await self._give_back(everything=bool(wanted))
        return removed

    @property
    def _goal(self) -> int:
        """Bytes that may be in use before entries go before their time."""
        return int(self._max_bytes * (1 - retention.ROOM))

    def short_of_room(self, connection: sqlite3.Connection) -> bool:
        return space(connection).used > self._goal

    def _step(self, connection: sqlite3.Connection, now: float, limits: Mapping[str, int], goal: int) -> int:
        removed = 0
        for topic in TOPICS:
            excess = max(0, space(connection).used - goal)
            removed += self._remove(connection, topic, limits.get(topic, 1), now - self._retention_s, excess)
        return removed

    def _remove(
        self, connection: sqlite3.Connection, topic: str, limit: int, before: float, excess: int
    ) -> int:
        needed = self._routes.needed_from(connection, topic)
        if needed is not None:
            limit = min(limit, needed)
        rows = connection.execute(queries.OLDEST_ENTRIES, (topic, limit, STEP))
        candidates = [Candidate._make(row) for row in rows]
        gone = retention.removable(candidates, limit=limit, before=before, excess=excess)
        if not gone:
            return 0
        last = gone[-1].last
        skipped = self._routes.skip_below(connection, topic, last + 1)
        if skipped:
            _log.warning(
                "optional routes gave up their oldest records",
                extra={"action": "records_skipped", "topic": topic, "records": skipped},
            )
        connection.execute(queries.REMOVE_ENTRIES, (topic, last))
        connection.execute(queries.REMOVE_AMENDMENTS, (topic, last))
        connection.execute(queries.COUNT_ENTRIES, (topic, -len(gone)))
        term = books.EXPIRED if needed is None else books.RETIRED
        records = sum(entry.records for entry in gone)
        connection.execute(queries.COUNT, {"topic": topic, "term": term, "n": records})
        return len(gone)

    async def _carry_all(self, now: float) -> None:
        try:
            while await self._database.transaction(partial(self._carry, now=now)):
                pass
        except DamagedCommits:
            await self._set_aside()
            while await self._database.transaction(partial(self._carry, now=now, as_they_are=True)):
                pass

    def _carry(self, connection: sqlite3.Connection, now: float, *, as_they_are: bool = False) -> int:
        """Commit rows that are too old, or older than every entry that is kept while room is short."""
        before = now - self._retention_s
        if self.short_of_room(connection):
            oldest = [
                connection.execute(queries.OLDEST_COMMITTED_AT, (topic,)).fetchone() for topic in TOPICS
            ]
            before = max(before, min((row[0] for row in oldest if row), default=now))
        rows = connection.execute(queries.OLDEST_COMMITS, (COMMITS,)).fetchall()
        # A time so far ahead is of a clock that was set back since: its row must not stand before the others
        # for ever.
        after = now + self._retention_s
        rows = list(takewhile(lambda row: row[1] < before or row[1] > after, rows))
        sums = carried_sums(
            ((commit, checksum, packed) for commit, _, checksum, packed in rows), as_they_are=as_they_are
        )
        carried = [{"topic": topic, "term": term, "n": n} for (topic, term), n in sums.items()]
        connection.executemany(queries.CARRY, carried)
        connection.executemany(queries.REMOVE_COMMIT, [(row[0],) for row in rows])
        return len(rows)

    def progress(self, connection: sqlite3.Connection) -> Progress:
        """Sum how far the log and its routes have come, over all topics."""
        progress = Progress(0, 0)
        for topic in TOPICS:
            progress = progress.plus(
                last=accepted(connection, topic),
                oldest=oldest(connection, topic),
                needed=self._routes.needed_from(connection, topic),
            )
        return progress

    async def _give_back(self, *, everything: bool) -> None:
        """Empty pages to the disk, some at a time; on a full disk the log file too."""
        keep = 0 if everything else FREE_PAGES

        def some(connection: sqlite3.Connection) -> bool:
            free: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
            if free <= keep:
                return False
            connection.execute(f"PRAGMA incremental_vacuum({min(VACUUM_PAGES, free - keep)})").fetchall()
            left: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
            return left < free

        while await self._database.run(some):
            pass
        if everything:
            await self._database.run(lambda connection: connection.execute(CHECKPOINT).fetchall())


def drop_old_series(connection: sqlite3.Connection, now: float) -> int:
    """Remove some of the series that were not reported for long; return their number."""
    return connection.execute(queries.REMOVE_OLD_SERIES, (now - retention.SERIES_AGE_S, SERIES)).rowcount


def push_out_series(connection: sqlite3.Connection, now: float, excess: int) -> int:
    """Remove some of the series that were silent longest, and keep until when they were reported."""
    number = min(excess, SERIES)
    (newest,) = connection.execute(queries.NEWEST_OF_OLDEST_SERIES, (number,)).fetchone()
    # A time that is ahead is of a clock that was set back since. It would say of each new series that it is known.
    since = max(series_known_since(connection), min(newest, now))
    connection.execute(queries.KEEP_FACT, (KNOWN_SINCE, repr(since).encode()))
    return connection.execute(queries.REMOVE_OLDEST_SERIES, (number,)).rowcount


def series_known_since(connection: sqlite3.Connection) -> float:
    row = connection.execute(queries.FACT, (KNOWN_SINCE,)).fetchone()
    return float(row[0]) if row else 0.0
