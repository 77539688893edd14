"""The requirements of a lake for its store, tested with a folder and an S3 server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from exporters.check import check_destinations
from exporters.destinations.catalogue import destination_secret
from exporters.errors import Misconfigured, Retryable
from exporters.lake.destination import open_store
from exporters.lake.exporter import claim_prefix
from exporters.lake.stores import LakeStore
from exporters.probe import OK
from exporters.settings import DestinationSettings
from spool.clock import SystemClock
from spool.deliveries.values import PARKED
from tests.bench.lakes.relay import relayed
from tests.exporters.spools import calls
from tests.integration.lake import victim
from tests.integration.lake.lakes import opened, query
from tests.integration.lake.s3 import BUCKET
from tests.integration.lake.store_contract import StoreContract, names

_KEPT: Final = ("Content-Length", "ETag", "Last-Modified", "Content-Type", "Content-Range")


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("testing\ntesting-secret\n")
    return path


@pytest.fixture
def in_s3(s3: str, secret_file: Path, tmp_path: Path) -> DestinationSettings:
    """Return settings with a separate prefix for each test."""
    url = f"s3://{BUCKET}/{tmp_path.name}"
    return DestinationSettings(name="lake", type="s3", url=url, endpoint=s3, secret_file=secret_file)


@pytest.fixture(params=["folder", "s3"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> DestinationSettings:
    if request.param == "folder":
        return DestinationSettings(name="lake", type="file", path=tmp_path / "lake")
    found: DestinationSettings = request.getfixturevalue("in_s3")
    return found


@pytest.fixture
def store(settings: DestinationSettings) -> LakeStore:
    return open_store(settings, destination_secret(settings))


class TestStores(StoreContract):
    pass


async def test_unanswered_object_creation_is_retried_under_the_same_name(in_s3: DestinationSettings) -> None:
    """If a store does not answer a request to create an object, the same name is tried again later."""
    away = replace(in_s3, endpoint="http://127.0.0.1:9")
    with pytest.raises(Retryable):
        await open_store(away, destination_secret(away)).create_object("one", b"1")


@pytest.mark.proof
def test_a_kill_at_any_place_loses_nothing_in_s3(in_s3: DestinationSettings, tmp_path: Path) -> None:
    """
    A process that writes to S3 is killed at any place, also while an object is being sent. Every row exists once in
    the end.
    """
    given = {name: getattr(in_s3, name) for name in ("type", "url", "endpoint", "secret_file")}
    victim.kill_at_each_place(tmp_path / "data", **given)

    async def copied() -> None:
        store = open_store(in_s3, destination_secret(in_s3))
        async for each in store.list_objects("ai_telemetry/"):
            path = tmp_path / "lake" / each.name
            path.parent.mkdir(parents=True, exist_ok=True)
            await store.fetch(each.name, path)

    asyncio.run(copied())
    found = query(tmp_path / "lake", "SELECT count(*), count(DISTINCT number), sum(spend) FROM lake")
    assert [(victim.RECORDS, victim.RECORDS, Decimal("9.5"))] == found


async def test_a_request_that_fails_for_the_moment_is_repeated(
    in_s3: DestinationSettings, tmp_path: Path
) -> None:
    """
    If every third connection to the store is refused and every fifth is reset, all requests succeed in the end, and
    nothing exists twice.
    """
    with relayed(in_s3.endpoint, reset_each=5, refuse_each=3) as (way, relay):
        beyond = replace(in_s3, endpoint=way)
        store = open_store(beyond, destination_secret(beyond))
        for name in ("one", "six", "two"):
            content = name.encode() * 5_000
            await store.create_object(name, content)
            assert len(content) == await store.object_size(name)
            await store.fetch(name, tmp_path / name)
            assert content == (tmp_path / name).read_bytes()
            assert not await store.create_object(name, b"another")
        assert ["one", "six", "two"] == [each.name async for each in store.list_objects("")]
    assert relay.refused and relay.resets


@pytest.mark.parametrize(("status", "error"), [(501, Misconfigured), (400, Misconfigured), (503, Retryable)])
async def test_what_a_store_cannot_do_parks(
    status: int, error: type[Exception], in_s3: DestinationSettings
) -> None:
    """
    If a store does not support a header, the error is permanent and parks the route. If a store is busy, the error
    is temporary.
    """

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=404 if request.method == "HEAD" else status, text="<Error/>")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(application) as server:
        settings = replace(in_s3, endpoint=str(server.make_url("")).rstrip("/"))
        with pytest.raises(error):
            await open_store(settings, destination_secret(settings)).create_object("one", b"1")


async def test_cut_off_object_is_requested_again(in_s3: DestinationSettings, tmp_path: Path) -> None:
    """If a connection ends within an object, the error is temporary and the object is requested again."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nLast-Modified: Wed, 21 Oct 2026 07:28:00 GMT\r\n\r\n"
        writer.write(head.encode() + b"part")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        cut = replace(in_s3, endpoint=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(Retryable):
            await open_store(cut, destination_secret(cut)).fetch("one", tmp_path / "back")


async def test_a_bucket_that_is_missing_parks(in_s3: DestinationSettings) -> None:
    """
    If the bucket does not exist, the operator has to correct the setting, so the route is parked and the request is
    not repeated.
    """
    wrong = replace(in_s3, url="s3://nobody-has-this/lake")
    with pytest.raises(Misconfigured):
        await open_store(wrong, destination_secret(wrong)).create_object("one", b"1")


async def test_the_environment_sends_nothing_elsewhere(
    in_s3: DestinationSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Environment variables that set another endpoint or unsigned requests are ignored, so nothing is sent elsewhere.
    """
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_BUCKET", "elsewhere")
    assert await open_store(in_s3, destination_secret(in_s3)).create_object("one", b"1")


async def test_a_lake_in_s3_has_every_record_once(in_s3: DestinationSettings, tmp_path: Path) -> None:
    """Records sent to S3 can be read back. A missing secret parks the route until it returns."""
    secret = in_s3.secret_file
    assert secret is not None
    text = secret.read_text()
    secret.unlink()
    fields = {"type": "s3", "path": None, "url": in_s3.url, "endpoint": in_s3.endpoint, "secret_file": secret}
    async with opened(tmp_path / "data") as house, house.forwarding(**fields):
        await house.add(calls(1, 25, cost="0.1", cost_source="reported"))
        await house.until(state=PARKED)
        secret.write_text(text)
        await house.until(queued=0, delivered=25)
    store = open_store(in_s3, destination_secret(in_s3))
    for found in await names(store, "ai_telemetry/"):
        path = tmp_path / "back" / found.name
        path.parent.mkdir(parents=True, exist_ok=True)
        await store.fetch(found.name, path)
    assert [(25, Decimal("2.5"))] == query(
        tmp_path / "back", "SELECT count(DISTINCT number), sum(spend) FROM lake"
    )
    assert 3 == len(await names(store, "_manifest/"))


async def test_a_prefix_that_an_earlier_release_marked_is_nobodys(
    store: LakeStore, settings: DestinationSettings
) -> None:
    """
    The object with which an earlier release marked a prefix names no installation, so any installation may write
    there. An object that is not from Tollhouse is reported.
    """
    await store.create_object("_tollhouse.json", b'{"lake":1}\n')
    for installation in ("a1", "b2"):
        await claim_prefix(store, installation)
    other = open_store(replace(settings, **_below(settings, "other")), destination_secret(settings))
    await other.create_object("_tollhouse.json", b"[]")
    with pytest.raises(Misconfigured, match="was not written by Tollhouse"):
        await claim_prefix(other, "a1")


def _below(settings: DestinationSettings, name: str) -> dict[str, Any]:
    return {"path": settings.path / name} if settings.path else {"url": f"{settings.url}/{name}"}


async def test_check_says_that_a_store_ignores_conditions(in_s3: DestinationSettings) -> None:
    """
    A store that ignores conditions overwrites objects. The check reports this, and the store is
    used without conditions.
    """

    async def forward(request: web.Request) -> web.Response:
        headers = {name: value for name, value in request.headers.items() if name.lower() != "if-none-match"}
        url = in_s3.endpoint + str(request.rel_url)
        async with (
            ClientSession() as client,
            client.request(request.method, url, headers=headers, data=await request.read()) as answer,
        ):
            body = await answer.read()
            kept = {name: answer.headers[name] for name in _KEPT if name in answer.headers}
        return web.Response(status=answer.status, body=body, headers=kept)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", forward)
    async with TestServer(application) as server:
        settings = replace(in_s3, endpoint=str(server.make_url("")).rstrip("/"))
        for _ in range(2):
            (found,) = await check_destinations([settings], clock=SystemClock(), installation="a1")
            assert found.words is not None and "the store ignores write conditions" in found.words
            assert OK == found.status
