"""A cluster's agent and a gateway that is killed: every file arrives upstream once."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from pathlib import Path

from aiohttp import ClientError, ClientSession

from spool.registry.scopes import GROUPS
from tests.acceptance.conftest import Tollhouse
from tests.integration.container_agent import BASE, HEADERS, SHIPPER, query
from tests.integration.container_service import SECRET, FakeService, running
from tests.waiting import until

FILES = 24
KILLS = 3
SCOPES = GROUPS["Container agent"]


def config(url: str, secret: Path) -> str:
    return f"""
        [server]
        listen = "127.0.0.1:0"
        grpc_listen = ""
        [upstream]
        base_url = "{url}"
        [[upstream.keys]]
        name = "containers"
        secret_file = "{secret}"
        scopes = {json.dumps(list(SCOPES))}
    """


async def cycle(site: Tollhouse, key: str, left: Mapping[str, bytes], *, kill_after: int | None) -> set[str]:
    """
    Run one cycle of the shipper: announce the remaining files and send them; return the accepted references.
    """
    taken: set[str] = set()
    headers = {"Authorization": key, **HEADERS}
    body = {"shipperId": SHIPPER, "files": [{"reference_id": name} for name in left]}
    words = query(count=len(left), shipper_id=SHIPPER, expiration=3600)
    async with ClientSession() as client:
        async with client.post(f"{site.url}{BASE}/upload{words}", json=body, headers=headers) as answer:
            addresses = await answer.json()
        for place, (name, data) in enumerate(left.items()):
            killing = asyncio.create_task(asyncio.to_thread(site.kill)) if place == kill_after else None
            try:
                async with client.put(addresses[name], data=data) as answer:
                    if answer.status == 200:
                        taken.add(name)
            except (ClientError, OSError):
                assert killing is not None or site.process is None
            if killing is not None:
                await killing
                return taken
    return taken


async def test_a_killed_gateway_brings_every_file_upstream(tmp_path: Path) -> None:
    """
    The cluster's agent does not resend files that were answered with 200. After a kill, it repeats only files in
    flight.
    """
    chance = random.Random(7)
    data = {f"{n:02}.parquet": chance.randbytes(150_000) for n in range(FILES)}
    left = dict(data)
    (tmp_path / "secret").write_text(SECRET)
    async with running(FakeService()) as service:
        site = Tollhouse(tmp_path / "site", config(service.url, tmp_path / "secret"))
        scopes = [word for scope in SCOPES for word in ("--scope", scope)]
        key = await asyncio.to_thread(site.key, "agent", *scopes)
        try:
            for kill_after in [*(chance.randrange(2, 6) for _ in range(KILLS)), None]:
                await asyncio.to_thread(site.start)
                for name in await cycle(site, key, left, kill_after=kill_after):
                    del left[name]
            assert {} == left
            await until(lambda: service.objects == data, "every file is upstream")
            status = await asyncio.to_thread(site.json, "container", "status")
        finally:
            await asyncio.to_thread(site.stop)
    assert FILES <= sum(service.puts.values()) <= FILES + KILLS
    assert status["container_metrics"]["imbalances"] == []
    assert status["container_metrics"]["kinds"]["file"]["references"] == FILES
