"""Every address in one table: the operations of every door, and the document made from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from aiohttp import web

from gateway.api import costs, insights
from gateway.api import status as house_side
from gateway.http.openapi import document
from gateway.operator.application import CALLS, PREFIX
from gateway.operator.body import answer
from gateway.receivers import ai_telemetry, devices, events, foreign, topic_operations
from gateway.receivers import otlp_http as otlp

OPERATIONS = (
    *otlp.OPERATIONS,
    *ai_telemetry.OPERATIONS,
    *foreign.OPERATIONS,
    *devices.OPERATIONS,
    *events.OPERATIONS,
    *topic_operations.UNIT_COST,
    *topic_operations.BILLING,
    *costs.OPERATIONS,
    *insights.OPERATIONS,
    *house_side.OPERATIONS,
)


@cache
def described(version: str) -> dict[str, Any]:
    """The OpenAPI document of doors and operator API."""
    return document(CALLS, prefix=PREFIX, version=version, operations=OPERATIONS)


def openapi(version: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    """What `/openapi.json` answers, without a key: the document names nothing that is stored."""

    async def handler(_: web.Request) -> web.Response:
        return answer(described(version))  # made when somebody asks: a megabyte that few ever read

    return handler
