"""Handlers for health on every listener, and for metrics and the OpenAPI document on the operator address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import web

from gateway.core.errors import not_found_refusal
from gateway.core.schemas import (
    BOOLEAN,
    COUNT,
    OBJECT,
    TEXT,
    TEXT_OR_NULL,
    Schema,
    array_of,
    closed_object,
    described,
    open_object,
)
from gateway.http import answers
from gateway.http.address import Address, addresses_of_handler
from gateway.http.answers import JSON
from gateway.monitoring.metrics import CONTENT_TYPE
from gateway.operations.holders.receivers import StatusServices
from gateway.operations.requests.key_requests import KeyRequest

# A function that creates the OpenAPI document as JSON only once, because the document is large. Only the
# operator address has this key. On other addresses, health is a status without a body.
DOCUMENT: web.AppKey[Callable[[], bytes]] = web.AppKey("DOCUMENT")


def _nullable(properties: Mapping[str, Schema], meaning: str) -> Schema:
    return {**described(open_object(properties), meaning), "type": ["object", "null"]}


_NUMBER: Schema = {"type": "number"}
_NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
_ROUTE = closed_object(
    {
        "route": described(TEXT, "The name of the route."),
        "state": described(TEXT, "The state of the route."),
        "reason": described(TEXT_OR_NULL, "The reason for the state, or null."),
        "since": described(TEXT_OR_NULL, "When the state began."),
        "progress": described(COUNT, "The number of the next record to send."),
        "queued": described(COUNT, "The number of waiting records."),
        "oldest_age_s": described(_NUMBER_OR_NULL, "The age of the oldest waiting record in seconds."),
        "unknown": described(COUNT, "The number of deliveries that were sent without an answer."),
        "ambiguous": described(
            COUNT, "The number of records in deliveries whose first request got no clear answer."
        ),
    }
)
_READY = closed_object(
    {
        "ready": described(BOOLEAN, "Whether the server accepts records."),
        "reasons": described(array_of(TEXT), "Why the server does not accept records."),
        "routes": array_of(_ROUTE),
        "keys": described(
            open_object({"read": described(BOOLEAN, "Whether the keys can be read.")}), "The stored keys."
        ),
        "clock": described(
            open_object(
                {
                    "now": described(_NUMBER, "The time that the server uses, in epoch seconds."),
                    "up_s": described(_NUMBER, "The seconds since the start."),
                    "step_s": described(_NUMBER, "How far the clock of the machine is ahead, in seconds."),
                    "held_s": described(_NUMBER, "How long deletion still waits, in seconds."),
                }
            ),
            "The clock of the server.",
        ),
        "space": _nullable(
            {
                "bytes": described(COUNT, "The size of the queue in bytes."),
                "max_bytes": described(COUNT, "The maximum size in bytes."),
                "free_bytes": described(_NUMBER_OR_NULL, "The free disk space in bytes."),
                "wal_bytes": described(_NUMBER_OR_NULL, "The size of the write-ahead log in bytes."),
                "wal_problem": described(TEXT_OR_NULL, "Why the write-ahead log cannot shrink, or null."),
                "kept_by": described(array_of(TEXT), "The routes that still need the oldest records."),
            },
            "The disk space of the queue.",
        ),
        "storage": _nullable(
            {
                "mount": described(TEXT_OR_NULL, "The type of the file system; null for a database."),
                "durability": described(TEXT, "How writes reach the disk."),
                "warning": described(TEXT_OR_NULL, "A risk of the storage, or null."),
            },
            "The file system of the storage.",
        ),
        "nodes": described(array_of(OBJECT), "The gateways that share the storage."),
        "ledger": _nullable(
            {
                "sound": described(BOOLEAN, "Whether the totals match the records."),
                "missed": described(COUNT, "The number of records that could not be counted."),
                "differing": described(COUNT, "The number of totals that differ from the records."),
                "compared_at": described(
                    _NUMBER_OR_NULL,
                    "When the totals were last compared with the records, in epoch seconds, or null.",
                ),
            },
            "The state of the totals.",
        ),
    }
)


def _status_address(
    path: str, summary: str, *statuses: int, media: str = JSON, body: Schema = OBJECT
) -> Address:
    return Address(
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
    body=closed_object({"live": described(BOOLEAN, "Whether the server is alive.")}),
)
async def livez(request: KeyRequest[StatusServices, None]) -> web.Response:
    live = await request.services.health.is_live()
    return _status_response(live, {"live": live} if DOCUMENT in request.http.app else None)


@_status_address("/readyz", "Check whether Tollhouse accepts records", 200, 503, body=_READY)
async def readyz(request: KeyRequest[StatusServices, None]) -> web.Response:
    health = request.services.health
    if DOCUMENT not in request.http.app:
        return _status_response(await health.is_ready(), None)
    report = await health.build_report()
    return _status_response(report["ready"], report)


@_status_address("/metrics", "Metrics in Prometheus text format", 200, media="text/plain", body=TEXT)
async def metrics(request: KeyRequest[StatusServices, None]) -> web.Response:
    return answers.bytes_response(await request.services.exposition.current_text(), content_type=CONTENT_TYPE)


@_status_address("/openapi.json", "This document", 200)
async def openapi(request: KeyRequest[StatusServices, None]) -> web.Response:
    """Return the OpenAPI document. It needs no key, because it contains no stored data."""
    return answers.bytes_response(
        await asyncio.to_thread(request.http.app[DOCUMENT]), headers=answers.UNCACHED
    )


@Address(
    methods=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
    path="/{path:(?s:.*)}",  # matches every path without an address of its own; a path may contain a line break (%0A)
    summary="404",
    endpoint="nowhere",
    checks_query=False,
)
async def nowhere(_: KeyRequest[StatusServices, None]) -> web.Response:
    """
    Refuse with 404. A path with a trailing slash is not redirected to the path without it, because a redirect
    would lose the body of a POST.
    """
    raise not_found_refusal()


def _status_response(good: bool, body: object) -> web.Response:
    status = 200 if good else 503
    return web.Response(status=status) if body is None else answers.json_response(body, status=status)


ON_EVERY_LISTENER = (*addresses_of_handler(livez), *addresses_of_handler(readyz))
FOR_METRICS = addresses_of_handler(metrics)
FOR_OPERATORS = (*FOR_METRICS, *addresses_of_handler(openapi))
[NOWHERE] = addresses_of_handler(nowhere)
