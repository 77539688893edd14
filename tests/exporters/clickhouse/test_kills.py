"""A gateway that is killed repeatedly while it inserts rows, together with lost answers and server errors."""

from __future__ import annotations

import asyncio
import sys
from decimal import Decimal
from pathlib import Path
from random import Random
from signal import SIGKILL

import pytest
from aiohttp import web

from tests.exporters.clickhouse import victim
from tests.exporters.clickhouse.server import Table, served
from tests.integration.lake.lakes import opened
from tests.processes.copied import Process, start_process
from tests.rounds import IS_LONG, part

SEEDS = range(50 if IS_LONG else 2)
MOST_REQUESTS = (
    8  # maximum number of requests in one life of the process; delivering all records takes at least 20
)
FAILS = ("", "", "", "", "answer", "busy")  # possible failures of an insert; an empty text is a success


class Killing(Table):
    """A table that kills its client before or after a request takes effect, and has forgotten every token."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self.forgets = True
        self.failed = 0
        self._rng = rng
        self._left = 0
        self._client: Process | None = None

    def begin(self, client: Process) -> None:
        self._client = client
        self._left = self._rng.randint(1, MOST_REQUESTS)

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        assert self._client is not None
        self._left -= 1
        if self._left == 0 and self._rng.random() < 0.5:
            self._client.kill()
            return web.Response(status=500)
        if request.query["query"].startswith("INSERT"):
            self.fails = self._rng.choice(FAILS)
            self.failed += bool(self.fails)
        answer = await super().answer(request)
        if self._left == 0:
            self._client.kill()
        return answer


def ended(process: Process) -> tuple[str, str, int]:
    """Wait for the end of a process and return its output, its errors and its exit code."""
    assert process.stdout is not None and process.stderr is not None
    with process.stdout as stdout, process.stderr as stderr:
        return stdout.read(), stderr.read(), process.wait()


async def lives(data: Path, url: str, table: Killing, cwd: Path) -> int:
    """Restart the gateway until one process ends by itself and return the number of killed processes."""
    killed = 0
    while True:
        words = ("-m", "tests.exporters.clickhouse.victim", str(data), url)
        process = start_process([sys.executable, *words], cwd=cwd, is_read=True)
        table.begin(process)
        said, errors, status = await asyncio.to_thread(ended, process)
        if said == "done\n":
            return killed
        assert said == "", errors
        assert -SIGKILL == status, errors
        killed += 1


@pytest.mark.parametrize("seed", part(SEEDS, every=2))
async def test_kills_at_random_requests_lose_no_row_and_repeat_none(seed: int, tmp_path: Path) -> None:
    """
    After kills at random requests, the table equals the accounting: each number and each id once, and the
    same total spend.
    """
    table = Killing(Random(seed))
    data = tmp_path / "data"
    async with served(table) as url:
        killed = await lives(data, url, table, tmp_path)
    async with opened(data) as house:
        terms = await house.terms()
    numbers = sorted(row["number"] for row in table.rows)
    assert list(range(1, victim.RECORDS + 1)) == numbers
    assert victim.RECORDS == len({row["id"] for row in table.rows}) == terms["delivered"]
    assert victim.RECORDS * Decimal("0.1") == sum(Decimal(str(row["spend"])) for row in table.rows)
    assert killed > 0
    print(f"seed {seed}: {killed} kills, {table.failed} failed inserts")
