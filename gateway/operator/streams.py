"""The calls of the operator API on unit-cost streams: what they are, and sums of which nobody knows if they arrived."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.operator.body import Body, answer
from gateway.operator.calls import Asked, Call
from spool.deliveries.values import UnknownDelivery
from spool.record import Record, as_json
from spool.registry.operators import OPERATOR, VIEWER
from spool.streams import TYPES, Stream

SHOWN_RECORDS = 100  # of one delivery; more would not help whoever compares them by hand


class Resolution(Body):
    """What the operator found out: the delivery was `sent`, and counts there, or it was not and is sent again."""

    sent: bool


@dataclass(frozen=True)
class _Unknown:
    delivery: UnknownDelivery
    records: list[Record]


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


async def list_streams(asked: Asked) -> web.Response:
    return await asked.list(STREAMS, MemoryRows(await asked.services.streams.streams()))


async def list_unknown(asked: Asked) -> web.Response:
    """With the exact records, because whoever settles it looks for them on the other side."""
    services = asked.services
    found = []
    for delivery in await services.deliveries.unknowns():
        if delivery.kept is not None:
            entries = [delivery.kept]
        else:
            last = min(delivery.last, delivery.first + SHOWN_RECORDS - 1)
            entries = list(await services.log.read(delivery.topic, delivery.first, last))
        records = [record for entry in entries for record in entry.records if record is not None]
        found.append(_Unknown(delivery, records))
    return await asked.list(UNKNOWN, MemoryRows(found))


async def resolve(asked: Asked) -> web.Response:
    services = asked.services
    number = asked.number("id")
    given = await asked.body(Resolution)
    done = await services.noted(
        asked.actor,
        "streams.resolve",
        str(number),
        {"sent": given.sent},
        lambda: services.deliveries.resolve(number, sent=given.sent),
    )
    services.wake(done.route)
    return answer({"resolved": {"id": done.id, "route": done.route, "first": done.first, "last": done.last}})


CALLS = (
    Call("GET", "/streams", VIEWER, list_streams, "List unit-cost streams", lists=STREAMS),
    Call("GET", "/unknown", VIEWER, list_unknown, "List deliveries of unknown fate", lists=UNKNOWN),
    Call("POST", "/unknown/{id}/resolve", OPERATOR, resolve, "Settle a delivery of unknown fate", takes=Resolution),
)
