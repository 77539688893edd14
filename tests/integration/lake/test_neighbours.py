"""A store that is slow or refuses delays only its own route."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from exporters.destinations.catalogue import build_routes
from exporters.forwarder import RouteForwarder
from exporters.settings import DestinationSettings, UpstreamSettings
from spool.deliveries.values import PARKED
from tests.exporters.clickhouse.server import Table, served
from tests.exporters.spools import calls
from tests.integration.lake.lakes import FOLDER, House, opened, query
from tests.waiting import limited

RECORDS = 95
SLOW: dict[str, Callable[[str], dict[str, Any]]] = {
    "clickhouse": lambda address: {"url": f"http://{address}/costs"},
    "kafka": lambda address: {"url": address, "tls": False},
    "s3": lambda address: {
        "url": "s3://costs/lake",
        "endpoint": f"http://{address}",
        "region": "eu-central-1",
    },
}


class Silent:
    """A server that accepts every connection and never answers."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.read(1):
                self.is_asked.set()
            while await reader.read(65536):
                pass
        except ConnectionError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[Silent, str]]:
    told = Silent()
    server = await asyncio.start_server(told.take, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield told, f"{host}:{port}"
    finally:
        server.close()


@asynccontextmanager
async def beside(house: House, lake: Path, neighbour: DestinationSettings) -> AsyncIterator[None]:
    """Run a folder's route and another destination's route in one forwarder."""
    both = [neighbour, DestinationSettings(**FOLDER, path=lake)]
    routes = build_routes(UpstreamSettings(), both, clock=house.clock, lake=house.context())
    storage = house.storage
    forwarder = RouteForwarder(storage.deliveries, storage.log, house.clock, routes, leases=storage.leases)
    await forwarder.start()
    try:
        yield
    finally:
        await forwarder.stop()


@pytest.mark.parametrize("kind", SLOW)
async def test_a_store_that_never_answers_holds_up_no_other(kind: str, tmp_path: Path) -> None:
    """
    If one store never answers, another route is not delayed: all its records are in its folder while the first
    request of the other route still waits.
    """
    secret = tmp_path / "secret"
    secret.write_text("user\npassword\n")
    lake = tmp_path / "lake"
    async with silent() as (told, address), opened(tmp_path / "data") as house:
        neighbour = DestinationSettings(
            name="slow", type=kind, secret_file=secret, linger=0.0, **SLOW[kind](address)
        )
        async with beside(house, lake, neighbour):
            await house.add(calls(1, 10))
            async with limited():
                await told.is_asked.wait()
            await house.add(calls(11, RECORDS))
            await house.until(queued=0)
            assert RECORDS == (await house.state("slow/ai-telemetry")).queued
    assert [(RECORDS, RECORDS)] == query(lake, "SELECT count(*), count(DISTINCT number) FROM lake")


async def test_a_table_that_refuses_parks_its_own_route_alone(tmp_path: Path) -> None:
    """
    If the password for a table is wrong, only that route is parked, with a reason. The route to the folder delivers
    all records.
    """

    class Closed(Table):
        async def answer(self, request: web.Request) -> web.Response:
            self.fails = "password"
            return self._insert(request, "", b"")

    table = Closed()
    async with served(table) as url, opened(tmp_path / "data") as house:
        neighbour = DestinationSettings(name="closed", type="clickhouse", url=url)
        async with beside(house, tmp_path / "lake", neighbour):
            await house.add(calls(1, 10))
            await house.until("closed/ai-telemetry", state=PARKED)
            await house.add(calls(11, RECORDS))
            await house.until(queued=0)
            closed = await house.state("closed/ai-telemetry")
    assert closed.state == PARKED
    assert closed.queued == RECORDS
    assert table.rows == []
