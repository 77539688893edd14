"""
Calls reach an object store exactly once while the process is killed, connections are reset and
requests are refused.

`TOLLHOUSE_PROOFS=1` sends a million calls; the default is a small round. The test prints records per second
and core, memory and bytes per record. They cover only the last process, which is not killed, and the records
that it uploaded.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest

from exporters.destinations.catalogue import destination_secret
from exporters.lake import names
from exporters.lake.destination import open_store
from exporters.lake.stores import LakeStore
from exporters.lake.verification import DATA, ReadManifest, VerifiedLake, read_manifests, verify_files
from exporters.settings import DestinationSettings
from tests.bench.lakes.relay import relayed
from tests.integration.lake.s3 import BUCKET, s3_server
from tests.rounds import IS_LONG

RECORDS, BATCH, KILLS = (1_000_000, 50_000, 8) if IS_LONG else (12_000, 1_500, 2)
WITHIN_S = 1700 if IS_LONG else 400
# Limits for landing a backlog of any size: memory growth in KiB, including the library, and processor time in
# seconds between two turns of the event loop.
MOST_GROWN_KIB, LONGEST_TURN_S = 250 * 1024, 0.25
ROOT = Path(__file__).parents[3]


@dataclass
class Run:
    data: Path
    address: str
    secret: Path
    store: LakeStore

    def start(self) -> subprocess.Popen[bytes]:
        words = (str(self.data), self.address, str(self.secret), str(RECORDS), str(BATCH))
        return subprocess.Popen(
            [sys.executable, "-m", "tests.bench.lakes.writer", *words], cwd=ROOT, stdout=subprocess.PIPE
        )

    async def there(self, prefix: str) -> int:
        return len([each async for each in self.store.list_objects(prefix)])

    async def kill_after(self, prefix: str) -> bool:
        """Kill the process after its next object. Return False if it ended before."""
        before = await self.there(prefix)
        process = self.start()
        assert process.stdout is not None
        try:
            async with asyncio.timeout(WITHIN_S):
                await asyncio.to_thread(process.stdout.readline)  # wait until the process starts to land
                while process.poll() is None and await self.there(prefix) == before:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            return process.poll() is None
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    (tmp_path / "secret").write_text("testing\ntesting-secret\n")
    with s3_server(tmp_path) as address, relayed(address) as (shaken, relay):
        settings = DestinationSettings(
            name="lake",
            type="s3",
            url=f"s3://{BUCKET}/run",
            endpoint=address,
            secret_file=tmp_path / "secret",
        )
        yield Run(
            tmp_path / "data", shaken, tmp_path / "secret", open_store(settings, destination_secret(settings))
        )
        print(f"{relay.connections} connections, {relay.resets} reset, {relay.refused} refused")
        assert relay.resets and relay.refused


async def fetched(store: LakeStore, directory: Path) -> AsyncIterator[int]:
    """Copy the files into `directory` and yield their bytes."""
    async for each in store.list_objects(names.DATA):
        path = directory / each.name
        path.parent.mkdir(parents=True, exist_ok=True)
        await store.fetch(each.name, path)
        yield each.size


async def verified(store: LakeStore, scratch: Path) -> tuple[VerifiedLake, list[str]]:
    """Verify every byte of the lake. Return the result of the check, and the files that all manifests list."""
    scratch.mkdir()
    found = await verify_files(store, read_manifests(store, "lake", scratch), level=DATA, scratch=scratch)
    made = [each async for each in read_manifests(store, "lake", scratch) if isinstance(each, ReadManifest)]
    return found, [file.key for each in made for file in each.body.files]


@pytest.mark.bench
@pytest.mark.timeout(WITHIN_S + 100)
def test_every_call_is_in_the_lake_once(run: Run, tmp_path: Path) -> None:
    """
    The rows equal the accounting without a duplicate, and each file is in one manifest. DuckDB and pyarrow
    read the same rows.
    """
    kills = sum(
        asyncio.run(run.kill_after(names.DATA if place % 2 else names.MANIFESTS)) for place in range(KILLS)
    )
    landed = RECORDS - BATCH * asyncio.run(run.there(names.MANIFESTS))
    last = run.start()
    out, _ = last.communicate(timeout=WITHIN_S)
    assert 0 == last.returncode
    figures = json.loads(out.splitlines()[-1])
    began = time.monotonic()
    found, keys = asyncio.run(verified(run.store, tmp_path / "scratch"))
    verified_s = time.monotonic() - began

    async def copied() -> int:
        return sum([size async for size in fetched(run.store, tmp_path / "copy")])

    size = asyncio.run(copied())
    assert {"delivered": RECORDS} == figures["books"]
    assert found.rows == RECORDS
    assert found.differences == []
    assert len(keys) == len(set(keys)) == found.files
    files = f"{tmp_path}/copy/{names.DATA}*/*.parquet"
    sums = duckdb.sql(
        f"SELECT count(*), count(DISTINCT id), min(number), max(number), sum(spend) FROM read_parquet('{files}')"
    ).fetchall()
    assert [(RECORDS, RECORDS, 1, RECORDS, Decimal(RECORDS) / 1000)] == sums
    assert (
        RECORDS
        == ds.dataset(tmp_path / "copy" / names.DATA, format="parquet", partitioning="hive").count_rows()
    )
    assert kills == KILLS
    assert figures["grown_kib"] < MOST_GROWN_KIB
    assert figures["longest_turn_s"] < LONGEST_TURN_S
    print(
        f"\n{RECORDS:,} calls, {kills} kills, {found.files} files of {size / RECORDS:.0f} B a record; the last process "
        f"landed {landed:,} in {figures['landed_s']:.1f} s, {figures['landed_cpu_s'] * 1e6 / max(landed, 1):.1f} us "
        f"of a processor each, {figures['grown_kib'] / 1024:.0f} MiB more than before, and at most "
        f"{figures['longest_turn_s'] * 1000:.0f} ms of it in a turn of the event loop; "
        f"verify --data {verified_s:.1f} s"
    )
