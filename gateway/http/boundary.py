"""
What all HTTP endpoints share: the order of checks, the request boundary, and the turn that a long job gives the loop.

The order is: content coding (415), method (405), media type (415), key and scope (401, 403, 429), size (413), bytes in
hand (503), body (400). Nothing is read from a sender that may not send.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from typing import TypeVar

from aiohttp import web
from yarl import URL

from gateway.authentication.access import Bearer
from gateway.errors import Refusal
from gateway.http import answers, bodies
from gateway.http.listener import is_loopback
from gateway.monitoring.logs import where
from gateway.services import ReceiverServices
from spool.devices import is_device_id
from spool.errors import SpoolFull, SpoolUnavailable
from spool.registry.scopes import INGEST

Handler = Callable[[web.Request], Awaitable[web.Response]]
Dress = Callable[[web.Request, Refusal], web.Response]
T = TypeVar("T")

DEVICE_ID = "X-Device-Id"
AT_ONCE = 64 * 1024  # bytes that are normalised within some two milliseconds

_log = logging.getLogger(__name__)


def admit(services: ReceiverServices, request: web.Request, secret: str | None, *, scope: str = INGEST) -> Bearer:
    """The bearer of `secret` (see `authorization`), charged for one request. Refusal 401, 403 or 429."""
    bearer = services.access.admit(secret, scope, address=request.remote or "")
    if bearer is services.access.local:
        refuse_browsers(request)
    services.access.charge(bearer, requests=1, bytes=0)
    return naming(bearer, request.headers.get(DEVICE_ID))


async def read_body(services: ReceiverServices, request: web.Request, lease: bodies.Lease, bearer: Bearer) -> bytes:
    """The inflated body, charged to its key."""
    body = await bodies.read(request, lease, max_bytes=services.max_body_bytes)
    services.access.charge(bearer, requests=0, bytes=len(body))
    return body


def refuse_browsers(request: web.Request) -> None:
    """Where no key is asked for, a page that somebody's browser has open must not send in the user's name."""
    host = URL.build(scheme="http", authority=request.host).host
    if "Origin" in request.headers or host is None or not is_loopback(host):
        raise Refusal(403, "not_local", "Only programs of this machine may send here, under a loopback address.")


def naming(bearer: Bearer, device: str | None) -> Bearer:
    """With the device that the request says it comes from; what is no device's id names none."""
    return replace(bearer, named=device) if device and is_device_id(device) else bearer


def authorization(request: web.Request) -> str | None:
    """The key as most addresses take it: the whole value of the Authorization header."""
    return request.headers.get("Authorization")


def guarded(
    name: str, handler: Handler, services: ReceiverServices, *, methods: str = "POST", dress: Dress | None = None
) -> Handler:
    """
    The request boundary: every outcome becomes an answer in the endpoint's form, counted and logged.

    `methods` are separated by commas, as `Allow` wants them.
    """
    allowed = frozenset(methods.split(", "))
    requests = services.metrics.requests

    async def enter(request: web.Request) -> web.Response:
        try:
            with services.in_hand:
                bodies.check_encoding(request)
                if request.method not in allowed:
                    return _other_method(request)
                response = await handler(request)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the request boundary
            response = refuse(request, refusal_of(error, endpoint=name))
        requests(name, response.status)
        return response

    def _other_method(request: web.Request) -> web.Response:
        preflight = services.cors.preflight(request, methods)
        if preflight is not None:
            return preflight
        error = Refusal(405, "method_not_allowed", f"This address takes {methods}.")
        response = refuse(request, error)
        response.headers["Allow"] = methods
        requests(name, response.status)
        return response

    def refuse(request: web.Request, error: Refusal) -> web.Response:
        _log.log(
            logging.ERROR if error.status == 500 else logging.WARNING,
            "refused a request",
            extra={
                "action": "request_refused",
                "endpoint": name,
                "status": error.status,
                "type": error.type,
                "address": request.remote,
            },
        )
        return dress(request, error) if dress else answers.refusal(error)

    return enter


def refusal_of(error: Exception, *, endpoint: str) -> Refusal:
    """What the sender hears about an error. Only our own mistake is a 500, and it tells nothing of what was sent."""
    match error:
        case Refusal():
            return error
        case SpoolFull():
            return Refusal(503, "spool_full", f"Nothing was kept: {error}.", retry_after_s=error.retry_after_s)
        case SpoolUnavailable():
            return Refusal(503, "spool_unavailable", "Nothing was kept; send it again shortly.", retry_after_s=1)
    # The exception's text may hold what was sent, so its type and place have to do.
    _log.error(
        "an endpoint failed",
        extra={"action": "endpoint_failed", "endpoint": endpoint, "error": type(error).__name__, "where": where(error)},
    )
    return Refusal(500, "internal", "Tollhouse made a mistake; the operator finds it in the log.")


async def drive(work: Generator[None, None, T], *, size: int | None = None) -> T:
    """
    Run a job slice by slice, and give the loop its turn in between; a body of few bytes needs no turn.

    `size` is None where a body may hold more than it weighs.
    """
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        if size is None or size > AT_ONCE:
            await asyncio.sleep(0)
