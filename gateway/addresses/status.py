"""Addresses of health, figures and the OpenAPI document, and the one of every path that is nowhere else."""

from __future__ import annotations

from gateway.api import status
from gateway.http.address import Address
from gateway.http.answers import JSON
from gateway.http.requests import AddressHandler
from gateway.schemas import BOOLEAN, COUNT, OBJECT, TEXT, Schema, array, closed

_ROUTE = closed(
    {
        "route": TEXT,
        "state": TEXT,
        "reason": {"type": ["string", "null"]},
        "queued": COUNT,
        "oldest_age_s": {"type": ["number", "null"]},
    }
)
_READY = closed(
    {
        "ready": BOOLEAN,
        "reasons": array(TEXT),
        "routes": array(_ROUTE),
        "keys": OBJECT,
        "clock": OBJECT,
        "space": {"type": ["object", "null"]},
        "storage": {"type": ["object", "null"]},
        "nodes": array(OBJECT),
        "ledger": {"type": ["object", "null"]},
    }
)


def _status(
    path: str, handler: AddressHandler, summary: str, *statuses: int, media: str = JSON, body: Schema = OBJECT
) -> Address:
    return Address(
        methods=("GET",),
        path=path,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        gives={status: {media: body} for status in statuses},
        refusals=(),
    )


ON_EVERY_LISTENER = (
    _status("/livez", status.livez, "Whether Tollhouse lives", 200, 503, body=closed({"live": BOOLEAN})),
    _status("/readyz", status.readyz, "Whether Tollhouse accepts records", 200, 503, body=_READY),
)
FOR_METRICS = (
    _status("/metrics", status.metrics, "Figures in Prometheus text", 200, media="text/plain", body=TEXT),
)
FOR_OPERATORS = (
    *FOR_METRICS,
    _status("/openapi.json", status.openapi, "This document", 200),
)

# Every path that no row has. It may hold a line break (%0A).
NOWHERE = Address(
    methods=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
    path="/{path:(?s:.*)}",
    name="nowhere",
    summary="404",
    handler=status.nowhere,
    endpoint="nowhere",
    checks_query=False,
)
