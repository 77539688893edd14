"""
What the OTLP decoder hands to the dialects: plain values, whichever encoding they came in.

Attributes are one dict per item; content was dropped while decoding and is not in it, but for the two attributes
that are read for numbers. Nested values are kept as dict and list only where a dialect asks for them.
"""

from __future__ import annotations

from typing import Any

import msgspec

Attributes = dict[str, Any]  # str, int, float, bool; bytes and empty values are left out

# Nanoseconds from here on (the year 2262) are no time: nothing that keeps times can hold them.
END_OF_TIME = 1 << 63


def moment(nanoseconds: int) -> int:
    """A time on the wire; 0, the wire's own word for it, when it is unknown or none."""
    return nanoseconds if nanoseconds < END_OF_TIME else 0


class Resource(msgspec.Struct, gc=False):
    attributes: Attributes


class Scope(msgspec.Struct, gc=False):
    name: str
    version: str


class SpanEvent(msgspec.Struct, gc=False):
    """A span event; only `exception` and names that a dialect reads are decoded."""

    name: str
    attributes: Attributes


class Span(msgspec.Struct, gc=False):
    resource: Resource
    scope: Scope
    name: str
    trace_id: str | None  # lower-case hex; None when absent, empty or all zero
    span_id: str | None
    parent_id: str | None
    start_time: int | None  # None for 0
    end_time: int | None
    attributes: Attributes
    status_code: int = 0
    events: list[SpanEvent] = []


class LogRecord(msgspec.Struct, gc=False):
    resource: Resource
    scope: Scope
    event_name: str  # LogRecord.eventName, as sent
    body: str  # only when it is text that may be an event name (up to 256 characters, no spaces)
    time: int | None  # timeUnixNano, else observedTimeUnixNano
    trace_id: str | None
    span_id: str | None
    attributes: Attributes


class Point(msgspec.Struct, gc=False):
    """A number or histogram point: of monotonic sums, sums of histograms, another Tollhouse's, or to be shown."""

    resource: Resource
    scope: Scope
    name: str
    unit: str
    cumulative: bool
    start_time: int  # 0 = unknown
    time: int
    value: int | float
    attributes: Attributes
    apart: bytes = b""  # of attributes that stayed outside: they are not read, and yet distinguish series
    may_fall: bool = False  # of a sum that is not monotonic
    cannot_count: str = ""  # what it is where it is read only to be shown: "a gauge"
