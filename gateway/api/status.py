"""What the house says about itself: health on every listener, figures on the operator's side, 404 elsewhere."""

from __future__ import annotations

from aiohttp import web

from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.boundary import Handler, guarded
from gateway.http.operations import COUNT, OBJECT, TEXT, Operation, Schema, array, closed
from gateway.monitoring.health import Health
from gateway.monitoring.metrics import CONTENT_TYPE, Exposition
from gateway.services import ReceiverServices

_ROUTE = closed({
    "route": TEXT, "state": TEXT, "reason": {"type": ["string", "null"]}, "queued": COUNT,
    "oldest_age_s": {"type": ["number", "null"]},
})  # fmt: skip
_READY = closed({
    "ready": {"type": "boolean"}, "reasons": array(TEXT), "routes": array(_ROUTE), "keys": OBJECT, "clock": OBJECT,
    "space": {"type": ["object", "null"]},
})  # fmt: skip


def _told(path: str, summary: str, *statuses: int, media: str = answers.JSON, body: Schema = OBJECT) -> Operation:
    return Operation(
        method="GET",
        path=path,
        name=path.strip("/").partition(".")[0],
        summary=summary,
        scope=None,
        gives={status: {media: body} for status in statuses},
        refusals=(),
    )


OPERATIONS = (
    _told("/livez", "Whether the house lives", 200, 503, body=closed({"live": {"type": "boolean"}})),
    _told("/readyz", "Whether the house can accept and keep, and what would want a look", 200, 503, body=_READY),
    _told("/metrics", "Figures in Prometheus text", 200, media="text/plain", body=TEXT),
    _told("/openapi.json", "This document", 200),
)


def livez(health: Health, *, tell: bool) -> Handler:
    """`tell` adds a body; off the operator's side nobody learns more than the status."""

    async def answer(_: web.Request) -> web.Response:
        live = await health.live()
        return _verdict(live, {"live": live} if tell else None)

    return answer


def readyz(health: Health, *, tell: bool) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        if not tell:
            return _verdict(await health.ready(), None)
        report = await health.report()
        return _verdict(report["ready"], report)

    return answer


def metrics(exposition: Exposition) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return answers.respond(await exposition.text(), content_type=CONTENT_TYPE)

    return answer


def nowhere(services: ReceiverServices) -> Handler:
    """Every other address. A trailing slash is one, too: a redirect would lose the body of a POST."""

    async def answer(_: web.Request) -> web.Response:
        raise Refusal(404, "not_found", "There is nothing at this address.")

    return guarded("nowhere", answer, services, methods="GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")


def _verdict(good: bool, body: object) -> web.Response:
    status = 200 if good else 503
    return web.Response(status=status) if body is None else answers.json_response(body, status=status)
