"""
Tollhouse with one broken promise, so that tests prove they detect it: `python -m tests.faults.broken.mutants NAME`

Each mutant is a function that patches one place before the command starts. The product has no code for mutants.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import exporters.record_file
import spool.installation
import spool.sqlite.damage.notes
import spool.sqlite.database
import spool.sqlite.recovery
from exporters.record_file import FileExporter
from exporters.route_loop import RouteLoop
from gateway.cli import main
from spool.deliveries.values import Delivery, Settlement
from spool.log.commits.writer import GroupCommitWriter
from spool.log.values import Receipt


def synchronous_normal() -> None:
    """Flush the write-ahead log only when it is moved into the database file."""
    _set_synchronous("NORMAL")


def synchronous_off() -> None:
    _set_synchronous("OFF")


def _set_synchronous(mode: str) -> None:
    settings = spool.sqlite.database.SETTINGS
    changed = tuple(one.replace("synchronous = FULL", f"synchronous = {mode}") for one in settings)
    assert changed != settings
    spool.sqlite.database.SETTINGS = changed  # type: ignore[assignment]


def answer_before_commit() -> None:
    """Answer 2xx to a sender before its commit."""
    real = GroupCommitWriter._commit_and_answer

    async def answer(self: GroupCommitWriter, group: Any) -> None:
        for one in group:
            if not one.receipt.done():
                one.receipt.set_result(Receipt(id="early", records=1, ignored=0, rejected=0))
        await asyncio.sleep(0.1)
        await real(self, group)

    GroupCommitWriter._commit_and_answer = answer  # type: ignore[method-assign]


def settle_before_send() -> None:
    real = RouteLoop._send_delivery

    async def send(self: RouteLoop, delivery: Delivery) -> Settlement:
        await self._deliveries.store_settlement(delivery, Settlement(delivered=delivery.count))
        return await real(self, delivery)

    RouteLoop._send_delivery = send  # type: ignore[method-assign]


def no_mark() -> None:
    """Append to a record file without a durable note of where the lines start."""

    async def prepare(self: FileExporter, delivery: Delivery) -> None:
        return None

    FileExporter.prepare_delivery_mark = prepare  # type: ignore[method-assign]


def no_directory_sync() -> None:
    """Do not flush directories, so new names of record files, secrets and other files may vanish."""
    real = os.fsync

    def sync(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            real(descriptor)

    os.fsync = sync  # type: ignore[assignment]


def no_archive_directory_sync() -> None:
    exporters.record_file.flush_directory = lambda directory: None  # type: ignore[attr-defined]


def unsynced_secret() -> None:
    spool.installation.create_flushed_file = lambda path: path.open("xb")  # type: ignore[assignment, attr-defined, return-value]


def unsynced_marker() -> None:
    """Do not flush the marker of a damaged spool, nor the move of the damaged file."""
    spool.sqlite.damage.notes.write_durably = lambda path, text: path.write_text(text)  # type: ignore[assignment, attr-defined]
    spool.sqlite.damage.notes.flush_directory = lambda directory: None  # type: ignore[attr-defined]
    spool.sqlite.recovery.flush_directory = lambda directory: None  # type: ignore[attr-defined]


def unsynced_archive() -> None:
    exporters.record_file.os = _without_sync()  # type: ignore[assignment, attr-defined]


def _without_sync() -> SimpleNamespace:
    return SimpleNamespace(**{**vars(os), "fsync": lambda descriptor: None})


def registry_not_durable() -> None:
    real = spool.sqlite.database._connect_to_write

    def connect(path: Path, *, durable: bool) -> sqlite3.Connection:
        return real(path, durable=durable and path.name != "registry.sqlite")

    spool.sqlite.database._connect_to_write = connect


MUTANTS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        synchronous_normal,
        synchronous_off,
        answer_before_commit,
        settle_before_send,
        no_mark,
        no_directory_sync,
        no_archive_directory_sync,
        unsynced_secret,
        unsynced_archive,
        unsynced_marker,
        registry_not_durable,
    )
}


def command(name: str) -> tuple[str, ...]:
    """Return the command that starts a mutant instead of `tollhouse`."""
    return sys.executable, "-m", "tests.faults.broken.mutants", name


if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    main()
