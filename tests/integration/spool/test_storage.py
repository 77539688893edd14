"""The whole storage of a data directory: opened and closed together, and a damaged part takes no other along."""

from __future__ import annotations

from pathlib import Path

import pytest

from spool.clock import SystemClock
from spool.engines import open_storage
from spool.errors import SpoolLocked
from spool.registry.operators import Actor
from spool.registry.scopes import INGEST
from spool.settings import SpoolSettings
from spool.storage import StorageOptions


def options(directory: Path) -> StorageOptions:
    return StorageOptions(directory=directory, settings=SpoolSettings(), clock=SystemClock())


@pytest.mark.asyncio
async def test_one_process_has_it_until_it_is_closed(tmp_path: Path) -> None:
    """The second opening is refused; after the close all that was kept is there."""
    storage = await open_storage(options(tmp_path))
    with pytest.raises(SpoolLocked):
        await open_storage(options(tmp_path))
    assert storage.registry is not None
    await storage.registry.keys.create(name="search", scopes=[INGEST], actor=Actor("ada", "local"))
    await storage.close()
    again = await open_storage(options(tmp_path))
    assert again.registry is not None
    assert ["search"] == [key.name for key in again.registry.keys.all()]
    assert (storage.secret, storage.incarnation) == (again.secret, again.incarnation)
    await again.close()


@pytest.mark.asyncio
async def test_a_damaged_registry_takes_nothing_along(tmp_path: Path) -> None:
    """The log and the ledger are open, the registry is None, and the problem names the file."""
    await (await open_storage(options(tmp_path))).close()
    for path in tmp_path.glob("registry.sqlite*"):
        path.write_bytes(b"not a database" * 1000)
    storage = await open_storage(options(tmp_path))
    assert storage.registry is None
    assert "registry.sqlite is damaged" in storage.registry_problem
    assert 0 == (await storage.ledger.state()).rows
    await storage.close()


@pytest.mark.asyncio
async def test_what_fails_to_open_leaves_nothing_open(tmp_path: Path) -> None:
    """The ledger cannot be opened: the data directory is free again."""
    (tmp_path / "ledger.sqlite").mkdir()
    with pytest.raises(OSError, match=r"ledger\.sqlite"):
        await open_storage(options(tmp_path))
    (tmp_path / "ledger.sqlite").rmdir()
    await (await open_storage(options(tmp_path))).close()
