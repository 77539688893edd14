"""The doors of every topic but AI telemetry, each with its address."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.http.boundary import Handler
from gateway.intake.deposits import Deposits
from gateway.receivers import billing, events, unit_cost
from gateway.services import ReceiverServices
from spool.sqlite import SqliteSpool


def addresses(
    services: ReceiverServices, spool: SqliteSpool, deposits: Deposits, *, cursors: bytes
) -> Sequence[tuple[str, Handler]]:
    """In the order in which they are tried."""
    streams = unit_cost.Streams(deposits=deposits, book=spool.book, reader=spool.streams, cursors=cursors)
    return (
        ("/v1/events", events.door(services, deposits)),
        *unit_cost.addresses(services, streams),
        *billing.addresses(services, deposits),
    )
