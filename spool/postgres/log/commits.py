"""Commits a group of submissions: attempts it until its outcome is known."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from spool.errors import SpoolUnavailable
from spool.log.commits.writer import IndexOutOfStep
from spool.log.observation import notify
from spool.log.planning.plan import Answer
from spool.log.protocols import Observer
from spool.log.values import Commit, Submission
from spool.postgres.database import CommitUnknown, Database, LockWaited, Unconfirmed
from spool.postgres.log import queries
from spool.postgres.log.attempts import (
    AttemptWriter,
    CommitAttempt,
    FarBehind,
    GroupAttempts,
    TooMuchUnconfirmed,
)
from spool.postgres.log.folds import Folds
from spool.postgres.log.horizon import PostgresHorizon
from spool.postgres.log.memory import MemoryIsAhead, NodeMemory

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
