"""Output and exit codes of `tollhouse storage copy`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.storage import storage
from spool.clock import SystemClock
from spool.engines import open_storage
from spool.settings import SpoolSettings
from spool.storage import StorageOptions
from tests.spool.contract.examples import add, call


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Create a data directory with one record, not opened by a server."""

    async def fill() -> None:
        options = StorageOptions(
            directory=tmp_path / "source", settings=SpoolSettings(hold=0), clock=SystemClock()
        )
        opened = await open_storage(options)
        await add(opened.log, call(1))
        await opened.close()

    asyncio.run(fill())
    return tmp_path / "source"


def test_a_data_directory_is_copied_once(source: Path, tmp_path: Path) -> None:
    """A copy reports its number of records, and is refused into a directory that is not empty."""
    config = tmp_path / "tollhouse.toml"
    config.write_text(f'data_dir = "{tmp_path / "new"}"\n')
    command = ["copy", "--from", str(source), "--to-config", str(config), "--json"]
    done = CliRunner().invoke(storage, command)
    assert 0 == done.exit_code, done.output
    assert {"records": {"ai-telemetry": 1}, "routes": 0} == json.loads(done.stdout)
    again = CliRunner().invoke(storage, command)
    assert again.exit_code == 2
    assert "is not empty: copy into a new directory" in again.output
