"""
OTLP/protobuf into the plain items of `model`, slice by slice.

A request is never parsed whole: it is cut at the borders of its own fields into requests of at most 512 KiB
that together hold the same items. A span with a bad id is rejected alone, a log record is kept without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from gateway.errors import BadPayload
from gateway.normalise.otlp.decoding import trace_ends, wire_view
from gateway.normalise.otlp.decoding.encoded_attributes import attributes_of, outside_of
from gateway.normalise.otlp.decoding.slices import Malformed, Slice
from gateway.normalise.otlp.decoding.wire_cut import pieces
from gateway.normalise.otlp.metrics.countable import CANNOT_COUNT, Countable
from gateway.normalise.otlp.model import END_OF_TIME, LogRecord, Point, Resource, Scope, Span, SpanEvent, moment
from gateway.normalise.outcome import MALFORMED, Reject

T = TypeVar("T")

_PATH = (1, 2, 2)  # resource -> scope -> span, metric or log record: the same field numbers for every signal

_NO_TRACE = bytes(16)
_NO_SPAN = bytes(8)
_NO_EVENTS: list[SpanEvent] = []


def traces(body: bytes) -> Iterator[Slice[Span]]:
    """The spans of an ExportTraceServiceRequest."""
    slices = _slices(body, wire_view.TracesRequest, _spans)
    return slices if len(body) <= trace_ends.LARGE else _slices_with_ends(body, slices)


def logs(body: bytes) -> Iterator[Slice[LogRecord]]:
    """The records of an ExportLogsServiceRequest."""
    return _slices(body, wire_view.LogsRequest, _log_records)


def metrics(body: bytes) -> Iterator[Slice[Point]]:
    """The data points of an ExportMetricsServiceRequest that can count; the others are in `ignored`."""
    return _slices(body, wire_view.MetricsRequest, _data_points)


def _slices(body: bytes, message: Any, read: Callable[[Any, int], Slice[T]]) -> Iterator[Slice[T]]:
    if body[:1] == b"{":  # as protobuf the beginning of a group, which OTLP never had
        raise BadPayload("body: JSON where protobuf is announced; send Content-Type: application/json")
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


def _slices_with_ends(body: bytes, slices: Iterator[Slice[Span]]) -> Iterator[Slice[Span]]:
    """
    Slices with the traces that end in them, so that these need not wait in memory for the end of the body.

    Two walks over the body; the first one parses without reading, which takes a tenth of the time of the
    second.
    """
    ends = trace_ends.TraceEnds()
    for number, piece in enumerate(pieces(body, _PATH)):
        try:
            request = wire_view.TracesRequest.FromString(piece)
        except DecodeError:  # the second walk comes here, too, and says where it is
            break
        for resource_spans in request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    ends.note(span.trace_id, number)
        yield Slice()
    for number, part in enumerate(slices):
        ends.mark_ended(part, number)
        yield part


def _spans(request: Any, place: int) -> Slice[Span]:
    part: Slice[Span] = Slice()
    for resource_spans in request.resource_spans:
        resource = Resource(attributes_of(resource_spans.resource.attributes))
        for scope_spans in resource_spans.scope_spans:
            scope = Scope(scope_spans.scope.name, scope_spans.scope.version)
            for span in scope_spans.spans:
                at = place + part.received
                try:
                    part.items.append((at, _span(resource, scope, span)))
                except Malformed as error:
                    part.rejects.append(Reject(at, MALFORMED, f"spans[{at}]{error}"))
                part.received += 1
    return part


def _log_records(request: Any, place: int) -> Slice[LogRecord]:
    items: list[tuple[int, LogRecord]] = []
    for resource_logs in request.resource_logs:
        resource = Resource(attributes_of(resource_logs.resource.attributes))
        for scope_logs in resource_logs.scope_logs:
            scope = Scope(scope_logs.scope.name, scope_logs.scope.version)
            for record in scope_logs.log_records:
                at = place + len(items)
                items.append((at, _log_record(resource, scope, record)))
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


def _span(resource: Resource, scope: Scope, span: Any) -> Span:
    trace_id, span_id, parent_id = span.trace_id, span.span_id, span.parent_span_id
    if len(trace_id) != 16 or len(span_id) != 8 or parent_id:
        _check_id(trace_id, 16, "trace_id")
        _check_id(span_id, 8, "span_id")
        _check_id(parent_id, 8, "parent_span_id")
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    return Span(
        resource,
        scope,
        span.name,
        trace_id.hex() if trace_id and trace_id != _NO_TRACE else None,
        span_id.hex() if span_id and span_id != _NO_SPAN else None,
        parent_id.hex() if parent_id and parent_id != _NO_SPAN else None,
        start if 0 < start < END_OF_TIME else None,
        end if 0 < end < END_OF_TIME else None,
        attributes_of(span.attributes),
        span.status.code,
        _events(span.events) if span.events else _NO_EVENTS,
    )


def _events(events: Iterable[Any]) -> list[SpanEvent]:
    return [
        SpanEvent(event.name, attributes_of(attribute.SerializeToString() for attribute in event.attributes))
        for event in events
        if event.name == "exception"
    ]


def _log_record(resource: Resource, scope: Scope, record: Any) -> LogRecord:
    body, trace_id, span_id = record.body.string_value, record.trace_id, record.span_id
    return LogRecord(
        resource,
        scope,
        record.event_name,
        body if len(body) <= 256 and " " not in body else "",
        moment(record.time_unix_nano) or moment(record.observed_time_unix_nano) or None,
        trace_id.hex() if len(trace_id) == 16 and trace_id != _NO_TRACE else None,
        span_id.hex() if len(span_id) == 8 and span_id != _NO_SPAN else None,
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
        attributes = attributes_of(point.attributes)
        yield countable.point(
            flags=point.flags,
            start_time=moment(point.start_time_unix_nano),
            time=moment(point.time_unix_nano),
            value=value if present else None,
            attributes=attributes,
            outside=outside_of(point.attributes, attributes),
        )


def _check_id(raw: bytes, size: int, field: str) -> None:
    if raw and len(raw) != size:
        raise Malformed(f".{field}: {len(raw)} bytes where {size} are due")
