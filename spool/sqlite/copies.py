"""Copies of the files of a data directory, each of one moment, while they are written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from spool import installation
from spool.disks import flush_directory, flush_file, new_file
from spool.errors import SpoolDamaged
from spool.sqlite.container_contents import copy_contents
from spool.sqlite.directory import LEDGER, REGISTRY, SPOOL

# The ledger and the registry before the log: what they have counted or noted of it is in its copy, too.
FILES = (LEDGER, REGISTRY, SPOOL)


def copy_files(directory: Path, into: Path) -> None:
    """
    Copy everything that must be kept into an empty directory, flushed. Blocks for as long as it takes.

    Each copy is read through before it counts: SpoolDamaged if a file is not whole.
    """
    for name in FILES:
        if (directory / name).exists():
            _copy(directory / name, into / name)
    # Behind their rows: what is uploaded meanwhile has none in the copy, and what has one is there until it
    # left.
    copy_contents(directory, into)
    with new_file(into / installation.FILE) as secret:
        secret.write((directory / installation.FILE).read_bytes())
    flush_directory(into)


def _copy(file: Path, to: Path) -> None:
    with new_file(to):
        pass
    source = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    with closing(source), closing(sqlite3.connect(to)) as target:
        source.backup(target)  # in one step: in several it would begin again whenever somebody writes
        if target.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise SpoolDamaged(
                f"{file.name} is damaged and was not copied: restart Tollhouse, which salvages it"
            )
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    flush_file(to)
