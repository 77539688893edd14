"""Commits a group of submissions: attempts it until its outcome is known."""

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
from spool.log.commits.following import CommitRow, by_topic
from spool.log.commits.writer import IndexOutOfStep
from spool.log.partial_reports import expected_keys
from spool.log.planning.plan import Answer, Plan
from spool.log.protocols import Observer, notify
from spool.log.receipts import Sealer
from spool.log.values import Commit, Submission
from spool.postgres.database import (
    CommitUnknown,
    Connection,
    Database,
    JoinedTransaction,
    LockWaited,
    Unconfirmed,
)
from spool.postgres.log import queries, store
from spool.postgres.log.folds import Folds
from spool.postgres.log.memory import DatabaseClock, MemoryIsAhead, NodeMemory, PostgresHorizon, catch_up
from spool.postgres.log.retention import LogRoom

# That wait for the standby at once: then nothing more is committed until it has confirmed.
UNCONFIRMED_S, UNCONFIRMED_BYTES = 5.0, 64 << 20

# What else changes with a commit: asks for what it needs, then writes once the commit is planned.
Move = Callable[[Connection, Sequence[Submission]], Callable[[Plan], None]]
# Asks for the versions of some keys; what it returns has them once the pipeline is over in which it asked.
Versions = Callable[[Connection, Sequence[bytes]], Callable[[], Mapping[bytes, int]]]


def nothing_moves(connection: Connection, submissions: Sequence[Submission]) -> Callable[[Plan], None]:
    """Move nothing: a log without other tables."""
    return lambda plan: None


class TooMuchUnconfirmed(SpoolUnavailable):
    """The standby has not confirmed a lot of what was committed, up to `commit`: nothing is committed behind it."""

    def __init__(self, commit: int) -> None:
        super().__init__("the standby does not confirm what is kept: look at the standby, then repeat")
        self.commit = commit


class FarBehind(Exception):
    """Others have committed so much that it is followed without the head, which they wait for."""


@dataclass
class CommitAttempt:
    """One commit of a group, until it is known whether it stands."""

    row: CommitRow
    plan: Plan
    answers: Sequence[Answer]
    ended: float  # when the server had only to write and to commit


@dataclass
class GroupAttempts:
    """A group that is being committed, with what was tried so far."""

    submissions: Sequence[Submission] = ()
    wait: bool = True  # for the head
    attempts: list[CommitAttempt] = field(default_factory=list)
    stands: CommitAttempt | None = None  # an earlier attempt of which the outcome was unknown


class AttemptWriter:
    """
    Writes on the connection's thread. What can fail is done before COMMIT.

    `versions` are those of waiting reports, and `move` is what else changes with a commit, in its
    transaction. `proof` is what a receipt says that the records have survived; `hold_s` 0 means that
    everything is closed at once. `in_two_steps`: while other nodes commit too, the head is free again before
    the standby has confirmed the commit. `needs_standby`: nothing is kept while the server waits for none.
    """

    def __init__(
        self,
        database: Database,
        *,
        memory: NodeMemory,
        clock: DatabaseClock,
        room: LogRoom,
        sealer: Sealer,
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

    def write(self, transaction: JoinedTransaction, group: GroupAttempts) -> CommitAttempt | None:
        """None when the head is not waited for and somebody has it."""
        connection = transaction.connection
        following = self._memory.following
        points = sorted({point.series for one in group.submissions for point in one.points})
        keys = expected_keys(group.submissions)
        with transaction.begun(needs_standby=self.needs_standby):
            ask = partial(store.ask_head, self._database, connection, following.last)
            asked = ask(series=points, wait=group.wait)
            versions = self._versions(connection, keys) if keys else dict
            move = self._move(connection, group.submissions)
        head = asked()
        if head is None:
            return None
        transaction.check_standby()
        known = following.last.id
        catch_up(following, head.rows)
        if not head.is_all:
            raise FarBehind
        others = following.last.id != known  # commit at this moment: they wait for the head
        self._clock.note(head.now)
        self._check_unconfirmed()
        group.stands = self._standing(connection, group)
        submissions = () if group.stands else group.submissions
        if submissions:
            self._room.check(connection, following.last.size)
        now = following.time_of_next(head.now)
        closed = following.closed_at(now, durable=following.durable if self._hold_s else inf)
        reader = store.PostgresPlanReader(
            self._database,
            connection,
            self._memory.write_cache,
            places=partial(following.planner.known_places, submissions, now),
            series=head.series,
            series_known_since=head.series_known_since,
            versions=versions(),
        )
        plan = following.planner.plan(submissions, reader, by_topic(closed), now)
        in_two_steps = self._in_two_steps and others
        with transaction.committed(in_two_steps=in_two_steps, needs_standby=self.needs_standby):
            row = store.write(
                self._database,
                connection,
                plan,
                reader,
                following,
                period=head.period,
                closed=closed if self._hold_s else None,
                node=self._node,
            )
            move(plan)
            receipts = [
                terms.receipt(self._sealer.seal(row.id, place), self._proof)
                for place, terms in enumerate(plan.submissions)
            ]
            attempt = CommitAttempt(row, plan, plan.answers(receipts), time.perf_counter())
            group.attempts.append(attempt)
        return attempt

    def _check_unconfirmed(self) -> None:
        following = self._memory.following
        seconds, size = following.unconfirmed()
        if seconds > UNCONFIRMED_S or size > UNCONFIRMED_BYTES:
            raise TooMuchUnconfirmed(following.last.id)

    def _standing(self, connection: Connection, group: GroupAttempts) -> CommitAttempt | None:
        """The earlier attempt that stands, though its COMMIT was not answered."""
        for attempt in group.attempts:
            where = {"id": attempt.row.id, "token": attempt.row.token}
            if connection.execute(self._database.sql(queries.STANDS), where).fetchone():
                return attempt
        return None


# -- commits -------------------------------------------------------------------------------------------------


STOPPED_S = 3.0  # in an append that is not waiting for the standby

_log = logging.getLogger(__name__)


class GroupCommits:
    """One at a time, each with the turn. `last_error` is None while commits work."""

    def __init__(
        self,
        database: Database,
        writer: AttemptWriter,
        *,
        memory: NodeMemory,
        horizon: PostgresHorizon,
        folds: Folds,
        observer: Observer | None,
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

    async def commit(self, submissions: Sequence[Submission]) -> Sequence[Answer]:
        """SpoolFull: nothing was kept. SpoolUnavailable: it may have been kept, or it never happened."""
        async with self._memory.turn:
            await self._folds.fold_what_is_due()
            return await self._keep(GroupAttempts(submissions))

    async def commit_nothing(self, *, wait: bool = True) -> None:
        """An empty commit. Without `wait` there is none when another node has the head."""
        async with self._memory.turn:
            await self._keep(GroupAttempts(wait=wait))

    async def prove(self) -> None:
        """
        Confirm at a start that the rows read outlive the machine. While no standby answers, that is not known yet.
        """
        async with self._memory.turn:
            newest = self._memory.following.last.id
            if newest > self._memory.following.durable:
                with suppress(SpoolUnavailable):
                    await self._memory.confirm_within(newest, needs_standby=self._writer.needs_standby)
                self._horizon.moved()

    async def close_what_is_due(self) -> None:
        """
        Have the newest commit row say what is closed by now: whoever acts upon numbers asks that row.

        The first of two empty commits proves that what is to be closed outlives the loss of the machine.
        """
        for _ in range(2):
            async with self._memory.turn:
                if not self._horizon.is_overdue():
                    return
                await self._keep(GroupAttempts())

    async def _keep(self, group: GroupAttempts) -> Sequence[Answer]:
        """
        Commit a group; only after it the memory is updated.

        When the connection is lost at COMMIT, or the standby does not confirm, the next attempt looks whether
        the last one stands: then its own commit, an empty one, is the proof that it does so for good.
        """
        try:
            return await self._keep_until(group, time.perf_counter())
        finally:  # an attempt that failed may have followed other nodes before
            self._horizon.moved()

    async def _keep_until(self, group: GroupAttempts, began: float) -> Sequence[Answer]:
        until = began + self._wait_s
        while True:
            unknown = len(group.attempts)
            try:
                attempt = await self._database.append.joined(partial(self._writer.write, group=group))
            except MemoryIsAhead as error:
                await self._memory.load_again(error)
            except FarBehind:
                await self._memory.follow_within()
            except (CommitUnknown, Unconfirmed) as error:
                _log.warning("a commit is looked up: %s", error, extra={"action": "commit_unknown"})
                self.last_error = str(error)
            except TooMuchUnconfirmed as error:
                await self._confirm(error)
            except LockWaited as error:
                _log.warning("another node has the head for long: %s", error, extra={"action": "head_held"})
                await self._end_stopped()
            except SpoolUnavailable as error:
                self.last_error = str(error)
                del group.attempts[unknown:]  # it never happened
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
        self._apply(attempt, stored)
        if self._observer and group.submissions:
            done = time.perf_counter()
            commit = Commit(
                seconds=done - began, flush_seconds=done - attempt.ended, terms=stored.plan.observed
            )
            notify(self._observer, commit)
        return stored.answers

    async def _confirm(self, error: TooMuchUnconfirmed) -> None:
        """Try to confirm a commit of which too much is unconfirmed; raise the error if no standby answers."""
        try:
            await self._memory.confirm_within(error.commit, needs_standby=self._writer.needs_standby)
        except SpoolUnavailable as away:
            self.last_error = str(error)
            raise error from away

    def _apply(self, attempt: CommitAttempt, kept: CommitAttempt) -> None:
        self._memory.acknowledged(kept.row, kept.plan)
        try:
            self._memory.committed(attempt.row, attempt.plan)
        except Exception as error:
            raise IndexOutOfStep(kept.answers) from error

    async def _end_stopped(self) -> None:
        """End the session of a process that stopped while it had the head: its group did not happen."""
        seconds = {"seconds": STOPPED_S}
        ended = await self._database.control.read(
            lambda connection: connection.execute(self._database.sql(queries.END_STOPPED), seconds).fetchall()
        )
        if ended:
            _log.error("the session of a node that had stopped was ended", extra={"action": "session_ended"})
