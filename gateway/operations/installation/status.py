"""Handlers for health on every listener, and for metrics and the OpenAPI document on the operator address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from aiohttp import web

from gateway.core.errors import not_found_refusal
from gateway.core.first_use import import_in_thread
from gateway.core.schemas import BOOLEAN, OBJECT, TEXT, Schema, closed_object_schema, schema_with_description
from gateway.http import answers
from gateway.http.address import ApiAddress, addresses_of_handler
from gateway.http.answers import JSON
from gateway.monitoring.health import ReadinessReport, ServerHealth
from gateway.monitoring.metrics import CONTENT_TYPE, Exposition
from gateway.operations.installation.nearest_address import advice_for_path
from gateway.operations.requests.key_requests import KeyRequest

# A function that creates the OpenAPI document as JSON only once, because the document is large. Only the
# operator address has this key. On other addresses, health is a status without a body.
DOCUMENT: web.AppKey[Callable[[], bytes]] = web.AppKey("DOCUMENT")


class StatusServices(Protocol):
    """Health and metrics, readable without a key."""

    health: ServerHealth
    exposition: Exposition


def _status_address(
    path: str, summary: str, *statuses: int, media: str = JSON, body: type | Schema = OBJECT
) -> ApiAddress:
    return ApiAddress(
        methods=("GET",),
        path=path,
        summary=summary,
        gives={status: {media: body} for status in statuses},
        refusals=(),
    )


@_status_address(
    "/livez",
    "Check whether Tollhouse is alive",
    200,
    503,
    body=closed_object_schema({"live": schema_with_description(BOOLEAN, "Whether the server is alive.")}),
)
async def livez(request: KeyRequest[StatusServices, None]) -> web.Response:
    live = await request.services.health.is_live()
    return _health_response(live, {"live": live} if DOCUMENT in request.http.app else None)


@_status_address("/readyz", "Check whether Tollhouse accepts records", 200, 503, body=ReadinessReport)
async def readyz(request: KeyRequest[StatusServices, None]) -> web.Response:
    health = request.services.health
    if DOCUMENT not in request.http.app:
        return _health_response(await health.is_ready(), None)
    report = await health.build_report()
    return _health_response(report["ready"], report)


@_status_address("/metrics", "Metrics in Prometheus text format", 200, media="text/plain", body=TEXT)
async def metrics(request: KeyRequest[StatusServices, None]) -> web.Response:
    return answers.bytes_response(await request.services.exposition.current_text(), content_type=CONTENT_TYPE)


@_status_address("/openapi.json", "This document", 200)
async def openapi(request: KeyRequest[StatusServices, None]) -> web.Response:
    """Return the OpenAPI document. It needs no key, because it contains no stored data."""
    return answers.bytes_response(
        await asyncio.to_thread(request.http.app[DOCUMENT]), headers=answers.UNCACHED
    )


@ApiAddress(
    methods=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
    path="/{path:(?s:.*)}",  # matches every path without an address of its own; a path may contain a line break (%0A)
    summary="404",
    endpoint="nowhere",
    checks_query=False,
)
async def nowhere(request: KeyRequest[StatusServices, None]) -> web.Response:
    """
    Refuse with 404 and the address that a sender probably meant, for every method: people try an address with
    a browser first. There is no redirect, because it would lose the body of a POST.
    """
    await import_in_thread("gateway.normalise.formats.list")
    from gateway.normalise.formats.list import BY_NAME

    raise not_found_refusal(advice_for_path(request.http.path, tuple(BY_NAME)))


def _health_response(is_healthy: bool, body: object) -> web.Response:
    status = 200 if is_healthy else 503
    return web.Response(status=status) if body is None else answers.json_response(body, status=status)


ON_EVERY_LISTENER = (*addresses_of_handler(livez), *addresses_of_handler(readyz))
FOR_METRICS = addresses_of_handler(metrics)
FOR_OPERATORS = (*FOR_METRICS, *addresses_of_handler(openapi))
[NOWHERE] = addresses_of_handler(nowhere)
