"""`tollhouse doctor` tries a table of ClickHouse as `check` does, and says how to mend it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.doctor.command import doctor
from tests.exporters.clickhouse.server import Table, served


@pytest.mark.parametrize(
    ("columns", "status", "words"),
    [(True, "ok", "with ReplacingMergeTree"), (False, "problem", "there is no table ai_telemetry")],
)
def test_a_table_is_tried(columns: bool, status: str, words: str, tmp_path: Path) -> None:
    """A table that is missing is a problem of the destination, before a record waits for it."""
    table, file = Table(), tmp_path / "tollhouse.toml"
    if not columns:
        table.columns = {}

    async def tried() -> Result:
        async with served(table) as url:
            destination = f'[[destinations]]\nname = "house"\ntype = "clickhouse"\nurl = "{url}"\n'
            file.write_text(f'data_dir = "{tmp_path}/data"\n{destination}')
            return await asyncio.to_thread(CliRunner().invoke, doctor, ["--config", str(file), "--json"])

    [found] = [
        each
        for each in json.loads(asyncio.run(tried()).stdout)["doctor"]["found"]
        if each["about"] == "destination house"
    ]
    assert (status, True) == (found["status"], words in found["words"]), found
    assert [] == table.inserts
