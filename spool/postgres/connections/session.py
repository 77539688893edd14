"""One session on the database server, and the ways to run work in it."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.abc import Params, QueryNoTemplate
from psycopg.pq import ConnStatus, PipelineStatus, TransactionStatus
from psycopg.types.string import StrDumperUnknown

from spool.postgres.connections.joined import (
    READ_COMMITTED,
    Connection,
    PipelinedTransaction,
    WatchedConnection,
)
from spool.postgres.connections.standby import BARRIER, NOT_CONFIRMED, SETTLED_S
from spool.postgres.connections.target import (
    CONNECTING,
    LIMITS,
    CommitUnknown,
    DatabaseTarget,
    Unconfirmed,
    describe_error_in_one_line,
    local_settings_sql,
    session_options,
    translate_error,
)


class PooledConnection(WatchedConnection):
    """
    A connection in autocommit behind a pooler. Each statement outside a transaction is sent together with
    `settings`, in one round trip.

    A pipeline is sent in the same way, and its statements form one transaction.
    """

    settings: Mapping[str, str]

    def begin(self, statement: bytes) -> None:
        super().execute(statement + b"; " + local_settings_sql(self.settings))

    @contextmanager
    def begin_in_pipeline(self) -> Iterator[psycopg.Pipeline]:
        with super().pipeline() as pipeline:
            super().execute(READ_COMMITTED)
            super().execute(local_settings_sql(self.settings))
            yield pipeline

    def execute(  # type: ignore[override]  # templates are not used here
        self,
        query: QueryNoTemplate,
        params: Params | None = None,
        *,
        prepare: bool | None = None,
        binary: bool = False,
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        if not self._is_outside_transaction():
            return super().execute(query, params, prepare=prepare, binary=binary)
        with self._run_transaction():
            return super().execute(query, params, prepare=prepare, binary=binary)

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        with self._run_transaction() if self._is_outside_transaction() else super().pipeline() as pipeline:
            yield pipeline

    def _is_outside_transaction(self) -> bool:
        in_pipeline = self.pgconn.pipeline_status != PipelineStatus.OFF
        return not in_pipeline and self.pgconn.transaction_status == TransactionStatus.IDLE

    @contextmanager
    def _run_transaction(self) -> Iterator[psycopg.Pipeline]:
        try:
            with self.begin_in_pipeline() as pipeline:
                yield pipeline
                super().execute(b"COMMIT")
        finally:
            if (
                self.pgconn.status == ConnStatus.OK
                and self.pgconn.transaction_status != TransactionStatus.IDLE
            ):
                super().execute(b"ROLLBACK")


# -- sessions ------------------------------------------------------------------------------------------------


T = TypeVar("T")
SNAPSHOT = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
TIMELINE = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int"
# SQLSTATEs of the notices that follow a COMMIT if its wait for the standby was ended early
WAIT_ENDED = frozenset({"01000", "57P01"})


class _TextDumper(StrDumperUnknown):
    """
    Converts text for PostgreSQL. Characters that it cannot store are replaced, so that one text cannot fail
    a whole commit.
    """

    def dump(self, obj: str) -> bytes:
        return obj.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")


class ServerSession:
    def __init__(self, target: DatabaseTarget, address: str, task: str) -> None:
        self._is_pooled = target.pooled
        parameters = dict(CONNECTING, application_name=f"tollhouse {task}", autocommit=True)
        self.connection: WatchedConnection
        # a pooler shares the session between clients, and does not pass connection options to the server
        if target.pooled:
            self.connection = pooled = PooledConnection.connect(address, prepare_threshold=None, **parameters)
            pooled.settings = target.settings
        else:
            options = session_options(target.settings)
            self.connection = WatchedConnection.connect(address, options=options, **parameters)
        self._socket = socket.socket(fileno=os.dup(self.connection.pgconn.socket))
        self._lock = threading.Lock()
        self.connection.adapters.register_dumper(str, _TextDumper)
        self._notices: list[str] = []
        self.connection.add_notice_handler(lambda notice: self._notices.append(notice.sqlstate or ""))
        self.timeline: int | None = None

    def is_usable(self) -> bool:
        """
        Return whether the session is open, outside a transaction, and without unread messages such as a
        shutdown notice.
        """
        connection = self.connection.pgconn
        if connection.status != ConnStatus.OK or connection.transaction_status != TransactionStatus.IDLE:
            return False
        if self.connection.is_spoiled:
            return False
        poller = select.poll()  # poll() because select() fails for file descriptors above 1,023
        poller.register(connection.socket, select.POLLIN)
        return not poller.poll(0)

    @property
    def is_lost(self) -> bool:
        return self.connection.pgconn.status != ConnStatus.OK

    def read_and_keep_timeline(self) -> None:
        """
        Read the server's timeline. It stays unknown behind a pooler, and on databases without timelines.
        """
        if not self._is_pooled:
            try:
                row = self.connection.execute(TIMELINE).fetchone()
            except psycopg.Error:
                if self.is_lost:
                    raise
            else:
                self.timeline = row[0] if row else None

    def run(self, work: Callable[[Connection], T]) -> T:
        self._notices.clear()  # discard notices of earlier work that failed
        self.connection.commits_since = time.monotonic()
        result = work(self.connection)
        self._check_confirmed()
        return result

    def transaction(
        self, work: Callable[[Connection], T], needs_standby: Callable[[T], bool] | None = None
    ) -> T:
        self._notices.clear()
        transaction = PipelinedTransaction(self.connection)
        if needs_standby is None:
            self.connection.begin(READ_COMMITTED)
        else:
            with transaction.begin_in_pipeline(needs_standby=True):
                pass
        try:
            result = work(self.connection)
        except BaseException:
            self._roll_back()
            raise
        try:
            with transaction.commit_in_pipeline(
                needs_standby=needs_standby is not None and needs_standby(result)
            ):
                pass
        except psycopg.OperationalError as error:
            # a different error, so that the work is not repeated
            raise CommitUnknown(
                f"the connection was lost while committing: {describe_error_in_one_line(error)}"
            ) from error
        self._check_confirmed(transaction)
        # if the role cannot see standbys, a transaction without writes has not waited for a standby
        if not transaction.sees_standbys:
            self._wait_for_standby()
        return result

    def run_pipelined(self, work: Callable[[PipelinedTransaction], T]) -> T:
        self._notices.clear()
        transaction = PipelinedTransaction(self.connection)
        try:
            result = work(transaction)
        except BaseException:
            with suppress(psycopg.Error):  # after a failed rollback, the connection is not reused
                self._roll_back()
            raise
        if not transaction.is_over:
            self._roll_back()
        self._check_confirmed(transaction)
        return result

    def wait_until_confirmed(self, *, needs_standby: bool) -> None:
        if needs_standby:
            self._wait_for_standby()
        else:
            self.run(lambda connection: connection.execute(BARRIER))

    def snapshot(self, work: Callable[[Connection], T]) -> T:
        self._begin_transaction(SNAPSHOT)
        try:
            return work(self.connection)
        finally:
            self._roll_back()

    def begin_long_snapshot(self) -> None:
        """
        Begin a snapshot without time limits, for a reader that pauses while it writes the data elsewhere.
        """
        self._begin_transaction(SNAPSHOT)
        for name in LIMITS:
            self.connection.execute(f"SET LOCAL {name} = 0".encode())

    def close(self) -> None:
        self.connection.close()
        with self._lock:
            self._socket.close()

    def cancel(self) -> None:
        """Cancel the running statement. Called from another thread."""
        self.connection.cancel_safe(timeout=3.0)

    def cut_connection(self) -> None:
        """Cut the connection from another thread. The statement that waits for the server then fails."""
        # the server or this process may have closed the connection in the meantime
        with self._lock, suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _begin_transaction(self, statement: bytes) -> None:
        self.connection.begin(statement)
        self._notices.clear()

    def _roll_back(self) -> None:
        if not self.is_lost:
            self.connection.execute("ROLLBACK")

    def _check_confirmed(self, transaction: PipelinedTransaction | None = None) -> None:
        ended_waits = WAIT_ENDED.intersection(self._notices)
        self._notices.clear()
        if ended_waits:
            raise Unconfirmed(NOT_CONFIRMED)
        if transaction is not None and transaction.doubt is not None:
            self._wait_for_standby()

    def _wait_for_standby(self) -> None:
        """
        Wait until a standby has every earlier commit. Raises Unconfirmed if that cannot be proven.

        A role that may not see standbys must trust the server's configuration. So this then waits until all
        server processes use the configuration that was just read.
        """
        self._notices.clear()
        if self.connection.commits_since is None:
            self.connection.commits_since = time.monotonic()
        transaction = PipelinedTransaction(self.connection)
        try:
            transaction.confirm_earlier_commits_on_standby()
            self._check_confirmed()
            doubt = transaction.doubt
            if doubt is not None and doubt.names and doubt.confirmed is None and not doubt.is_settled:
                time.sleep(SETTLED_S)
                transaction.confirm_earlier_commits_on_standby()
                self._check_confirmed()
        except psycopg.Error as error:
            # raise CommitUnknown instead, so that the caller does not repeat the work
            raise CommitUnknown(
                f"the connection was lost after a commit: {describe_error_in_one_line(error)}"
            ) from error
        if transaction.doubt is not None:
            raise transaction.doubt.unconfirmed_error()


@contextmanager
def long_snapshot(target: DatabaseTarget) -> Iterator[Connection]:
    try:
        session = ServerSession(target, target.dsn, "copy")
        try:
            session.begin_long_snapshot()
            yield session.connection
        finally:
            session.close()
    except psycopg.Error as error:
        raise translate_error(error) from error
