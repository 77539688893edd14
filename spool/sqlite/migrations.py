"""
Versions of a database file: each migration is one transaction that also moves `user_version`.

A process killed in the middle of one finds the file at the version before it, and runs it again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from importlib.resources import files

from spool.errors import SpoolFromTheFuture


def script(name: str) -> str:
    """The text of an SQL file beside this module."""
    return files(__package__).joinpath(name).read_text("utf-8")


def migrate(connection: sqlite3.Connection, versions: Sequence[str]) -> None:
    """Bring the file to version len(versions); SpoolFromTheFuture when it is beyond that."""
    found = version(connection)
    if found > len(versions):
        raise SpoolFromTheFuture(
            f"the data was written by a newer Tollhouse (version {found}, this one knows {len(versions)}): "
            "upgrade, or restore a backup from before the upgrade"
        )
    for number, statements in enumerate(versions[found:], start=found + 1):
        # executescript would commit an open transaction first, so the transaction is part of the script.
        try:
            connection.executescript(f"BEGIN IMMEDIATE;\n{statements}\n;PRAGMA user_version = {number};\nCOMMIT;")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def version(connection: sqlite3.Connection) -> int:
    number: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return number
