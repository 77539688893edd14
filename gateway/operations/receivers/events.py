"""
The receiver for usage events, as plain JSON or as CloudEvents 1.0. The response states the result of each item.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import orjson
from aiohttp import web

from gateway.core.errors import Refusal
from gateway.core.schemas import (
    ANYTHING,
    COUNT,
    TEXT,
    Schema,
    array_schema,
    closed_object_schema,
    schema_with_description,
)
from gateway.http import answers
from gateway.http.address import ApiAddress
from gateway.http.answers import CLOUD_EVENTS, JSON
from gateway.http.turns import LARGE, run_in_slices, run_on_thread_if_large, run_with_pauses
from gateway.intake.deposits import NonTelemetryIntake
from gateway.intake.start_times import describe_misdated_items, misdated_events
from gateway.normalise.events import (
    BINARY,
    LINK_EVENT,
    UsageEventBatch,
    is_binary_cloud_event,
    read_binary_cloud_event,
    read_events,
)
from gateway.normalise.payload import body_limits
from gateway.normalise.payload.body_limits import BodyReadLimits
from gateway.operations.requests.key_requests import names_for_repeat_detection
from gateway.operations.requests.operation_requests import OperationKeyRequest
from spool.ledger.ledger import Ledger
from spool.registry.scopes import CREATE_EVENT

# Media types that HTTP clients send if their user states none.
_UNSPECIFIC_TYPES = ("application/octet-stream", "text/plain", "application/x-www-form-urlencoded")


class EventServices(Protocol):
    """What this receiver needs."""

    ledger: Ledger
    deposits: NonTelemetryIntake

    def is_unmapped(self, event_type: str, /) -> bool:
        """
        Return whether events of this type are not sent because their line in [upstream.events] is missing.
        """


def check_media_type(request: web.Request) -> None:
    """
    Raise Refusal 415 for a media type that cannot be JSON. The first bytes of the body show which kind of
    JSON it is.
    """
    if is_binary_cloud_event(request.headers):
        return
    media = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media and not media.endswith(("json", "+json", "jsonl")) and media not in _UNSPECIFIC_TYPES:
        message = "Send JSON, JSON lines, application/cloudevents+json or application/cloudevents-batch+json."
        raise Refusal(415, "unsupported_media_type", message)


_ERROR = closed_object_schema(
    {
        "type": schema_with_description(TEXT, "The type of the error."),
        "message": schema_with_description(TEXT, "What is wrong and what to do."),
    }
)
MOST_NAMED = 3  # maximum types that the hint of a response names
# the fields of an event; a body may also be an array of events
_EVENT: Schema = {
    "properties": {
        "id": schema_with_description(
            ANYTHING, "The id of the event. The same id from the same source is counted once."
        ),
        "source": schema_with_description(ANYTHING, "The system that sends the event."),
        "type": schema_with_description(ANYTHING, "The type of the event."),
        "subject": schema_with_description(ANYTHING, "The customer or object that the event is about."),
        "time": schema_with_description(ANYTHING, "When the event happened."),
        "data": schema_with_description(ANYTHING, "The fields of the event."),
    }
}
_ITEM_RESULT = closed_object_schema(
    {
        "item": schema_with_description(COUNT, "The number of the event in the request."),
        "status": schema_with_description(
            {"enum": ["accepted", "rejected"]}, "Whether the event was accepted."
        ),
    },
    {"error": schema_with_description(_ERROR, "Why the event was rejected.")},
)


@ApiAddress(
    methods=("POST",),
    path="/v1/events",
    summary="Send usage events: one, an array, JSON lines, or CloudEvents 1.0",
    endpoint="events",
    scope=CREATE_EVENT,
    check=check_media_type,
    takes=dict.fromkeys((JSON, *CLOUD_EVENTS), _EVENT),
    gives={
        200: {
            JSON: closed_object_schema(
                {
                    "accepted": schema_with_description(COUNT, "The number of accepted events."),
                    "rejected": schema_with_description(COUNT, "The number of rejected events."),
                    "events": array_schema(_ITEM_RESULT),
                },
                {
                    "hint": schema_with_description(
                        TEXT, "What to do so that events of these types are sent on."
                    ),
                    "warnings": schema_with_description(
                        array_schema(TEXT), "What the sender should correct, although the events are stored."
                    ),
                },
            )
        }
    },
    takes_idempotency_key=True,
)
async def create_events(request: OperationKeyRequest[EventServices, bytes]) -> web.Response:
    """Store usage events. The response states for each item whether it was accepted."""
    body = request.body
    headers = request.http.headers
    options = request.receivers.options
    takes_ids = request.bearer.may_chain
    keep_tags = options.keep_tags
    if is_binary_cloud_event(headers):
        events = await run_on_thread_if_large(
            lambda: read_binary_cloud_event(
                body, headers, accepts_assigned_ids=takes_ids, keep_tags=keep_tags
            ),
            is_large=len(body) > LARGE,
        )
    else:
        events = await run_in_slices(
            lambda hold: read_events(
                body,
                BodyReadLimits(options.max_items, hold),
                accepts_assigned_ids=takes_ids,
                keep_tags=keep_tags,
            ),
            request.share.reserve_bytes,
            body_bytes=len(body),
        )
    names = names_for_repeat_detection(request, *_header_attributes(headers))
    if any(record.event_type == LINK_EVENT for record in events.records):
        from gateway.operations.money.work_links.events import (
            add_stated_links,  # imported late, when the first event that links units arrives
        )

        await add_stated_links(request, events, names)
    if events.received and len(events.rejects) == events.received:
        raise Refusal(400, "malformed", answers.summarize_rejects(events.rejects))
    receipt = await request.services.deposits.store_events(events, request.bearer, request=names)
    types = sorted({record.event_type for record in events.records} - {LINK_EVENT})
    item_results = await run_with_pauses(body_limits.encode_list_in_turns(_item_results(events)))
    misdated = misdated_events(events.records, request.receivers.clock.now())
    warnings = list(describe_misdated_items(misdated))
    answer = {
        "accepted": len(events.records),
        "rejected": len(events.rejects),
        "events": orjson.Fragment(item_results),
        **_unmapped_event_types_hint(
            [event_type for event_type in types if request.services.is_unmapped(event_type)]
        ),
        **({"warnings": warnings} if warnings else {}),
    }
    return answers.json_response(answer, receipt=receipt)


def _unmapped_event_types_hint(event_types: Sequence[str]) -> Mapping[str, str]:
    if not event_types:
        return {}
    names = ", ".join(map(json.dumps, event_types[:MOST_NAMED])) + (
        ", ..." if len(event_types) > MOST_NAMED else ""
    )
    return {
        "hint": f"The events are stored, but the cost service does not receive events of type {names}: "
        "map them to a unit-cost stream under [upstream.events] in the configuration."
    }


def _header_attributes(headers: Mapping[str, str]) -> Iterator[bytes]:
    if is_binary_cloud_event(headers):
        for name, value in sorted((name.lower(), value) for name, value in headers.items()):
            if name.startswith(BINARY):
                yield f"{name}: {value}".encode("utf-8", "surrogateescape")


def _item_results(events: UsageEventBatch) -> Iterator[dict[str, object]]:
    """Yield for each item whether it was accepted. New events and duplicates get the same result."""
    refused = {reject.item: reject for reject in events.rejects}
    for position in range(events.received):
        reject = refused.get(position)
        if reject is None:
            yield {"item": position, "status": "accepted"}
        else:
            error = {"type": reject.reason, "message": reject.message}
            yield {"item": position, "status": "rejected", "error": error}
