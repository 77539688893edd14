"""
A node's state of the log in memory. It is read at the start, and then updated from the commit rows of all nodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from functools import partial
from math import inf

from spool.clock import Clock
from spool.errors import SpoolUnavailable
from spool.log.commits.following import SOONER_S, CommitRow, FollowedLogState, numbers_by_topic
from spool.log.duplicates import DuplicateIndex
from spool.log.entries.cache import EntryCache
from spool.log.planning.plan import CommitPlan
from spool.log.watermarks import WaitingReaders
from spool.packed.native import NativeModule
from spool.postgres.database import Connection, Database
from spool.postgres.log import store
from spool.postgres.log.confirmed import ConfirmedCommits
from spool.postgres.log.retention import LogSpace
from spool.postgres.log.store import CommitsSince
from spool.settings import SpoolSettings


class DatabaseClock:
    """The database's clock, continued by a timer of this process between two responses of the database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._noted = 0.0, clock.monotonic()

    def note_database_time(self, now: float) -> None:
        """Note the database's time. This may be called from any thread."""
        self._noted = now, self._clock.monotonic()

    def now(self) -> float:
        test_time = self._database.now_unless_database_clock()
        if test_time is not None:
            return test_time
        at, timer = self._noted
        return at + self._clock.monotonic() - timer


# -- which records are closed --------------------------------------------------------------------------------


class PostgresWatermarks:
    """
    The watermarks, for readers on the event loop. Another thread updates the state that they are computed
    from.
    """

    def __init__(self, clock: DatabaseClock) -> None:
        self._clock = clock
        self._following: FollowedLogState
        self._shown: dict[str, int] = {}
        self._readers = WaitingReaders(self.lowest_open_number, self._next_watermark_rise_in_s)

    def replace_followed_log(self, log_state: FollowedLogState) -> None:
        """
        Use this state of the log from now on. Earlier watermarks are discarded, so that waiting readers check
        again.
        """
        self._following = log_state
        self._shown = {}
        self._readers.wake_readers()

    def wake_readers(self) -> None:
        """Wake readers that wait without a timeout, because new commits were read."""
        self._readers.wake_readers_without_timeout()

    def lowest_open_number(self, topic: str) -> int:
        """
        Return the watermark, which only includes commits that survive the loss of the database machine.

        It decreases only when the whole state is read again.
        """
        following = self._following
        closed = numbers_by_topic(
            following.lowest_open_numbers(self._clock.now(), durable_through=following.durable_commit_id)
        )[topic]
        self._shown[topic] = max(closed, self._shown.get(topic, 1))
        return self._shown[topic]

    def watermark_changes(self, topic: str) -> AsyncIterator[int]:
        return self._readers.watermark_changes(topic)

    def needs_commit_without_records(self) -> bool:
        """
        Return whether an empty commit is needed. It closes records whose waiting time for further reports has
        passed, and confirms earlier commits.
        """
        following = self._following
        now = self._clock.now()
        last = following.last
        due = following.lowest_open_numbers(now)
        is_proven = due == following.lowest_open_numbers(now, durable_through=following.durable_commit_id)
        return due != last.closed or not is_proven or last.at > now + SOONER_S

    def _next_watermark_rise_in_s(self) -> float | None:
        closes_at = self._following.next_records_close_at()
        return None if closes_at is None else closes_at - self._clock.now()


# -- the state in memory -------------------------------------------------------------------------------------


# Maximum attempts to read all rows. Retention may disturb one attempt, but hardly each of them. If all fail, rows
# are missing permanently.
LOADS = 5

_log = logging.getLogger(__name__)


class MemoryAheadOfDatabase(SpoolUnavailable):
    """
    Raised if the database lacks the newest known commit: another server responded, or an earlier state was
    restored.
    """


class NodeMemory:
    """
    Next record numbers, known ids and open records as of the newest commit row that was read, and caches of
    entries.

    Commits, moves of ids and reads of other nodes' commits change this state. Each of them must hold the lock
    `turn`.
    """

    def __init__(
        self,
        database: Database,
        *,
        settings: SpoolSettings,
        secret: bytes,
        clock: DatabaseClock,
        horizon: PostgresWatermarks,
        room: LogSpace,
        cache_bytes: int,
        native: NativeModule | None,
        confirmed: ConfirmedCommits | None = None,
    ) -> None:
        self._database = database
        self._confirmed = confirmed
        self._settings = settings
        self._secret = secret
        self._clock = clock
        self._horizon = horizon
        self._room = room
        self.turn = asyncio.Lock()
        self.following: FollowedLogState
        self.runs_seq: int | None  # version of the stored runs; None if another node has stored runs since
        self._cache_bytes = cache_bytes
        self._native = native
        self._replace_caches()

    def _replace_caches(self) -> None:
        self.read_cache, self.write_cache = EntryCache(self._cache_bytes), EntryCache(self._cache_bytes)

    @property
    def index(self) -> DuplicateIndex:
        return self.following.index

    @property
    def lowest_open_numbers(self) -> dict[str, int]:
        """
        Return each topic's watermark (records below it never change) as the newest commit row states it. If
        records do not wait for late reports, all durable records are closed.
        """
        return numbers_by_topic(
            self.following.lowest_open_numbers(-inf, durable_through=self.following.durable_commit_id)
        )

    async def load(self) -> None:
        """
        Read the state from the database. The caller must hold the lock `turn`, unless the log is not in use
        yet.
        """
        for _ in range(LOADS):
            index = DuplicateIndex(
                self._secret,
                window_s=self._settings.duplicate_window,
                max_ids=self._settings.duplicate_ids,
                native=self._native,
            )
            loaded = await self._database.snapshot(
                partial(store.load_log_state, self._database, index=index, settings=self._settings)
            )
            if not loaded.gap:
                break
        else:
            _log.error(
                "%s are missing, so their ids are unknown", loaded.gap, extra={"action": "ids_missing"}
            )
        self._clock.note_database_time(loaded.now)
        await self._room.read_bytes_freed_by_retention()
        self.following = loaded.following
        self.runs_seq = loaded.seq
        # readers that still run may write data of the old database to the old caches
        self._replace_caches()
        self._horizon.replace_followed_log(loaded.following)
        if self._confirmed:
            await self._confirmed.find_and_report_losses(self._database)

    async def reload_after_lost_commits(self, error: MemoryAheadOfDatabase) -> None:
        """
        Read the state again, because memory has commits that the database lacks. The caller must hold the
        lock `turn`.
        """
        _log.warning("%s: reading everything again", error, extra={"action": "memory_reloaded"})
        await self.load()

    async def read_foreign_commits(self) -> None:
        async with self.turn:
            await self.read_foreign_commits_under_lock()

    async def read_foreign_commits_under_lock(self) -> None:
        """Read and apply commits of other nodes. The caller must hold the lock `turn`."""
        try:
            while not await self._read_next_commits():
                pass
        except MemoryAheadOfDatabase as error:
            await self.reload_after_lost_commits(error)

    async def _read_next_commits(self) -> bool:
        following = self.following
        last = following.last

        def read_and_apply_commits(connection: Connection) -> CommitsSince:
            since = store.query_commits_since(self._database, connection, following.last)()
            apply_commit_rows(following, since.rows)
            return since

        since = await self._database.read(read_and_apply_commits)
        self._clock.note_database_time(since.now)
        if following.last.id != last.id:
            self._horizon.wake_readers()
        return since.is_all

    def can_cache_commit_copies(self) -> bool:
        return self._native is None and self.read_cache.needs_entries_of_new_commits

    def apply_commit(self, row: CommitRow, plan: CommitPlan) -> None:
        """Apply a durable commit of this node. The caller must hold the lock `turn`."""
        self.following.apply_own_commit(row, plan)
        self.read_cache.add_committed(plan.entries)
        self.note_confirmed(row.id)
        self._horizon.wake_readers()

    def note_acknowledged(self, row: CommitRow, plan: CommitPlan) -> None:
        if self._confirmed:
            self._confirmed.note_commit(row, plan)

    async def write_confirmed_commits(self) -> None:
        """Write the list of confirmed commits, with which a later start compares the database."""
        if self._confirmed:
            await self._confirmed.write_file()

    def note_confirmed(self, commit: int) -> None:
        self.following.confirmed = max(self.following.confirmed, commit)

    async def wait_and_note_confirmed(self, commit: int, *, needs_standby: bool) -> None:
        """
        Wait until a commit is confirmed, and add it to the list of confirmed commits. The caller must hold
        the lock `turn`.
        """
        following = self.following
        await self._database.append.wait_until_confirmed(needs_standby=needs_standby)
        await self.read_foreign_commits_under_lock()
        # the state was read again, perhaps from another database
        if self.following is following:
            self.note_confirmed(commit)


def apply_commit_rows(log_state: FollowedLogState, rows: Iterable[CommitRow]) -> None:
    """Apply commit rows. Raises MemoryAheadOfDatabase if the first row is not the row that was applied last."""
    rows = iter(rows)
    last = log_state.last
    if last.id:
        first = next(rows, None)
        if first is None or (first.id, first.token) != (last.id, last.token):
            raise MemoryAheadOfDatabase(f"commit {last.id} is missing from the database")
    for row in rows:
        log_state.apply_foreign_row(row)
