"""Transactions with as few round trips as possible."""

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
from spool.postgres.connections.standby import (
    BARRIER,
    STANDBY_STATE,
    StandbyState,
    no_standby_error,
    read_standby_state,
)
from spool.postgres.connections.target import (
    CommitUnknown,
    Unconfirmed,
    describe_error_in_one_line,
    local_settings_sql,
)

Connection = psycopg.Connection[tuple[Any, ...]]
READ_COMMITTED = b"BEGIN ISOLATION LEVEL READ COMMITTED"


class WatchedConnection(Connection):
    """
    A connection that other threads can watch. `awaits_since`: since when it has waited for the server, or
    None. `commits_since`: since when it has waited for a commit; from then on, only the standby may end the
    wait. `is_spoiled`: it must not be reused.
    """

    awaits_since: float | None = None
    commits_since: float | None = None
    is_spoiled = False

    def begin(self, statement: bytes) -> None:
        self.execute(statement)

    @contextmanager
    def begin_in_pipeline(self) -> Iterator[psycopg.Pipeline]:
        """Begin a transaction in the same round trip as the statements of the block."""
        with self.pipeline() as pipeline:
            self.begin(READ_COMMITTED)
            yield pipeline

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        """
        Send the statements of the block together, and read their results at the end of the block.

        After an error, the server skips the remaining statements, including their preparation. psycopg does
        not notice that and assumes that they are prepared, so such a connection must not be reused.
        """
        try:
            with super().pipeline() as begun:
                begun._exit_gen = partial(_end_without_flush, begun)  # type: ignore[method-assign]
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


def _end_without_flush(pipeline: psycopg.Pipeline) -> Generator[Any, Any, None]:
    """
    End a pipeline as psycopg does, but without the Flush message after the Sync message.

    The server treats that Flush as the beginning of a further request, which has no time limit. If this
    process were suspended then, it would hold its locks until it continues.
    """
    try:
        pipeline._enqueue_sync()
        yield from pipeline._communicate_gen()
    finally:
        # the flush is skipped if the Sync was already sent
        yield from pipeline._fetch_gen(flush=bool(pipeline.command_queue))


# -- joined transactions -------------------------------------------------------------------------------------


COMMIT = b"COMMIT"
WAITS_FOR_NOBODY = local_settings_sql({"synchronous_commit": "off"})

QueryCursor = psycopg.Cursor[tuple[Any, ...]]


class PipelinedTransaction:
    """
    A transaction in two round trips, one for each block.

    A statement between the blocks costs a further round trip, except the query of the standbys' state. After
    a commit, `doubt` is None if a standby certainly has it, otherwise the standbys' state. `sees_standbys`:
    the role may see standbys.
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
    def begin_in_pipeline(self, *, needs_standby: bool = False) -> Iterator[None]:
        """
        Begin the transaction. Use this exactly once, before any other statement, with the same
        `needs_standby` as the commit.
        """
        with self.connection.begin_in_pipeline():
            cursor = self.connection.execute(STANDBY_STATE) if needs_standby else None
            yield
        self._before = None if cursor is None else read_standby_state(cursor)

    @contextmanager
    def commit_in_pipeline(
        self, *, releases_locks_early: bool = False, needs_standby: bool = False
    ) -> Iterator[None]:
        """
        Commit the transaction. Use this exactly once, as the last block; without it, nothing is stored.
        Raises the errors of `Lane.transaction`.

        With `needs_standby`, this sets the attribute `doubt` to the standbys' state, unless one of them
        certainly has the commit, whatever the server's settings.

        With `releases_locks_early`, the first transaction does not wait for a standby, so its locks are released and
        other sessions see the changes early. An empty second transaction waits for the standby, which applies
        everything in order.
        """
        cursor = self.connection.cursor()
        barrier = behind = None
        with self._translate_commit_errors(cursor), self.connection.pipeline():
            yield
            if releases_locks_early:
                self.connection.execute(WAITS_FOR_NOBODY)
            self._is_committing = True
            cursor.execute(COMMIT)
            if releases_locks_early:
                barrier = self._send_barrier_transaction()
            behind = self.connection.execute(STANDBY_STATE) if needs_standby else None
        if behind is not None:
            assert self._before is not None
            self._note_if_standbys_confirmed(self._before, behind, barrier)

    def run_as_whole_transaction(
        self, statement: bytes, values: Params, *, needs_standby: bool
    ) -> QueryCursor:
        """Run a statement in a transaction of its own, in one round trip."""
        cursor = self.connection.cursor()
        self._is_committing = True
        if not needs_standby:
            with self._translate_commit_errors():
                return self.connection.execute(statement, values)
        with self._translate_commit_errors(cursor), self.connection.begin_in_pipeline():
            before = self.connection.execute(STANDBY_STATE)
            self.connection.execute(WAITS_FOR_NOBODY)
            answer = self.connection.execute(statement, values)
            cursor.execute(COMMIT)
            barrier = self._send_barrier_transaction()
            behind = self.connection.execute(STANDBY_STATE)
        self._note_if_standbys_confirmed(read_standby_state(before), behind, barrier)
        return answer

    def confirm_earlier_commits_on_standby(self) -> None:
        """Wait until a standby has every earlier commit. If that cannot be proven, set `doubt`."""
        with self.connection.begin_in_pipeline():
            before = self.connection.execute(STANDBY_STATE)
            barrier = self.connection.execute(BARRIER)
            self.connection.execute(COMMIT)
            behind = self.connection.execute(STANDBY_STATE)
        self._note_if_standbys_confirmed(read_standby_state(before), behind, barrier)

    def check_standby(self) -> None:
        """Raise an error if the server requires no standby. Call this after `begin_in_pipeline`."""
        if self._before is not None and not self._before.names:
            raise no_standby_error()

    def _send_barrier_transaction(self) -> QueryCursor:
        # before the same Sync message, so that no pooler gives the session to another client in between
        self.connection.execute(READ_COMMITTED)
        barrier = self.connection.execute(BARRIER)
        self.connection.execute(COMMIT)
        return barrier

    def _note_if_standbys_confirmed(
        self, before: StandbyState, standby_query: QueryCursor, barrier_query: QueryCursor | None
    ) -> None:
        position = None
        if barrier_query is not None:
            row = barrier_query.fetchone()
            assert row is not None
            position = row[1]
        state = read_standby_state(standby_query)
        self.sees_standbys = state.confirmed is not None
        self.doubt = None if state.has_confirmed(before, position) else state

    @contextmanager
    def _translate_commit_errors(self, done: QueryCursor | None = None) -> Iterator[None]:
        self.connection.commits_since = time.monotonic()
        try:
            yield
        except psycopg.OperationalError as error:
            if done is not None and done.statusmessage == "COMMIT":
                raise Unconfirmed(
                    f"the standby may not have the committed data: {describe_error_in_one_line(error)}"
                ) from error
            # if a statement before COMMIT failed, nothing was committed
            status = self.connection.pgconn.transaction_status
            if not self._is_committing or status in (TransactionStatus.INERROR, TransactionStatus.IDLE):
                raise
            raise CommitUnknown(
                f"the connection was lost while committing: {describe_error_in_one_line(error)}"
            ) from error
        if done is not None and done.statusmessage != "COMMIT":
            raise SpoolUnavailable(
                "nothing was committed, because an earlier statement of the transaction failed"
            )
