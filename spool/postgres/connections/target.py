"""What is connected to, and what each session there is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from spool.errors import Invalid, NotCertain, SpoolFull, SpoolUnavailable

DRIVER = (
    f"psycopg {psycopg.__version__}, libpq {psycopg.pq.version() // 10_000}.{psycopg.pq.version() % 10_000}"
)
# What a server, a database or a role may say otherwise: that a commit waits for nobody, or a statement sees
# less.
PROMISES = {"synchronous_commit": "on", "default_transaction_isolation": "read committed"}
LIMITS = {
    # a process that stops between two statements holds nobody for longer
    "idle_in_transaction_session_timeout": "2s",
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


@dataclass(frozen=True, kw_only=True)
class DatabaseTarget:
    """One address of a database. `pooled`: a pooler is there, which hands sessions to others."""

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


def parsed(dsn: str) -> dict[str, str]:
    """The parameters of an address in libpq's form; ValueError, which does not show it, if it is none."""
    try:
        return {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.ProgrammingError as error:
        raise ValueError("storage: the address of the PostgreSQL is not in libpq's form") from error


def quoted(name: str) -> str:
    """A name as SQL texts have it."""
    return sql.Identifier(name).as_string(None)


def session_options(settings: Mapping[str, str]) -> str:
    """Format the options that give a whole session these settings when it connects."""
    escaped = {name: value.replace(" ", r"\ ") for name, value in settings.items()}
    return " ".join(f"-c {name}={value}" for name, value in escaped.items())


def local_settings(settings: Mapping[str, str]) -> bytes:
    """
    Make the statement that sets these values for the current transaction. It is one statement, since a
    pipeline cannot send several at once.
    """
    named = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    return f"SELECT {named}".encode()


# -- errors of the driver in the spool's words ---------------------------------------------------------------


UniqueViolation = errors.UniqueViolation
# What CREATE says when another process made the same at this moment.
ALREADY_THERE = (
    errors.UniqueViolation,
    errors.DuplicateSchema,
    errors.DuplicateTable,
    errors.DuplicateObject,
)
FULL_RETRY_S = 60


class CommitUnknown(NotCertain):
    """The connection was lost while a transaction was committed: it stands, or it never happened."""


class LockWaited(SpoolUnavailable):
    """Another session held what was wanted for as long as one waits for a lock."""


class Unconfirmed(NotCertain):
    """The transaction stands, but the standby did not confirm it: losing the primary now would undo it."""


class DiskIsFull(SpoolFull, SpoolUnavailable):
    """The disk of the database has no room: the sender repeats, and so does a task that waits for the database."""


def translated(error: psycopg.Error) -> Exception:
    """The error of spool/errors.py. What breaks a key is for whoever wrote the statement."""
    if isinstance(error, errors.DiskFull):
        return DiskIsFull("the disk of the database is full: make room there", retry_after_s=FULL_RETRY_S)
    if isinstance(error, errors.LockNotAvailable):
        return LockWaited(f"the database failed: {said(error)}")
    if isinstance(error, psycopg.IntegrityError):
        return error
    if isinstance(error, psycopg.DataError):
        return Invalid(f"a value cannot be kept: {said(error)}")
    return SpoolUnavailable(f"the database failed: {said(error)}")


def said(error: psycopg.Error) -> str:
    """
    Return one line of the error of the server or libpq, without the statement and its values. If several
    hosts cannot be reached, it has the error of each.
    """
    lines = str(error).splitlines() or [""]
    hosts = [line.removeprefix("- ") for line in lines if line.startswith("- host: ")]
    return error.diag.message_primary or " ".join("; ".join(hosts or lines[:1]).split())
