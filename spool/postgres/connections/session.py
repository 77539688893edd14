"""One session of the server, and the forms in which work is done in it."""

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

from spool.postgres.connections.joined import READ_COMMITTED, Connection, JoinedTransaction, WatchedConnection
from spool.postgres.connections.standby import BARRIER, NOT_CONFIRMED, SETTLED_S
from spool.postgres.connections.target import (
    CONNECTING,
    LIMITS,
    CommitUnknown,
    DatabaseTarget,
    Unconfirmed,
    local_settings,
    said,
    session_options,
    translated,
)


class PooledConnection(WatchedConnection):
    """
    In autocommit. A statement outside of a transaction is sent as one that has `settings`, in one round trip.

    So is a pipeline, whose statements are then one transaction; without settings they are one as well.
    """

    settings: Mapping[str, str]

    def begin(self, statement: bytes) -> None:
        super().execute(statement + b"; " + local_settings(self.settings))

    @contextmanager
    def begun(self) -> Iterator[psycopg.Pipeline]:
        with super().pipeline() as pipeline:
            super().execute(READ_COMMITTED)
            super().execute(local_settings(self.settings))
            yield pipeline

    def execute(  # type: ignore[override]  # templates are not used here
        self,
        query: QueryNoTemplate,
        params: Params | None = None,
        *,
        prepare: bool | None = None,
        binary: bool = False,
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        if not self._stands_alone():
            return super().execute(query, params, prepare=prepare, binary=binary)
        with self._one_transaction():
            return super().execute(query, params, prepare=prepare, binary=binary)

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        with self._one_transaction() if self._stands_alone() else super().pipeline() as pipeline:
            yield pipeline

    def _stands_alone(self) -> bool:
        in_pipeline = self.pgconn.pipeline_status != PipelineStatus.OFF
        return not in_pipeline and self.pgconn.transaction_status == TransactionStatus.IDLE

    @contextmanager
    def _one_transaction(self) -> Iterator[psycopg.Pipeline]:
        try:
            with self.begun() as pipeline:
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
WAIT_ENDED = frozenset({"01000", "57P01"})  # what COMMIT says when its wait for the standby was ended


class _TextDumper(StrDumperUnknown):
    """
    Text with replacements for what PostgreSQL keeps in none: one such text must not cost its neighbours' commit.
    """

    def dump(self, obj: str) -> bytes:
        return obj.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")


class ServerSession:
    """One connection, and what the server said beside its answers."""

    def __init__(self, target: DatabaseTarget, address: str, task: str) -> None:
        self._is_pooled = target.pooled
        parameters = dict(CONNECTING, application_name=f"tollhouse {task}", autocommit=True)
        self.connection: WatchedConnection
        if target.pooled:  # a pooler hands the session to others and passes no options on
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
        """True if the connection is there, in no transaction, and the server said nothing unasked, as of an end."""
        connection = self.connection.pgconn
        if connection.status != ConnStatus.OK or connection.transaction_status != TransactionStatus.IDLE:
            return False
        if self.connection.is_spoiled:
            return False
        news = select.poll()  # not select(), which fails beyond 1,023: where many senders are connected
        news.register(connection.socket, select.POLLIN)
        return not news.poll(0)

    @property
    def is_lost(self) -> bool:
        return self.connection.pgconn.status != ConnStatus.OK

    def read_timeline(self) -> None:
        """A pooler says nothing of the next transaction's server; others than PostgreSQL may not know timelines."""
        if not self._is_pooled:
            try:
                row = self.connection.execute(TIMELINE).fetchone()
            except psycopg.Error:
                if self.is_lost:
                    raise
            else:
                self.timeline = row[0] if row else None

    def run(self, work: Callable[[Connection], T]) -> T:
        self._notices.clear()  # of work that failed
        self.connection.commits_since = time.monotonic()
        result = work(self.connection)
        self._check_confirmed()
        return result

    def transaction(
        self, work: Callable[[Connection], T], needs_standby: Callable[[T], bool] | None = None
    ) -> T:
        self._notices.clear()
        transaction = JoinedTransaction(self.connection)
        if needs_standby is None:
            self.connection.begin(READ_COMMITTED)
        else:
            with transaction.begun(needs_standby=True):
                pass
        try:
            result = work(self.connection)
        except BaseException:
            self._roll_back()
            raise
        try:
            with transaction.committed(needs_standby=needs_standby is not None and needs_standby(result)):
                pass
        except psycopg.OperationalError as error:  # no error after which the work is repeated
            raise CommitUnknown(f"the connection was lost while committing: {said(error)}") from error
        self._check_confirmed(transaction)
        if not transaction.sees_standbys:  # a transaction that wrote nothing has waited for none
            self._prove()
        return result

    def joined(self, work: Callable[[JoinedTransaction], T]) -> T:
        self._notices.clear()
        transaction = JoinedTransaction(self.connection)
        try:
            result = work(transaction)
        except BaseException:
            with suppress(psycopg.Error):  # then the connection is not used any more
                self._roll_back()
            raise
        if not transaction.is_over:
            self._roll_back()
        self._check_confirmed(transaction)
        return result

    def confirm(self, *, needs_standby: bool) -> None:
        """Wait until the standby has everything that was committed before; Unconfirmed if it does not."""
        if needs_standby:
            self._prove()
        else:
            self.run(lambda connection: connection.execute(BARRIER))

    def snapshot(self, work: Callable[[Connection], T]) -> T:
        self._begin(SNAPSHOT)
        try:
            return work(self.connection)
        finally:
            self._roll_back()

    def begin_long(self) -> None:
        """A snapshot that may stand still while what was read is written elsewhere."""
        self._begin(SNAPSHOT)
        for name in LIMITS:
            self.connection.execute(f"SET LOCAL {name} = 0".encode())

    def close(self) -> None:
        self.connection.close()
        with self._lock:
            self._socket.close()

    def cancel(self) -> None:
        """End what is under way, from another thread."""
        self.connection.cancel_safe(timeout=3.0)

    def break_off(self) -> None:
        """Break the connection off from another thread; the statement that waits for an answer fails."""
        with self._lock, suppress(OSError):  # closed by either side meanwhile
            self._socket.shutdown(socket.SHUT_RDWR)

    def _begin(self, statement: bytes) -> None:
        self.connection.begin(statement)
        self._notices.clear()

    def _roll_back(self) -> None:
        if not self.is_lost:
            self.connection.execute("ROLLBACK")

    def _check_confirmed(self, transaction: JoinedTransaction | None = None) -> None:
        """
        Raise Unconfirmed if the server said that it did not wait; if the transaction leaves doubt, ask
        by a barrier.
        """
        found = WAIT_ENDED.intersection(self._notices)
        self._notices.clear()
        if found:
            raise Unconfirmed(NOT_CONFIRMED)
        if transaction is not None and transaction.doubt is not None:
            self._prove()

    def _prove(self) -> None:
        """
        Wait until a standby has everything that was committed before; Unconfirmed if it does not.

        A role that may not see standbys waits until the configuration that was just read is that of all processes.
        """
        self._notices.clear()
        if self.connection.commits_since is None:
            self.connection.commits_since = time.monotonic()
        transaction = JoinedTransaction(self.connection)
        try:
            transaction.barrier()
            self._check_confirmed()
            doubt = transaction.doubt
            if doubt is not None and doubt.names and doubt.confirmed is None and not doubt.is_settled:
                time.sleep(SETTLED_S)
                transaction.barrier()
                self._check_confirmed()
        except psycopg.Error as error:  # no error after which the work is repeated
            raise CommitUnknown(f"the connection was lost behind a commit: {said(error)}") from error
        if transaction.doubt is not None:
            raise transaction.doubt.problem()


@contextmanager
def long_snapshot(target: DatabaseTarget) -> Iterator[Connection]:
    """A connection of its own on this thread, all of whose reads are of one moment, however long they take."""
    try:
        session = ServerSession(target, target.dsn, "copy")
        try:
            session.begin_long()
            yield session.connection
        finally:
            session.close()
    except psycopg.Error as error:
        raise translated(error) from error
