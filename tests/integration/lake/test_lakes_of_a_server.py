"""A server's knowledge of its lakes in its status, metrics and insights, and in `doctor`."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from aiohttp import ClientSession
from click.testing import CliRunner, Result

from exporters.lake import watch
from exporters.settings import DestinationSettings
from gateway.cli.doctor import doctor
from gateway.cli.lake.command import lake as command
from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.operations.money.insights import make_insight_updater
from gateway.service.app import TollhouseApp
from gateway.service.assembly.lakes import lake_states
from spool.settings import SpoolSettings
from tests.exporters.spools import calls
from tests.integration.lake.lakes import ROUTE, House, configured, query
from tests.waiting import until


async def run_server(directory: Path) -> tuple[str, list[str]]:
    """Run a server whose lake has one foreign file; return the metrics and the titles of insights."""
    lake = directory / "lake"
    (lake / "ai_telemetry/v1").mkdir(parents=True)
    (lake / "ai_telemetry/v1/strange.parquet").write_bytes(b"strange")
    config = Config(
        data_dir=directory / "data",
        server=ServerSettings(listen="127.0.0.1:0", grpc_listen="", operator_listen="127.0.0.1:0"),
        spool=SpoolSettings(hold=0, counter_wait=0),
        destinations=(DestinationSettings(name="lake", type="file", path=lake, linger=0.0),),
    )
    app = TollhouseApp(config, version="0")
    await app.start()
    try:
        storage = app.services.storage
        house = House(storage, app.services.operators.installation.clock, directory)
        await house.add(calls(1, 10))
        await house.until(queued=0)

        async def verdict() -> object:
            return (await lake_states(config, storage))[0].verdict

        await until(verdict, "a check of the lake")
        await make_insight_updater(app.services.operators).find_and_store_insights()
        assert storage.registry is not None
        titles = [each.title for each in await storage.registry.insights.detector_insights()]
        async with ClientSession() as client, client.get(f"{app.operator_url}/metrics") as answer:
            return await answer.text(), titles
    finally:
        await app.stop()


def test_foreign_file_is_shown_in_metric_insight_and_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A running server shows a foreign file in a metric and an insight. Without a server, `doctor` reports it
    as a problem.
    """
    monkeypatch.setattr(watch, "FIRST_S", 0.1)
    metrics, titles = asyncio.run(run_server(tmp_path))
    assert f'tollhouse_lake_differs{{route="{ROUTE}"}} 1.0' in metrics
    assert f'tollhouse_lake_landed_timestamp_seconds{{route="{ROUTE}"}}' in metrics
    assert f"The lake of {ROUTE} differs from what was sent" in titles
    result = CliRunner().invoke(doctor, ["--config", str(configured(tmp_path)), "--json"])
    [found] = [
        each for each in json.loads(result.stdout)["doctor"]["found"] if each["about"] == f"lake {ROUTE}"
    ]
    assert "problem" == found["status"]
    assert "with differences: 1 foreign" in found["words"]


def config_of(directory: Path) -> Config:
    """Return settings of a server that checks its lake only on request."""
    return Config(
        data_dir=directory / "data",
        server=ServerSettings(listen="127.0.0.1:0", grpc_listen="", operator_listen="127.0.0.1:0"),
        spool=SpoolSettings(hold=0, counter_wait=0),
        destinations=(DestinationSettings(name="lake", type="file", path=directory / "lake", verify=0.0),),
    )


class JumpedClock:
    """The system clock, some seconds ahead for a while."""

    ahead_s = 0.0
    monotonic = staticmethod(time.monotonic)

    def now(self) -> float:
        return time.time() + self.ahead_s


def test_records_of_a_clock_that_was_ahead_land(tmp_path: Path) -> None:
    """
    While the clock is ahead, records get commit times in the future. When `lake land` returns, the lake has all
    earlier commits, whatever their commit times.
    """
    lake, file, config = tmp_path / "lake", configured(tmp_path), config_of(tmp_path)
    clock = JumpedClock()

    async def served() -> Result:
        app = TollhouseApp(config, version="0", clock=clock)
        await app.start()
        try:
            house = House(app.services.storage, clock, tmp_path)
            clock.ahead_s = 5 * 3600.0
            await house.add(calls(1, 10))
            clock.ahead_s = 0.0
            await house.add(calls(11, 12))
            return await asyncio.to_thread(CliRunner().invoke, command, ["land", "--config", str(file)])
        finally:
            await app.stop()

    done = asyncio.run(served())
    assert 0 == done.exit_code, done.output
    assert [(12,)] == query(lake, "SELECT count(*) FROM lake")


def test_a_command_lands_what_waits(tmp_path: Path) -> None:
    """
    `lake land` lands the records that wait, so at a month's end nobody has to wait until files are old enough. If
    the lake cannot be reached, or no server runs, the command says so.
    """
    lake, file, config = tmp_path / "lake", configured(tmp_path), config_of(tmp_path)

    def land(*words: str) -> Result:
        return CliRunner().invoke(command, ["land", "--config", str(file), *words])

    async def served() -> tuple[Result, Result]:
        app = TollhouseApp(config, version="0")
        await app.start()
        try:
            storage = app.services.storage
            house = House(storage, app.services.operators.installation.clock, tmp_path)
            await house.add(calls(1, 10))
            done = await asyncio.to_thread(land)
            lake.rename(tmp_path / "away")
            lake.write_bytes(b"no folder")
            await house.add(calls(11, 12))
            return done, await asyncio.to_thread(land, "--wait", "1", "--json")
        finally:
            await app.stop()

    done, away = asyncio.run(served())
    assert done.exit_code == 0
    assert done.output == f"{ROUTE}: all records committed before this command have landed\n"
    assert [(10,)] == query(tmp_path / "away", "SELECT count(*) FROM lake")
    found = json.loads(away.stdout)
    assert away.exit_code == 1
    assert found["landed"] is False
    assert found["route"]["queued"] == 2
    without = land()
    assert 1 == without.exit_code
    assert "no server uses" in without.output
