"""Operator API for the effect of a mapping before it is set: what the newest stored usage events would send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from gateway.core.schemas import COUNT, TEXT, TEXT_OR_NULL, array_of, closed_object
from gateway.http.answers import JSON
from gateway.http.requests import Result
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.records.event_mappings import NewEventMapping, check_mapping
from gateway.operations.records.events import usage_events
from gateway.operations.records.published import KeptRecord, newest_in_log
from gateway.operations.requests.address import call
from gateway.operations.requests.requests import OperatorRequest
from spool.record import USAGE_EVENTS, UsageEvent, decimal_text, moment
from spool.registry.permission_sets import VIEW_STREAM_SETTINGS

SHOWN_EVENTS = 5
MOST_FIELDS = 50


@call(
    "POST",
    "/event-mappings/preview",
    VIEW_STREAM_SETTINGS,
    "Preview a mapping of usage events",
    gives={
        JSON: closed_object(
            {
                "preview": closed_object(
                    {
                        "events": COUNT,
                        "sent": COUNT,
                        "amount": TEXT,
                        "rows": array_of(
                            closed_object({"at": TEXT, "element": TEXT_OR_NULL, "amount": TEXT_OR_NULL})
                        ),
                        "fields": array_of(
                            closed_object({"name": TEXT, "example": TEXT, "numbers": COUNT, "events": COUNT})
                        ),
                    }
                )
            }
        )
    },
)
async def preview_event_mapping(request: OperatorRequest[SpoolServices, NewEventMapping]) -> Result:
    """
    Show what the newest stored events of a type would send to the cost service. Nothing is changed.

    `sent` counts the events that have an amount and an element, and `amount` is their sum. `fields` are the names in
    the data of these events, each with the number of events in which it is a number.
    """
    mapping = check_mapping(request.body)
    stored = await newest_in_log(request.services.log, (USAGE_EVENTS,))
    return {"preview": await asyncio.to_thread(_build_preview, request.services, mapping, stored)}


def _build_preview(
    services: SpoolServices, mapping: NewEventMapping, stored: Sequence[KeptRecord]
) -> Mapping[str, object]:
    events = [(each, event) for each, event in usage_events(stored) if event.event_type == mapping.event_type]
    mapped = [services.map_event(event, mapping) for _, event in events]
    amounts = [Decimal(found.value or 0) for found in mapped if found is not None]
    rows = [
        {
            "at": moment(each.committed_at),
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
    """List the names of data fields in events. Fields that most often have a number come first."""
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
