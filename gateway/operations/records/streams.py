"""
Operator API handlers for unit-cost streams, usage events, and deliveries that were sent without an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.receivers.unit_cost import STREAMS
from gateway.operations.records.events import EVENTS, TYPES, check_span, event_rows, type_rows
from gateway.operations.records.newest import newest_visible
from gateway.operations.records.published import looked_through
from gateway.operations.requests.address import call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.deliveries.values import UnknownDelivery
from spool.record import USAGE_EVENTS, Record, record_to_json
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_STREAM_SETTINGS

SHOWN_RECORDS = 100  # maximum records shown per delivery, because nobody compares more by hand


class Resolution(RequestBody):
    """
    The operator's finding about a delivery without an answer. If `sent` is true, the destination has the
    records and they count as delivered. If `sent` is false, they are sent again.
    """

    sent: bool


@dataclass(frozen=True)
class _Unknown:
    delivery: UnknownDelivery
    records: list[Record]


def describe_unknown(unknown: _Unknown) -> dict[str, object]:
    delivery = unknown.delivery
    return {
        "id": delivery.id,
        "route": delivery.route,
        "first": delivery.first,
        "last": delivery.last,
        "reason": delivery.reason,
        "records": [record_to_json(record) for record in unknown.records[:SHOWN_RECORDS]],
    }


UNKNOWN: List[_Unknown] = List(
    root="unknown",
    show=describe_unknown,
    identity=Sort(value=lambda unknown: unknown.delivery.id),
    sorts={"id": Sort(value=lambda unknown: unknown.delivery.id)},
    default_sort=("id", "asc"),
    filters={"route": Filter(values=lambda unknown: (unknown.delivery.route,))},
)


@call("GET", "/streams", VIEW_STREAM_SETTINGS, "List unit-cost streams", lists=STREAMS)
async def list_streams(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(STREAMS, MemoryRows(await request.services.streams.streams()))


@call("GET", "/events", VIEW_STREAM_SETTINGS, "List the newest usage events", lists=EVENTS)
async def list_events(request: OperatorRequest[SpoolServices, None]) -> Result:
    """List the newest events that match. `looked_through` says how far back was searched."""
    check_span(request.http)
    event_records = await newest_visible(request, request.services, (USAGE_EVENTS,))
    return {
        **await request.list(EVENTS, event_rows(request.services, event_records)),
        **looked_through(event_records),
    }


@call("GET", "/event-types", VIEW_STREAM_SETTINGS, "List types of usage events", lists=TYPES)
async def list_event_types(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(TYPES, await type_rows(request.services))


@call(
    "GET", "/unknown", VIEW_STREAM_SETTINGS, "List deliveries that were sent without an answer", lists=UNKNOWN
)
async def list_unknown(request: OperatorRequest[SpoolServices, None]) -> Result:
    """
    List deliveries without an answer, with their records, so that the operator can compare them with
    the receiver's data.
    """
    services = request.services
    unknown_deliveries = []
    for delivery in await services.deliveries.unknown_deliveries():
        if delivery.kept is not None:
            entries = [delivery.kept]
        else:
            last = min(delivery.last, delivery.first + SHOWN_RECORDS - 1)
            entries = list(await services.log.read(delivery.topic, delivery.first, last))
        records = [record for entry in entries for record in entry.records if record is not None]
        unknown_deliveries.append(_Unknown(delivery, records))
    return await request.list(UNKNOWN, MemoryRows(unknown_deliveries))


@call("POST", "/unknown/{id}/resolve", OPERATE_SPOOL, "Resolve a delivery that was sent without an answer")
async def resolve(request: OperatorRequest[SpoolServices, Resolution]) -> Result:
    services = request.services
    number = request.number("id")
    body = request.body
    async with request.audited("streams.resolve", str(number), {"sent": body.sent}):
        done = await services.deliveries.settle_unknown(number, sent=body.sent)
    await services.wake(done.route)
    return {"resolved": {"id": done.id, "route": done.route, "first": done.first, "last": done.last}}
