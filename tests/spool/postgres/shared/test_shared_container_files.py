"""Two processes on the files of container metrics: of two simultaneous changes of one row, one is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from spool.container_files.container_rows import ContainerFileMoved, TooManyFiles
from spool.container_files.files import ContainerFiles, ContainerUpload
from spool.container_files.values import (
    UPLOADED,
    AnnouncedFile,
    ClusterIdentity,
    ContainerFile,
    ContainerSender,
)
from spool.postgres.container_files import PostgresContainerFileContents, PostgresContainerRows
from spool.settings import ContainerSettings
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import migrated
from tests.spool.postgres_cluster import Schema

CLUSTER = ClusterIdentity("123456789012", "us-east-1", "prod")
AGENT = ContainerSender(key="agent")


@pytest.fixture
async def nodes(fresh_schema: Schema) -> AsyncIterator[tuple[ContainerFiles, ContainerFiles]]:
    async with migrated(fresh_schema) as database:
        rows, contents = PostgresContainerRows(database), PostgresContainerFileContents(database)
        opened = [
            await ContainerFiles.open(rows, contents, ContainerSettings(), MovedClock()) for _ in range(2)
        ]
        yield opened[0], opened[1]


async def announce(files: ContainerFiles, name: str) -> ContainerFile:
    [file] = await files.announce_files(
        CLUSTER, [AnnouncedFile(reference=name)], AGENT, expires_at=files._clock.now() + 60
    )
    return file


async def put(files: ContainerFiles, id: str, data: bytes) -> bool:
    upload = await files.begin_upload(id)
    await upload.write(data)
    return await upload.store_if_new()


async def test_one_file_announced_to_both(nodes: tuple[ContainerFiles, ContainerFiles]) -> None:
    """
    If one file is announced to both processes, the second announcement finds the row of the first, or must be
    repeated. The accounting counts one file.
    """
    here, there = nodes
    outcomes = await asyncio.gather(announce(here, "a"), announce(there, "a"), return_exceptions=True)
    assert all(isinstance(one, ContainerFile | ContainerFileMoved) for one in outcomes)
    assert (await announce(here, "a")).id == (await announce(there, "a")).id
    assert () == (await there.recount_accounting()).imbalances


async def test_one_file_uploaded_to_both(nodes: tuple[ContainerFiles, ContainerFiles]) -> None:
    """A file that is uploaded to both processes is stored once, with the bytes of one of the uploads."""
    here, there = nodes
    id = (await announce(here, "a")).id
    outcomes = await asyncio.gather(*(put(node, id, b"metrics") for node in nodes), return_exceptions=True)
    assert 1 == sum(one is True for one in outcomes)
    file = await there.rows.find(id)
    assert file is not None and (UPLOADED, 7) == (file.state, file.size)
    assert [b"metrics"] == [piece async for piece in there.contents.read(id)]
    assert () == (await here.recount_accounting()).imbalances


async def test_second_upload_over_an_acknowledged_one_must_be_repeated(
    nodes: tuple[ContainerFiles, ContainerFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If a second upload has replaced the bytes of the first, which is already acknowledged, the second upload
    must be repeated.
    """
    here, there = nodes
    id = (await announce(here, "a")).id
    first, second = await here.begin_upload(id), await there.begin_upload(id)
    assert isinstance(second, ContainerUpload)
    for upload in (first, second):
        await upload.write(b"metrics")
    keep = second.draft.store_draft

    async def keep_late() -> None:
        assert await first.store_if_new()
        await keep()

    monkeypatch.setattr(second.draft, "store_draft", keep_late)
    with pytest.raises(ContainerFileMoved):
        await second.store_if_new()
    await second.discard_upload()
    assert [b"metrics"] == [piece async for piece in there.contents.read(id)]


async def test_a_row_that_is_not_what_was_read(nodes: tuple[ContainerFiles, ContainerFiles]) -> None:
    """If the row of a file has changed since it was read, nothing is written, not even the accounting."""
    here, there = nodes
    file = await announce(here, "a")
    await here.rows.write([(file, replace(file, problem="one"))], [], [])
    with pytest.raises(ContainerFileMoved):
        await there.rows.write([(file, replace(file, problem="two"))], [], [])
    with pytest.raises(ContainerFileMoved):
        await there.rows.write([], [file], [])
    kept = await there.rows.find(file.id)
    assert kept is not None and "one" == kept.problem


async def test_no_more_files_than_may_be_on_all_together(fresh_schema: Schema) -> None:
    """Files that are announced to both processes at once are counted in the database."""
    settings = ContainerSettings(max_files=8)
    async with migrated(fresh_schema) as database:
        rows, contents = PostgresContainerRows(database), PostgresContainerFileContents(database)
        nodes = [await ContainerFiles.open(rows, contents, settings, MovedClock()) for _ in range(2)]

        async def announced(place: int, n: int) -> None:
            # each key announces so few files that it stays within its share
            by = ContainerSender(key=f"{place}-{n // 2}")
            file = AnnouncedFile(reference=f"{place}-{n}")
            await nodes[place].announce_files(CLUSTER, [file], by, expires_at=nodes[place]._clock.now() + 60)

        outcomes = await asyncio.gather(
            *(announced(n % 2, n // 2) for n in range(10)), return_exceptions=True
        )
        assert [None] * 8 == [one for one in outcomes if one is None]
        assert 2 == sum(isinstance(one, TooManyFiles) for one in outcomes)
        assert 8 == sum((await rows.counts_by_state()).values())
        assert () == (await nodes[0].recount_accounting()).imbalances
