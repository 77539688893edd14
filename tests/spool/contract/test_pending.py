"""Waiting halves, on SQLite and in memory: kept under a key, replaced, forgotten, found again in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from spool.errors import SpoolUnavailable
from spool.memory.pending import MemoryPending
from spool.pending import Kept, Pending
from spool.sqlite.database import Database
from spool.sqlite.pending import SqlitePending

pytestmark = pytest.mark.asyncio

OLD, NEW = Kept(b"old", 1.0, b"\x00half"), Kept(b"new", 2.5, b"other half")


@pytest_asyncio.fixture(params=["sqlite", "memory"])
async def pending(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pending]:
    if request.param == "memory":
        yield MemoryPending()
        return
    database = await Database.open(tmp_path / "spool.sqlite", lambda _: None)
    yield await SqlitePending.open(database)
    await database.close()


async def test_what_was_put_is_loaded_oldest_first(pending: Pending) -> None:
    """In the order in which its time runs out."""
    await pending.put([NEW, OLD])
    assert [OLD, NEW] == list(await pending.load())


async def test_a_half_that_says_more_takes_the_place(pending: Pending) -> None:
    """One row a key."""
    await pending.put([OLD])
    await pending.put([Kept(b"old", 3.0, b"more")])
    assert [Kept(b"old", 3.0, b"more")] == list(await pending.load())


async def test_what_is_forgotten_is_gone_and_may_be_forgotten_again(pending: Pending) -> None:
    """Nothing to put or forget is no work."""
    await pending.put([OLD, NEW])
    for keys in ([b"old", b"never"], [b"old"], []):
        await pending.forget(keys)
    await pending.put([])
    assert [NEW] == list(await pending.load())


async def test_halves_outlive_the_process(tmp_path: Path) -> None:
    """Opened again, the file still has them."""
    for _ in range(2):
        database = await Database.open(tmp_path / "spool.sqlite", lambda _: None)
        pending = await SqlitePending.open(database)
        await pending.put([OLD])
        await database.close()
    database = await Database.open(tmp_path / "spool.sqlite", lambda _: None)
    assert [OLD] == list(await (await SqlitePending.open(database)).load())
    await database.close()


async def test_a_file_that_cannot_be_written_is_the_houses_503(tmp_path: Path) -> None:
    """Not an error of the library."""
    database = await Database.open(tmp_path / "spool.sqlite", lambda _: None)
    pending = await SqlitePending.open(database)
    await database.transaction(lambda connection: connection.execute("DROP TABLE pending").close())
    with pytest.raises(SpoolUnavailable):
        await pending.put([OLD])
    await database.close()
