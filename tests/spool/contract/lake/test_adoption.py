"""`tollhouse lake adopt` on every engine: a copy that is behind its lake gets back what it never had."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from exporters.lake.past.adoption import LakeAdoption
from exporters.lake.stores import Folder
from spool.deliveries.protocols import LANDINGS
from spool.deliveries.values import PARKED
from spool.engines import MEMORY, open_storage
from spool.record import AI_TELEMETRY
from spool.storage import Storage, StorageOptions
from tests.exporters.spools import calls
from tests.integration.lake.lakes import ROUTE, House, begin_copy, opened, query


@asynccontextmanager
async def opened_copy(options: StorageOptions) -> AsyncIterator[House]:
    storage = await open_storage(options, engine=options.storage.engine)
    try:
        yield House(storage, options.clock, options.directory)
    finally:
        await storage.close()


async def ahead(directory: Path, lake: Path, edition: str, copy: Storage) -> None:
    """An original of the same edition and identity that brought 1 to 20 into the lake."""
    begin_copy(directory, copy)
    async with opened(directory) as house:
        await house.storage.small.of(LANDINGS).editions(ROUTE, 1)
    connection = sqlite3.connect(directory / "spool.sqlite")
    with connection:
        connection.execute("UPDATE lake_editions SET edition = ?", (edition,))
    connection.close()
    async with opened(directory) as house, house.forwarding(path=lake):
        await house.add(calls(1, 20))
        await house.until(queued=0)


def adoption(house: House, lake: Path, scratch: Path) -> LakeAdoption:
    storage = house.storage
    return LakeAdoption(
        store=Folder(lake),
        landings=storage.small.of(LANDINGS),
        deliveries=storage.deliveries,
        log=storage.log,
        reports=storage.partial_reports,
        clock=house.clock,
        destination="lake",
        writer=1,
        batch_records=10,
        directory=scratch,
    )


@pytest.mark.asyncio
async def test_a_copy_adopts_its_lake(options: StorageOptions, tmp_path: Path) -> None:
    """What it never had comes back under its ids, the lake gets no record twice, and its route goes on."""
    if options.storage.engine == MEMORY:
        pytest.skip("a storage in memory ends with its process: it is never restored")
    lake, scratch = tmp_path / "lake-files", tmp_path / "scratch"
    scratch.mkdir()
    async with opened_copy(options) as house:
        await house.add(calls(1, 10))
        async with house.forwarding(path=tmp_path / "elsewhere"):
            await house.until(queued=0)
        landings = house.storage.small.of(LANDINGS)
        (edition,) = await landings.editions(ROUTE, 1)
        await ahead(tmp_path / "original", lake, edition, house.storage)
        await landings.begin_edition()
        await house.add(calls(31, 35))
        async with house.forwarding(path=lake):
            state = await house.until(state=PARKED)
        assert state.reason is not None and "numbers 11 to 20" in state.reason
        done = await adoption(house, lake, scratch).run(leave=False, dry_run=False)
        assert done.settled == 0
        assert done.brought == 10
        assert done.known == 0
        assert done.left == 0
        async with house.forwarding(path=lake):
            await house.add(calls(41, 45))
            await house.until(queued=0)
        assert 30 == (await house.terms())["delivered"]
        again = await adoption(house, lake, scratch).run(leave=False, dry_run=False)
        assert again.settled == 0
        assert again.brought == 0
        assert again.known == 0
        assert again.left == 0
        entries = await house.storage.log.read(AI_TELEMETRY, 1, 100)
        ids = [record.id for entry in entries for record in entry.records if record is not None]
        assert 30 == len(ids) == len(set(ids))
    assert [(30, 30)] == query(lake, "SELECT count(*), count(DISTINCT id) FROM lake")
