"""Rows in ClickHouse's own engine: each is stored once, and its count equals the accounting."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from exporters.clickhouse.table import table_creation_sql
from exporters.destinations.catalogue import TYPES
from exporters.probe import OK
from exporters.settings import DestinationSettings
from gateway.cli.lake.command import lake as command
from spool.clock import SystemClock
from spool.record import NS
from tests.clients import environments
from tests.clients.conftest import PROGRAMS
from tests.exporters.spools import calls
from tests.integration.lake.lakes import House, opened
from tests.rounds import IS_LONG
from tests.waiting import until

pytestmark = pytest.mark.clients
MONTH_NS = 31 * 86400 * NS
RECORDS = 60
KILLED, KILLS = 400, 4  # number of records, and number of kills while the records are inserted
KILL_ROUNDS = 20 if IS_LONG else 2


class Engine:
    """An engine process. A restart reuses the directory and the port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = 0
        self.start()

    def start(self) -> None:
        words = [
            environments.python("clickhouse"),
            PROGRAMS / "clickhouse_server.py",
            self._directory,
            self._port,
        ]
        self._process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())

    def kill(self) -> None:
        with self._process as process:
            process.kill()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    @property
    def url(self) -> str:
        return self.root + "costs"

    def ask(self, query: str) -> str:
        request = Request(self.root + "?" + urlencode({"query": query}), data=b"", method="POST")
        with urlopen(request, timeout=60) as answer:
            body: bytes = answer.read()
        return body.decode().strip()

    def make_table(self) -> None:
        for name in ("_calls", "_spend", "_once"):
            self.ask(f"DROP VIEW IF EXISTS ai_telemetry{name}")
        self.ask("DROP TABLE IF EXISTS ai_telemetry SYNC")
        for statement in table_creation_sql("ai_telemetry").split(";\n"):
            if statement.strip():
                self.ask(statement)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(tmp_path_factory.mktemp("engine"))
    try:
        yield engine
    finally:
        engine.kill()


@pytest.fixture
def engine(started: Engine) -> Engine:
    started.make_table()
    return started


async def fill(directory: Path, engine: Engine) -> None:
    """Send six deliveries with calls of several months, which ClickHouse stores in separate partitions."""
    async with opened(directory / "data") as house:
        now = int(house.clock.now() * NS)
        for n in range(1, RECORDS + 1):
            start = now - n % 4 * MONTH_NS
            await house.add(calls(n, n, cost="0.1", cost_source="reported", start_time=start))
        async with house.forwarding(type="clickhouse", url=engine.url):
            await house.until(queued=0)


async def check(engine: Engine) -> None:
    settings = DestinationSettings(name="lake", type="clickhouse", url=engine.url)
    found = await TYPES["clickhouse"].probe(settings, None, SystemClock())
    assert OK == found.status, found


def verify(directory: Path, engine: Engine, *, records: int = RECORDS) -> list[str]:
    """Return the kinds of the differences."""
    file = directory / "tollhouse.toml"
    destination = f'[[destinations]]\nname = "lake"\ntype = "clickhouse"\nurl = "{engine.url}"\n'
    file.write_text(f'data_dir = "{directory}/data"\n{destination}')
    result = CliRunner().invoke(command, ["verify", "--config", str(file), "--json"])
    found = json.loads(result.stdout)
    kinds = [each["kind"] for each in found["differences"]]
    assert (1 if kinds else 0) == result.exit_code
    if not kinds:
        assert found["rows"] == records
        assert found["calls"] == records
        assert str(records // 10) == found["spend"]
    return kinds


def test_verify_reports_deleted_duplicated_and_foreign_rows(engine: Engine, tmp_path: Path) -> None:
    """
    `verify` reports deleted, duplicated and foreign rows. Equal rows are no difference, because the
    engine merges them.
    """
    asyncio.run(check(engine))
    asyncio.run(fill(tmp_path, engine))
    assert [] == verify(tmp_path, engine)
    assert "6" == engine.ask("SELECT sum(usd) FROM ai_telemetry_spend FORMAT TSV")
    engine.ask("INSERT INTO ai_telemetry SELECT * FROM ai_telemetry WHERE number = 5")
    assert [] == verify(tmp_path, engine)
    engine.ask(
        "INSERT INTO ai_telemetry SELECT * REPLACE ('ff' AS id) FROM ai_telemetry WHERE number = 5 LIMIT 1"
    )
    assert ["overlap", "foreign"] == verify(tmp_path, engine)
    engine.ask("DELETE FROM ai_telemetry WHERE number = 5")
    assert ["hole", "missing"] == verify(tmp_path, engine)


async def has_delivered(house: House, records: int) -> bool:
    return (await house.terms()).get("delivered", 0) >= records


async def fill_and_kill(directory: Path, engine: Engine, rng: Random) -> None:
    """Kill the engine several times during forty deliveries."""
    async with opened(directory / "data") as house:
        await house.add(calls(1, KILLED, cost="0.1", cost_source="reported"))
        async with house.forwarding(type="clickhouse", url=engine.url):
            for delivered in sorted(rng.sample(range(0, KILLED, 10), KILLS)):
                await until(partial(has_delivered, house, delivered))
                await asyncio.sleep(rng.uniform(0, 0.1))
                await asyncio.to_thread(engine.kill)
                await asyncio.to_thread(engine.start)
            await house.until(queued=0)
        assert {"delivered": KILLED} == await house.terms()


@pytest.mark.parametrize("seed", range(KILL_ROUNDS))
def test_an_engine_that_is_killed_has_each_row_once(engine: Engine, tmp_path: Path, seed: int) -> None:
    """
    After a restart, the gateway looks up which records the engine has before it sends any again, so it does no harm
    that the engine has forgotten the tokens of inserts.
    """
    asyncio.run(fill_and_kill(tmp_path, engine, Random(seed)))
    assert [] == verify(tmp_path, engine, records=KILLED)
    assert str(KILLED) == engine.ask("SELECT count() FROM ai_telemetry FORMAT TSV")
