"""Health on every listener; figures and the OpenAPI document on the operator's side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.holders.receivers import StatusServices
from gateway.http.requests import KeyRequest
from gateway.monitoring.metrics import CONTENT_TYPE

# Makes the OpenAPI document as JSON, once: it is large. Set on the operator's side alone: elsewhere health is
# a status without a body.
DOCUMENT: web.AppKey[Callable[[], bytes]] = web.AppKey("DOCUMENT")


async def livez(request: KeyRequest[StatusServices, None]) -> web.Response:
    live = await request.services.health.live()
    return _verdict(live, {"live": live} if DOCUMENT in request.http.app else None)


async def readyz(request: KeyRequest[StatusServices, None]) -> web.Response:
    health = request.services.health
    if DOCUMENT not in request.http.app:
        return _verdict(await health.ready(), None)
    report = await health.report()
    return _verdict(report["ready"], report)


async def metrics(request: KeyRequest[StatusServices, None]) -> web.Response:
    return answers.respond(await request.services.exposition.text(), content_type=CONTENT_TYPE)


async def openapi(request: KeyRequest[StatusServices, None]) -> web.Response:
    """The document, without a key: it names nothing that is stored."""
    return answers.respond(await asyncio.to_thread(request.http.app[DOCUMENT]), headers=answers.UNCACHED)


async def nowhere(_: KeyRequest[StatusServices, None]) -> web.Response:
    """Refusal 404. A trailing slash makes another address, too: a redirect would lose the body of a POST."""
    raise Refusal(404, "not_found", "There is nothing at this address.")


def _verdict(good: bool, body: object) -> web.Response:
    status = 200 if good else 503
    return web.Response(status=status) if body is None else answers.json_response(body, status=status)
