"""
Operator API handlers for unit-cost streams, usage events, and deliveries that were sent without an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from gateway.core.fields import build_answer, one_field_answer
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.receivers.unit_cost import STREAMS, StreamItem
from gateway.operations.records.events import (
    EVENTS,
    TYPES,
    EventItem,
    EventTypeItem,
    check_time_filters,
    event_rows,
    event_type_rows,
)
from gateway.operations.records.newest import newest_visible_records
from gateway.operations.records.published import describe_searched_records
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.deliveries.values import UnknownDelivery
from spool.record import USAGE_EVENTS, Record, record_to_json
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_STREAM_SETTINGS

SHOWN_RECORDS = 100  # maximum records shown per delivery, because nobody compares more by hand


class Resolution(RequestBody):
    """The operator's finding about a delivery without an answer."""

    sent: Annotated[
        bool,
        words(
            "True if the destination has the records, which then count as delivered. False sends them again."
        ),
    ]


@dataclass(frozen=True)
class _UnansweredDelivery:
    delivery: UnknownDelivery
    records: list[Record]


def describe_unanswered_delivery(unknown: _UnansweredDelivery) -> dict[str, object]:
    delivery = unknown.delivery
    return build_answer(
        UnknownDeliveryItem,
        delivery,
        records=[record_to_json(record) for record in unknown.records[:SHOWN_RECORDS]],
    )


UNKNOWN: ListDefinition[_UnansweredDelivery] = ListDefinition(
    root="unknown",
    show=describe_unanswered_delivery,
    identity=Sort(value=lambda unknown: unknown.delivery.id),
    sorts={"id": Sort(value=lambda unknown: unknown.delivery.id)},
    default_sort=("id", "asc"),
    filters={"route": Filter(values=lambda unknown: (unknown.delivery.route,))},
)


class UnknownRecord(msgspec.Struct, kw_only=True):
    kind: Annotated[str, words("The kind of the record."), example("unit_cost")]
    id: Annotated[str, words("The id of the record."), example("00000000000000000000000000000001")]
    source: Annotated[str, words("The product or gateway that reported the call."), example("unit-cost")]
    stream: Annotated[str, words("The name of the stream."), example("requests")]
    stream_type: Annotated[str, words("The type of the stream."), example("allocation")]
    operation: Annotated[str, words("How the record changes the stream, such as `sum`."), example("sum")]
    start_time: Annotated[
        str | None, words("The start of the period of the value, or null."), example("2026-11-27T01:19:27Z")
    ]
    granularity: Annotated[str | None, words("The length of a period, or null."), example("DAILY")]
    element_name: Annotated[
        str | None,
        words("The element that the amount belongs to, such as a customer, or null."),
        example("customer-1"),
    ]
    dimensions: Annotated[dict[str, Any], words("The dimensions of the record."), example({})]
    value: Annotated[str | None, words("The amount, or null."), example("100")]
    shadow: Annotated[
        bool,
        words(
            "Whether the record is not sent: it only creates the stream, which the first sum does as well."
        ),
        example(False),
    ]


class ResolvedDelivery(msgspec.Struct, kw_only=True):
    id: Annotated[int, words("The id of the delivery."), example(6)]
    route: Annotated[str, words("The route that sends the records."), example("upstream/unit-cost")]
    first: Annotated[int, words("The number of the first record."), example(1)]
    last: Annotated[int, words("The number of the last record."), example(3)]


class UnknownDeliveryItem(ResolvedDelivery, kw_only=True):
    reason: Annotated[
        str | None,
        words("Why the result is unknown, or null."),
        example("no answer within 30 s; it may have been summed or not"),
    ]
    records: Annotated[list[UnknownRecord], words("The records of the delivery, at most 100.")]


@operator_call(
    "GET", "/streams", VIEW_STREAM_SETTINGS, "List unit-cost streams", lists=STREAMS, item=StreamItem
)
async def list_streams(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list_page(STREAMS, MemoryRows(await request.services.streams.streams()))


@operator_call(
    "GET", "/events", VIEW_STREAM_SETTINGS, "List the newest usage events", lists=EVENTS, item=EventItem
)
async def list_events(request: OperatorRequest[SpoolServices, None]) -> Result:
    """List the newest events that match. `looked_through` says how far back was searched."""
    check_time_filters(request.http)
    event_records = await newest_visible_records(request, request.services, (USAGE_EVENTS,))
    return {
        **await request.list_page(EVENTS, event_rows(request.services, event_records)),
        **describe_searched_records(event_records),
    }


@operator_call(
    "GET", "/event-types", VIEW_STREAM_SETTINGS, "List types of usage events", lists=TYPES, item=EventTypeItem
)
async def list_event_types(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list_page(TYPES, await event_type_rows(request.services))


@operator_call(
    "GET",
    "/unknown",
    VIEW_STREAM_SETTINGS,
    "List deliveries that were sent without an answer",
    lists=UNKNOWN,
    item=UnknownDeliveryItem,
)
async def list_unknown(request: OperatorRequest[SpoolServices, None]) -> Result:
    """
    List deliveries without an answer, with their records, so that the operator can compare them with
    the receiver's data.
    """
    services = request.services
    unknown_deliveries = []
    for delivery in await services.deliveries.deliveries_with_unknown_outcome():
        if delivery.kept is not None:
            entries = [delivery.kept]
        else:
            last = min(delivery.last, delivery.first + SHOWN_RECORDS - 1)
            entries = list(await services.log.read(delivery.topic, delivery.first, last))
        records = [record for entry in entries for record in entry.records if record is not None]
        unknown_deliveries.append(_UnansweredDelivery(delivery, records))
    return await request.list_page(UNKNOWN, MemoryRows(unknown_deliveries))


@operator_call(
    "POST",
    "/unknown/{id}/resolve",
    OPERATE_SPOOL,
    "Resolve a delivery that was sent without an answer",
    answers=one_field_answer(
        "OneResolved", resolved=Annotated[ResolvedDelivery, words("The delivery that was resolved.")]
    ),
)
async def resolve(request: OperatorRequest[SpoolServices, Resolution]) -> Result:
    services = request.services
    number = request.path_number("id")
    body = request.body
    async with request.audited_change("streams.resolve", str(number), {"sent": body.sent}):
        done = await services.deliveries.settle_unknown(number, sent=body.sent)
    await services.wake(done.route)
    return {"resolved": {"id": done.id, "route": done.route, "first": done.first, "last": done.last}}
