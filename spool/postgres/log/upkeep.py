"""Background work of the log: following other nodes, retention, periods, compactions, and measuring free space."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from spool.clock import Clock
from spool.errors import SpoolError, SpoolFull, SpoolUnavailable
from spool.log.retention import Reader, lowest_needed_number
from spool.postgres.database import Database
from spool.postgres.log.commit_findings import add_all_commits_to_accounting
from spool.postgres.log.commits import GroupCommits
from spool.postgres.log.entries import lowest_stored_number
from spool.postgres.log.id_compaction import NodeIdCompactor
from spool.postgres.log.memory import DatabaseClock, NodeMemory, PostgresWatermarks
from spool.postgres.log.retention import (
    LogSpace,
    PostgresRetention,
    RemovedMeanwhile,
    remove_old_counter_series,
)
from spool.record import AI_TELEMETRY, TOPICS

FOLLOW_S = 0.1  # seconds between reads of the commits of other nodes
BOOK_S = 2.0  # seconds between two updates of the running counters, approximately
WRITE_S = 1.0  # seconds between writes of the confirmed commits to their file
# seconds; an empty commit closes a record if no node commits in this time after it was due
TICK_S = 1.0

_log = logging.getLogger(__name__)


class LogFollower:
    """
    A task that reads the commits of other nodes and updates the running counters. If no node commits, it
    closes records whose waiting time has passed.
    """

    def __init__(
        self, database: Database, *, memory: NodeMemory, horizon: PostgresWatermarks, commits: GroupCommits
    ) -> None:
        self._database = database
        self._memory = memory
        self._horizon = horizon
        self._commits = commits
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._follow_until_closed(), name="follow other nodes")

    async def close(self) -> None:
        self._closing.set()
        await asyncio.wait([self._task])

    async def _follow_until_closed(self) -> None:
        books_at = time.monotonic() + BOOK_S
        write_at = time.monotonic()
        overdue_since: float | None = None
        is_away = False
        while not self._closing.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_S):
                    await self._closing.wait()
                    return
            try:
                if time.monotonic() > write_at:
                    write_at = time.monotonic() + WRITE_S
                    await self._memory.write_confirmed_commits()
                await self._memory.read_foreign_commits()
                now = time.monotonic()
                # The sender may have given up the failed group, so only an empty commit shows that commits
                # work again.
                has_failed = self._commits.last_error is not None
                if not (has_failed or self._horizon.needs_commit_without_records()):
                    overdue_since = None
                elif overdue_since is None:
                    overdue_since = now + TICK_S * random.random()
                elif now > overdue_since:
                    overdue_since = now + TICK_S
                    await self._commits.make_empty_commit(wait=has_failed)
                if now > books_at:
                    books_at = now + BOOK_S * (0.5 + random.random())
                    await add_all_commits_to_accounting(self._database)
                is_away = False
            except SpoolError as error:
                if not is_away:
                    _log.error(
                        "cannot follow the other nodes: %s", error, extra={"action": "following_failed"}
                    )
                is_away = True
            except Exception:  # noqa: BLE001 - following must outlive whatever it meets
                _log.exception("following failed", extra={"action": "following_failed"})


# -- upkeep --------------------------------------------------------------------------------------------------


Trim = Callable[[float], Awaitable[bool]]


async def trim_nothing(now: float) -> bool:
    return False


class LogUpkeep:
    """
    Deletes data by age and for lack of space, except data that one of `readers` still needs.

    `trim` deletes some expired data outside the log in a transaction of its own. It is called until nothing
    is left.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        database_clock: DatabaseClock,
        retention: PostgresRetention,
        retention_s: float,
        max_series: int,
        memory: NodeMemory,
        folds: NodeIdCompactor,
        commits: GroupCommits,
        room: LogSpace,
        readers: Sequence[Reader],
        trim: Trim,
    ) -> None:
        self._database = database
        self._clock = clock
        self._database_clock = database_clock
        self._retention = retention
        self._retention_s = retention_s
        self._max_series = max_series
        self._memory = memory
        self._folds = folds
        self._commits = commits
        self._room = room
        self._readers = readers
        self._trim = trim
        self._no_room_at = float("-inf")
        self._period_bytes = 0  # bytes of the log at the beginning of the current period
        self.series = 0
        self.series_pushed_out = 0  # counters deleted for lack of space
        # lock of retention and recounts, so that no entry is deleted while it is counted
        self.lock = asyncio.Lock()

    async def begin_partitions_if_full(self) -> None:
        size = self._memory.following.last.size
        if size - self._period_bytes >= self._retention.period_bytes:
            self._period_bytes = size
            try:
                await self._retention.begin_partitions_if_full(self._database_clock.now())
            except SpoolUnavailable as error:
                _log.warning(
                    "a new period could not be started: %s", error, extra={"action": "period_not_begun"}
                )

    async def delete_unneeded_entries(self) -> bool:
        """
        Delete entries that no reader needs. Return False if neither this call nor another within a second
        deleted any.
        """
        now = self._clock.monotonic()
        if now - self._no_room_at < 1 or self.lock.locked():
            return False
        async with self.lock:
            try:
                removed = await self._delete_unneeded_entries()
            except RemovedMeanwhile:
                return True
        if not removed:
            self._no_room_at = now
        return removed > 0

    async def run_retention(self) -> int:
        """
        Delete old data. Database errors are only logged, because the next run repeats the work and readiness
        reports them.
        """
        async with self.lock:
            try:
                return await self._run_retention()
            except (SpoolUnavailable, SpoolFull, RemovedMeanwhile) as error:
                _log.error(
                    "retention failed and will be repeated: %s", error, extra={"action": "retention_failed"}
                )
                return 0

    async def _run_retention(self) -> int:
        removed = await self._delete_unneeded_entries()
        now = self._database_clock.now()
        await self._retention.begin_partitions_if_full(now)
        self.series, pushed_out = await remove_old_counter_series(
            self._database, now, max_series=self._max_series
        )
        self.series_pushed_out += pushed_out
        while await self._trim(now):
            pass
        return removed

    async def _delete_unneeded_entries(self) -> int:
        """Delete the entries that may be deleted. Return their number. The caller must hold the lock."""
        await self._memory.read_foreign_commits()
        await self._commits.close_due_records()
        await add_all_commits_to_accounting(self._database)
        now = self._database_clock.now()
        if await self._database.read(self._retention.is_short_of_room):
            await self._retention.begin_partitions_if_full(now)
            # The newest row always stays. An empty commit puts it into the new period, so that the old period
            # can be dropped.
            await self._commits.make_empty_commit()
            await self._folds.compact_all_closed_ids()
            await add_all_commits_to_accounting(self._database)
        elif self._memory.index.reaches_back_to(now - self._retention_s):
            await self._folds.compact_all_closed_ids()
        removed = await self._retention.delete_expired_or_excess_entries(
            now, self._lowest_kept_number_by_topic
        )
        kept_from = await self._database.read(
            partial(lowest_stored_number, self._database, topic=AI_TELEMETRY)
        )
        self._memory.index.note_removed_below(kept_from)
        await self._room.note_deleted_entries()
        return removed

    def _lowest_kept_number_by_topic(self) -> dict[str, int]:
        """
        Return by topic the lowest number that must stay, because the record is open or a reader needs it.
        """
        closed = self._memory.lowest_open_numbers
        return {topic: lowest_needed_number(topic, closed[topic], self._readers) for topic in TOPICS}
