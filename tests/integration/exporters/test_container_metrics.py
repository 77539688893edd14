"""
Container metrics sent upstream: requests of the agent arrive, and leave to a service with its own upload addresses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from exporters.pace import Backoff
from exporters.service.container_metrics import ContainerFileSync
from exporters.service.upstream_client import UpstreamClient
from exporters.settings import UpstreamKey, UpstreamSettings
from gateway.configuration.sections import Config
from spool.clock import SystemClock
from spool.container_files.files import ContainerFiles
from spool.container_files.values import FILE
from spool.registry.scopes import GROUPS
from spool.settings import SpoolSettings
from tests.integration import container_agent as agent
from tests.integration.conftest import Serve, Serving
from tests.integration.container_agent import BASE
from tests.integration.container_service import SECRET, FakeService, running
from tests.waiting import until

QUICK = Backoff(first_s=0.01, most_s=0.05)


def upstream(
    url: str, tmp_path: Path, scopes: tuple[str, ...] = GROUPS["Container agent"]
) -> UpstreamSettings:
    (tmp_path / "key").write_text(SECRET)
    key = UpstreamKey(name="containers", secret_file=tmp_path / "key", scopes=scopes)
    return UpstreamSettings(base_url=url, keys=(key,), timeout=30)


@asynccontextmanager
async def syncing(server: Serving, settings: UpstreamSettings) -> AsyncIterator[ContainerFileSync]:
    """Run a sync next to a server without an upstream, so that the test decides when it starts."""
    clock = SystemClock()
    client = UpstreamClient.from_settings(settings, clock=clock)
    sync = ContainerFileSync(kept(server), client, clock=clock, backoff=QUICK)
    task = asyncio.create_task(sync.run())
    try:
        yield sync
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await sync.close()


def kept(server: Serving) -> ContainerFiles:
    return server.app.services.storage.container_files


async def made(serve: Serve) -> tuple[Serving, str]:
    server = await serve(config=Config(spool=SpoolSettings(hold=0)))
    return server, await server.make_key("agent", scopes=agent.SCOPES)


async def test_what_the_agent_sends_arrives(serve: Serve, tmp_path: Path) -> None:
    """
    Files go to the service's upload addresses without its key. Everything else goes unchanged, each once.
    """
    server, key = await made(serve)
    data = {f"{n}.parquet": bytes([n]) * 400_000 for n in range(5)}
    assert [200] * 5 == await agent.ship(server, data, key)
    protobuf = "application/x-protobuf"
    await server.send(f"{BASE}/status", agent.status(), content_type=protobuf, key=key)
    await server.send(f"{BASE}/status?type=configLoad", agent.config(), content_type=protobuf, key=key)
    snappy = {"Content-Encoding": "snappy"}
    await server.send(BASE + agent.query(), b"s" * 2000, content_type=protobuf, key=key, headers=snappy)
    async with running(FakeService()) as service, syncing(server, upstream(service.url, tmp_path)) as sync:
        await until(lambda: sync.state().delivered == 8)
        assert service.objects == data
        assert set(service.puts.values()) == {1}
        assert {None} == service.keys_seen
        [query] = service.queries
        told = ("prod", "123456789012", "us-east-1", "5", agent.SHIPPER, "3600")
        names = ("cluster_name", "cloud_account_id", "region", "count", "shipper_id", "expiration")
        assert told == tuple(query[name] for name in names)
        posted = {path: body for path, _, body in service.posted}
        assert agent.status() == posted[f"{BASE}/status"]
        assert agent.config() == posted[f"{BASE}/status?type=configLoad"]
        assert b"s" * 2000 == posted[f"{BASE}{agent.query()} snappy"]
        assert sync.state().state == "running"
        assert sync.state().reason is None
        assert sync.state().queued == 0
    assert () == (await kept(server).recount_accounting()).imbalances


async def test_a_replay_is_served(serve: Serve, tmp_path: Path) -> None:
    """
    If the service asks for a file again, Tollhouse sends it from its stored files. A file that it does not know is
    reported to the service as abandoned.
    """
    server, key = await made(serve)
    async with running(FakeService()) as service, syncing(server, upstream(service.url, tmp_path)):
        await agent.ship(server, {"one": b"first"}, key)
        await until(lambda: service.puts["one"] == 1)
        service.replays = ["one", "never-seen"]
        await agent.ship(server, {"two": b"second"}, key)
        await until(lambda: service.puts["one"] == 2 and service.abandoned)
        assert service.objects == {"one": b"first", "two": b"second"}
        assert service.abandoned == ["never-seen"]


async def test_a_wrong_key_parks_and_loses_nothing(serve: Serve, tmp_path: Path) -> None:
    """
    A wrong key pauses the sync of container metrics and loses nothing. The stated reason quotes the upstream. When
    an operator wakes the sync, it retries at once.
    """
    server, key = await made(serve)
    async with (
        running(FakeService(status=403)) as service,
        syncing(server, upstream(service.url, tmp_path)) as sync,
    ):
        await agent.ship(server, {"one": b"metrics"}, key)
        await until(lambda: sync.state().state == "parked")
        assert "not authorized" in (sync.state().reason or "")
        assert 1 == sync.state().queued
        service.status = 200
        sync.retry_now()
        await until(lambda: service.objects)
        await until(lambda: sync.state().state == "running")


async def test_a_key_for_a_part_parks_the_rest(serve: Serve, tmp_path: Path) -> None:
    """If no key covers uploads, statuses are still sent. The stated reason names the missing scope."""
    server, key = await made(serve)
    await agent.ship(server, {"one": b"metrics"}, key)
    await server.send(f"{BASE}/status", agent.status(), content_type="application/x-protobuf", key=key)
    scopes = ("container-metrics_v1:get-status",)
    async with (
        running(FakeService()) as service,
        syncing(server, upstream(service.url, tmp_path, scopes)) as sync,
    ):
        await until(lambda: service.posted and sync.state().state == "parked")
        assert "container-metrics_v1:upload" in (sync.state().reason or "")
        assert {} == service.objects


async def test_expired_upload_address_is_requested_again(serve: Serve, tmp_path: Path) -> None:
    """
    If an upload address expired, a new one is requested. If the object store is busy, the upload is tried again.
    """
    server, key = await made(serve)
    expired = web.Response(status=403, text="<Error><Message>Request has expired</Message></Error>")
    busy = web.Response(status=503)
    service = FakeService(answers=[expired, busy])
    async with running(service), syncing(server, upstream(service.url, tmp_path)) as sync:
        await agent.ship(server, {"one": b"metrics"}, key)
        await until(lambda: service.objects)
        assert len(service.queries) == 3
        assert sync.state().state == "running"


async def test_a_refused_file_holds_no_other(serve: Serve, tmp_path: Path) -> None:
    """A file that the service refuses is shown with the text of the refusal, and does not hold up other files."""
    server, key = await made(serve)
    async with running(FakeService(answers=[web.Response(status=400, text="no parquet")])) as service:
        await agent.ship(server, {"one": b"metrics", "two": b"metrics"}, key)
        async with syncing(server, upstream(service.url, tmp_path)) as sync:
            await until(lambda: (1, 1) == (sync.state().queued, sync.state().refused))
            assert 1 == len(service.objects)
    found = await kept(server).rows.select_files("unsent", now=1e12, limit=9)
    assert ["400 no parquet"] == [file.problem for file in found]


async def test_damaged_bytes_never_leave(serve: Serve, tmp_path: Path) -> None:
    """If stored bytes are damaged, the agent is asked to send the file again. Then it arrives complete."""
    server, key = await made(serve)
    await agent.ship(server, {"one": b"metrics"}, key)
    [file] = await kept(server).due_files(FILE, limit=1)
    path = server.app.config.data_dir / "container-files" / file.id
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    async with running(FakeService()) as service, syncing(server, upstream(service.url, tmp_path)):
        await until(lambda: kept(server).sums.sum_file_counters("damaged", FILE))
        answer = await agent.announce(server, ["two"], key)
        [asked] = json.loads(answer.headers["X-CloudZero-Replay"])
        await agent.put(server, asked["url"], b"metrics")
        await until(lambda: service.objects)
        assert {"one": b"metrics"} == service.objects


async def test_two_gateways_chain(serve: Serve, tmp_path: Path) -> None:
    """
    In a chain of two gateways, the second one gets all container metrics from the first. A file that arrives twice
    is stored once.
    """
    far, _ = await made(serve)
    (tmp_path / "far").write_text(await far.make_key("near", scopes=GROUPS["Container agent"]))
    keys = (UpstreamKey(name="far", secret_file=tmp_path / "far", scopes=GROUPS["Container agent"]),)
    settings = UpstreamSettings(base_url=far.url, kind="tollhouse", keys=keys)
    near = await serve(config=Config(spool=SpoolSettings(hold=0), upstream=settings))
    agents = await near.make_key("agent", scopes=agent.SCOPES)
    await agent.ship(near, {"one": b"metrics", "two": b"more"}, agents)
    await until(lambda: kept(near).sums.sum_file_counters("delivered", FILE) == 2)
    assert 2 == kept(far).sums.sum_file_counters("uploaded", FILE)
    [route] = [one for one in near.app.services.operators.spool.syncs() if one.topic == "container-metrics"]
    assert route.name == "upstream/container-metrics"
    assert route.state == "running"
    assert route.queued == 0
