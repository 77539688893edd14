"""
Commits of groups of submissions. A group is tried again until it is known whether an attempt was committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from uuid import UUID

from spool.errors import SpoolUnavailable
from spool.log.commits.following import CommitRow, numbers_by_topic
from spool.log.commits.writer import IndexOutOfStep
from spool.log.partial_reports import keys_of_expected_versions
from spool.log.planning.plan import CommitPlan, PlanAnswer
from spool.log.protocols import CommitObserver, notify_observer
from spool.log.receipts import ReceiptIdCipher
from spool.log.values import Commit, Submission
from spool.postgres.database import (
    CommitUnknown,
    Connection,
    Database,
    LockWaitTimedOut,
    PipelinedTransaction,
    Unconfirmed,
)
from spool.postgres.log import queries, store
from spool.postgres.log.id_compaction import NodeIdCompactor
from spool.postgres.log.memory import (
    DatabaseClock,
    MemoryAheadOfDatabase,
    NodeMemory,
    PostgresWatermarks,
    apply_commit_rows,
)
from spool.postgres.log.retention import LogSpace

# Beyond these limits, nothing is committed until a standby has confirmed.
UNCONFIRMED_S, UNCONFIRMED_BYTES = 5.0, 64 << 20

# Queries the rows that a commit needs in tables outside the log, and returns the function that writes them
# after planning.
Move = Callable[[Connection, Sequence[Submission]], Callable[[CommitPlan], None]]
# Queries the versions of some keys. The returned function gives them after the pipeline ends.
Versions = Callable[[Connection, Sequence[bytes]], Callable[[], Mapping[bytes, int]]]


def build_no_op_writer(
    connection: Connection, submissions: Sequence[Submission]
) -> Callable[[CommitPlan], None]:
    return lambda plan: None


class TooMuchUnconfirmed(SpoolUnavailable):
    """
    Raised if too many commits, the last of them `commit`, lack a standby's confirmation. Nothing more is
    committed.
    """

    def __init__(self, commit: int) -> None:
        super().__init__("the standby does not confirm commits: check the standby, then repeat")
        self.commit = commit


class TooManyUnreadCommits(Exception):
    """
    Raised if other nodes have committed too much to read while holding the lock for commits (head lock).
    """


@dataclass
class CommitAttempt:
    row: CommitRow
    plan: CommitPlan
    answers: Sequence[PlanAnswer]
    # when this process had sent all statements; after that, only the server still had work to do
    ended: float


@dataclass
class CommitGroup:
    submissions: Sequence[Submission] = ()
    wait: bool = True  # whether to wait for the head lock
    attempts: list[CommitAttempt] = field(default_factory=list)
    stands: CommitAttempt | None = None  # an earlier attempt that turned out to have been committed


class CommitAttemptWriter:
    """
    Writes commits, on the connection's thread. Everything that can fail is done before COMMIT.

    `versions` queries the versions of partial reports. `move` writes other tables in the same transaction.
    `proof`: the durability that receipts state. If `hold_s` is 0, records can no longer change after their
    commit. With `in_two_steps`, if other nodes commit as well, the locks are released before the standby has
    confirmed. With `needs_standby`, nothing is stored while the server has no standby to wait for.
    """

    def __init__(
        self,
        database: Database,
        *,
        memory: NodeMemory,
        clock: DatabaseClock,
        room: LogSpace,
        sealer: ReceiptIdCipher,
        versions: Versions,
        move: Move,
        hold_s: float,
        proof: str,
        node: UUID,
        in_two_steps: bool,
        needs_standby: bool,
    ) -> None:
        self._database = database
        self._memory = memory
        self._clock = clock
        self._room = room
        self._sealer = sealer
        self._versions = versions
        self._move = move
        self._hold_s = hold_s
        self._proof = proof
        self.needs_standby = needs_standby
        self._node = node
        self._in_two_steps = in_two_steps

    def write_commit_unless_locked(
        self, transaction: PipelinedTransaction, group: CommitGroup
    ) -> CommitAttempt | None:
        """
        Write a commit. Return None if `group.wait` is False and another node holds the lock for commits.
        """
        connection = transaction.connection
        following = self._memory.following
        points = sorted({point.series for submission in group.submissions for point in submission.points})
        keys = keys_of_expected_versions(group.submissions)
        with transaction.begin_in_pipeline(needs_standby=self.needs_standby):
            ask = partial(store.lock_and_query_log_head, self._database, connection, following.last)
            read_head = ask(series_keys=points, wait=group.wait)
            versions = self._versions(connection, keys) if keys else dict
            move = self._move(connection, group.submissions)
        head = read_head()
        if head is None:
            return None
        transaction.check_standby()
        known = following.last.id
        apply_commit_rows(following, head.rows)
        if not head.is_all:
            raise TooManyUnreadCommits
        # the other nodes wait for the head lock
        others_commit = following.last.id != known
        self._clock.note_database_time(head.now)
        self._require_few_unconfirmed_commits()
        group.stands = self._find_committed_attempt(connection, group)
        submissions = () if group.stands else group.submissions
        if submissions:
            self._room.require_room(connection, following.last.size)
        now = following.non_decreasing_commit_time(head.now)
        closed = following.lowest_open_numbers(
            now, durable_through=following.durable_commit_id if self._hold_s else inf
        )
        reader = store.PostgresCommitPlanReader(
            self._database,
            connection,
            self._memory.write_cache,
            read_log_positions=partial(following.planner.log_positions_to_read, submissions, now),
            series=head.series,
            dropped_series_last_reported_at=head.dropped_series_last_reported_at,
            versions=versions(),
        )
        plan = following.planner.plan_group(submissions, reader, numbers_by_topic(closed), now)
        in_two_steps = self._in_two_steps and others_commit
        with transaction.commit_in_pipeline(
            releases_locks_early=in_two_steps, needs_standby=self.needs_standby
        ):
            row = store.write_commit_plan(
                self._database,
                connection,
                plan,
                reader,
                following,
                period_number=head.period,
                closed=closed if self._hold_s else None,
                node=self._node,
                caches_copies=self._memory.can_cache_commit_copies(),
            )
            move(plan)
            receipts = [
                terms.build_receipt(self._sealer.encrypt_receipt_id(row.id, index), self._proof)
                for index, terms in enumerate(plan.submissions)
            ]
            attempt = CommitAttempt(row, plan, plan.build_answers(receipts), time.perf_counter())
            group.attempts.append(attempt)
        return attempt

    def _require_few_unconfirmed_commits(self) -> None:
        following = self._memory.following
        seconds, size = following.measure_unconfirmed_seconds_and_bytes()
        if seconds > UNCONFIRMED_S or size > UNCONFIRMED_BYTES:
            raise TooMuchUnconfirmed(following.last.id)

    def _find_committed_attempt(self, connection: Connection, group: CommitGroup) -> CommitAttempt | None:
        for attempt in group.attempts:
            where = {"id": attempt.row.id, "token": attempt.row.token}
            if connection.execute(self._database.fill_in_table_names(queries.STANDS), where).fetchone():
                return attempt
        return None


# -- commits -------------------------------------------------------------------------------------------------


# seconds after which a session that holds the head lock is ended, unless it waits for the standby
STOPPED_S = 3.0

_log = logging.getLogger(__name__)


class GroupCommits:
    """
    Commits one group at a time, under the lock `memory.turn` of this process. `last_error`: None while
    commits succeed.
    """

    def __init__(
        self,
        database: Database,
        writer: CommitAttemptWriter,
        *,
        memory: NodeMemory,
        horizon: PostgresWatermarks,
        folds: NodeIdCompactor,
        observer: CommitObserver | None,
        wait_s: float,
    ) -> None:
        self._database = database
        self._writer = writer
        self._memory = memory
        self._horizon = horizon
        self._folds = folds
        self._observer = observer
        self._wait_s = wait_s
        self.last_error: str | None = None

    async def commit(self, submissions: Sequence[Submission]) -> Sequence[PlanAnswer]:
        """
        Commit a group. Raises SpoolFull if nothing was stored, and SpoolUnavailable if the group may have
        been stored.
        """
        async with self._memory.turn:
            await self._folds.compact_due_ids()
            return await self._commit_group(CommitGroup(submissions))

    async def make_empty_commit(self, *, wait: bool = True) -> None:
        """Make an empty commit. Do nothing if `wait` is False and another node holds the lock for commits."""
        async with self._memory.turn:
            await self._commit_group(CommitGroup(wait=wait))

    async def confirm_loaded_commits_on_standby(self) -> None:
        """
        At a start, confirm that the commits read so far survive the loss of the database machine. Without a
        standby, this remains unknown.
        """
        async with self._memory.turn:
            newest = self._memory.following.last.id
            if newest > self._memory.following.durable_commit_id:
                with suppress(SpoolUnavailable):
                    await self._memory.wait_and_note_confirmed(
                        newest, needs_standby=self._writer.needs_standby
                    )
                self._horizon.wake_readers()

    async def close_due_records(self) -> None:
        """
        Make empty commits that close records whose waiting time has passed. Deliveries and retention rely on
        these rows.

        Two may be needed. The first proves that the records to be closed survive the loss of the database
        machine.
        """
        for _ in range(2):
            async with self._memory.turn:
                if not self._horizon.needs_commit_without_records():
                    return
                await self._commit_group(CommitGroup())

    async def _commit_group(self, group: CommitGroup) -> Sequence[PlanAnswer]:
        """
        Commit a group, and then update the state in memory.

        If the connection is lost at COMMIT, or the standby does not confirm, the next attempt checks whether
        the last one was committed. If so, it makes an empty commit, whose confirmation also covers the last
        one.
        """
        try:
            return await self._try_until_committed(group, time.perf_counter())
        finally:
            # a failed attempt may have read rows of other nodes, so readers check again
            self._horizon.wake_readers()

    async def _try_until_committed(self, group: CommitGroup, began: float) -> Sequence[PlanAnswer]:
        until = began + self._wait_s
        while True:
            unknown = len(group.attempts)
            try:
                attempt = await self._database.append.run_pipelined(
                    partial(self._writer.write_commit_unless_locked, group=group)
                )
            except MemoryAheadOfDatabase as error:
                await self._memory.reload_after_lost_commits(error)
            except TooManyUnreadCommits:
                await self._memory.read_foreign_commits_under_lock()
            except (CommitUnknown, Unconfirmed) as error:
                _log.warning(
                    "checking a commit with unknown outcome: %s", error, extra={"action": "commit_unknown"}
                )
                self.last_error = str(error)
            except TooMuchUnconfirmed as error:
                await self._wait_until_confirmed(error)
            except LockWaitTimedOut as error:
                _log.warning(
                    "another node has held the head lock for too long: %s",
                    error,
                    extra={"action": "head_held"},
                )
                await self._end_suspended_sessions()
            except SpoolUnavailable as error:
                self.last_error = str(error)
                del group.attempts[unknown:]  # these attempts were not committed
                if not group.attempts:
                    raise
                await asyncio.sleep(min(0.2, max(0.0, until - time.perf_counter())))
            else:
                break
            if time.perf_counter() > until:
                raise SpoolUnavailable("the database did not confirm the commit in time (spool.commit_wait)")
        if attempt is None:
            return ()
        self.last_error = None
        stored = group.stands or attempt
        self._apply_commit_to_memory(attempt, stored)
        if self._observer and group.submissions:
            ended_at = time.perf_counter()
            commit = Commit(
                seconds=ended_at - began, flush_seconds=ended_at - attempt.ended, terms=stored.plan.observed
            )
            notify_observer(self._observer, commit)
        return stored.answers

    async def _wait_until_confirmed(self, error: TooMuchUnconfirmed) -> None:
        try:
            await self._memory.wait_and_note_confirmed(error.commit, needs_standby=self._writer.needs_standby)
        except SpoolUnavailable as away:
            self.last_error = str(error)
            raise error from away

    def _apply_commit_to_memory(self, attempt: CommitAttempt, stored_attempt: CommitAttempt) -> None:
        self._memory.note_acknowledged(stored_attempt.row, stored_attempt.plan)
        try:
            self._memory.apply_commit(attempt.row, attempt.plan)
        except Exception as error:
            raise IndexOutOfStep(stored_attempt.answers) from error

    async def _end_suspended_sessions(self) -> None:
        seconds = {"seconds": STOPPED_S}
        ended = await self._database.control.read(
            lambda connection: connection.execute(
                self._database.fill_in_table_names(queries.END_STOPPED), seconds
            ).fetchall()
        )
        if ended:
            _log.error("the session of a suspended node was ended", extra={"action": "session_ended"})
