"""The calls of the operator API on usage events: their types with sums, and the newest events one by one."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operator.log.newest import (
    LOOKED_THROUGH_SCHEMA,
    STATES,
    KeptRecord,
    looked_through,
    newest,
    shown,
)
from gateway.operator.requests import OperatorRequest
from spool.log.event_types import EventType
from spool.record import USAGE_EVENTS, UsageEvent, decimal_text, moment


@dataclass(frozen=True, slots=True)
class _SentType:
    seen: EventType
    sent_as: str | None
    is_unmapped: bool


@dataclass(frozen=True, slots=True)
class _KeptEvent:
    kept: KeptRecord
    event: UsageEvent
    amount: Decimal | None


def shown_type(type: _SentType) -> dict[str, object]:
    """
    `sent_as` is null for a type whose events are kept here and not sent; `unmapped`: for want of a mapping.

    `amount` sums the amounts that its mapping names in the events, as decimal text; null without one.
    """
    return {
        "type": type.seen.type,
        "count": type.seen.count,
        "amount": _text(type.seen.amount),
        "last_seen": moment(type.seen.last_seen),
        "sent_as": type.sent_as,
        "unmapped": type.is_unmapped,
    }


def shown_event(row: _KeptEvent) -> dict[str, object]:
    """The record with its place; `amount` as the mapping of its type is now."""
    return {**shown(row.kept), "amount": _text(row.amount)}


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else decimal_text(amount)


TYPES: List[_SentType] = List(
    root="event_types",
    show=shown_type,
    identity=Sort(value=lambda type: type.seen.type),
    sorts={
        "type": Sort(value=lambda type: type.seen.type),
        "count": Sort(value=lambda type: type.seen.count),
        "last_seen": Sort(value=lambda type: type.seen.last_seen),
    },
    default_sort=("type", "asc"),
    filters={
        "type": Filter(values=lambda type: (type.seen.type,)),
        "sent": Filter(
            values=lambda type: ("no" if type.sent_as is None else "yes",), valid_values=("yes", "no")
        ),
    },
)

EVENTS: List[_KeptEvent] = List(
    root="events",
    show=shown_event,
    identity=Sort(value=lambda row: row.kept.place),
    sorts={
        "number": Sort(value=lambda row: row.kept.place),
        "start_time": Sort(value=lambda row: row.event.start_time),
    },
    default_sort=("number", "desc"),
    filters={
        "type": Filter(values=lambda row: (row.event.event_type,)),
        "subject": Filter(values=lambda row: (row.event.subject or "",)),
        "source": Filter(values=lambda row: (row.event.source,)),
        "state": Filter(values=lambda row: (row.kept.state,), valid_values=STATES),
    },
    max_limit=200,  # an answer stays small enough for a page
    beside=LOOKED_THROUGH_SCHEMA,
)


async def list_event_types(request: OperatorRequest[None]) -> Result:
    services = request.services
    types = [
        _SentType(seen, services.spool.events_sent_as(seen.type), services.spool.is_unmapped(seen.type))
        for seen in await services.spool.log.event_types()
    ]
    return await request.list(TYPES, MemoryRows(types))


async def list_events(request: OperatorRequest[None]) -> Result:
    """The newest events that pass. `looked_through` says how far back was looked."""
    services = request.services
    found = await newest(request, (USAGE_EVENTS,))
    rows = [
        _KeptEvent(kept, kept.record, services.spool.event_amount(kept.record))
        for kept in found
        if isinstance(kept.record, UsageEvent)
    ]
    return {**await request.list(EVENTS, MemoryRows(rows)), **looked_through(found)}
