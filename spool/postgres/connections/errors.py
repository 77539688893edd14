"""What PostgreSQL's and libpq's errors mean to a caller: those of spool/errors.py, by whose move is next."""

from __future__ import annotations

import psycopg
from psycopg import errors

from spool.errors import Invalid, NotCertain, SpoolFull, SpoolUnavailable

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
