"""A fake of the service that accepts container metrics, with the object store of its upload addresses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.integration import container_agent as agent
from tests.integration.container_agent import BASE

SECRET = "agent-secret"


@dataclass
class FakeService:
    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    puts: Counter[str] = field(default_factory=Counter)
    abandoned: list[str] = field(default_factory=list)
    posted: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)
    queries: list[Mapping[str, str]] = field(default_factory=list)
    replays: list[str] = field(default_factory=list)
    answers: list[web.Response] = field(default_factory=list)  # answers to the next PUT requests
    status: int = 200  # status of the answer to every request that has a key
    keys_seen: set[str | None] = field(default_factory=set)

    async def upload(self, request: web.Request) -> web.Response:
        if self.status != 200:
            return web.json_response(
                {"message": "User is not authorized to access this resource"}, status=self.status
            )
        assert SECRET == request.headers["Authorization"]
        assert agent.SHIPPER == request.headers["X-CloudZero-Shipper-ID"]
        self.queries.append(dict(request.query))
        told = await request.json()
        given = {
            one["reference_id"]: f"{self.url}/store/{one['reference_id']}?sig=secret" for one in told["files"]
        }
        headers = {}
        if self.replays:
            asked = [{"ref_id": name, "url": f"{self.url}/store/{name}"} for name in self.replays]
            headers["X-CloudZero-Replay"], self.replays = json.dumps(asked), []
        return web.json_response(given, headers=headers)

    async def put(self, request: web.Request) -> web.Response:
        self.keys_seen.add(request.headers.get("Authorization"))
        body = await request.read()
        assert request.content_length == len(body)
        if self.answers:
            return self.answers.pop(0)
        name = request.match_info["name"]
        self.puts[name] += 1
        self.objects[name] = body
        return web.Response()

    async def abandon(self, request: web.Request) -> web.Response:
        self.abandoned += [one["reference_id"] for one in await request.json()]
        return web.json_response({})

    async def post(self, request: web.Request) -> web.Response:
        coding = request.headers.get("Content-Encoding", "")
        self.posted.append(
            (f"{request.path_qs} {coding}".strip(), dict(request.headers), await request.read())
        )
        return web.json_response({}, status=self.status)


@asynccontextmanager
async def running(service: FakeService) -> AsyncIterator[FakeService]:
    app = web.Application()
    app.router.add_post(f"{BASE}/upload", service.upload)
    app.router.add_post(f"{BASE}/abandon", service.abandon)
    app.router.add_post(f"{BASE}/status", service.post)
    app.router.add_post(BASE, service.post)
    app.router.add_put("/store/{name}", service.put)
    runner = web.AppRunner(app, auto_decompress=False)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    service.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield service
    finally:
        await runner.cleanup()
