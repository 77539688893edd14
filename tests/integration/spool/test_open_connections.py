"""A connection that was never closed must not keep the process from ending."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spool.clock import SystemClock
from spool.devices.table import DeviceTable
from spool.errors import SpoolUnavailable
from spool.settings import SpoolSettings
from spool.sqlite.spool import open_spool

LEFT_OPEN = """
import asyncio, pathlib, sys
from spool.sqlite.database import Database

async def main():
    global database  # not even collected before the end
    database = await Database.open(pathlib.Path(sys.argv[1]), lambda connection: None)
    raise SystemExit(3)

asyncio.run(main())
"""


def test_a_process_ends_with_a_connection_open(tmp_path: Path) -> None:
    """
    A process ends after a failure even if a connection was never closed, because the connection's thread does not
    keep the interpreter waiting.
    """
    done = subprocess.run([sys.executable, "-c", LEFT_OPEN, str(tmp_path / "some.sqlite")], timeout=60)
    assert 3 == done.returncode


async def test_a_part_that_does_not_close_keeps_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If closing a table fails, the error is reported. The file is closed and the lock is released nevertheless,
    so another process can use the directory.
    """

    async def fails(table: DeviceTable) -> None:
        raise SpoolUnavailable("no room for the devices")

    spool = await open_spool(tmp_path, settings=SpoolSettings(), clock=SystemClock())
    with monkeypatch.context() as patched:
        patched.setattr(DeviceTable, "close", fails)
        with pytest.raises(SpoolUnavailable):
            await spool.close()
    assert not spool.lock.is_held
    with pytest.raises(ValueError, match="closed"):
        await spool.log.stats()
    again = await open_spool(tmp_path, settings=SpoolSettings(), clock=SystemClock())
    await again.close()
