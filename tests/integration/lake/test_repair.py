"""Files that were removed from a lake are written again with the same rows, or reported as lost."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import obstore
import pytest
from click.testing import CliRunner
from obstore.store import S3Store

from exporters.destinations.catalogue import destination_secret
from exporters.lake import names
from exporters.lake.destination import open_store
from exporters.lake.repair import LakeRepair
from exporters.lake.stores import LakeStore
from exporters.lake.verification import DATA, read_manifests, verify_files
from exporters.lake.watch import compare_with_store
from exporters.settings import DestinationSettings
from gateway.cli.lake.command import lake as command
from spool.deliveries.protocols import LANDINGS
from tests.exporters.spools import calls
from tests.integration.lake.lakes import ROUTE, House, configured, opened
from tests.integration.lake.s3 import BUCKET
from tests.rounds import as_proof


@dataclass
class Lake:
    """A store with three deliveries of ten records, and the storage from which they came."""

    house: House
    store: LakeStore
    remove: Callable[[str], object]
    scratch: Path

    async def files(self, prefix: str = names.DATA) -> list[str]:
        return [each.name async for each in self.store.list_objects(prefix)]

    async def repaired(self, *, dry_run: bool = False, **options: Any) -> tuple[list[str], list[str]]:
        """Run a repair; return the written files and the lost files."""
        given: dict[str, Any] = {
            "landings": self.house.storage.small.open_table(LANDINGS),
            "log": self.house.storage.log,
            "clock": self.house.clock,
            "directory": self.scratch,
        }
        repair = LakeRepair(store=self.store, destination="lake", **{**given, **options})
        done = await repair.repair_files(dry_run=dry_run)
        return list(done.put), list(done.lost)

    async def differences(self) -> list[str]:
        """
        Return the differences that the command finds with all bytes read, and the differences that
        the server finds.
        """
        manifests = read_manifests(self.store, "lake", self.scratch)
        found = await verify_files(self.store, manifests, level=DATA, scratch=self.scratch)
        seen = await compare_with_store(self.store, self.house.context(), ROUTE)
        return [each.kind for each in (*found.differences, *seen.differences)]


@pytest.fixture(params=["folder", as_proof("s3")])
async def lake(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lake]:
    root, scratch, secret = tmp_path / "lake", tmp_path / "scratch", tmp_path / "secret"
    scratch.mkdir()
    secret.write_text("testing\ntesting-secret\n")
    fields: dict[str, Any] = {"type": "file", "path": root}

    def remove(name: str) -> None:
        (root / name).unlink()

    if request.param == "s3":
        address, prefix = request.getfixturevalue("s3"), tmp_path.name
        fields = {"type": "s3", "url": f"s3://{BUCKET}/{prefix}", "endpoint": address, "secret_file": secret}

        def remove_object(name: str) -> None:
            there = S3Store(
                BUCKET,
                prefix=prefix,
                config={
                    "endpoint": address,
                    "access_key_id": "testing",
                    "secret_access_key": "testing-secret",
                },
                client_options={"allow_http": True},
            )
            obstore.delete(there, name)

    remover = remove_object if request.param == "s3" else remove
    settings = DestinationSettings(name="lake", **fields)
    async with opened(tmp_path / "data") as house:
        async with house.forwarding(**fields):
            await house.add(calls(1, 30, cost="0.1", cost_source="reported", user="ada", team="search"))
            await house.until(queued=0)
        yield Lake(house, open_store(settings, destination_secret(settings)), remover, scratch)


async def test_missing_files_are_put_again(lake: Lake) -> None:
    """
    A missing file is written again with the same name and bytes, so no new manifest is needed. A dry
    run writes nothing.
    """
    first, _, third = before = await lake.files()
    assert ([], []) == await lake.repaired()
    for name in (first, third):
        await asyncio.to_thread(lake.remove, name)
    assert ["missing"] * 4 == await lake.differences()
    assert ([first, third], []) == await lake.repaired(dry_run=True)
    assert ["missing"] * 4 == await lake.differences()
    assert ([first, third], []) == await lake.repaired()
    assert [] == await lake.differences()
    assert before == await lake.files()
    assert 3 == len(await lake.files(names.MANIFESTS))


async def test_other_bytes_of_the_same_rows_have_a_manifest_of_their_own(lake: Lake) -> None:
    """
    If the file library has changed, a repaired file has the same rows in other bytes. A new manifest of the
    delivery then describes these bytes.
    """
    first, second, _ = await lake.files()
    for columns in (("user",), ("user", "team")):
        await asyncio.to_thread(lake.remove, first)
        assert ([first], []) == await lake.repaired(leave_out=columns)
        assert [] == await lake.differences()
    await asyncio.to_thread(lake.remove, second)
    assert ([second], []) == await lake.repaired(leave_out=("user",))
    assert [] == await lake.differences()
    manifests = await lake.files(names.MANIFESTS)
    assert [1, 2, 0, 1, 0, 0] == list(map(names.parse_repair_number, manifests))
    await asyncio.to_thread(lake.remove, manifests[2])
    assert "content" in await lake.differences()


async def test_what_the_log_has_no_more_is_lost(lake: Lake) -> None:
    """
    A file whose records the log no longer has is reported with the lost records, and nothing is written.
    """
    first, second, _ = await lake.files()
    await asyncio.to_thread(lake.remove, first)
    await asyncio.to_thread(lake.remove, second)

    class ShortLog:
        async def read(self, topic: str, first_number: int, last_number: int, **_: object) -> Any:
            return await lake.house.storage.log.read(topic, max(11, first_number), last_number)

    assert ([second], [first]) == await lake.repaired(log=ShortLog())
    assert ["missing"] * 2 == await lake.differences()


def test_the_command_repairs(tmp_path: Path) -> None:
    """`lake repair` needs the data directory and no running server. Without a data directory its exit code is 2."""

    async def fill() -> None:
        async with opened(tmp_path / "data") as house, house.forwarding(path=tmp_path / "lake"):
            await house.add(calls(1, 20))
            await house.until(queued=0)

    asyncio.run(fill())
    config = configured(tmp_path)
    removed = sorted((tmp_path / "lake").glob("ai_telemetry/v1/*/*.parquet"))[1]
    kept = removed.read_bytes()
    removed.unlink()
    result = CliRunner().invoke(command, ["repair", "--config", str(config), "--json"])
    assert 0 == result.exit_code, result.output
    assert [str(removed.relative_to(tmp_path / "lake"))] == json.loads(result.stdout)["repair"]["put"]
    assert kept == removed.read_bytes()
    shutil.rmtree(tmp_path / "data")
    assert 2 == CliRunner().invoke(command, ["repair", "--config", str(config)]).exit_code
