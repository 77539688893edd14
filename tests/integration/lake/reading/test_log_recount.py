"""
`lake verify --data` computes each delivery's digest again from the log, as long as the log has its records.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace as changed

from exporters.lake.past import log_recount
from exporters.lake.past.log_recount import LogRecount
from exporters.lake.stores import FolderStore
from exporters.lake.watch import compare_with_store
from gateway.cli.lake.command import lake as command
from spool.deliveries.protocols import LANDINGS, LakeRecount
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, Record
from tests.exporters.spools import calls, counter
from tests.integration.lake.lakes import ROUTE, House, configured, opened
from tests.rounds import part

RECORDS: Sequence[Record] = [*calls(1, 29, cost="0.1", cost_source="reported"), counter(30)]


def fill(directory: Path, format: str = "parquet") -> None:
    """Land three deliveries of ten records."""

    async def land() -> None:
        fields: dict[str, Any] = {"path": directory / "lake", "format": format}
        async with opened(directory / "data") as house, house.forwarding(**fields):
            await house.add(RECORDS)
            await house.until(queued=0)

    asyncio.run(land())
    configured(directory, format=format)


def verified(directory: Path, *words: str) -> dict[str, Any]:
    config = str(directory / "tollhouse.toml")
    result = CliRunner().invoke(command, ["verify", "--config", config, "--json", *words])
    found: dict[str, Any] = json.loads(result.stdout)
    assert (1 if found["differences"] else 0) == result.exit_code
    return found


class ChangedLog:
    """A log that begins at a number and has another amount in one record."""

    def __init__(self, house: House, *, first: int = 1, number: int = 0) -> None:
        self._log = house.storage.log
        self._first = first
        self._number = number

    async def read(self, topic: str, first_number: int, last_number: int, **_: object) -> list[LogEntry]:
        entries = []
        for entry in await self._log.read(topic, max(first_number, self._first), last_number):
            records: list[Any] = list(entry.records)
            place = self._number - entry.first
            if 0 <= place < len(records):
                records[place] = changed(records[place], cost="0.2")
            entries.append(replace(entry, records=records))
        return entries


@pytest.mark.parametrize("format", part(["parquet", "ndjson", "focus"], every=2))
@pytest.mark.parametrize("most", part([1, 500_000], every=2))
def test_a_sound_lake_is_what_the_log_gives(
    tmp_path: Path, format: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sound lake has the log's digests, in every format and with any number of read steps."""
    monkeypatch.setattr(log_recount, "MOST_NUMBERS", most)
    fill(tmp_path, format)
    found = verified(tmp_path, "--data")
    assert found["log"] == "3 deliveries compared"
    assert found["differences"] == []
    assert 1 == len(found["editions"])


def test_a_part_of_a_lake_is_not_compared(tmp_path: Path) -> None:
    """A sample of files, footers only, and a lake without its accounting are not compared."""
    fill(tmp_path)
    for words in (["--data", "--sample", "50%"], ["--footers"], ["--data", "--without-books"]):
        assert "log" not in verified(tmp_path, *words)


async def test_a_delivery_of_other_rows_than_the_log_has_is_named(tmp_path: Path) -> None:
    """
    A delivery whose records the log has only in part, or no more, is skipped. Any starting number is
    valid, however large.
    """
    await asyncio.to_thread(fill, tmp_path)
    async with opened(tmp_path / "data") as house:

        async def found(after: int = 0, **options: int) -> LakeRecount:
            log: Any = ChangedLog(house, **options)
            landings = house.storage.small.open_table(LANDINGS)
            each = LogRecount(landings=landings, log=log, destination="lake", topic=AI_TELEMETRY)
            return await each.compare_deliveries(after)

        async def compared(after: int = 0, **options: int) -> tuple[int, list[str]]:
            one = await found(after, **options)
            return one.compared, [name[-30:] for name in one.differs]

        assert (3, []) == await compared()
        assert (3, ["000000000011-000000000020.json"]) == await compared(number=15)
        assert (1, []) == await compared(first=12)
        assert (0, []) == await compared(first=40)
        assert (1, []) == await compared(after=11)
        assert (0, []) == await compared(after=10**30)


def test_an_edition_that_the_log_never_had_is_named(tmp_path: Path) -> None:
    """The command and the server's own check both report an edition that the log never had."""
    fill(tmp_path)
    lake = tmp_path / "lake"
    kept = sorted(lake.glob("_manifest/*/*/*.json"))[0]
    made = json.loads(kept.read_bytes()) | {"edition": "0" * 8, "files": []}
    other = kept.parent.with_name("0" * 8) / kept.name
    other.parent.mkdir()
    other.write_text(json.dumps(made))
    found = {each["kind"]: each["name"] for each in verified(tmp_path, "--data")["differences"]}
    assert {"edition": "0" * 8} == found

    async def seen() -> list[str]:
        async with opened(tmp_path / "data") as house:
            return [
                each.kind
                for each in (await compare_with_store(FolderStore(lake), house.context(), ROUTE)).differences
            ]

    assert ["edition"] == asyncio.run(seen())
