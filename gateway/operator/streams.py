"""
The calls of the operator API on unit-cost streams: their definitions, sums whose arrival is unknown, and types of usage
events, which become streams or do not.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operator.body import RequestBody, moment
from gateway.operator.requests import OperatorRequest
from spool.deliveries.values import UnknownDelivery
from spool.log.event_types import EventType
from spool.record import Record, as_json
from spool.streams import TYPES, Stream

SHOWN_RECORDS = 100  # of one delivery; more are not compared by hand


class Resolution(RequestBody):
    """What the operator found out: the delivery was `sent`, and counts there, or it was not and is sent again."""

    sent: bool


@dataclass(frozen=True)
class _Unknown:
    delivery: UnknownDelivery
    records: list[Record]


@dataclass(frozen=True)
class _SentType:
    seen: EventType
    sent_as: str | None


def shown_event_type(type: _SentType) -> dict[str, object]:
    """`sent_as` is null for a type without a mapping: its events are kept here and not sent."""
    return {
        "type": type.seen.type,
        "count": type.seen.count,
        "last_seen": moment(type.seen.last_seen),
        "sent_as": type.sent_as,
    }


def shown_stream(stream: Stream) -> dict[str, object]:
    return {
        "name": stream.name,
        "type": stream.type,
        "granularity": stream.granularity,
        "dimensions": None if stream.keys is None else list(stream.keys),
    }


def shown_unknown(unknown: _Unknown) -> dict[str, object]:
    delivery = unknown.delivery
    return {
        "id": delivery.id,
        "route": delivery.route,
        "first": delivery.first,
        "last": delivery.last,
        "reason": delivery.reason,
        "records": [as_json(record) for record in unknown.records[:SHOWN_RECORDS]],
    }


STREAMS: List[Stream] = List(
    root="streams",
    show=shown_stream,
    identity=Sort(value=lambda stream: stream.name),
    sorts={"name": Sort(value=lambda stream: stream.name), "type": Sort(value=lambda stream: stream.type)},
    default_sort=("name", "asc"),
    filters={"type": Filter(values=lambda stream: (stream.type,), valid_values=TYPES)},
)

UNKNOWN: List[_Unknown] = List(
    root="unknown",
    show=shown_unknown,
    identity=Sort(value=lambda unknown: unknown.delivery.id),
    sorts={"id": Sort(value=lambda unknown: unknown.delivery.id)},
    default_sort=("id", "asc"),
    filters={"route": Filter(values=lambda unknown: (unknown.delivery.route,))},
)


EVENT_TYPES: List[_SentType] = List(
    root="event_types",
    show=shown_event_type,
    identity=Sort(value=lambda type: type.seen.type),
    sorts={
        "type": Sort(value=lambda type: type.seen.type),
        "count": Sort(value=lambda type: type.seen.count),
        "last_seen": Sort(value=lambda type: type.seen.last_seen),
    },
    default_sort=("type", "asc"),
    filters={
        "type": Filter(values=lambda type: (type.seen.type,)),
        "sent": Filter(values=lambda type: ("no" if type.sent_as is None else "yes",), valid_values=("yes", "no")),
    },
)


async def list_event_types(request: OperatorRequest[None]) -> Result:
    services = request.services
    types = [_SentType(seen, services.events_sent_as(seen.type)) for seen in await services.log.event_types()]
    return await request.list(EVENT_TYPES, MemoryRows(types))


async def list_streams(request: OperatorRequest[None]) -> Result:
    return await request.list(STREAMS, MemoryRows(await request.services.streams.streams()))


async def list_unknown(request: OperatorRequest[None]) -> Result:
    """The page of them with their records, which the operator compares with those upstream."""
    services = request.services
    found = []
    for delivery in await services.deliveries.unknowns():
        if delivery.kept is not None:
            entries = [delivery.kept]
        else:
            last = min(delivery.last, delivery.first + SHOWN_RECORDS - 1)
            entries = list(await services.log.read(delivery.topic, delivery.first, last))
        records = [record for entry in entries for record in entry.records if record is not None]
        found.append(_Unknown(delivery, records))
    return await request.list(UNKNOWN, MemoryRows(found))


async def resolve(request: OperatorRequest[Resolution]) -> Result:
    services = request.services
    number = request.number("id")
    given = request.body
    async with request.audited("streams.resolve", str(number), {"sent": given.sent}):
        done = await services.deliveries.resolve(number, sent=given.sent)
    services.wake(done.route)
    return {"resolved": {"id": done.id, "route": done.route, "first": done.first, "last": done.last}}
