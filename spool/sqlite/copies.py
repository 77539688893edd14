"""Copies of the files of a data directory while they are in use. Each copy is a consistent snapshot."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from spool import installation
from spool.disks import create_flushed_file, flush_directory, flush_file
from spool.errors import SpoolDamaged
from spool.sqlite.container_contents import copy_contents
from spool.sqlite.directory import LEDGER, REGISTRY, SPOOL

# The order of copying. The copy of the log then has everything to which the ledger and the registry refer.
FILES = (LEDGER, REGISTRY, SPOOL)


def copy_files(directory: Path, into: Path) -> None:
    """
    Copy the files into an empty directory and flush them. This blocks. Raises SpoolDamaged if a file is
    damaged.
    """
    for name in FILES:
        if (directory / name).exists():
            _copy_database(directory / name, into / name)
    # A file that is uploaded in between has no row in the copy, and one that has a row exists until it is
    # sent.
    copy_contents(directory, into)
    with create_flushed_file(into / installation.FILE) as secret:
        secret.write((directory / installation.FILE).read_bytes())
    flush_directory(into)


def _copy_database(file: Path, to: Path) -> None:
    with create_flushed_file(to):
        pass
    source = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    with closing(source), closing(sqlite3.connect(to)) as target:
        # a copy in several steps starts over after each write
        source.backup(target)
        if target.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise SpoolDamaged(f"{file.name} is damaged and was not copied: restart Tollhouse to salvage it")
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    flush_file(to)
