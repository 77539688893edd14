"""
The shape of OTLP/JSON, as far as it is read: whatever else a sender writes is skipped by the parser.

Every member may be missing or null. Items are left raw, so that one that cannot be read is rejected alone.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

Whole = int | str | float | None  # a 64-bit integer, as text or number
Double = float | str | None


class Value(Struct, gc=False):
    stringValue: str | None = None
    boolValue: bool | None = None
    intValue: Whole = None
    doubleValue: Double = None
    arrayValue: Raw = Raw()


class Array(Struct, gc=False):
    values: list[Value | None] | None = None


class KeyValue(Struct, gc=False):
    key: str | None = None
    value: Value | None = None


KeyValues = list[KeyValue | None] | None


class JsonResource(Struct, gc=False):
    attributes: KeyValues = None


class JsonScope(Struct, gc=False):
    name: str | None = None
    version: str | None = None


class ScopeSpans(Struct, gc=False):
    scope: JsonScope | None = None
    spans: list[Raw] | None = None


class ScopeLogs(Struct, gc=False):
    scope: JsonScope | None = None
    logRecords: list[Raw] | None = None


class ScopeMetrics(Struct, gc=False):
    scope: JsonScope | None = None
    metrics: list[Raw] | None = None


class ResourceSpans(Struct, gc=False):
    resource: JsonResource | None = None
    scopeSpans: list[ScopeSpans | None] | None = None


class ResourceLogs(Struct, gc=False):
    resource: JsonResource | None = None
    scopeLogs: list[ScopeLogs | None] | None = None


class ResourceMetrics(Struct, gc=False):
    resource: JsonResource | None = None
    scopeMetrics: list[ScopeMetrics | None] | None = None


class JsonTraces(Struct, gc=False):
    resourceSpans: list[ResourceSpans | None] | None = None


class JsonLogs(Struct, gc=False):
    resourceLogs: list[ResourceLogs | None] | None = None


class JsonMetrics(Struct, gc=False):
    resourceMetrics: list[ResourceMetrics | None] | None = None


class Status(Struct, gc=False):
    code: int | str | None = None
    message: str | None = None


class JsonEvent(Struct, gc=False):
    name: str | None = None
    attributes: KeyValues = None


class JsonSpan(Struct, gc=False):
    traceId: str | None = None
    spanId: str | None = None
    parentSpanId: str | None = None
    name: str | None = None
    startTimeUnixNano: Whole = None
    endTimeUnixNano: Whole = None
    attributes: KeyValues = None
    status: Status | None = None
    events: list[JsonEvent | None] | None = None


class JsonLogRecord(Struct, gc=False):
    traceId: Any = None  # a bad id rejects no log record, whatever its type
    spanId: Any = None
    timeUnixNano: Whole = None
    observedTimeUnixNano: Whole = None
    eventName: str | None = None
    body: Value | None = None
    attributes: KeyValues = None


class DataPoint(Struct, gc=False):
    startTimeUnixNano: Whole = None
    timeUnixNano: Whole = None
    asInt: Whole = None
    asDouble: Double = None
    sum: Double = None
    flags: Whole = None
    attributes: KeyValues = None


class Data(Struct, gc=False):
    dataPoints: list[Raw] | None = None
    aggregationTemporality: int | str | None = None
    isMonotonic: bool | None = None


class Metric(Struct, gc=False):
    name: str | None = None
    unit: str | None = None
    sum: Data | None = None
    histogram: Data | None = None
    exponentialHistogram: Data | None = None
    gauge: Data | None = None
    summary: Data | None = None


class NamedAttribute(Struct, gc=False):
    """Of an attribute, the name alone."""

    key: str | None = None


class Traced(Struct, gc=False):
    """Of a span, the trace alone."""

    traceId: str = ""


TRACE_ID = Decoder(Traced)
TRACE_IDS = Decoder(list[Traced])
SPANS = Decoder(list[Raw])
TRACES = Decoder(JsonTraces)
LOGS = Decoder(JsonLogs)
METRICS = Decoder(JsonMetrics)
SPAN: Decoder[JsonSpan | None] = Decoder(JsonSpan | None)
LOG_RECORD: Decoder[JsonLogRecord | None] = Decoder(JsonLogRecord | None)
METRIC: Decoder[Metric | None] = Decoder(Metric | None)
DATA_POINT: Decoder[DataPoint | None] = Decoder(DataPoint | None)
ARRAY: Decoder[Array | None] = Decoder(Array | None)
DATA: Decoder[Data] = Decoder(Data)
KEY_VALUE: Decoder[KeyValue | None] = Decoder(KeyValue | None)
EVENT: Decoder[JsonEvent | None] = Decoder(JsonEvent | None)
RESOURCE: Decoder[JsonResource | None] = Decoder(JsonResource | None)
SCOPE: Decoder[JsonScope | None] = Decoder(JsonScope | None)
NAMED = Decoder(NamedAttribute)
