"""
Lanes: groups of connections for one purpose, used by threads. A lane limits the time of each task, and
repeats it after a lost connection if that is safe.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from spool.errors import SpoolUnavailable
from spool.postgres.connections.joined import Connection, PipelinedTransaction
from spool.postgres.connections.session import ServerSession
from spool.postgres.connections.target import DatabaseTarget, describe_error_in_one_line, translate_error

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0  # seconds between connection attempts, with jitter
# For these seconds after a connection was cut, or until the server responds, other connections use a
# shorter time limit.
SILENT_S = 60.0


class Reachability:
    """Whether the server responds, as all connections and threads of a process know it."""

    def __init__(self) -> None:
        self.pause = ReconnectPause()
        self._silent_until = -math.inf
        self._newest_timeline = 0
        self.was_looked_at = False  # True after the timelines of several configured servers were read

    @property
    def is_silent(self) -> bool:
        return time.monotonic() < self._silent_until

    def note_server_silence(self) -> None:
        self._silent_until = time.monotonic() + SILENT_S

    def note_answer(self) -> None:
        """Note that the server has responded, so that slow work gets its full time again."""
        self._silent_until = -math.inf

    def note_and_compare_timeline(self, timeline: int | None) -> bool:
        """
        Note the server's timeline. Return whether this server is an old primary that was replaced.

        PostgreSQL increases the timeline with each promotion. None means unknown.
        """
        self._newest_timeline = max(self._newest_timeline, timeline or 0)
        return timeline is not None and timeline < self._newest_timeline


class ReconnectPause:
    def __init__(self) -> None:
        self._length_s = 0.0
        self._until = 0.0
        self._why = ""
        self.failures = 0

    def raise_while_paused(self) -> None:
        if time.monotonic() < self._until:
            raise SpoolUnavailable(self._why)

    def lengthen_pause(self, reason: str) -> None:
        self._length_s = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._length_s))
        self._why = reason
        self.failures += 1
        self._until = time.monotonic() + self._length_s * random.uniform(0.5, 1.0)

    def end_pause(self) -> None:
        self._length_s = self._until = 0.0


# -- lanes ---------------------------------------------------------------------------------------------------


T = TypeVar("T")
# A server may hang while its machine still acknowledges packets. Then only a timer of this process can
# end the wait.
CANCEL_S = 2.0  # seconds for the server to end a commit after `commit_timeout`
LOOK_S = 1.0  # seconds between checks of work that takes long
# Errors of a lost connection. IdleInTransactionSessionTimeout: this process paused between two statements, so
# the server ended the session before the commit.
LOST = (psycopg.OperationalError, errors.IdleInTransactionSessionTimeout)
NO_OPTIONS = "unsupported startup parameter"  # pgbouncer's error for settings in the connection options
OLD_PRIMARY = (
    "an old primary responded although another server was promoted: stop the old one. If it was "
    "intended, restart this node"
)
BROKEN_OFF = {"action": "connection_broken_off"}

_log = logging.getLogger(__name__)


class DatabaseConnectionPool:
    """
    Connections for one purpose, opened when needed and reused. Each piece of work has a connection of its own.

    Work runs on a thread, so it must not use objects of the event loop. If the server does not respond in
    time, the connection is cut and counts as lost. `statement_s` is the time limit for statements, if it is
    longer than the limit for a commit.
    """

    def __init__(
        self,
        target: DatabaseTarget,
        reachability: Reachability,
        *,
        task: str,
        size: int = 1,
        statement_s: float = 0.0,
    ) -> None:
        self._target = target
        self._reachability = reachability
        self._silent_s = target.commit_timeout_s + CANCEL_S
        self._answer_s = max(statement_s, self._silent_s)
        self._task = task
        self._idle: list[ServerSession] = []
        self._threads = ThreadPoolExecutor(size, thread_name_prefix=f"postgres-{task}")

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in autocommit. Raises Unconfirmed if the standby did not confirm a statement."""
        return await self._run_in_thread(lambda session: session.run(work))

    async def transaction(
        self,
        work: Callable[[Connection], T],
        *,
        takes_long: bool = False,
        needs_standby: Callable[[T], bool] | None = None,
    ) -> T:
        """
        Run `work` in one transaction. If it raises, nothing changes.

        If the connection is lost before the commit, `work` runs again, so it must not have side effects.
        Raises CommitUnknown if the commit may or may not have happened, and Unconfirmed if it happened but no
        standby confirmed it. With `takes_long`, statements have no time limit. If `needs_standby` returns
        True for the result, Unconfirmed is raised unless a standby certainly has the commit, regardless of
        the server's settings.
        """
        return await self._run_in_thread(
            lambda session: session.transaction(work, needs_standby), repeatable=True, takes_long=takes_long
        )

    async def run_pipelined(self, work: Callable[[PipelinedTransaction], T]) -> T:
        """
        Run `work` in one transaction with as few round trips as it needs. `work` must commit the transaction.
        Otherwise it is rolled back.
        """
        return await self._run_in_thread(lambda session: session.run_pipelined(work), repeatable=True)

    async def wait_until_confirmed(self, *, needs_standby: bool = False) -> None:
        """Wait until a standby has every earlier commit. Raises Unconfirmed if that cannot be proven."""
        await self._run_in_thread(lambda session: session.wait_until_confirmed(needs_standby=needs_standby))

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._run_in_thread(lambda session: work(session.connection), repeatable=True)

    async def snapshot(self, work: Callable[[Connection], T]) -> T:
        return await self._run_in_thread(lambda session: session.snapshot(work), repeatable=True)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        while self._idle:
            self._idle.pop().close()

    async def _run_in_thread(
        self,
        run_on_session: Callable[[ServerSession], T],
        *,
        repeatable: bool = False,
        takes_long: bool = False,
    ) -> T:
        loop = asyncio.get_running_loop()
        sessions: list[ServerSession] = []
        future = loop.run_in_executor(
            self._threads, self._run_and_repeat, run_on_session, repeatable, sessions
        )
        answer_s = math.inf if takes_long else self._answer_s
        first_look_s = min(self._target.commit_timeout_s, answer_s)
        watch = loop.call_later(first_look_s, self._end_overlong_work, loop, future, sessions, answer_s)
        future.add_done_callback(lambda finished: _cancel_watch(finished, watch))
        return await asyncio.shield(future)  # cancelling the caller does not cancel the query

    def _end_overlong_work(
        self,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
        sessions: list[ServerSession],
        answer_s: float,
    ) -> None:
        """
        End work that takes too long. If a commit waits for the standby, cancel that wait, which leaves the
        commit unconfirmed. If the server does not respond, cut the connection.
        """
        if future.done():
            return
        now = time.monotonic()
        next_s = LOOK_S
        if sessions:
            session = sessions[-1]
            commits_since = session.connection.commits_since
            awaits_since = session.connection.awaits_since
            if commits_since is not None:
                left_s = commits_since + self._target.commit_timeout_s - now
                if left_s > 0:
                    next_s = min(next_s, left_s)
                else:
                    loop.run_in_executor(None, _cancel_session, session)
            if awaits_since is not None:
                is_silent = self._reachability.is_silent and answer_s < math.inf
                left_s = awaits_since + (self._silent_s if is_silent else answer_s) - now
                if left_s > 0:
                    next_s = min(next_s, left_s)
                else:
                    _log.error("the database does not respond: the connection was cut", extra=BROKEN_OFF)
                    self._reachability.note_server_silence()
                    session.cut_connection()
        loop.call_later(next_s, self._end_overlong_work, loop, future, sessions, answer_s)

    def _run_and_repeat(
        self,
        run_on_session: Callable[[ServerSession], T],
        repeatable: bool,
        used_sessions: list[ServerSession],
    ) -> T:
        try:
            return self._run_once(run_on_session, used_sessions)
        # locks are always taken in the same order, so a deadlock is a defect
        except errors.DeadlockDetected as error:
            _log.error(
                "a deadlock: %s",
                describe_error_in_one_line(error),
                extra={"action": "deadlock", "where": error.diag.context},
            )
            if not repeatable:
                raise translate_error(error) from error
        except LOST as error:
            if not repeatable or not used_sessions[-1].is_lost:
                raise translate_error(error) from error
        except psycopg.Error as error:
            raise translate_error(error) from error
        try:
            return self._run_once(run_on_session, used_sessions)
        except psycopg.Error as error:
            raise translate_error(error) from error

    def _run_once(
        self, run_on_session: Callable[[ServerSession], T], used_sessions: list[ServerSession]
    ) -> T:
        session = self._take_session(used_sessions)
        try:
            result = run_on_session(session)
            self._reachability.note_answer()
            return result
        except errors.InvalidSqlStatementName:
            # the server and psycopg disagree about prepared statements until the connection is closed
            session.connection.is_spoiled = True
            raise
        finally:
            session.connection.commits_since = None
            if session.is_usable():
                self._idle.append(session)
            else:
                session.close()

    def _take_session(self, used_sessions: list[ServerSession]) -> ServerSession:
        while self._idle:
            session = self._idle.pop()
            if session.is_usable() and not self._reachability.note_and_compare_timeline(session.timeline):
                used_sessions.append(session)
                return session
            session.close()
        self._reachability.pause.raise_while_paused()
        try:
            session = self._connect_to_current_primary(used_sessions)
        except psycopg.Error as error:
            hint = (
                ' (with a connection pooler, set storage.pooler = "transaction")'
                if NO_OPTIONS in str(error)
                else ""
            )
            why = f"the database cannot be reached: {describe_error_in_one_line(error)}{hint}"
            self._reachability.pause.lengthen_pause(why)
            raise SpoolUnavailable(why) from error
        self._reachability.pause.end_pause()
        return session

    def _connect_to_current_primary(self, used_sessions: list[ServerSession]) -> ServerSession:
        """
        Connect to a server that is not an old primary, which may still run after another server was promoted.
        """
        if not self._reachability.was_looked_at:
            self._read_timelines()
        failed: psycopg.Error = psycopg.OperationalError(OLD_PRIMARY)
        for index, address in enumerate(self._target.addresses()):
            try:
                session = ServerSession(self._target, address, self._task)
            except psycopg.Error as error:
                if not index:
                    raise
                failed = error
                continue
            used_sessions.append(session)
            try:
                session.read_and_keep_timeline()
                if not self._reachability.note_and_compare_timeline(session.timeline):
                    return session
            except psycopg.Error as error:
                failed = error
            session.close()
        raise failed

    def _read_timelines(self) -> None:
        """
        Read the timeline of each configured server once. A new process does not know which server was promoted.
        """
        _, *addresses = self._target.addresses()
        for address in addresses:
            with (
                suppress(psycopg.Error),
                closing(ServerSession(self._target, address, self._task)) as session,
            ):
                session.read_and_keep_timeline()
                self._reachability.note_and_compare_timeline(session.timeline)
        self._reachability.was_looked_at = True


def _cancel_watch(done: asyncio.Future[Any], watch: asyncio.TimerHandle) -> None:
    watch.cancel()
    if not done.cancelled():
        # retrieve the exception; otherwise asyncio logs it as a defect if the caller was cancelled
        done.exception()


def _cancel_session(session: ServerSession) -> None:
    try:
        session.cancel()
    # the connection was lost in the meantime, and the caller that waits for the commit gets that error
    except psycopg.Error as error:
        _log.warning(
            "the wait of a commit could not be canceled: %s",
            describe_error_in_one_line(error),
            extra={"action": "cancel_failed"},
        )
