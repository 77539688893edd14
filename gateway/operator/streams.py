"""The calls of the operator API on unit-cost streams: their definitions, and sums whose arrival is unknown."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.http.holders.spool import SpoolServices
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest
from gateway.receivers.unit_cost import STREAMS
from spool.deliveries.values import UnknownDelivery
from spool.record import Record, as_json

SHOWN_RECORDS = 100  # of one delivery; more are not compared by hand


class Resolution(RequestBody):
    """What the operator found out: the delivery was `sent`, and counts there, or it was not and is sent again."""

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
        "records": [as_json(record) for record in unknown.records[:SHOWN_RECORDS]],
    }


UNKNOWN: List[_Unknown] = List(
    root="unknown",
    show=describe_unknown,
    identity=Sort(value=lambda unknown: unknown.delivery.id),
    sorts={"id": Sort(value=lambda unknown: unknown.delivery.id)},
    default_sort=("id", "asc"),
    filters={"route": Filter(values=lambda unknown: (unknown.delivery.route,))},
)


async def list_streams(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(STREAMS, MemoryRows(await request.services.streams.streams()))


async def list_unknown(request: OperatorRequest[SpoolServices, None]) -> Result:
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


async def resolve(request: OperatorRequest[SpoolServices, Resolution]) -> Result:
    services = request.services
    number = request.number("id")
    given = request.body
    async with request.audited("streams.resolve", str(number), {"sent": given.sent}):
        done = await services.deliveries.resolve(number, sent=given.sent)
    await services.wake(done.route)
    return {"resolved": {"id": done.id, "route": done.route, "first": done.first, "last": done.last}}
