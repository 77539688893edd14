"""
OTLP/JSON into the plain items of `model`, slice by slice.

Ids are hexadecimal here, where protobuf's own JSON form would take base64. One item that cannot be read, or a
span with a bad id, is rejected alone; a log record is kept without such an id; a body that is no export request
is refused.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from gateway.errors import BadPayload
from gateway.normalise.otlp.decoding import json_schema as schema
from gateway.normalise.otlp.decoding import lone_surrogates, trace_ends
from gateway.normalise.otlp.decoding.json_attributes import attributes_of, double, outside_of, whole_number
from gateway.normalise.otlp.decoding.json_names import in_camel_case
from gateway.normalise.otlp.decoding.slices import MAX_SLICE, Malformed, Slice
from gateway.normalise.otlp.decoding.trace_ends import TraceEnds
from gateway.normalise.otlp.metrics.countable import CANNOT_COUNT, Countable
from gateway.normalise.otlp.model import LogRecord, Point, Resource, Scope, Span, SpanEvent, moment
from gateway.normalise.outcome import MALFORMED, Reject
from gateway.normalise.payload.items import error_offset
from gateway.normalise.payload.slices import Allowance

T = TypeVar("T")

_TEMPORALITIES = {"AGGREGATION_TEMPORALITY_DELTA": 1, "AGGREGATION_TEMPORALITY_CUMULATIVE": 2}
_KINDS = {
    "sum": "sum",
    "histogram": "histogram",
    "exponentialHistogram": "exponential_histogram",
    "gauge": "gauge",
    "summary": "summary",
}


class _Place:
    """Where an item stands, as a path in the body; put into words only for an error."""

    __slots__ = ("entry", "inner", "item", "names")

    def __init__(self, names: tuple[str, str, str], entry: int, inner: int, item: int) -> None:
        self.names = names
        self.entry = entry
        self.inner = inner
        self.item = item

    def __str__(self) -> str:
        outer, middle, items = self.names
        return f"{outer}[{self.entry}].{middle}[{self.inner}].{items}[{self.item}]"


_Reader = Callable[[Slice[T], int, Resource, Scope, Raw, _Place], None]


def traces(body: bytes, allowance: Allowance | None = None) -> Iterator[Slice[Span]]:
    """The spans of an ExportTraceServiceRequest."""
    return _slices(body, schema.TRACES, ("resourceSpans", "scopeSpans", "spans"), _read_span, allowance or Allowance())


def logs(body: bytes, allowance: Allowance | None = None) -> Iterator[Slice[LogRecord]]:
    """The records of an ExportLogsServiceRequest."""
    return _slices(
        body, schema.LOGS, ("resourceLogs", "scopeLogs", "logRecords"), _read_log_record, allowance or Allowance()
    )


def metrics(body: bytes, allowance: Allowance | None = None) -> Iterator[Slice[Point]]:
    """The data points of an ExportMetricsServiceRequest that can count; the others are in `ignored`."""
    return _slices(
        body, schema.METRICS, ("resourceMetrics", "scopeMetrics", "metrics"), _read_metric, allowance or Allowance()
    )


def _slices(
    body: bytes,
    decoder: msgspec.json.Decoder[Any],
    names: tuple[str, str, str],
    read: _Reader[T],
    allowance: Allowance,
) -> Iterator[Slice[T]]:
    yield from _check_text(body)
    outer, middle, items = names
    request = _decoded(in_camel_case(body), decoder)
    allowance.count(_count(request, names), len(body))
    ends = None
    if decoder is schema.TRACES and len(body) > trace_ends.LARGE:
        ends = yield from _trace_ends(request, allowance.again())
    part: Slice[T] = Slice()
    place = 0
    for i, entry in _present(getattr(request, outer)):
        resource = _resource(entry.resource, f"{outer}[{i}]")
        if allowance.is_due(0):
            yield Slice()
        for j, inner in _present(getattr(entry, middle)):
            scope = Scope(inner.scope.name or "", inner.scope.version or "") if inner.scope else Scope("", "")
            if allowance.is_due(0):
                yield Slice()
            for k, raw in enumerate(getattr(inner, items) or ()):
                size = memoryview(raw).nbytes
                read(part, place, resource, scope, raw, _Place(names, i, j, k))
                if allowance.is_due(size):
                    if ends is not None:
                        ends.mark_ended(part)
                    yield part
                    place += part.received
                    part = Slice()
    if ends is not None:
        ends.mark_ended(part)
    yield part


def _count(request: Any, names: tuple[str, str, str]) -> int:
    """How many items there are: resources and scopes, too."""
    outer, middle, items = names
    groups = [getattr(entry, middle) or () for entry in getattr(request, outer) or () if entry is not None]
    scopes = [scope for group in groups for scope in group if scope is not None]
    return (
        len(getattr(request, outer) or ())
        + sum(map(len, groups))
        + sum(len(getattr(scope, items) or ()) for scope in scopes)
    )


def _trace_ends(request: schema.JsonTraces, allowance: Allowance) -> Generator[Slice[Any], None, TraceEnds]:
    """The walk ahead: it looks for nothing but trace ids."""
    ends = TraceEnds()
    for _, entry in _present(request.resourceSpans):
        for _, inner in _present(entry.scopeSpans):
            for raw in inner.spans or ():
                with suppress(ValueError):  # the reading itself says what is wrong
                    ends.note(bytes.fromhex(schema.TRACE_ID.decode(raw).traceId))
                if allowance.is_due(memoryview(raw).nbytes):
                    yield Slice()
    return ends


def _resource(resource: schema.JsonResource | None, where: str) -> Resource:
    """What all items below inherit: it cannot be rejected alone."""
    try:
        return Resource(attributes_of(resource.attributes if resource else None))
    except Malformed as error:
        raise BadPayload(f"{where}.resource{error}") from None


def _present(entries: list[Any] | None) -> Iterator[tuple[int, Any]]:
    return ((place, entry) for place, entry in enumerate(entries or ()) if entry is not None)


def _check_text(body: bytes) -> Iterator[Slice[Any]]:
    """Refuse what is not UTF-8, also in members that are not read."""
    if body.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(body), MAX_SLICE):
        end = start + MAX_SLICE
        try:
            decoder.decode(body[start:end], final=end >= len(body))
        except UnicodeDecodeError as error:
            raise BadPayload(f"body: not UTF-8 near byte {start + error.start}") from None
        if end < len(body):
            yield Slice()


def _decoded(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadPayload(f"{_path(error) or 'body'}: not of the type that OTLP gives it") from None
    except msgspec.DecodeError as error:
        mended = lone_surrogates.replaced(body)
        if mended is not None:
            return _decoded(mended, decoder)
        raise BadPayload(f"body: no JSON ({_offset(error)})") from None
    except RecursionError:
        raise BadPayload("body: nested too deeply") from None


def _path(error: msgspec.ValidationError) -> str:
    # "Expected `int`, got `float` - at `$.status.code`": the path and nothing else, so no value can get out.
    _, found, path = str(error).rpartition("`$")
    return path.strip("`.") if found else ""


def _offset(error: msgspec.DecodeError) -> str:
    offset = error_offset(error)
    return "it ends too early" if offset is None else f"byte {offset}"


def _item(raw: Raw, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise Malformed(f".{_path(error)}: not of the type that OTLP gives it") from None
    except msgspec.DecodeError:
        raise Malformed(": no JSON, or text that is no Unicode") from None


def _time(value: schema.Whole, field: str) -> int:
    return 0 if value is None else moment(whole_number(value, field, 0, 1 << 64))


def _hex_id(value: str | None, size: int, field: str) -> str | None:
    """The id in lower case; `size` is in bytes. Malformed if it is none."""
    if not value:
        return None
    try:
        raw = bytes.fromhex(value)
    except ValueError:
        raw = b""
    if len(raw) != size or len(value) != 2 * size:
        raise Malformed(f".{field}: must be {2 * size} hexadecimal digits, not base64")
    return raw.hex() if any(raw) else None


def _usable_id(value: Any, size: int) -> str | None:
    """The id of a log record, which counts without one that is bad."""
    try:
        return _hex_id(value, size, "") if isinstance(value, str) else None
    except Malformed:
        return None


def _read_span(part: Slice[Span], place: int, resource: Resource, scope: Scope, raw: Raw, where: _Place) -> None:
    at = place + part.received
    try:
        span = _item(raw, schema.SPAN)
        if span is None:
            return
        part.items.append((at, _span(span, resource, scope)))
    except Malformed as error:
        part.rejects.append(Reject(at, MALFORMED, f"{where}{error}"))
    part.received += 1


def _span(span: schema.JsonSpan, resource: Resource, scope: Scope) -> Span:
    code = span.status.code if span.status else None
    return Span(
        resource,
        scope,
        span.name or "",
        _hex_id(span.traceId, 16, "traceId"),
        _hex_id(span.spanId, 8, "spanId"),
        _hex_id(span.parentSpanId, 8, "parentSpanId"),
        _time(span.startTimeUnixNano, "startTimeUnixNano") or None,
        _time(span.endTimeUnixNano, "endTimeUnixNano") or None,
        attributes_of(span.attributes),
        2 if code in (2, "STATUS_CODE_ERROR") else 0,
        [
            SpanEvent(event.name, attributes_of(event.attributes))
            for event in span.events or ()
            if event is not None and event.name == "exception"
        ],
    )


def _read_log_record(
    part: Slice[LogRecord], place: int, resource: Resource, scope: Scope, raw: Raw, where: _Place
) -> None:
    at = place + part.received
    try:
        record = _item(raw, schema.LOG_RECORD)
        if record is None:
            return
        part.items.append((at, _log_record(record, resource, scope)))
    except Malformed as error:
        part.rejects.append(Reject(at, MALFORMED, f"{where}{error}"))
    part.received += 1


def _log_record(record: schema.JsonLogRecord, resource: Resource, scope: Scope) -> LogRecord:
    body = (record.body.stringValue if record.body else None) or ""
    time = _time(record.timeUnixNano, "timeUnixNano")
    if not time:
        time = _time(record.observedTimeUnixNano, "observedTimeUnixNano")
    return LogRecord(
        resource,
        scope,
        record.eventName or "",
        body if len(body) <= 256 and " " not in body else "",
        time or None,
        _usable_id(record.traceId, 16),
        _usable_id(record.spanId, 8),
        attributes_of(record.attributes),
    )


def _read_metric(part: Slice[Point], place: int, resource: Resource, scope: Scope, raw: Raw, where: _Place) -> None:
    """Points are the items here: a metric that cannot be read counts as one of them."""
    try:
        metric = _item(raw, schema.METRIC)
    except Malformed as error:
        part.rejects.append(Reject(place + part.received, MALFORMED, f"{where}{error}"))
        part.received += 1
        return
    if metric is None:
        return
    countable = Countable(metric.name or "", metric.unit or "", resource, scope)
    for kind, name in _KINDS.items():
        data = getattr(metric, kind)
        if data is None:
            continue
        temporality = data.aggregationTemporality
        if isinstance(temporality, str):
            temporality = _TEMPORALITIES.get(temporality, 0)
        countable.shape(name, temporality or 0, bool(data.isMonotonic))
        for number, encoded in enumerate(data.dataPoints or ()):
            _read_point(part, place, countable, encoded, kind, f"{where}.{kind}.dataPoints[{number}]")


def _read_point(part: Slice[Point], place: int, countable: Countable, raw: Raw, kind: str, where: str) -> None:
    at = place + part.received
    try:
        encoded = _item(raw, schema.DATA_POINT)
        if encoded is None:
            return
        point = _point(countable, encoded, kind) if countable.counts else None
        if point is None:
            part.ignored[CANNOT_COUNT] += 1
        else:
            part.items.append((at, point))
    except Malformed as error:
        part.rejects.append(Reject(at, MALFORMED, f"{where}{error}"))
    part.received += 1


def _point(countable: Countable, point: schema.DataPoint, kind: str) -> Point | None:
    value: int | float | None = None
    if kind != "sum":
        value = None if point.sum is None else double(point.sum, "sum")
    elif point.asInt is not None:
        value = whole_number(point.asInt, "asInt", -(1 << 63), 1 << 63)
    elif point.asDouble is not None:
        value = double(point.asDouble, "asDouble")
    attributes = attributes_of(point.attributes)
    return countable.point(
        flags=0 if point.flags is None else whole_number(point.flags, "flags", 0, 1 << 32),
        start_time=_time(point.startTimeUnixNano, "startTimeUnixNano"),
        time=_time(point.timeUnixNano, "timeUnixNano"),
        value=value,
        attributes=attributes,
        outside=outside_of(point.attributes, attributes),
    )
