"""Operator API for the effect of a mapping before it is set: what the newest stored usage events would send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from gateway.http.requests import Result
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.records.event_mappings import NewEventMapping, check_mapping
from gateway.operations.records.events import usage_events
from gateway.operations.records.published import KeptRecord, newest_records_of_topics
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.record import USAGE_EVENTS, UsageEvent, decimal_text, utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_STREAM_SETTINGS

SHOWN_EVENTS = 5
MOST_FIELDS = 50


class PreviewedEvent(msgspec.Struct, kw_only=True):
    at: Annotated[str, words("When the event was stored."), example("2026-11-27T01:45:14.016Z")]
    element: Annotated[
        str | None, words("The element that the amount belongs to, or null."), example("customer-7")
    ]
    amount: Annotated[str | None, words("The amount that would be sent, or null."), example("3")]


class MappingPreview(msgspec.Struct, kw_only=True):
    events: Annotated[int, words("The number of events of the type among the newest records."), example(12)]
    sent: Annotated[int, words("The number of events that have an amount and an element."), example(11)]
    amount: Annotated[str, words("The sum of the amounts."), example("37")]
    rows: Annotated[list[PreviewedEvent], words("The newest five events as they would be sent.")]
    fields: Annotated[
        list[dict[str, Any]],
        words("The fields of the events, those that are most often a number first."),
        example(
            [
                {"name": "amount", "example": "3", "numbers": 11, "events": 11},
                {"name": "plan", "example": "pro", "numbers": 0, "events": 12},
            ]
        ),
    ]


class MappingPreviewAnswer(msgspec.Struct, kw_only=True):
    preview: Annotated[MappingPreview, words("What the mapping would send.")]


@operator_call(
    "POST",
    "/event-mappings/preview",
    VIEW_STREAM_SETTINGS,
    "Preview a mapping of usage events",
    answers=MappingPreviewAnswer,
)
async def preview_event_mapping(request: OperatorRequest[SpoolServices, NewEventMapping]) -> Result:
    """Show what the newest stored events of a type would send to the cost service. Nothing is changed."""
    mapping = check_mapping(request.body)
    stored = await newest_records_of_topics(request.services.log, (USAGE_EVENTS,))
    return {"preview": await asyncio.to_thread(_build_preview, request.services, mapping, stored)}


def _build_preview(
    services: SpoolServices, mapping: NewEventMapping, stored: Sequence[KeptRecord]
) -> Mapping[str, object]:
    events = [(each, event) for each, event in usage_events(stored) if event.event_type == mapping.event_type]
    mapped = [services.map_event(event, mapping) for _, event in events]
    amounts = [Decimal(found.value or 0) for found in mapped if found is not None]
    rows = [
        {
            "at": utc_iso(each.committed_at),
            "element": None if found is None else found.element_name,
            "amount": None if found is None else found.value,
        }
        for (each, _), found in list(zip(events, mapped, strict=True))[:SHOWN_EVENTS]
    ]
    return {
        "events": len(events),
        "sent": len(amounts),
        "amount": decimal_text(sum(amounts, Decimal())),
        "rows": rows,
        "fields": _list_fields(event for _, event in events),
    }


def _list_fields(events: Iterable[UsageEvent]) -> Sequence[Mapping[str, object]]:
    """List the names of data fields in events, those that most often have a number first."""
    found: dict[str, dict[str, object]] = {}
    counts: dict[str, list[int]] = {}
    for event in events:
        for name, value in {**event.tags, **event.data}.items():
            found.setdefault(name, {"name": name, "example": str(value)})
            of_name = counts.setdefault(name, [0, 0])
            of_name[0] += _is_number(value)
            of_name[1] += 1
    ordered = sorted(found, key=lambda name: (-counts[name][0], name))[:MOST_FIELDS]
    return [{**found[name], "numbers": counts[name][0], "events": counts[name][1]} for name in ordered]


def _is_number(value: object) -> bool:
    if isinstance(value, bool):
        return False
    try:
        return Decimal(str(value)).is_finite()
    except ArithmeticError:
        return False
