"""What is connected to, and what each session there is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

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
