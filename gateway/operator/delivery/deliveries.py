"""The call of the operator API on deliveries: every request of a route that is not settled."""

from __future__ import annotations

from gateway.http.holders.spool import SpoolServices
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operator.requests import OperatorRequest
from spool.deliveries.values import DELIVERY_STATES, OPEN, UnsettledDelivery
from spool.record import moment


def describe_delivery(delivery: UnsettledDelivery) -> dict[str, object]:
    """`not_before` is null where no time is waited for: it is due, or a person has to settle it."""
    waits = delivery.state == OPEN and delivery.not_before > 0
    return {
        "id": delivery.id,
        "route": delivery.route,
        "first": delivery.first,
        "last": delivery.last,
        "state": delivery.state,
        "replay": delivery.replay,
        "attempts": delivery.attempts,
        "not_before": moment(delivery.not_before) if waits else None,
        "last_error": delivery.last_error,
    }


DELIVERIES: List[UnsettledDelivery] = List(
    root="deliveries",
    show=describe_delivery,
    identity=Sort(value=lambda delivery: delivery.id),
    sorts={
        "id": Sort(value=lambda delivery: delivery.id),
        "route": Sort(value=lambda delivery: delivery.route),
        "first": Sort(value=lambda delivery: delivery.first),
        "attempts": Sort(value=lambda delivery: delivery.attempts),
        "not_before": Sort(value=lambda delivery: delivery.not_before),
    },
    default_sort=("id", "asc"),
    filters={
        "route": Filter(values=lambda delivery: (delivery.route,)),
        "state": Filter(values=lambda delivery: (delivery.state,), valid_values=DELIVERY_STATES),
    },
)


async def list_deliveries(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(DELIVERIES, MemoryRows(await request.services.deliveries.unsettled()))
