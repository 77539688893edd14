"""Files that vanish under a running Tollhouse, and file systems that keep nothing: no 2xx for what will be gone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gateway.service.app import App
from gateway.service.configuration.sections import Config, ServerSettings
from gateway.service.monitoring import health as healths
from tests.integration.conftest import Serve
from tests.integration.payloads import JSON, traces
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


@pytest.mark.parametrize("name", ["spool.sqlite", "ledger.sqlite", "registry.sqlite"])
@pytest.mark.parametrize("how", [remove, replace, remove_log], ids=lambda how: how.__name__)
async def test_without_its_files_nothing_is_acknowledged(serve: Serve, name: str, how: Any) -> None:
    """
    Removed, replaced by a copy or without its log: 503 from the next record on, not ready, and the file is named.
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
    """Moved away and moved back, they are the same files: no restart is needed, and nothing was lost."""
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
    """On tmpfs the receipt, `/readyz`, the metrics and the log say that a restart of the machine takes everything."""
    with small_disk(tmp_path / "disk", mib=128) as disk:
        app = App(
            Config(data_dir=disk / "data", server=ServerSettings(listen="127.0.0.1:0", grpc_listen="")),
            version="0",
        )
        await app.start()
        try:
            report = await app.services.status.health.report()
            assert report["ready"] is True
            assert report["storage"]["mount"] == "tmpfs"
            assert report["storage"]["durability"] == "memory"
            assert "gone after a restart" in report["storage"]["warning"]
            metrics = (await app.services.status.exposition.text()).decode()
            assert 'tollhouse_storage{durability="memory",mount="tmpfs"} 1.0' in metrics
            assert "storage_not_durable" in {getattr(record, "action", "") for record in caplog.records}
        finally:
            await app.stop()


async def test_the_receipt_names_what_it_has_survived(tmp_path: Path, serve: Serve) -> None:
    """`durability=memory` where a flush reaches no device."""
    with small_disk(tmp_path / "data-0", mib=128):
        serving = await serve()
        assert os.path.ismount(tmp_path / "data-0")
        answer = await serving.send("/v1/traces", traces(JSON))
        assert answer.headers["Tollhouse-Receipt"].endswith("; durability=memory")
        await serving.app.stop()
