"""What the house says about itself: health on every listener, figures on the operator's side, 404 elsewhere."""

from __future__ import annotations

from aiohttp import web

from gateway.doors import answers
from gateway.doors.door import Handler, House, guarded
from gateway.errors import Refusal
from gateway.health import Health
from gateway.metrics import CONTENT_TYPE, Exposition


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


def nowhere(house: House) -> Handler:
    """Every other address. A trailing slash is one, too: a redirect would lose the body of a POST."""

    async def answer(_: web.Request) -> web.Response:
        raise Refusal(404, "not_found", "There is nothing at this address.")

    return guarded("nowhere", answer, house, methods="GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")


def _verdict(good: bool, body: object) -> web.Response:
    status = 200 if good else 503
    return web.Response(status=status) if body is None else answers.json_response(body, status=status)
