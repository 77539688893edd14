"""
Stored usage events, and their types with sums, for keys that may read telemetry. People read the same lists.

A key that may only send events cannot read them here, because its scope is write-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import structs

from gateway.core.errors import Refusal
from gateway.http.address import READ, key_call
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.normalise.events import LINK_EVENT
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.money.work_links.declared import DIGESTS
from gateway.operations.records.published import (
    STATES,
    KeptRecord,
    SearchedRecords,
    describe_searched_records,
    describe_stored,
    newest_records_of_topics,
)
from gateway.operations.requests.key_requests import KeyRequest
from spool.log.counted_names import EventType
from spool.record import NS, USAGE_EVENTS, UsageEvent, decimal_text, utc_iso
from spool.registry.field_notes import example, words
from spool.registry.scopes import READ_TELEMETRY


@dataclass(frozen=True, slots=True)
class SentType:
    seen: EventType
    sent_as: str | None
    is_unmapped: bool


@dataclass(frozen=True, slots=True)
class KeptEvent:
    stored: KeptRecord
    event: UsageEvent
    amount: Decimal | None

    @property
    def at(self) -> int:
        """Return the time of the event in nanoseconds, or the time of its arrival if it states none."""
        start = self.event.start_time
        return int(self.stored.committed_at * NS) if start is None else start


def describe_event_type(type: SentType) -> dict[str, object]:
    """
    Describe a type. `sent_as` is null if its events are stored and not forwarded; `unmapped` is true if the
    reason is a missing mapping.

    `amount` is the sum of the field that the type's mapping names, as decimal text. It is null without
    such a field.
    """
    return {
        "type": type.seen.type,
        "count": type.seen.count,
        "amount": _amount_text(type.seen.amount),
        "last_seen": utc_iso(type.seen.last_seen),
        "sent_as": type.sent_as,
        "unmapped": type.is_unmapped,
    }


def describe_event(row: KeptEvent) -> dict[str, object]:
    """Describe an event with its place in the log. `amount` uses the current mapping of the event's type."""
    return {**describe_stored(row.stored), "amount": _amount_text(row.amount)}


def _amount_text(amount: Decimal | None) -> str | None:
    return None if amount is None else decimal_text(amount)


TYPES: ListDefinition[SentType] = ListDefinition(
    root="event_types",
    show=describe_event_type,
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

SPAN: dict[str, Filter[KeptEvent]] = {
    "start_time": Filter(
        holds=lambda row, text: row.at >= parse_time_ns("start_time", text), type="date-time"
    ),
    "end_time": Filter(holds=lambda row, text: row.at < parse_time_ns("end_time", text), type="date-time"),
}

EVENTS: ListDefinition[KeptEvent] = ListDefinition(
    root="events",
    shows_people=True,
    show=describe_event,
    identity=Sort(value=lambda row: row.stored.commit_order_key),
    sorts={
        "number": Sort(value=lambda row: row.stored.commit_order_key),
        "start_time": Sort(value=lambda row: row.event.start_time),
    },
    default_sort=("number", "desc"),
    filters={
        "type": Filter(values=lambda row: (row.event.event_type,)),
        "subject": Filter(values=lambda row: (row.event.subject or "",), is_open=True, names_people=True),
        "source": Filter(values=lambda row: (row.event.source,)),
        "state": Filter(values=lambda row: (row.stored.state,), valid_values=STATES),
        **SPAN,
    },
    max_limit=200,  # a small limit, so that a response stays small enough for a page
    beside={"looked_through": SearchedRecords},
)


class EventItem(msgspec.Struct, kw_only=True):
    topic: Annotated[str, words("The topic of the records."), example("usage-events")]
    number: Annotated[int, words("The record number of the event."), example(1)]
    committed_at: Annotated[
        str, words("When the record was flushed to disk."), example("2026-11-27T01:44:41.728Z")
    ]
    state: Annotated[str, words("The state of the event."), example("closed")]
    kind: Annotated[str, words("The kind of the record."), example("usage_event")]
    id: Annotated[str, words("The id of the record."), example("7664389fe4b4c862924b5022e89ddb6d")]
    source: Annotated[str, words("The system that sent the event."), example("shop")]
    event_id: Annotated[
        str | None, words("The id that the sender gave the event, or null."), example("order-1042")
    ]
    event_type: Annotated[str, words("The type of the event."), example("order")]
    subject: Annotated[
        str | None, words("The customer or object that the event is about."), example("customer-7")
    ]
    start_time: Annotated[str | None, words("When the event happened."), example("2026-11-27T01:40:36Z")]
    data: Annotated[dict[str, Any], words("The fields of the event."), example({"amount": 3, "plan": "pro"})]
    tags: Annotated[dict[str, str], words("Tags as name and value."), example({})]
    shadow: Annotated[
        bool,
        words("Whether the record is a duplicate kept for reference, which is not counted."),
        example(False),
    ]
    amount: Annotated[str | None, words("The amount by the mapping of the type, or null."), example(None)]


class EventTypeItem(msgspec.Struct, kw_only=True):
    type: Annotated[str, words("The type of the events."), example("order")]
    count: Annotated[int, words("The number of events of the type."), example(1)]
    amount: Annotated[str | None, words("The sum of the amounts, or null."), example(None)]
    last_seen: Annotated[
        str, words("When the newest event of the type arrived."), example("2026-11-27T01:44:41.728Z")
    ]
    sent_as: Annotated[
        str | None,
        words("`event`, `unit-cost stream NAME`, or null if the events are only stored."),
        example(None),
    ]
    unmapped: Annotated[
        bool, words("Whether the events are not sent because the type has no stream."), example(True)
    ]


# The catalogue has no scope for events, so the scope for telemetry applies, as for streams.
_call = partial(key_call, "GET", scope=READ_TELEMETRY, endpoint="events/read", refusals=READ)


@_call("/v1/events", summary="Stored usage events, newest first", lists=EVENTS, item=EventItem)
async def read_events(request: KeyRequest[SpoolServices, None]) -> Result:
    """Return the newest events that match. `looked_through` says how far back was searched."""
    check_time_filters(request.http)
    spool = request.services
    newest_records = await newest_records_of_topics(spool.log, (USAGE_EVENTS,))
    return {
        **await request.list_page(EVENTS, event_rows(spool, newest_records)),
        **describe_searched_records(newest_records),
    }


@_call("/v1/events/types", summary="Types of usage events, with their sums", lists=TYPES, item=EventTypeItem)
async def read_event_types(request: KeyRequest[SpoolServices, None]) -> Result:
    return await request.list_page(TYPES, await event_type_rows(request.services))


def check_time_filters(request: web.Request) -> None:
    """Refuse an invalid time with 400, even if there are no events."""
    for name in SPAN:
        for text in request.query.getall(name, ()):
            parse_time_ns(name, text)


def event_rows(spool: SpoolServices, stored_records: Sequence[KeptRecord]) -> MemoryRows[KeptEvent]:
    return MemoryRows(
        [
            KeptEvent(stored, event, spool.event_amount(event))
            for stored, event in _usage_events(stored_records)
        ]
    )


def _usage_events(stored_records: Iterable[KeptRecord]) -> Iterator[tuple[KeptRecord, UsageEvent]]:
    """
    Yield the usage events among records. Events about links between units of work lose their session and run
    ids, because people read events without the right to view such ids.
    """
    for stored in stored_records:
        event = stored.record
        if not isinstance(event, UsageEvent):
            continue
        if event.event_type == LINK_EVENT:
            data = {name: value for name, value in event.data.items() if name not in DIGESTS}
            event = structs.replace(event, data=data)
            stored = replace(stored, record=event)
        yield stored, event


async def event_type_rows(spool: SpoolServices) -> MemoryRows[SentType]:
    types = [
        SentType(seen, spool.events_sent_as(seen.type), spool.is_unmapped(seen.type))
        for seen in await spool.log.event_types()
    ]
    return MemoryRows(types)


def parse_time_ns(name: str, text: str) -> int:
    """Return a time in nanoseconds since 1970. Refusal 400 for an invalid time."""
    try:
        moment = datetime.fromisoformat(text)
        at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        message = f"{name} must be an ISO 8601 time, such as 2026-11-01T00:00:00Z"
        raise Refusal(400, "invalid_parameter", message) from error
    return round(at * 1000) * (NS // 1000)
