"""Whether a registry was here before, as spool.sqlite remembers it: one that is gone is damage, not a first start."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from spool.clock import Clock
from spool.errors import RegistryDamaged
from spool.sqlite.database import Database
from spool.sqlite.directory import REGISTRY
from spool.sqlite.log import queries
from spool.sqlite.registry.store import BEGIN_ANEW

FACT = "registry"


async def check_expected(spool: Database, directory: Path) -> None:
    """RegistryDamaged if there was one and its file is gone or empty."""
    path = directory / REGISTRY
    if path.exists() and path.stat().st_size:
        return
    if await spool.read(_is_remembered):
        raise RegistryDamaged(f"{path} is missing. {BEGIN_ANEW}")


async def remember_registry(spool: Database) -> None:
    """The first time only: on a full disk a later start does it."""
    if await spool.read(_is_remembered):
        return
    try:
        await spool.transaction(lambda connection: connection.execute(queries.KEEP_FACT, (FACT, b"1")))
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_FULL:
            raise


def move_aside(directory: Path, clock: Clock) -> None:
    """A damaged one is kept under another name."""
    path = directory / REGISTRY
    aside = path.with_name(f"{REGISTRY}.damaged-{int(clock.now())}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))


def _is_remembered(connection: sqlite3.Connection) -> bool:
    return connection.execute(queries.FACT, (FACT,)).fetchone() is not None
