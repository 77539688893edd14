"""
Files that vanish under a running Tollhouse, and file systems in memory: no answer promises durability that
does not exist.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.monitoring import health as healths
from gateway.service.app import TollhouseApp
from tests.integration.conftest import Serve
from tests.integration.payloads import JSON, traces
from tests.rounds import part
from tests.small_disk import small_disk


@pytest.fixture(autouse=True)
def look_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healths, "CACHE_S", 0.0)


def remove(directory: Path, name: str) -> None:
    for file in directory.glob(f"{name}*"):
        file.unlink()


def replace(directory: Path, name: str) -> None:
    copy = directory / f"{name}.copy"
    copy.write_bytes((directory / name).read_bytes())
    copy.rename(directory / name)


def remove_log(directory: Path, name: str) -> None:
    (directory / f"{name}-wal").unlink()


@pytest.mark.parametrize("name", part(["spool.sqlite", "ledger.sqlite", "registry.sqlite"], every=3))
@pytest.mark.parametrize("how", [remove, replace, remove_log], ids=lambda how: how.__name__)
async def test_without_its_files_nothing_is_acknowledged(serve: Serve, name: str, how: Any) -> None:
    """
    If a data file is removed, replaced by a copy or loses its log, nothing is acknowledged: the next record gets
    503. The server is not ready and names the file.
    """
    serving = await serve()
    assert 200 == (await serving.send("/v1/traces", traces(JSON))).status
    how(serving.app.config.data_dir, name)
    for _ in range(3):
        answer = await serving.send("/v1/traces", traces(JSON))
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "1"
    async with serving.client.get(f"{serving.url}/readyz") as ready:
        (reason,) = (await ready.json())["reasons"]
    assert ready.status == 503
    assert reason.startswith(f"{name} was deleted or replaced")


async def test_files_that_come_back_are_used_again(serve: Serve) -> None:
    """Files that are moved away and back work again without a restart, and nothing is lost."""
    serving = await serve()
    directory = serving.app.config.data_dir
    aside = directory.with_name("aside")
    assert 200 == (await serving.send("/v1/traces", traces(JSON))).status
    directory.rename(aside)
    assert 503 == (await serving.send("/v1/traces", traces(JSON))).status
    aside.rename(directory)
    assert 200 == (await serving.send("/v1/traces", traces(JSON))).status
    books = await serving.app.services.storage.log.verify()
    assert [] == list(books.imbalances)


async def test_memory_is_not_called_a_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On tmpfs, the receipt, `/readyz`, the metrics and the log say that a reboot loses everything."""
    with small_disk(tmp_path / "disk", mib=128) as disk:
        app = TollhouseApp(
            Config(data_dir=disk / "data", server=ServerSettings(listen="127.0.0.1:0", grpc_listen="")),
            version="0",
        )
        await app.start()
        try:
            report = await app.services.single.health.build_report()
            assert report["ready"] is True
            assert report["storage"]["mount"] == "tmpfs"
            assert report["storage"]["durability"] == "memory"
            assert "deletes everything stored there" in report["storage"]["warning"]
            metrics = (await app.services.single.exposition.current_text()).decode()
            assert 'tollhouse_storage{durability="memory",mount="tmpfs"} 1.0' in metrics
            assert "storage_not_durable" in {getattr(record, "action", "") for record in caplog.records}
        finally:
            await app.stop()


async def test_the_receipt_names_what_it_has_survived(tmp_path: Path, serve: Serve) -> None:
    """The receipt says `durability=memory` if a flush reaches no device."""
    with small_disk(tmp_path / "data-0", mib=128):
        serving = await serve()
        assert os.path.ismount(tmp_path / "data-0")
        answer = await serving.send("/v1/traces", traces(JSON))
        assert answer.headers["Tollhouse-Receipt"].endswith("; durability=memory")
        await serving.app.stop()
