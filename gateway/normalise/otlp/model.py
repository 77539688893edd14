"""
The plain values that OTLP decoders pass to the dialects. They are the same for protobuf and JSON.

Each item has one dict of attributes. Content is dropped while decoding. Attributes whose rule is REDUCED keep
only their numbers, ids and model names, as nested dicts.
"""

from __future__ import annotations

from typing import Any

import msgspec

Attributes = dict[str, Any]  # values are str, int, float or bool (bytes and empty values are omitted)

# Times from this value on (year 2262) do not fit into a signed 64-bit integer, so they count as unknown.
END_OF_TIME = 1 << 63


def moment(nanoseconds: int) -> int:
    """
    Return a time, or 0 if it is unknown. OTLP sends 0 for an unknown time, and impossible times become 0.
    """
    return nanoseconds if nanoseconds < END_OF_TIME else 0


class Resource(msgspec.Struct, gc=False):
    attributes: Attributes


class Scope(msgspec.Struct, gc=False):
    name: str
    version: str


EXCEPTION = "exception"
DETAILS = "gen_ai.client.inference.operation.details"  # event of a call in the semantic conventions
OF_CALL = frozenset({"gen_ai.usage", DETAILS})  # span events with attributes of the call
READ_EVENTS = OF_CALL | {EXCEPTION}  # names of the events that decoders read


class SpanEvent(msgspec.Struct, gc=False):
    """A span event. Spans keep only exceptions."""

    name: str
    attributes: Attributes


def take_events(attributes: Attributes, events: list[SpanEvent]) -> list[SpanEvent]:
    """
    Return the exceptions of a span. Add the attributes of other events to `attributes`, unless the span states them
    itself. The last event counts.
    """
    stated: Attributes = {}
    for event in events:
        if event.name in OF_CALL:
            stated.update(event.attributes)
    for name, value in stated.items():
        attributes.setdefault(name, value)
    return [event for event in events if event.name == EXCEPTION]


class Span(msgspec.Struct, gc=False):
    resource: Resource
    scope: Scope
    name: str
    trace_id: str | None  # lower-case hex, or None if absent, empty or all zeros
    span_id: str | None
    parent_id: str | None
    start_time: int | None  # None if the sender wrote 0
    end_time: int | None
    attributes: Attributes
    status_code: int = 0
    events: list[SpanEvent] = []


class LogRecord(msgspec.Struct, gc=False):
    resource: Resource
    scope: Scope
    event_name: str  # LogRecord.eventName, as the sender wrote it
    body: str  # only if the text may be an event name: up to 256 characters without spaces; otherwise empty
    time: int | None  # timeUnixNano, or observedTimeUnixNano if it is missing
    trace_id: str | None
    span_id: str | None
    attributes: Attributes


class Point(msgspec.Struct, gc=False):
    """
    A data point that can count, or a point that is only shown as unrecognized.

    A point can count if it belongs to a monotonic sum or a histogram, or if another Tollhouse sent it.
    """

    resource: Resource
    scope: Scope
    name: str
    unit: str
    cumulative: bool
    start_time: int  # 0 if the start time is unknown
    time: int
    value: int | float
    attributes: Attributes
    apart: bytes = b""  # hash of the attributes that were not decoded, so that they still distinguish series
    may_fall: bool = False  # True if the metric is a sum that may decrease (not monotonic)
    cannot_count: str = ""  # why the point is only shown, such as "a gauge"
