"""A made-up seller behind a real socket: it tells what a call cost in the end, once it knows the call."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

KEY = "sk-or-v1-0123456789abcdef0123456789abcdef"


def generation(id: str, **changes: Any) -> dict[str, Any]:
    """Of both sellers, as their documents have it."""
    data = {
        "id": id, "upstream_id": f"chatcmpl-upstream-{id[-12:]}", "total_cost": 0.0015, "is_byok": False,
        "model": "openai/gpt-6-sol", "provider_name": "OpenAI", "created_at": "2026-11-20T10:00:00.000Z",
        "streamed": True, "cancelled": False, "latency": 1250, "native_tokens_prompt": 100,
        "native_tokens_completion": 10, "native_tokens_cached": 0, "native_tokens_reasoning": 0,
        "tokens_prompt": 90, "tokens_completion": 9, "external_user": "somebody-else", "workspace_id": "w-1",
    }  # fmt: skip
    return {"data": data | changes}


class MadeUpSeller:
    """`known` are its answers by id; every other call is a 404. `fault` is answered in place of the next answer."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.fault: web.Response | None = None
        self.is_silent = False
        self.padding = 0  # bytes of an answer, at least

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/generation", self.answer)
        return app

    async def answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({"error": {"message": f"no such key: {request.headers}"}}, status=401)
        self.asked.append(request.query["id"])
        if self.is_silent:
            await asyncio.Event().wait()
        if (fault := self.fault) is not None:
            self.fault = None
            return fault
        found = self.known.get(request.query["id"])
        if found is None:
            return web.json_response({"error": {"message": "Usage event not found"}}, status=404)
        return web.Response(text=json.dumps(found).ljust(self.padding), content_type="application/json")
