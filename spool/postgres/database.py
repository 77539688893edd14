"""
One PostgreSQL: the connections of one process to it, each on a thread, and what its errors mean to a caller.

Everything that is kept there goes through here; beside connections/ no other module imports psycopg.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.types.string import StrDumperUnknown

from spool.clock import Clock, SystemClock
from spool.errors import Invalid, SpoolFull, SpoolUnavailable
from spool.postgres.connections.pooled import READ_COMMITTED, PooledConnection
from spool.postgres.connections.watched import WatchedConnection
from spool.postgres.server.reachability import Reachability
from spool.steady_clock import SteadyClock

__all__ = [
    "ALREADY_THERE",
    "DRIVER",
    "CommitUnknown",
    "Connection",
    "Database",
    "DiskIsFull",
    "JoinedTransaction",
    "Lane",
    "LockWaited",
    "Unconfirmed",
    "UniqueViolation",
    "parsed",
]

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]
UniqueViolation = errors.UniqueViolation
# What CREATE says when another process made the same at this moment.
ALREADY_THERE = (errors.UniqueViolation, errors.DuplicateSchema, errors.DuplicateTable, errors.DuplicateObject)

DRIVER = f"psycopg {psycopg.__version__}, libpq {psycopg.pq.version() // 10_000}.{psycopg.pq.version() % 10_000}"
POOL = 4  # connections for verbs and readers; one more each for appending and for what must never wait behind those
FULL_RETRY_S = 60
# What a server, a database or a role may say otherwise: that a commit waits for nobody, or a statement sees less.
PROMISES = {"synchronous_commit": "on", "default_transaction_isolation": "read committed"}
LIMITS = {
    "idle_in_transaction_session_timeout": "2s",  # a process that stops between two statements holds nobody for longer
    "lock_timeout": "2s",
    "statement_timeout": "30s",
}
CONNECTING: dict[str, Any] = {
    "connect_timeout": 3,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
    "target_session_attrs": "read-write",
}
SNAPSHOT = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# A server that stands still while its machine answers for it: nothing but our own clock ends the wait for it.
CANCEL_S = 2.0  # beyond `commit_timeout`, in which the server may end a commit
STATEMENT_S = 35.0  # a statement of a verb or a reader: the server itself ends it before
LOOK_S = 1.0  # between looks at what takes long
# A transaction that changes no table: its commit waits until the standby has everything that was committed before.
BARRIER = b"SELECT set_config('synchronous_commit', 'on', true), pg_logical_emit_message(true, 'tollhouse', '')"
TIMELINE = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int"
NO_OPTIONS = "unsupported startup parameter"  # how pgbouncer refuses what is set for a whole connection
NOT_CONFIRMED = frozenset({"01000", "57P01"})  # what COMMIT says when its wait for the standby was ended

OLD_PRIMARY = (
    "an old primary answers, beside one that was promoted in its place: stop it. If it is meant, restart this node"
)
BROKEN_OFF = {"action": "connection_broken_off"}

_log = logging.getLogger(__name__)


class CommitUnknown(SpoolUnavailable):
    """The connection was lost while a transaction was committed: it stands, or it never happened."""


class LockWaited(SpoolUnavailable):
    """Another session held what was wanted for as long as one waits for a lock."""


class Unconfirmed(SpoolUnavailable):
    """The transaction stands, but the standby did not confirm it: losing the primary now would undo it."""


class DiskIsFull(SpoolFull, SpoolUnavailable):
    """The disk of the database has no room: the sender repeats, and so does a task that waits for the database."""


@dataclass(frozen=True, kw_only=True)
class _Target:
    """What is connected to, and how."""

    dsn: str
    pooled: bool
    commit_timeout_s: float
    settings: Mapping[str, str] = field(default_factory=lambda: {**PROMISES, **LIMITS})  # of each session

    def addresses(self) -> Iterator[str]:
        """The address, then each host of it alone, if there are several."""
        yield self.dsn
        parts = conninfo_to_dict(self.dsn)
        names = [name for name in ("host", "hostaddr", "port") if "," in str(parts.get(name, ""))]
        for one in zip(*(str(parts[name]).split(",") for name in names), strict=True):
            yield make_conninfo(self.dsn, **dict(zip(names, one, strict=True)))


class _TextDumper(StrDumperUnknown):
    """Text with replacements for what PostgreSQL keeps in none: one such text must not cost its neighbours' commit."""

    def dump(self, obj: str) -> bytes:
        return obj.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")


class _Session:
    """One connection, and what the server said beside its answers."""

    def __init__(self, target: _Target, address: str, task: str) -> None:
        self._target = target
        parameters = dict(CONNECTING, application_name=f"tollhouse {task}", autocommit=True)
        self.connection: WatchedConnection
        if target.pooled:  # a pooler hands the session to others and passes no options on
            self.connection = pooled = PooledConnection.connect(address, prepare_threshold=None, **parameters)
            pooled.settings = target.settings
        else:
            options = " ".join(_option(*setting) for setting in target.settings.items())
            self.connection = WatchedConnection.connect(address, options=options, **parameters)
        self._socket = socket.socket(fileno=os.dup(self.connection.pgconn.socket))
        self._lock = threading.Lock()
        self.connection.adapters.register_dumper(str, _TextDumper)
        self._notices: list[str] = []
        self.connection.add_notice_handler(lambda notice: self._notices.append(notice.sqlstate or ""))
        self.timeline: int | None = None
        self.waits_since: float | None = None  # since when something is under way that only the standby may end

    def is_usable(self) -> bool:
        """Whether the connection is there, in no transaction, and the server said nothing unasked, as of an end."""
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
        if not self._target.pooled:
            try:
                row = self.connection.execute(TIMELINE).fetchone()
            except psycopg.Error:
                if self.is_lost:
                    raise
            else:
                self.timeline = row[0] if row else None

    def run(self, work: Callable[[Connection], T]) -> T:
        self._notices.clear()  # of work that failed
        self.waits_since = time.monotonic()
        result = work(self.connection)
        self._check_confirmed()
        return result

    def transaction(self, work: Callable[[Connection], T]) -> T:
        connection = self.connection
        self._begin(READ_COMMITTED)
        try:
            result = work(connection)
        except BaseException:
            self._roll_back()
            raise
        self.waits_since = time.monotonic()
        try:
            done = connection.execute("COMMIT").statusmessage
        except psycopg.OperationalError as error:
            raise CommitUnknown(f"the connection was lost while committing: {_said(error)}") from error
        if done != "COMMIT":
            raise SpoolUnavailable("nothing was committed: a statement of the transaction had failed")
        self._check_confirmed()
        return result

    def joined(self, work: Callable[[JoinedTransaction], T]) -> T:
        self._notices.clear()
        transaction = JoinedTransaction(self)
        try:
            result = work(transaction)
        except BaseException:
            with suppress(psycopg.Error):  # then the connection is not used any more
                self._roll_back()
            raise
        if not transaction.is_over:
            self._roll_back()
        self._check_confirmed()
        return result

    def snapshot(self, work: Callable[[Connection], T]) -> T:
        self._begin(SNAPSHOT)
        try:
            return work(self.connection)
        finally:
            self._roll_back()

    @contextmanager
    def pipeline(self) -> Iterator[None]:
        """What is sent within is answered at its end."""
        with WatchedConnection.pipeline(self.connection):
            yield

    @property
    def local_settings(self) -> Mapping[str, str]:
        """What a transaction has to set for itself."""
        return self._target.settings if self._target.pooled else {}

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
        """From another thread: what waits for the server's answer hears that the connection is lost."""
        with self._lock, suppress(OSError):  # closed by either side meanwhile
            self._socket.shutdown(socket.SHUT_RDWR)

    def _begin(self, statement: bytes) -> None:
        if isinstance(self.connection, PooledConnection):
            self.connection.begin(statement)
        else:
            self.connection.execute(statement)
        self._notices.clear()

    def _roll_back(self) -> None:
        if self.connection.pgconn.status == ConnStatus.OK:
            self.connection.execute("ROLLBACK")

    def _check_confirmed(self) -> None:
        found = NOT_CONFIRMED.intersection(self._notices)
        self._notices.clear()
        if found:
            raise Unconfirmed("the standby did not confirm what was kept: look at the standby, then repeat")


class JoinedTransaction:
    """
    A transaction in two round trips: all that is sent within `begun` is answered at its end, and so with `committed`.

    A statement between the two takes a round trip of its own.
    """

    def __init__(self, session: _Session) -> None:
        self._session = session
        self.connection = session.connection

    @property
    def is_over(self) -> bool:
        return self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Once, at first."""
        with self._session.pipeline():
            self.connection.execute(READ_COMMITTED)
            self.set(self._session.local_settings)
            yield

    def set(self, settings: Mapping[str, str]) -> None:
        """For this transaction alone."""
        if settings:
            named = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
            self.connection.execute(f"SELECT {named}".encode())

    @contextmanager
    def committed(self, *, in_two_steps: bool = False) -> Iterator[None]:
        """
        Once, at last; without it nothing is kept. Its errors are those of `Lane.transaction`.

        In two steps all locks are free, and others see what was written, before the standby has confirmed it. Then a
        transaction that changes nothing waits for that: the standby takes everything in the order in which it happened.
        """
        done = self.connection.cursor()
        is_committing = False
        self._session.waits_since = time.monotonic()
        try:
            with self._session.pipeline():
                yield
                if in_two_steps:
                    self.set({"synchronous_commit": "off"})
                is_committing = True
                done.execute(b"COMMIT")
                if in_two_steps:
                    self.connection.execute(BARRIER)
        except psycopg.OperationalError as error:
            # In a transaction that has failed nothing was committed: a statement before COMMIT did.
            status = self.connection.pgconn.transaction_status
            if not is_committing or status == TransactionStatus.INERROR:
                raise
            if status == TransactionStatus.IDLE and done.statusmessage == "COMMIT":
                raise Unconfirmed(f"what was kept may not be with the standby: {_said(error)}") from error
            raise CommitUnknown(f"the connection was lost while committing: {_said(error)}") from error
        if done.statusmessage != "COMMIT":
            raise SpoolUnavailable("nothing was committed: a statement of the transaction had failed")


class Lane:
    """
    Some connections of one task, made when they are needed and kept: each piece of work has one for itself.

    Work runs on a thread, so it must not touch what belongs to the event loop. A server that does not answer within
    `answer_s` is given up: the connection is lost then, as it is when the server ends.
    """

    def __init__(self, target: _Target, reachability: Reachability, *, task: str, size: int, answer_s: float) -> None:
        self._target = target
        self._reachability = reachability
        self._answer_s = answer_s
        self._task = task
        self._idle: list[_Session] = []
        self._threads = ThreadPoolExecutor(size, thread_name_prefix=f"postgres-{task}")

    async def run(self, work: Callable[[Connection], T]) -> T:
        """
        Run `work` outside of any transaction: each of its statements is one.

        Unconfirmed when the standby did not confirm one of them.
        """
        return await self._submit(lambda session: session.run(work))

    async def transaction(self, work: Callable[[Connection], T], *, takes_long: bool = False) -> T:
        """
        Run `work` in one transaction: its error leaves everything as it was.

        When the connection is lost before the commit, `work` runs once more: it keeps no state of its own.
        Of the errors of the commit, CommitUnknown and Unconfirmed say that it may stand or stands. `takes_long`: no
        statement of it is given up.
        """
        return await self._submit(lambda session: session.transaction(work), repeatable=True, takes_long=takes_long)

    async def joined(self, work: Callable[[JoinedTransaction], T]) -> T:
        """As `transaction`, in as few round trips as `work` makes of it. What it does not commit is not kept."""
        return await self._submit(lambda session: session.joined(work), repeatable=True)

    async def confirm(self) -> None:
        """Wait until the standby has everything that was committed before; Unconfirmed if it does not."""
        await self.run(lambda connection: connection.execute(BARRIER))

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which only reads: each of its statements sees all that was committed before it."""
        return await self._submit(lambda session: work(session.connection), repeatable=True)

    async def snapshot(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which only reads: all of it is of one moment."""
        return await self._submit(lambda session: session.snapshot(work), repeatable=True)

    async def close(self) -> None:
        """Finish what is under way, then disconnect."""
        await asyncio.to_thread(self._threads.shutdown)
        while self._idle:
            self._idle.pop().close()

    async def _submit(self, form: Callable[[_Session], T], *, repeatable: bool = False, takes_long: bool = False) -> T:
        loop = asyncio.get_running_loop()
        sessions: list[_Session] = []
        future = loop.run_in_executor(self._threads, self._perform, form, repeatable, sessions)
        answer_s = math.inf if takes_long else self._answer_s
        first_look_s = min(self._target.commit_timeout_s, answer_s)
        watch = loop.call_later(first_look_s, self._look, loop, future, sessions, answer_s)
        future.add_done_callback(lambda done: _over(done, watch))
        return await asyncio.shield(future)  # who no longer waits does not end what is under way

    def _look(
        self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], sessions: list[_Session], answer_s: float
    ) -> None:
        """
        End what takes too long: a commit that waits for the standby, which stands then, unconfirmed; the connection to
        a server that does not answer.
        """
        if future.done():
            return
        commit_s, now = self._target.commit_timeout_s, time.monotonic()
        next_s = LOOK_S
        if sessions:
            session = sessions[-1]
            commits_since, awaits_since = session.waits_since, session.connection.awaits_since
            if commits_since is not None:
                left_s = commits_since + commit_s - now
                if left_s <= 0:
                    loop.run_in_executor(None, _cancel, session)
                next_s = min(next_s, left_s) if left_s > 0 else next_s
            if awaits_since is not None:
                given_s = (
                    min(answer_s, commit_s + CANCEL_S)
                    if self._reachability.is_silent and answer_s < math.inf
                    else answer_s
                )
                left_s = awaits_since + given_s - now
                if left_s <= 0:
                    _log.error("the database does not answer: a connection is broken off", extra=BROKEN_OFF)
                    self._reachability.noticed_silence()
                    session.break_off()
                next_s = min(next_s, left_s) if left_s > 0 else next_s
        loop.call_later(next_s, self._look, loop, future, sessions, answer_s)

    def _perform(self, form: Callable[[_Session], T], repeatable: bool, sessions: list[_Session]) -> T:
        try:
            return self._attempt(form, sessions)
        except errors.DeadlockDetected as error:  # locks are taken in one order, so this is a defect
            _log.error("a deadlock: %s", _said(error), extra={"action": "deadlock", "where": error.diag.context})
            if not repeatable:
                raise _translated(error) from error
        except psycopg.OperationalError as error:
            if not repeatable or not sessions[-1].is_lost:
                raise _translated(error) from error
        except psycopg.Error as error:
            raise _translated(error) from error
        try:
            return self._attempt(form, sessions)
        except psycopg.Error as error:
            raise _translated(error) from error

    def _attempt(self, form: Callable[[_Session], T], sessions: list[_Session]) -> T:
        session = self._connected(sessions)
        try:
            return form(session)
        except errors.InvalidSqlStatementName:  # the server and psycopg disagree on what is prepared, and always will
            session.connection.is_spoiled = True
            raise
        finally:
            session.waits_since = None
            if session.is_usable():
                self._idle.append(session)
            else:
                session.close()

    def _connected(self, sessions: list[_Session]) -> _Session:
        """The last of `sessions`."""
        while self._idle:
            session = self._idle.pop()
            if session.is_usable() and not self._reachability.is_old(session.timeline):
                sessions.append(session)
                return session
            session.close()
        self._reachability.pause.check()
        try:
            session = self._newest(sessions)
        except psycopg.Error as error:
            hint = ' (behind a pooler set storage.pooler = "transaction")' if NO_OPTIONS in str(error) else ""
            why = f"the database cannot be reached: {_said(error)}{hint}"
            self._reachability.pause.failed(why)
            raise SpoolUnavailable(why) from error
        self._reachability.pause.over()
        return session

    def _newest(self, sessions: list[_Session]) -> _Session:
        """A new connection to a server that is no old primary, which goes on beside the one promoted in its place."""
        failed: psycopg.Error = psycopg.OperationalError(OLD_PRIMARY)
        for place, address in enumerate(self._target.addresses()):
            try:
                session = _Session(self._target, address, self._task)
            except psycopg.Error as error:
                if not place:
                    raise
                failed = error
                continue
            sessions.append(session)
            try:
                session.read_timeline()
                if not self._reachability.is_old(session.timeline):
                    return session
            except psycopg.Error as error:
                failed = error
            session.close()
        raise failed


class Database:
    """
    One schema of one PostgreSQL. Its own verbs are those of `pool`, the connections of verbs and readers.

    `append` is the one connection on which records are committed. `control` is for what must not wait behind others:
    this process's session and its leases.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "tollhouse",
        clock: Clock | None = None,
        pooled: bool = False,
        commit_timeout_s: float = 10.0,
    ) -> None:
        target = _Target(dsn=dsn, pooled=pooled, commit_timeout_s=commit_timeout_s)
        self._target = target
        self._reachability = Reachability()
        self.name = schema
        self.schema = sql.Identifier(schema).as_string(None)  # quoted, as SQL texts have it
        self._clock = clock
        self._texts: dict[str, bytes] = {}
        lane = partial(Lane, reachability=self._reachability)
        answer_s = commit_timeout_s + CANCEL_S
        # A process may stop while it has the head: others look after it sooner than they wait for other locks.
        append = replace(target, settings={**PROMISES, **LIMITS, "lock_timeout": "1s"})
        self.append = lane(append, task="append", size=1, answer_s=answer_s)
        self.control = lane(target, task="control", size=1, answer_s=answer_s)
        self.pool = lane(target, task="verbs", size=POOL, answer_s=max(STATEMENT_S, answer_s))
        self.run, self.transaction = self.pool.run, self.pool.transaction
        self.read, self.snapshot = self.pool.read, self.pool.snapshot

    @property
    def failed_connections(self) -> int:
        """Attempts to connect that failed, since the start."""
        return self._reachability.pause.failures

    def sql(self, text: str) -> bytes:
        """An SQL text with the schema's name for `{schema}`, and the time for `{now}` (a parameter `now`)."""
        found = self._texts.get(text)
        if found is None:
            found = self._texts[text] = text.replace("{schema}", self.schema).replace("{now}", NOW).encode()
        return found

    @contextmanager
    def long_snapshot(self) -> Iterator[Connection]:
        """
        A connection of its own on this thread, all of whose reads are of one moment, however long they take.

        Only for work beside which nobody else uses the schema: what was removed stays on disk meanwhile.
        """
        try:
            session = _Session(self._target, self._target.dsn, "copy")
            try:
                session.begin_long()
                yield session.connection
            finally:
                session.close()
        except psycopg.Error as error:
            raise _translated(error) from error

    def now(self) -> float | None:
        """The parameter `now` of an SQL text: None, so that the database's clock counts, or the time of a test."""
        return None if self._clock is None or isinstance(self._clock, SystemClock | SteadyClock) else self._clock.now()

    async def close(self) -> None:
        """Finish what is under way and disconnect; idempotent."""
        for lane in (self.append, self.pool, self.control):
            await lane.close()


def parsed(dsn: str) -> dict[str, str]:
    """The parameters of an address in libpq's form; ValueError, which does not show it, if it is none."""
    try:
        return {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.ProgrammingError as error:
        raise ValueError("storage: the address of the PostgreSQL is not in libpq's form") from error


NOW = "coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8)"


def _over(done: asyncio.Future[Any], watch: asyncio.TimerHandle) -> None:
    watch.cancel()
    if not done.cancelled():
        done.exception()  # heard: who waited may have been cancelled, and then it would be logged as a defect


def _option(name: str, value: str) -> str:
    escaped = value.replace(" ", r"\ ")
    return f"-c {name}={escaped}"


def _cancel(session: _Session) -> None:
    try:
        session.cancel()
    except psycopg.Error as error:  # the connection has gone meanwhile: what waits on it is told so
        _log.warning("a commit could not be ended: %s", _said(error), extra={"action": "cancel_failed"})


def _translated(error: psycopg.Error) -> Exception:
    """The error of spool/errors.py, by whose move is next. What breaks a key is for whoever wrote the statement."""
    if isinstance(error, errors.DiskFull):
        return DiskIsFull("the disk of the database is full: make room there", retry_after_s=FULL_RETRY_S)
    if isinstance(error, errors.LockNotAvailable):
        return LockWaited(f"the database failed: {_said(error)}")
    if isinstance(error, psycopg.IntegrityError):
        return error
    if isinstance(error, psycopg.DataError):
        return Invalid(f"a value cannot be kept: {_said(error)}")
    return SpoolUnavailable(f"the database failed: {_said(error)}")


def _said(error: psycopg.Error) -> str:
    """
    One line of what the server or libpq said, without the statement and its values. Of several hosts that cannot be
    reached, what each of them said.
    """
    lines = str(error).splitlines() or [""]
    hosts = [line.removeprefix("- ") for line in lines if line.startswith("- host: ")]
    return error.diag.message_primary or " ".join("; ".join(hosts or lines[:1]).split())
