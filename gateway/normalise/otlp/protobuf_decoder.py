"""
OTLP/protobuf into the plain items of `model`, slice by slice.

A request is never parsed whole: it is cut at the borders of its own fields into requests of at most 512 KiB that
together hold the same items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from gateway.errors import BadPayload
from gateway.normalise.otlp import admission, wire_view
from gateway.normalise.otlp.admission import RULES
from gateway.normalise.otlp.model import Attributes, Event, LogRecord, Point, Resource, Scope, Span
from gateway.normalise.otlp.points import CANNOT_COUNT, Countable
from gateway.normalise.otlp.slices import Slice
from gateway.normalise.otlp.wire_cut import pieces

T = TypeVar("T")

_PATH = (1, 2, 2)  # resource -> scope -> span, metric or log record: the same field numbers for every signal

# Attributes repeat: the same key and value stand on span after span. Short ones are parsed once.
_KNOWN: dict[bytes, tuple[str, Any] | None] = {}
_MOST_KNOWN = 8192
_LONGEST_KNOWN = 160

_NO_TRACE = bytes(16)
_NO_SPAN = bytes(8)


def traces(body: bytes) -> Iterator[Slice[Span]]:
    """The spans of an ExportTraceServiceRequest."""
    return _slices(body, wire_view.TracesRequest, _spans)


def logs(body: bytes) -> Iterator[Slice[LogRecord]]:
    """The records of an ExportLogsServiceRequest."""
    return _slices(body, wire_view.LogsRequest, _log_records)


def metrics(body: bytes) -> Iterator[Slice[Point]]:
    """The data points of an ExportMetricsServiceRequest that can count; the others are in `ignored`."""
    return _slices(body, wire_view.MetricsRequest, _data_points)


def _slices(body: bytes, message: Any, read: Callable[[Any, int], Slice[T]]) -> Iterator[Slice[T]]:
    place = offset = 0
    for piece in pieces(body, _PATH):
        try:
            part = read(message.FromString(piece), place)
        except DecodeError:
            name = message.DESCRIPTOR.name
            raise BadPayload(f"body: not readable as {name}, in the slice from byte {offset} or so") from None
        except UnicodeDecodeError:
            raise BadPayload(f"body: text that is not UTF-8, in the slice from byte {offset} or so") from None
        place += part.received
        offset += len(piece)
        yield part


def _spans(request: Any, place: int) -> Slice[Span]:
    items: list[tuple[int, Span]] = []
    for resource_spans in request.resource_spans:
        resource = Resource(attributes_of(resource_spans.resource.attributes))
        for scope_spans in resource_spans.scope_spans:
            scope = Scope(scope_spans.scope.name, scope_spans.scope.version)
            for span in scope_spans.spans:
                at = place + len(items)
                items.append((at, _span(resource, scope, span, at)))
    return Slice(received=len(items), items=items)


def _log_records(request: Any, place: int) -> Slice[LogRecord]:
    items: list[tuple[int, LogRecord]] = []
    for resource_logs in request.resource_logs:
        resource = Resource(attributes_of(resource_logs.resource.attributes))
        for scope_logs in resource_logs.scope_logs:
            scope = Scope(scope_logs.scope.name, scope_logs.scope.version)
            for record in scope_logs.log_records:
                at = place + len(items)
                items.append((at, _log_record(resource, scope, record, at)))
    return Slice(received=len(items), items=items)


def _data_points(request: Any, place: int) -> Slice[Point]:
    part: Slice[Point] = Slice()
    for resource_metrics in request.resource_metrics:
        resource = Resource(attributes_of(resource_metrics.resource.attributes))
        for scope_metrics in resource_metrics.scope_metrics:
            scope = Scope(scope_metrics.scope.name, scope_metrics.scope.version)
            for metric in scope_metrics.metrics:
                for point in _points(metric, Countable(metric.name, metric.unit, resource, scope)):
                    if point is None:
                        part.ignored[CANNOT_COUNT] += 1
                    else:
                        part.items.append((place + part.received, point))
                    part.received += 1
    return part


def attributes_of(encoded: Iterable[bytes]) -> Attributes:
    """Encoded KeyValues as a dict, without content; the last of a repeated key stays."""
    attributes: Attributes = {}
    for raw in encoded:
        try:
            known = _KNOWN[raw]
        except KeyError:
            known = _key_value(raw)
        if known is not None:
            attributes[known[0]] = known[1]
    return attributes


def _key_value(raw: bytes) -> tuple[str, Any] | None:
    # The layout that every encoder writes: 0a <length> key 12 <length> value. Any other goes to protobuf.
    size = len(raw)
    if size >= 4 and raw[0] == 0x0A and raw[1] < 0x80 and (end := 2 + raw[1]) + 2 <= size and raw[end] == 0x12:
        length, start = _varint(raw, end + 1)
        if start + length == size:
            return _remember(raw, raw[2:end].decode(), raw[start:])
    message = wire_view.KeyValue.FromString(raw)
    return _remember(raw, message.key, message.value.SerializeToString())


def _remember(raw: bytes, name: str, value: bytes) -> tuple[str, Any] | None:
    rule = RULES[name]
    plain = _value(value, rule, name)
    known = None if plain is None or rule is admission.DROPPED else (name, plain)
    if len(raw) <= _LONGEST_KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[raw] = known
    return known


def _value(raw: bytes, rule: str, name: str) -> Any:
    """An AnyValue as the rule allows; None for what stays outside. Text is checked to be UTF-8 even then."""
    if raw and raw[0] == 0x0A:
        length, start = _varint(raw, 1)
        if start + length == len(raw):
            return _text(raw[start:], rule, name)
    message = wire_view.AnyValue.FromString(raw)
    kind = message.WhichOneof("value")
    if kind == "string_value":
        return _text(message.string_value.encode(), rule, name)
    if kind in ("int_value", "bool_value", "double_value"):
        return getattr(message, kind)
    if kind == "array_value" and rule is admission.WORDS:
        return [value.string_value for value in message.array_value.values if value.string_value]
    return None


def _text(raw: bytes, rule: str, name: str) -> Any:
    text = raw.decode()
    if rule is admission.REDUCED:
        return admission.reduced(name, text)
    return None if rule is admission.DROPPED or len(text) > admission.MAX_VALUE else text


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; a length that cannot be when it is cut off."""
    number = shift = 0
    for place in range(at, min(at + 5, len(raw))):
        byte = raw[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place + 1
        shift += 7
    return len(raw) + 1, len(raw)


def _span(resource: Resource, scope: Scope, span: Any, place: int) -> Span:
    parent_id = span.parent_span_id
    return Span(
        resource,
        scope,
        span.name,
        _trace_id(span.trace_id, "spans", place),
        _span_id(span.span_id, "spans", "span_id", place),
        _span_id(parent_id, "spans", "parent_span_id", place) if parent_id else None,
        span.start_time_unix_nano or None,
        span.end_time_unix_nano or None,
        attributes_of(span.attributes),
        span.status.code,
        _events(span.events) if span.events else [],
    )


def _events(events: Iterable[Any]) -> list[Event]:
    return [
        Event(event.name, attributes_of(attribute.SerializeToString() for attribute in event.attributes))
        for event in events
        if event.name == "exception"
    ]


def _log_record(resource: Resource, scope: Scope, record: Any, place: int) -> LogRecord:
    body = record.body.string_value
    return LogRecord(
        resource,
        scope,
        record.event_name,
        body if len(body) <= 256 and " " not in body else "",
        record.time_unix_nano or record.observed_time_unix_nano or None,
        _trace_id(record.trace_id, "logRecords", place),
        _span_id(record.span_id, "logRecords", "span_id", place),
        attributes_of(record.attributes),
    )


def _points(metric: Any, countable: Countable) -> Iterator[Point | None]:
    kind = metric.WhichOneof("data")
    data = getattr(metric, kind) if kind else None
    if data is None:
        return
    countable.shape(kind, getattr(data, "aggregation_temporality", 0), getattr(data, "is_monotonic", False))
    for point in data.data_points:
        if not countable.counts:
            yield None
            continue
        if kind == "sum":
            value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            present = point.WhichOneof("value") is not None
        else:
            value, present = point.sum, point.HasField("sum")
        yield countable.point(
            flags=point.flags,
            start_time=point.start_time_unix_nano,
            time=point.time_unix_nano,
            value=value if present else None,
            attributes=attributes_of(point.attributes),
        )


def _trace_id(raw: bytes, items: str, place: int) -> str | None:
    if len(raw) == 16:
        return None if raw == _NO_TRACE else raw.hex()
    if not raw:
        return None
    raise BadPayload(f"{items}[{place}].trace_id: {len(raw)} bytes where 16 are due")


def _span_id(raw: bytes, items: str, field: str, place: int) -> str | None:
    if len(raw) == 8:
        return None if raw == _NO_SPAN else raw.hex()
    if not raw:
        return None
    raise BadPayload(f"{items}[{place}].{field}: {len(raw)} bytes where 8 are due")
