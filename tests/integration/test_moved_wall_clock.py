"""A wall clock that jumps under a running server: nothing expires, and no call counts on another day."""

from __future__ import annotations

import asyncio
import itertools
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import ClientSession

from gateway.cli.operator.client import OperatorClient
from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.service.app import TollhouseApp
from spool.clock import SteadyClock, SystemClock
from spool.ledger.queries import CostQuery
from spool.record import AI_TELEMETRY
from spool.settings import SpoolSettings
from tests.acceptance.payloads import request, span
from tests.integration.payloads import JSON
from tests.rounds import as_proof

DAY = 86_400.0


class JumpingClock(SystemClock):
    """The machine's clock plus an offset that a test sets."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.mark.parametrize("step", [as_proof(8 * DAY), -DAY, 400 * DAY], ids=["+8 d", "-1 d", "+400 d"])
async def test_a_jump_costs_nothing(tmp_path: Path, step: float) -> None:
    """
    The clock jumps under load and returns. Stored records stay, repeats are recognized, and the totals have
    only one day.
    """
    wall = JumpingClock()
    clock = SteadyClock(wall)
    config = Config(
        data_dir=tmp_path / "data",
        server=ServerSettings(listen="127.0.0.1:0", grpc_listen=""),
        spool=SpoolSettings(hold=0, counter_wait=0),
    )
    app = TollhouseApp(config, version="0", clock=clock)
    await app.start()
    key = await app.create_first_key()
    names = (f"chatcmpl-{number:024x}" for number in itertools.count())
    sent: list[bytes] = []
    async with ClientSession(headers={"Authorization": str(key), "Content-Type": JSON}) as session:

        async def send(body: bytes) -> None:
            async with session.post(f"{app.url}/v1/traces", data=body) as answer:
                assert 200 == answer.status

        log, ledger = app.services.storage.log, app.services.storage.ledger
        for ahead in (0.0, step, 0.0):
            wall.ahead = ahead
            for _ in range(20):
                sent.append(request([span(next(names))]))
                await send(sent[-1])
            await log.run_retention()
            await ledger.catch_up(log)
            await ledger.sum_up_and_delete_hours()
            for body in sent[::7]:
                await send(body)
        books = await log.verify()
        terms = books.topics[AI_TELEMETRY]
        assert terms["accepted"] == 60
        assert terms.get("expired", 0) == 0
        assert terms["received"] == 60 + terms["duplicates"]
        now = datetime.now(UTC)
        rows = await ledger.costs(
            CostQuery(
                since=datetime(1970, 1, 1, tzinfo=UTC),
                until=now.replace(year=now.year + 3),
                granularity="daily",
            )
        )
        assert 60 == sum(row.calls for row in rows)
        assert all(abs(row.start.timestamp() - now.timestamp()) < 2 * DAY for row in rows)
        assert 1 == len(rows) or now.hour == 0
    await app.stop()


async def test_an_operator_sees_the_step_and_agrees(tmp_path: Path) -> None:
    """
    `/readyz` and the metrics show the step. After the operator accepts it, Tollhouse uses the machine's time.
    """
    wall = JumpingClock()
    server = ServerSettings(listen="127.0.0.1:0", grpc_listen="")
    app = TollhouseApp(
        Config(data_dir=tmp_path / "data", server=server), version="0", clock=SteadyClock(wall)
    )
    await app.start()
    client = OperatorClient(Config(data_dir=tmp_path / "data"), "ada@example.com")
    try:
        wall.ahead = DAY
        report = await app.services.single.health.build_report()
        assert report["ready"]
        assert pytest.approx(DAY, abs=1) == report["clock"]["step_s"]
        assert pytest.approx(3600, abs=60) == report["clock"]["held_s"]
        metrics = (await app.services.single.exposition.current_text()).decode()
        assert re.search(r"^tollhouse_clock_step_seconds 86[34]\d\d\.", metrics, re.MULTILINE)
        shown = await asyncio.to_thread(client.request, "GET", "/clock")
        assert pytest.approx(DAY, abs=1) == shown["clock"]["step_s"]
        for moved_s, was_held_s in ((DAY, 3600), (0, 0)):
            done = await asyncio.to_thread(client.request, "POST", "/clock/accept", body={})
            assert pytest.approx(moved_s, abs=1) == done["clock"]["moved_s"]
            assert pytest.approx(was_held_s, abs=60) == done["clock"]["was_held_s"]
        report = await app.services.single.health.build_report()
        assert report["clock"]["step_s"] == 0.0
        assert report["clock"]["held_s"] == 0.0
    finally:
        await app.stop()
