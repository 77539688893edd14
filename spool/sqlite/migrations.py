"""
Versions of the files of a data directory: each migration is one transaction that also moves `user_version`.

A process killed in the middle of one finds the file at the version before it, and runs it again. A new file is
brought to the newest version in one.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from spool.errors import SpoolFromTheFuture
from spool.sqlite.damage.write_ahead_log import newest_page
from spool.sqlite.database import PAGE, damage
from spool.sqlite.directory import LEDGER, REGISTRY, SPOOL

# The files of schema/ that make each version. What was released stays as it is: a change is a version at the end.
VERSIONS: Mapping[str, Sequence[Sequence[str]]] = {
    SPOOL: (
        (
            "log.sql",
            "deliveries.sql",
            "partial_reports.sql",
            "devices.sql",
            "streams.sql",
            "billing.sql",
            "container_files.sql",
        ),
    ),
    REGISTRY: (("registry.sql",),),
    LEDGER: (("ledger.sql",),),
}
MARK = 0x546F6C00  # "Tol", then the version
# Places in the header of a database file: of `user_version` and of `application_id`.
VERSION_AT, MARK_AT, HEADER_BYTES = 60, 68, 100


def script(name: str) -> str:
    """Return the text of an SQL file in schema/."""
    return files(__package__).joinpath("schema", name).read_text("utf-8")


@cache
def statements(file: str) -> Sequence[str]:
    """Return the statements of each version of a file of the data directory."""
    return tuple("\n".join(map(script, names)) for names in VERSIONS[file])


def migrate(connection: sqlite3.Connection, versions: Sequence[str]) -> None:
    """
    Bring the file to version len(versions); SpoolFromTheFuture when it is beyond that.

    The number stands in two places of the header, so that a flipped bit there is damage and not another version.
    """
    current = version(connection)
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if mark != (MARK + current if current else 0) or (tables and not current):
        raise damage("the header of the file names a version that it does not have")
    _check_known(current, len(versions))
    for number, statements in _steps(current, versions):
        # executescript would commit an open transaction first, so the transaction is part of the script.
        try:
            numbered = f"PRAGMA user_version = {number}; PRAGMA application_id = {MARK + number};"
            connection.executescript(f"BEGIN IMMEDIATE;\n{statements}\n;{numbered}\nCOMMIT;")
        except sqlite3.OperationalError as error:
            _roll_back(connection)
            if str(error).endswith("already exists"):
                raise damage(f"the file is newer than its header says: {error}") from error
            raise
        except BaseException:
            _roll_back(connection)
            raise


def check_not_newer(path: Path, known: int) -> None:
    """
    SpoolFromTheFuture if a release that knows more versions wrote the file. The file is read without SQLite, which
    writes into a database that it opens, and makes files beside it.
    """
    try:
        header = newest_page(path.with_name(f"{path.name}-wal"), PAGE, 1)
        if not header:
            with path.open("rb") as file:
                header = file.read(HEADER_BYTES)
    except OSError:  # whoever opens it says what is wrong
        return
    if len(header) >= HEADER_BYTES:
        (current,), (mark,) = (struct.unpack_from(">I", header, at) for at in (VERSION_AT, MARK_AT))
        if mark == MARK + current:
            _check_known(current, known)


def _check_known(current: int, known: int) -> None:
    if current > known:
        raise SpoolFromTheFuture(
            f"the data was written by a newer Tollhouse (version {current}, this one knows {known}): "
            "upgrade, or restore a backup from before the upgrade"
        )


def _steps(found: int, versions: Sequence[str]) -> list[tuple[int, str]]:
    """The versions that the file does not have, each with its number: a new file gets them all at once."""
    if not found and versions:
        return [(len(versions), ";\n".join(versions))]
    return list(enumerate(versions[found:], start=found + 1))


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def version(connection: sqlite3.Connection) -> int:
    number: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return number
