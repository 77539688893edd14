"""
The plain values that OTLP decoders pass to the dialects. They are the same for protobuf and JSON.

Each item has one dict of attributes. Content is dropped while decoding. Attributes whose rule is REDUCED keep
only their numbers, ids and model names, as nested dicts.
"""

from __future__ import annotations

from typing import Any

import msgspec

# attribute values are str, int, float or bool; bytes and empty values are left out
Attributes = dict[str, Any]

# first time in the year 2262 that does not fit into a signed 64-bit integer of nanoseconds
END_OF_TIME = 1 << 63


def time_or_zero_if_impossible(nanoseconds: int) -> int:
    """Return a time in nanoseconds. OTLP sends 0 for an unknown time, and impossible times become 0."""
    return nanoseconds if nanoseconds < END_OF_TIME else 0


class Resource(msgspec.Struct, gc=False):
    attributes: Attributes


class Scope(msgspec.Struct, gc=False):
    name: str
    version: str


EXCEPTION = "exception"
# event name for the details of a call in the semantic conventions
DETAILS = "gen_ai.client.inference.operation.details"
OF_CALL = frozenset({"gen_ai.usage", DETAILS})  # names of events that have the attributes of a call
READ_EVENTS = OF_CALL | {EXCEPTION}


class SpanEvent(msgspec.Struct, gc=False):
    """An event of a span. Spans keep only their exception events."""

    name: str
    attributes: Attributes


def merge_call_events(attributes: Attributes, events: list[SpanEvent]) -> list[SpanEvent]:
    """
    Add the attributes of the call's own events to `attributes`, the attributes of its span. The span's value
    takes precedence, then that of the last event. Return the exception events.
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
    trace_id: str | None  # trace id in lower-case hex, or None if it is absent, empty or all zeros
    span_id: str | None
    parent_id: str | None
    start_time: int | None  # start time in nanoseconds, or None if the sender wrote 0
    end_time: int | None
    attributes: Attributes
    status_code: int = 0
    events: list[SpanEvent] = []


class LogRecord(msgspec.Struct, gc=False):
    resource: Resource
    scope: Scope
    event_name: str  # LogRecord.eventName
    body: str  # text of the body that may be an event name: up to 256 characters without spaces
    time: int | None  # time of the record: timeUnixNano, or observedTimeUnixNano if it is missing
    trace_id: str | None
    span_id: str | None
    attributes: Attributes


class MetricPoint(msgspec.Struct, gc=False):
    """
    A data point of a metric. Only points of monotonic sums, of histograms or from another Tollhouse can be
    counted. Others are shown as unrecognized.
    """

    resource: Resource
    scope: Scope
    name: str
    unit: str
    cumulative: bool
    start_time: int  # start time in nanoseconds, or 0 if it is unknown
    time: int
    value: int | float
    attributes: Attributes
    apart: bytes = b""  # hash of the attributes that were not decoded, because they also distinguish series
    may_fall: bool = False  # whether the value may fall, because the sum is not monotonic
    cannot_count: str = ""  # why the point cannot count, such as "a gauge"
