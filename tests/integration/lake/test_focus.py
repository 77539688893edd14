"""FOCUS files in a lake: hourly charges with the same proofs as all other files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from exporters.destinations.catalogue import destination_secret
from exporters.lake import names
from exporters.lake.destination import open_store, settings_problems
from exporters.lake.repair import LakeRepair
from exporters.lake.stores import LakeStore
from exporters.lake.verification import DATA, VerifiedLake, read_manifests, verify_files
from exporters.lake.watch import compare_with_store
from exporters.settings import DestinationSettings
from gateway.cli.lake.command import lake as command
from gateway.configuration.sections import Config
from gateway.service.assembly.lakes import past_records
from spool.deliveries.protocols import LANDINGS
from spool.record import NS, Record
from tests.exporters.spools import call, counter
from tests.integration.lake import victim
from tests.integration.lake.lakes import ROUTE, House, begin_copy, configured, opened
from tests.integration.lake.s3 import BUCKET
from tests.rounds import part

FORMATS = {"focus": "focus.csv.zst", "focus-parquet": "focus.parquet"}
AT_NS = 1_790_000_000 * NS  # 2026-09-21
DAY_NS = 24 * 3600 * NS
PAID: dict[str, Any] = {"cost": "0.1", "cost_source": "reported", "provider": "openai"}
SECRET = "ada-7b2c"


def records() -> list[Record]:
    """Return 25 records of two days. One of them is kept for reference and in no charge."""
    found: list[Record] = [call(n, start_time=AT_NS, team="a", user=SECRET, **PAID) for n in range(1, 21)]
    found += [call(n, start_time=AT_NS + DAY_NS, team="=b", **PAID) for n in range(21, 24)]
    return [*found, call(24, start_time=AT_NS, shadow=True, **PAID), counter(25, start_time=AT_NS)]


@dataclass
class Lake:
    house: House
    store: LakeStore
    fields: dict[str, Any]
    scratch: Path

    async def verified(self) -> VerifiedLake:
        self.scratch.mkdir(exist_ok=True)
        read = read_manifests(self.store, "lake", self.scratch)
        return await verify_files(self.store, read, level=DATA, scratch=self.scratch)

    async def files(self) -> list[str]:
        return [each.name async for each in self.store.list_objects(names.DATA)]

    async def charges(self) -> list[tuple[Any, ...]]:
        """Return the sums that DuckDB reads from the files."""
        self.scratch.mkdir(exist_ok=True)
        for place, name in enumerate(await self.files()):
            await self.store.fetch(name, self.scratch / f"{place}.{name.partition('.')[2]}")
        ending = FORMATS[self.fields["format"]]
        read = "read_parquet" if ending.endswith("parquet") else "read_csv"
        options = "" if ending.endswith("parquet") else ", all_varchar = true"
        found: list[tuple[Any, ...]] = duckdb.sql(
            f"SELECT SubAccountId, sum(BilledCost::DECIMAL(38,18)), sum(x_Calls::BIGINT), min(x_Records)"
            f" FROM {read}('{self.scratch}/*.{ending}'{options}) GROUP BY ALL ORDER BY 1 NULLS LAST"
        ).fetchall()
        return found


def in_s3(directory: Path, address: str, prefix: str) -> dict[str, Any]:
    """Return the settings of a lake in the S3 server."""
    (directory / "secret").write_text("testing\ntesting-secret\n")
    url = f"s3://{BUCKET}/{prefix}"
    return {"type": "s3", "url": url, "endpoint": address, "secret_file": directory / "secret"}


@asynccontextmanager
async def filled(tmp_path: Path, **settings: Any) -> AsyncIterator[Lake]:
    fields = {"type": "file", "path": tmp_path / "lake", "batch_records": 100, **settings}
    destination = DestinationSettings(name="lake", **fields)
    async with opened(tmp_path / "data") as house:
        async with house.forwarding(**fields):
            await house.add(records())
            await house.until(queued=0)
        yield Lake(
            house, open_store(destination, destination_secret(destination)), fields, tmp_path / "scratch"
        )


@pytest.mark.parametrize("format", list(FORMATS))
@pytest.mark.parametrize("place", part(["folder", "s3"], every=2))
async def test_charges_are_in_a_lake_once(
    place: str, format: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """
    Each day of usage has a file. Costs and calls equal those of the records. Neither a verification of the
    lake nor a recount finds a difference.
    """
    fields: dict[str, Any] = {"format": format}
    if place == "s3":
        fields |= {"path": None, **in_s3(tmp_path, request.getfixturevalue("s3"), format)}
    async with filled(tmp_path, **fields) as lake:
        files = await lake.files()
        found = await lake.verified()
        assert found.records == 25
        assert found.spend == "2.3"
        assert found.calls == 23
        assert found.differences == []
        assert [] == (await compare_with_store(lake.store, lake.house.context(), ROUTE)).differences
        assert 25 == (await lake.house.terms())["delivered"]
        team = "=b" if format == "focus-parquet" else "'=b"
        charges = [(team, Decimal("0.3"), 3, "1-25"), ("a", Decimal(2), 20, "1-25"), (None, 0, 0, "1-25")]
        assert sorted(charges, key=str) == sorted(await lake.charges(), key=str)
    assert [f"{names.DATA}date=2026-09-2{day}/" for day in (1, 2)] == [
        name[: len(names.DATA) + 16] for name in files
    ]
    assert all(name.endswith(f"-000000000001-000000000025.{FORMATS[format]}") for name in files)


@pytest.mark.parametrize("format", list(FORMATS))
async def test_files_of_charges_are_proved_and_put_again(format: str, tmp_path: Path) -> None:
    """
    A changed byte is found, a missing file is created again with the same bytes, and a repeat recognizes
    its own files.
    """
    async with filled(tmp_path, format=format) as lake:
        first, second = [tmp_path / "lake" / name for name in await lake.files()]
        kept = first.read_bytes()
        first.write_bytes(kept[:40] + bytes([kept[40] ^ 1]) + kept[41:])
        assert ["content"] == [each.kind for each in (await lake.verified()).differences]
        first.unlink()
        assert ["missing"] == [each.kind for each in (await lake.verified()).differences]
        repair = LakeRepair(
            store=lake.store, landings=lake.house.storage.small.open_table(LANDINGS), log=lake.house.storage.log,
            clock=lake.house.clock, destination="lake", topic="ai-telemetry", directory=tmp_path / "work",
        )  # fmt: skip
        assert [names.DATA + f"{first.parent.name}/{first.name}"] == list(
            (await repair.repair_files(dry_run=False)).put
        )
        assert kept == first.read_bytes() and second.exists()
        assert [] == (await lake.verified()).differences


async def test_a_repeat_after_a_crash_leaves_files_of_charges_as_they_are(tmp_path: Path) -> None:
    """
    If a process is killed before it notes a delivery of charges as settled, the next attempt recognizes the file by
    the digest at its end, and does not change it.
    """
    lake = tmp_path / "lake"
    async with filled(tmp_path, format="focus") as first:
        bodies = {path: path.read_bytes() for path in lake.rglob("*.zst")}
        assert 2 == len(bodies)
        (edition,) = await first.house.storage.small.open_table(LANDINGS).find_or_begin_log_editions(ROUTE, 1)
        begin_copy(tmp_path / "again", first.house.storage)
    async with opened(tmp_path / "again") as house:
        await house.storage.small.open_table(LANDINGS).find_or_begin_log_editions(ROUTE, 1)
    _take_edition(tmp_path / "again", edition)
    for path in (lake / "_manifest").rglob("*.json"):
        path.unlink()
    async with opened(tmp_path / "again") as house:
        async with house.forwarding(format="focus", path=lake, batch_records=100):
            await house.add(records())
            await house.until(queued=0)
        assert 25 == (await house.terms())["delivered"]
    assert bodies == {path: path.read_bytes() for path in lake.rglob("*.zst")}


@pytest.mark.proof
@pytest.mark.parametrize(("place", "format"), [("folder", "focus"), ("s3", "focus-parquet")])
def test_a_kill_at_any_place_leaves_every_charge_once(
    place: str, format: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """
    A process is killed at each step of writing files. In the end each delivery has its charge, and
    every proof holds.
    """
    fields: dict[str, Any] = {"format": format, "type": "file", "path": tmp_path / "lake"}
    if place == "s3":
        fields = {"format": format, **in_s3(tmp_path, request.getfixturevalue("s3"), f"kills-{format}")}
    victim.kill_at_each_place(tmp_path / "data", **fields)
    settings = DestinationSettings(name="lake", **{"path": None, **fields})

    async def look() -> tuple[VerifiedLake, list[tuple[Any, ...]], list[str]]:
        async with opened(tmp_path / "data") as house:
            lake = Lake(
                house, open_store(settings, destination_secret(settings)), fields, tmp_path / "scratch"
            )
            found, charges = await lake.verified(), await lake.charges()
            assert [] == (await compare_with_store(lake.store, house.context(), ROUTE)).differences
        read = "read_parquet" if format == "focus-parquet" else "read_csv"
        files = f"{lake.scratch}/*.{FORMATS[format]}"
        numbers = duckdb.sql(f"SELECT x_Records FROM {read}('{files}') ORDER BY 1").fetchall()
        return found, charges, [text for (text,) in numbers]

    found, charges, numbers = asyncio.run(look())
    assert found.differences == []
    assert found.records == victim.RECORDS
    assert found.spend == "9.5"
    assert [(None, Decimal("9.5"), victim.RECORDS)] == [row[:3] for row in charges]
    assert sorted(f"{first}-{min(first + 9, victim.RECORDS)}" for first in range(1, 96, 10)) == numbers


def _take_edition(data: Path, edition: str) -> None:
    import sqlite3

    connection = sqlite3.connect(data / "spool.sqlite")
    with connection:
        connection.execute("UPDATE lake_editions SET edition = ?", (edition,))
    connection.close()


@pytest.mark.parametrize("format", list(FORMATS))
async def test_what_is_left_out_is_in_no_charge(format: str, tmp_path: Path) -> None:
    """Charges that differ only in a left-out column are merged."""
    left_out = ("user", "team", "provider", "response_model", "device")
    async with filled(tmp_path, format=format, leave_out=left_out) as lake:
        assert [(None, Decimal("2.3"), 23, "1-25")] == await lake.charges()
        assert "2.3" == (await lake.verified()).spend
        read = "read_parquet" if format == "focus-parquet" else "read_csv"
        rows = duckdb.sql(
            f"SELECT COLUMNS(*)::VARCHAR FROM {read}('{lake.scratch}/*.{FORMATS[format]}')"
        ).fetchall()
    assert 3 == len(rows)  # one row for the day with only calls, and two for the day with calls and a counter
    assert [] == [word for word in (SECRET, "openai", "OpenAI", "gpt-4o", "=b") if word in str(rows)]


def test_commands_know_that_charges_are_no_records(tmp_path: Path) -> None:
    """
    Commands treat the charges of FOCUS files as no records: nothing is imported or adopted, views show charges, and
    call lists do not read them.
    """

    async def fill() -> None:
        async with filled(tmp_path, format="focus-parquet"):
            pass

    asyncio.run(fill())
    config = configured(tmp_path, format="focus-parquet")

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(command, [*words, "--config", str(config)])
        assert code == result.exit_code, result.output
        return result.output

    found = json.loads(run("verify", "--data", "--json"))
    assert found["records"] == 25
    assert found["differences"] == []
    (tmp_path / "old.ndjson").write_text("{}\n")
    for words in (("import", str(tmp_path / "old.ndjson")), ("adopt",)):
        assert "has charges in the format focus-parquet" in run(*words, code=2)
    connection = duckdb.connect()
    connection.execute(run("sql"))
    assert [(Decimal("2.3"),)] == connection.execute("SELECT sum(BilledCost) FROM focus").fetchall()
    settings = DestinationSettings(name="lake", type="file", path=tmp_path / "lake", format="focus")

    async def reader() -> object:
        async with opened(tmp_path / "data") as house:
            return past_records(Config(destinations=(settings,)), house.storage)

    assert asyncio.run(reader()) is None


def test_charges_are_of_calls_alone() -> None:
    """FOCUS files have only calls, so this format for another topic is a configuration error."""
    settings = DestinationSettings(
        name="lake", type="file", path=Path("lake"), format="focus", topics=("ai-telemetry", "usage-events")
    )
    assert ["x.topics: format 'focus' accepts only ai-telemetry"] == list(settings_problems("x", settings))
