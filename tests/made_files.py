"""Copies of migrated SQLite files, for tests that start many servers and do not test migrations."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence

import pytest

from spool.sqlite import ledger, recovery, registry
from spool.sqlite.database import PAGE
from spool.sqlite.migrations import migrate, schema_version


class MadeFiles:
    """Empty, migrated databases of each kind, kept in memory."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], sqlite3.Connection] = {}
        self._lock = threading.Lock()

    def migrate(self, connection: sqlite3.Connection, versions: Sequence[str]) -> None:
        """Copy the tables into a new file. A file that already has a version or a table is migrated as usual."""
        if schema_version(connection) or connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
            migrate(connection, versions)
            return
        with self._lock:
            self._of(tuple(versions)).backup(connection)

    def _of(self, versions: tuple[str, ...]) -> sqlite3.Connection:
        if versions not in self._made:
            made = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            made.execute(f"PRAGMA page_size = {PAGE}")
            made.execute("PRAGMA auto_vacuum = INCREMENTAL")
            migrate(made, versions)
            self._made[versions] = made
        return self._made[versions]

    def close(self) -> None:
        for made in self._made.values():
            made.close()


@pytest.fixture(autouse=True, scope="package")
def made_files() -> Iterator[None]:
    """
    Open new storage with copied tables, because creating tables takes most of the processor time of an opening.
    """
    files = MadeFiles()
    with pytest.MonkeyPatch.context() as patch:
        for module in (recovery, registry, ledger):
            patch.setattr(module, "migrate", files.migrate)
        yield
    files.close()
