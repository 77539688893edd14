"""
The members of OTLP/JSON that are read.

Every member may be missing or null. Items stay undecoded, so that an unreadable item is rejected without
affecting other items. A 64-bit integer may be text or a number. Content is dropped here.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder

from gateway.normalise.otlp import admission
from gateway.normalise.otlp.admission import RULES
from gateway.normalise.otlp.decoding.pieces import Malformed
from gateway.normalise.otlp.model import Attributes

Whole = int | str | float | None  # a 64-bit integer, which OTLP in JSON writes as text or as a number
Double = float | str | None

LARGE = 256 * 1024  # bytes of a field's value that count as large
_LONGEST_NAME = 64  # maximum characters of a name in a message
_SHORT = 18  # number of digits that always fits into 64 bits


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


# A request has the member of its own signal first. The members of other signals are read only to refuse them.
class JsonTraces(Struct, gc=False):
    resourceSpans: list[ResourceSpans | None] | None = None
    resourceLogs: Raw = Raw()
    resourceMetrics: Raw = Raw()


class JsonLogs(Struct, gc=False):
    resourceLogs: list[ResourceLogs | None] | None = None
    resourceSpans: Raw = Raw()
    resourceMetrics: Raw = Raw()


class JsonMetrics(Struct, gc=False):
    resourceMetrics: list[ResourceMetrics | None] | None = None
    resourceSpans: Raw = Raw()
    resourceLogs: Raw = Raw()


# member of a request -> address of its signal
SIGNAL_ADDRESSES = {
    "resourceSpans": "/v1/traces",
    "resourceLogs": "/v1/logs",
    "resourceMetrics": "/v1/metrics",
}


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
    traceId: Any = None  # any type, so that a bad id does not reject the log record
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
    key: str | None = None


class Traced(Struct, gc=False):
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


def attributes_from_pairs(pairs: Iterable[KeyValue | None] | Attributes | None) -> Attributes:
    """
    Return attributes as a mapping, without content. The last value of a repeated key counts. A dict is
    returned unchanged.
    """
    if isinstance(pairs, dict):
        return pairs
    attributes: Attributes = {}
    for pair in pairs or ():
        if pair is None:
            continue
        name, value = pair.key, pair.value
        if not name or value is None:
            continue
        rule = RULES[name]
        if rule is admission.SCALAR:
            text = value.stringValue
            if text is None:
                number = _number_or_bool(value, name)
                if number is not None:
                    attributes[name] = number
            elif len(text) <= admission.MAX_VALUE:
                attributes[name] = text
        elif (
            rule is not admission.DROPPED
            and (decoded := _decode_value_by_rule(value, rule, name)) is not None
        ):
            attributes[name] = decoded
    return attributes


def attributes_dropped_by_decoding_rules(
    pairs: Iterable[KeyValue | None] | None, decoded_attributes: Attributes
) -> dict[str, object]:
    """Return the attributes that are not in `decoded_attributes`, because the decoding rules dropped them."""
    outside: dict[str, object] = {}
    for pair in pairs or ():
        if pair is not None and pair.key and pair.value is not None and pair.key not in decoded_attributes:
            with suppress(Malformed):  # skip values that cannot be read, because they are not needed
                if (plain := _decoded_value(pair.value, pair.key)) is not None:
                    outside[pair.key] = plain
    return outside


def _decoded_value(value: Value, name: str) -> object:
    if value.stringValue is not None:
        return value.stringValue
    number = _number_or_bool(value, name)
    return _texts_of_array(value.arrayValue, name) if number is None else number


def _number_or_bool(value: Value, name: str) -> int | float | bool | None:
    try:
        whole, double_value = value.intValue, value.doubleValue
        if type(whole) is str and len(whole) <= _SHORT and whole.isdecimal() and whole.isascii():
            return int(whole)  # without a function call in the usual case, because there are many values
        if whole is not None:
            return parse_whole_number(whole, "intValue", -(1 << 63), 1 << 63)
        return value.boolValue if double_value is None else parse_double(double_value, "doubleValue")
    except Malformed as error:
        raise Malformed(f".attributes.{name[:_LONGEST_NAME]}{error}") from None


def _decode_value_by_rule(value: Value, decoding_rule: str, name: str) -> Any:
    if decoding_rule is admission.REDUCED:
        return None if value.stringValue is None else admission.reduced_content(name, value.stringValue)
    if value.stringValue is not None:
        return value.stringValue if len(value.stringValue) <= admission.MAX_VALUE else None
    return _texts_of_array(value.arrayValue, name)


def _texts_of_array(encoded: Raw, name: str) -> list[str] | None:
    """Return the texts of an encoded array. Arrays are decoded when they are read, because most never are."""
    if not 0 < memoryview(encoded).nbytes <= LARGE:
        return None
    try:
        array = ARRAY.decode(encoded)
    except (msgspec.DecodeError, RecursionError):
        field = f".attributes.{name[:_LONGEST_NAME]}.arrayValue"
        raise Malformed(f"{field}: has the wrong type for OTLP") from None
    values = array.values if array is not None else None
    return [value.stringValue for value in values or () if value is not None and value.stringValue] or None


def parse_whole_number(value: int | str | float, field: str, low: int, high: int) -> int:
    """Return a whole number. A float is refused if it is so large that the sender may have rounded it."""
    if type(value) is str:
        digits = value.removeprefix("-")
        if len(digits) > 20 or not (digits.isdecimal() and digits.isascii()):
            raise Malformed(f".{field}: must be an integer")
        number = int(value)
    elif type(value) is float:
        if not value.is_integer() or abs(value) >= 1 << 53:
            raise Malformed(f".{field}: must be an exact integer")
        number = int(value)
    else:
        number = int(value)
    if not low <= number < high:
        raise Malformed(f".{field}: does not fit into 64 bits")
    return number


def parse_double(value: float | str, field: str) -> float:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise Malformed(f".{field}: must be a number") from None
    return value
