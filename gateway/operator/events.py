"""The calls of the operator API on usage events: their types with sums, and the newest events one by one."""

from __future__ import annotations

from gateway.api.kept.events import EVENTS, TYPES, check_span, event_rows, type_rows
from gateway.api.kept.records import looked_through
from gateway.http.holders.spool import SpoolServices
from gateway.http.requests import Result
from gateway.operator.log.newest import newest
from gateway.operator.requests import OperatorRequest
from spool.record import USAGE_EVENTS


async def list_event_types(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(TYPES, await type_rows(request.services))


async def list_events(request: OperatorRequest[SpoolServices, None]) -> Result:
    """The newest events that pass. `looked_through` says how far back was looked."""
    check_span(request.http)
    found = await newest(request, request.services, (USAGE_EVENTS,))
    return {**await request.list(EVENTS, event_rows(request.services, found)), **looked_through(found)}
