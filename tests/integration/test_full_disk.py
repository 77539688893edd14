"""Starts on a real full disk: Tollhouse stays up, reports the full disk, and recovers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import grpc
import pytest
from aiohttp import ClientSession

from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.service import app as apps
from gateway.service.addresses.areas import GRPC_SERVICES
from gateway.service.app import StartAbandoned, TollhouseApp
from spool.log.accounting import ACCEPTED
from spool.record import AI_TELEMETRY
from spool.settings import SpoolSettings
from spool.sqlite import reserve
from tests.integration.payloads import JSON, traces
from tests.small_disk import fill, small_disk
from tests.waiting import limited, until

pytestmark = pytest.mark.usefixtures("usual_reserve")

Export: TypeAlias = "grpc.aio.StreamUnaryMultiCallable[bytes, bytes]"
LOCAL = ServerSettings(listen="127.0.0.1:0", grpc_listen="127.0.0.1:0")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", mib=128) as directory:
        yield directory


@pytest.fixture(autouse=True)
def look_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "LOOK_AGAIN_S", 0.1)


def server_on(disk: Path) -> TollhouseApp:
    return TollhouseApp(
        Config(data_dir=disk / "data", server=LOCAL, spool=SpoolSettings(hold=0, counter_wait=0)), version="0"
    )


async def send(session: ClientSession, url: str, key: str) -> tuple[int, str | None]:
    headers = {"Authorization": key, "Content-Type": JSON}
    async with session.post(f"{url}/v1/traces", data=traces(JSON), headers=headers) as response:
        return response.status, response.headers.get("Retry-After")


async def accepted(app: TollhouseApp) -> int:
    books = await app.services.storage.log.books()
    return books.topics.get(AI_TELEMETRY, {}).get(ACCEPTED, 0)


@asynccontextmanager
async def waiting(app: TollhouseApp) -> AsyncIterator[tuple[asyncio.Task[None], str, str]]:
    """
    Start an app that finds the disk full. Yield its task and the HTTP and gRPC addresses
    where it answers meanwhile.
    """
    starting = asyncio.create_task(app.start())
    await until(lambda: app.config.server.grpc_listen != LOCAL.grpc_listen or starting.done())
    assert not starting.done(), "it has started or ended in place of waiting"
    yield starting, f"http://{app.config.server.listen}", app.config.server.grpc_listen


async def first_run(disk: Path) -> str:
    """Store one record; return the key that sent it."""
    app = server_on(disk)
    await app.start()
    key = await app.create_first_key()
    assert key is not None
    async with ClientSession() as session:
        assert (200, None) == await send(session, app.url, key)
    assert 1 == await accepted(app)
    await app.stop()
    return key


@pytest.mark.parametrize("is_new", [False, True], ids=["a data directory", "a new one"])
async def test_a_start_without_any_room_serves_503_until_there_is_some(disk: Path, is_new: bool) -> None:
    """
    Both reserves are gone and no byte is free. Senders get a retry time and probes the reason. The start
    continues when space is free.
    """
    key = "th_unknown" if is_new else await first_run(disk)
    for name in (reserve.FILE, reserve.START_FILE):
        (disk / "data" / name).unlink(missing_ok=True)
    filler = fill(disk)
    app = server_on(disk)
    async with waiting(app) as (starting, url, grpc_address), ClientSession() as session:
        for _ in range(3):
            assert (503, "5") == await send(session, url, key)
        async with session.get(f"{url}/livez") as live, session.get(f"{url}/readyz") as ready:
            body = await ready.json()
            assert live.status == 200
            assert ready.status == 503
            assert body["ready"] is False
            assert [f"the disk of {disk}/data is full"] == body["reasons"]
        async with grpc.aio.insecure_channel(grpc_address) as channel:
            export: Export = channel.stream_unary(f"/{next(iter(GRPC_SERVICES))}/Export")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await export(iter([b""]))
            assert grpc.StatusCode.UNAVAILABLE == refused.value.code()
        filler.unlink()
        async with limited():
            await starting
        assert app.url == url
        assert app.grpc_address == grpc_address
        if not is_new:
            assert 1 == await accepted(app)
            assert (200, None) == await send(session, url, key)
    await app.stop()


async def test_a_start_on_a_full_disk_gives_up_its_own_reserve(disk: Path) -> None:
    """
    The large reserve was used before the start. The small one is enough to open all files, so that
    routes can drain.
    """
    key = await first_run(disk)
    (disk / "data" / reserve.FILE).unlink()
    filler = fill(disk)
    app = server_on(disk)
    async with limited():
        await app.start()
    assert not (disk / "data" / reserve.START_FILE).exists()
    assert 1 == await accepted(app)
    async with ClientSession() as session:
        assert 503 == (await send(session, app.url, key))[0]
        filler.unlink()

        async def is_stored() -> bool:
            return (await send(session, app.url, key))[0] == 200

        await until(is_stored)
    assert (disk / "data" / reserve.START_FILE).stat().st_size == reserve.START_SIZE
    await app.stop()


async def test_a_start_that_waits_can_be_stopped(disk: Path) -> None:
    """A start that waits for free space can be stopped. The stop closes the listening sockets."""
    disk.joinpath("data").mkdir(mode=0o700)
    fill(disk)
    app = server_on(disk)
    async with waiting(app) as (starting, url, _):
        app.stop_waiting_for_space()
        with pytest.raises(StartAbandoned):
            await starting
        with pytest.raises(OSError, match="onnect"):
            await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
