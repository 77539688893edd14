"""A transaction in as few round trips as its caller makes of it."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg.abc import Params
from psycopg.pq import TransactionStatus

from spool.errors import SpoolUnavailable
from spool.postgres.connections.standby import BARRIER, STANDBY_STATE, StandbyState, refused, standby_state
from spool.postgres.connections.target import CommitUnknown, Unconfirmed, local_settings, said

Connection = psycopg.Connection[tuple[Any, ...]]
READ_COMMITTED = b"BEGIN ISOLATION LEVEL READ COMMITTED"


class WatchedConnection(Connection):
    """
    `awaits_since`: since when it waits for an answer of the server, None while it does not. `commits_since`:
    since when something is under way that only the standby may end. `is_spoiled`: not to be used again.
    """

    awaits_since: float | None = None
    commits_since: float | None = None
    is_spoiled = False

    def begin(self, statement: bytes) -> None:
        """Begin a transaction; what follows is in it."""
        self.execute(statement)

    @contextmanager
    def begun(self) -> Iterator[psycopg.Pipeline]:
        """Begin a transaction together with what is sent within."""
        with self.pipeline() as pipeline:
            self.begin(READ_COMMITTED)
            yield pipeline

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        """
        Send the statements of the block together and read their answers at its end.

        After an error the server passes over the rest, also over what prepares statements, which psycopg
        believes to be prepared from then on: such a connection is of no more use.
        """
        try:
            with super().pipeline() as begun:
                begun._exit_gen = partial(_end, begun)  # type: ignore[method-assign]
                yield begun
        except BaseException:
            self.is_spoiled = self.prepare_threshold is not None
            raise

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        self.awaits_since = time.monotonic()
        try:
            return super().wait(gen, *arguments, **options)
        finally:
            self.awaits_since = None


def _end(pipeline: psycopg.Pipeline) -> Generator[Any, Any, None]:
    """
    End a pipeline as psycopg does, but without the Flush that it sends behind the Sync.

    The server takes that for the next request and has no time limit for it: a process that stands still then
    would hold what it has locked for as long as that lasts.
    """
    try:
        pipeline._enqueue_sync()
        yield from pipeline._communicate_gen()
    finally:
        yield from pipeline._fetch_gen(flush=bool(pipeline.command_queue))  # unless the Sync is sent


# -- transactions that are joined ----------------------------------------------------------------------------


COMMIT = b"COMMIT"
WAITS_FOR_NOBODY = local_settings({"synchronous_commit": "off"})

Answer = psycopg.Cursor[tuple[Any, ...]]


class JoinedTransaction:
    """
    A transaction in two round trips: all that is sent within `begun` is answered at its end, and so with `committed`.

    A statement between the two takes a round trip of its own. Where a standby is needed, the question about
    it goes with both, so that it costs none. `doubt`: what says that no standby confirmed the last commit for
    sure. `sees_standbys`: whether the role may.
    """

    def __init__(self, connection: WatchedConnection) -> None:
        self.connection = connection
        self.doubt: StandbyState | None = None
        self.sees_standbys = True
        self._before: StandbyState | None = None
        self._is_committing = False

    @property
    def is_over(self) -> bool:
        return self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    @contextmanager
    def begun(self, *, needs_standby: bool = False) -> Iterator[None]:
        """Begin the transaction; use it once, at first. `needs_standby` as in `committed`."""
        with self.connection.begun():
            asked = self.connection.execute(STANDBY_STATE) if needs_standby else None
            yield
        self._before = None if asked is None else standby_state(asked)

    @contextmanager
    def committed(self, *, in_two_steps: bool = False, needs_standby: bool = False) -> Iterator[None]:
        """
        Commit the transaction; use it once, at last. Without it nothing is stored. Its errors are those of
        `Lane.transaction`. With `needs_standby`, if it was begun so, there is `doubt` unless a standby is
        known to have the commit, whatever the server was told to wait for.

        In two steps all locks are free, and others see what was written, before the standby has confirmed it.
        Then a transaction that changes nothing waits for that: the standby takes everything in the order in
        which it happened.
        """
        done = self.connection.cursor()
        barrier = behind = None
        with self._committing(done), self.connection.pipeline():
            yield
            if in_two_steps:
                self.connection.execute(WAITS_FOR_NOBODY)
            self._is_committing = True
            done.execute(COMMIT)
            if in_two_steps:
                barrier = self._send_barrier()
            behind = self.connection.execute(STANDBY_STATE) if needs_standby else None
        if behind is not None:
            assert self._before is not None
            self._judge(self._before, behind, barrier)

    def alone(self, statement: bytes, values: Params, *, needs_standby: bool) -> Answer:
        """A statement that is a transaction of its own, in one round trip; in two steps where a standby is needed."""
        done = self.connection.cursor()
        self._is_committing = True
        if not needs_standby:
            with self._committing():
                return self.connection.execute(statement, values)
        with self._committing(done), self.connection.begun():
            before = self.connection.execute(STANDBY_STATE)
            self.connection.execute(WAITS_FOR_NOBODY)
            answer = self.connection.execute(statement, values)
            done.execute(COMMIT)
            barrier = self._send_barrier()
            behind = self.connection.execute(STANDBY_STATE)
        self._judge(standby_state(before), behind, barrier)
        return answer

    def barrier(self) -> None:
        """Wait until a standby has all that was committed before; else there is `doubt`."""
        with self.connection.begun():
            before = self.connection.execute(STANDBY_STATE)
            barrier = self.connection.execute(BARRIER)
            self.connection.execute(COMMIT)
            behind = self.connection.execute(STANDBY_STATE)
        self._judge(standby_state(before), behind, barrier)

    def check_standby(self) -> None:
        """Raise SpoolUnavailable after `begun` if a commit would wait for no standby, though it has to."""
        if self._before is not None and not self._before.names:
            raise refused()

    def _send_barrier(self) -> Answer:
        """
        Send a barrier in its own transaction and in the same Sync: no pooler lends the session to
        others in between.
        """
        self.connection.execute(READ_COMMITTED)
        barrier = self.connection.execute(BARRIER)
        self.connection.execute(COMMIT)
        return barrier

    def _judge(self, before: StandbyState, behind: Answer, barrier: Answer | None) -> None:
        position = None
        if barrier is not None:
            row = barrier.fetchone()
            assert row is not None
            position = row[1]
        found = standby_state(behind)
        self.sees_standbys = found.confirmed is not None
        self.doubt = None if found.confirms(before, position) else found

    @contextmanager
    def _committing(self, done: Answer | None = None) -> Iterator[None]:
        """
        Mark that COMMIT is being sent, and translate an error of it. `done` is the cursor of the COMMIT;
        without one, a statement commits by itself.
        """
        self.connection.commits_since = time.monotonic()
        try:
            yield
        except psycopg.OperationalError as error:
            if done is not None and done.statusmessage == "COMMIT":
                raise Unconfirmed(f"what was kept may not be with the standby: {said(error)}") from error
            # After an error of a statement before COMMIT, nothing was committed.
            status = self.connection.pgconn.transaction_status
            if not self._is_committing or status in (TransactionStatus.INERROR, TransactionStatus.IDLE):
                raise
            raise CommitUnknown(f"the connection was lost while committing: {said(error)}") from error
        if done is not None and done.statusmessage != "COMMIT":
            raise SpoolUnavailable("nothing was committed: a statement of the transaction had failed")
