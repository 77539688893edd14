"""The database to connect to, its sessions' settings, and the translation of errors."""

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
# Session settings that the storage relies on. A server, database or role may have other defaults, such as
# commits that do not wait, or another isolation level.
PROMISES = {"synchronous_commit": "on", "default_transaction_isolation": "read committed"}
LIMITS = {
    # if a process pauses between two statements, it blocks other processes for at most this time
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
    """The database to connect to. `pooled`: a pooler shares its sessions between clients."""

    dsn: str
    pooled: bool
    commit_timeout_s: float
    settings: Mapping[str, str] = field(default_factory=lambda: {**PROMISES, **LIMITS})

    def addresses(self) -> Iterator[str]:
        """Yield the address, then one address per host if there are several."""
        yield self.dsn
        parts = conninfo_to_dict(self.dsn)
        names = [name for name in ("host", "hostaddr", "port") if "," in str(parts.get(name, ""))]
        for host_parts in zip(*(str(parts[name]).split(",") for name in names), strict=True):
            yield make_conninfo(self.dsn, **dict(zip(names, host_parts, strict=True)))


def parse_address(dsn: str) -> dict[str, str]:
    """Parse the address. The message of its ValueError does not contain the address."""
    try:
        return {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.ProgrammingError as error:
        raise ValueError("storage: the address of the PostgreSQL is not in libpq's format") from error


def quote_name(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def session_options(settings: Mapping[str, str]) -> str:
    escaped = {name: value.replace(" ", r"\ ") for name, value in settings.items()}
    return " ".join(f"-c {name}={value}" for name, value in escaped.items())


def local_settings_sql(settings: Mapping[str, str]) -> bytes:
    """Return one statement that sets all settings, because a pipeline cannot send several at once."""
    settings_sql = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    return f"SELECT {settings_sql}".encode()


# -- translation of driver errors ----------------------------------------------------------------------------


UniqueViolation = errors.UniqueViolation
# Errors of CREATE that mean that another process is creating the same object.
ALREADY_THERE = (
    errors.UniqueViolation,
    errors.DuplicateSchema,
    errors.DuplicateTable,
    errors.DuplicateObject,
)
FULL_RETRY_S = 60


class CommitUnknown(NotCertain):
    """Raised if the connection was lost during a commit, so that it may or may not have happened."""


class LockWaitTimedOut(SpoolUnavailable):
    """Another session held a lock for longer than this session may wait."""


class Unconfirmed(NotCertain):
    """
    Raised if the transaction is committed but no standby confirmed it. If the primary is lost now, the commit
    is lost.
    """


class DiskIsFull(SpoolFull, SpoolUnavailable):
    """The disk of the database is full. Senders retry, and so do tasks that wait for the database."""


def translate_error(error: psycopg.Error) -> Exception:
    """
    Return the storage's error for a driver error. A constraint violation is returned unchanged, so that the
    caller can handle it.
    """
    if isinstance(error, errors.DiskFull):
        return DiskIsFull(
            "the disk of the database is full: free some space there", retry_after_s=FULL_RETRY_S
        )
    if isinstance(error, errors.LockNotAvailable):
        return LockWaitTimedOut(f"the database failed: {describe_error_in_one_line(error)}")
    if isinstance(error, psycopg.IntegrityError):
        return error
    if isinstance(error, psycopg.DataError):
        return Invalid(f"a value cannot be stored: {describe_error_in_one_line(error)}")
    return SpoolUnavailable(f"the database failed: {describe_error_in_one_line(error)}")


def describe_error_in_one_line(error: psycopg.Error) -> str:
    """
    Return the error as one line, without the statement and its values. The errors of several hosts are
    joined.
    """
    lines = str(error).splitlines() or [""]
    hosts = [line.removeprefix("- ") for line in lines if line.startswith("- host: ")]
    return error.diag.message_primary or " ".join("; ".join(hosts or lines[:1]).split())
