"""
Two gateways upload calls of one PostgreSQL to an object store. They are killed and frozen in turn,
while connections are reset and requests refused. Each call arrives exactly once. `TOLLHOUSE_PROOFS=1`
sends a million calls.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from exporters.lake import names
from tests.bench.lakes.gateway import storage_of
from tests.bench.lakes.test_bench_lake import BATCH, KILLS, RECORDS, ROOT, WITHIN_S, Run, fetched, verified
from tests.bench.lakes.test_bench_lake import run as run
from tests.bench.lakes.writer import take_in
from tests.clients import environments
from tests.integration.lake.lakes import opened
from tests.rounds import IS_LONG
from tests.spool.postgres_cluster import Schema


class Gateways:
    def __init__(self, run: Run, directories: list[Path]) -> None:
        self._run = run
        self._directories = directories
        self.processes = [self._start(place) for place in range(len(directories))]

    def _start(self, place: int) -> subprocess.Popen[bytes]:
        words = (str(self._directories[place]), self._run.address, str(self._run.secret), str(BATCH))
        program = [sys.executable, "-m", "tests.bench.lakes.gateway", *words]
        return subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE)

    @property
    def are_done(self) -> bool:
        return any(process.poll() == 0 for process in self.processes)

    def kill(self, place: int) -> None:
        """Kill one gateway and start it again."""
        self.processes[place].kill()
        self.processes[place].communicate()
        self.processes[place] = self._start(place)

    def freeze(self, place: int) -> None:
        self.processes[place].send_signal(signal.SIGSTOP)

    def thaw(self, place: int) -> None:
        """Let a frozen gateway continue where it was stopped."""
        self.processes[place].send_signal(signal.SIGCONT)

    def books(self) -> list[dict[str, int]]:
        """Return the accounting that each gateway prints at its end."""
        said = [process.communicate(timeout=WITHIN_S)[0] for process in self.processes]
        assert [0] * len(said) == [process.returncode for process in self.processes]
        return [json.loads(each) for each in said]

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


async def after_one_more(run: Run, gateways: Gateways, prefix: str) -> bool:
    """Wait until one more object is stored. Return False if all are stored."""
    before = await run.there(prefix)
    async with asyncio.timeout(WITHIN_S):
        while await run.there(prefix) == before:
            if gateways.are_done:
                return False
            await asyncio.sleep(0.05)
    return True


@pytest.mark.bench
@pytest.mark.timeout(WITHIN_S + 200)
def test_two_gateways_bring_each_call_once(
    run: Run, new_schema: Callable[[], Schema], tmp_path: Path
) -> None:
    """
    The rows equal the accounting of both gateways without a duplicate, and each file is in one manifest.
    """
    schema = new_schema()
    directories = [tmp_path / f"node-{place}" for place in range(2)]
    settings = [storage_of(directory, schema) for directory in directories]

    async def fill() -> None:
        async with opened(directories[0], engine=settings[0]) as house:
            await take_in(house, RECORDS)

    asyncio.run(fill())
    gateways = Gateways(run, directories)
    done = 0
    try:
        for turn in range(KILLS):
            prefix = names.DATA if turn % 2 else names.MANIFESTS
            if not asyncio.run(after_one_more(run, gateways, prefix)):
                break
            done += 1
            if turn == 1:
                # wait until the other gateway has uploaded something; it may have to wait for the lease first
                gateways.freeze(turn % 2)
                asyncio.run(after_one_more(run, gateways, names.MANIFESTS))
                gateways.thaw(turn % 2)
            else:
                gateways.kill(turn % 2)
        books = gateways.books()
    finally:
        gateways.end()
    found, keys = asyncio.run(verified(run.store, tmp_path / "scratch"))

    async def copied() -> list[int]:
        return [size async for size in fetched(run.store, tmp_path / "copy")]

    asyncio.run(copied())
    assert [{"delivered": RECORDS}] * 2 == books
    assert found.rows == RECORDS
    assert found.differences == []
    assert len(keys) == len(set(keys)) == found.files
    files = f"{tmp_path}/copy/{names.DATA}*/*.parquet"
    sums = duckdb.sql(
        f"SELECT count(*), count(DISTINCT id), min(number), max(number), sum(spend) FROM read_parquet('{files}')"
    ).fetchall()
    assert [(RECORDS, RECORDS, 1, RECORDS, Decimal(RECORDS) / 1000)] == sums
    assert done >= 2
    if IS_LONG:
        polars = read_by_polars(files)
        assert [str(RECORDS)] * 2 == [polars["rows"], polars["ids"]]
        assert Decimal(RECORDS) / 1000 == Decimal(polars["spend"])
    print(f"\n{RECORDS:,} calls, two gateways, {done} kills and freezes, {found.files} files")


def read_by_polars(files: str) -> dict[str, str]:
    program = Path(environments.HERE / "programs/polars_reader.py")
    out = subprocess.run(
        [str(environments.python("polars")), str(program), files],
        capture_output=True,
        check=True,
        timeout=600,
    ).stdout
    found: dict[str, str] = json.loads(out)
    return found
