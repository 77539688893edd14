"""
Decoder for OTLP/JSON.

Ids are hexadecimal in OTLP/JSON, unlike in protobuf's own JSON form. An unreadable item or a span with a bad
id is rejected, and the other items still count. A log record with a bad id is accepted without the id. A body
that is not an export request is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from gateway.core.errors import BadPayload
from gateway.normalise.otlp.decoding import json_request, pieces
from gateway.normalise.otlp.decoding import json_schema as schema
from gateway.normalise.otlp.decoding.json_request import (
    JsonScopes,
    Names,
    decode_item,
    decode_large_item,
    encode_small_members,
    run_yielding_each_step,
)
from gateway.normalise.otlp.decoding.json_schema import (
    JsonResource,
    attributes_dropped_by_decoding_rules,
    attributes_from_pairs,
    parse_double,
    parse_whole_number,
)
from gateway.normalise.otlp.decoding.pieces import MAX_PIECE, Malformed, PayloadPiece, TraceEnds
from gateway.normalise.otlp.metrics import CANNOT_COUNT, CounterPoints
from gateway.normalise.otlp.model import (
    READ_EVENTS,
    LogRecord,
    MetricPoint,
    Resource,
    Scope,
    Span,
    SpanEvent,
    merge_call_events,
    time_or_zero_if_impossible,
)
from gateway.normalise.outcome import MALFORMED, RejectedPayloadItem
from gateway.normalise.payload.body_limits import BodyReadLimits, may_exceed_items
from gateway.normalise.payload.json_cut import (
    WINDOW,
    JsonItem,
    JsonScanner,
    LazyJsonArray,
    run_generator_to_end,
)

T = TypeVar("T")

_TEMPORALITIES = {"AGGREGATION_TEMPORALITY_DELTA": 1, "AGGREGATION_TEMPORALITY_CUMULATIVE": 2}
_KINDS = {
    "sum": "sum",
    "histogram": "histogram",
    "exponentialHistogram": "exponential_histogram",
    "gauge": "gauge",
    "summary": "summary",
}


class _JsonPlace(msgspec.Struct, gc=False):
    """The position of an item in a body. Its text form is a path for error messages."""

    names: Names
    entry: int
    inner: int
    item: int

    def __str__(self) -> str:
        outer, middle, items = self.names
        return f"{outer}[{self.entry}].{middle}[{self.inner}].{items}[{self.item}]"


class _PayloadPieceBuilder(Generic[T]):
    __slots__ = ("_before", "part")

    def __init__(self) -> None:
        self.part: PayloadPiece[T] = PayloadPiece()
        self._before = 0

    def add_item(self, item: T) -> None:
        self.part.items.append((self._before + self.part.received, item))
        self.part.received += 1

    def reject_item(self, message: str) -> None:
        self.part.rejects.append(RejectedPayloadItem(self._before + self.part.received, MALFORMED, message))
        self.part.received += 1

    def ignore_item(self, reason: str) -> None:
        ignored = self.part.ignored
        ignored[reason] = ignored.get(reason, 0) + 1
        self.part.received += 1

    def take_finished_piece(self) -> PayloadPiece[T]:
        part, self.part = self.part, PayloadPiece()
        self._before += part.received
        return part


# function that reads an item, and yields after each step to give the event loop a turn
_Reader = Callable[
    [_PayloadPieceBuilder[T], Resource, Scope, JsonItem, _JsonPlace, BodyReadLimits], Iterable[None]
]


def traces(body: bytes, read_limits: BodyReadLimits | None = None) -> Iterator[PayloadPiece[Span]]:
    ends = TraceEnds() if len(body) > pieces.LARGE_BODY else None
    names = ("resourceSpans", "scopeSpans", "spans")
    read = _build_item_reader(schema.SPAN, _build_span)
    for part in _decode_request_in_pieces(
        body, schema.TRACES, names, read, read_limits or BodyReadLimits(), ends
    ):
        if ends is not None:
            ends.mark_ended_traces(part)
        yield part


def logs(body: bytes, read_limits: BodyReadLimits | None = None) -> Iterator[PayloadPiece[LogRecord]]:
    names = ("resourceLogs", "scopeLogs", "logRecords")
    read = _build_item_reader(schema.LOG_RECORD, _build_log_record)
    return _decode_request_in_pieces(body, schema.LOGS, names, read, read_limits or BodyReadLimits())


def metrics(body: bytes, read_limits: BodyReadLimits | None = None) -> Iterator[PayloadPiece[MetricPoint]]:
    """Yield the metric points of a body. `ignored` of each piece counts the points that cannot be counted."""
    names = ("resourceMetrics", "scopeMetrics", "metrics")
    return _decode_request_in_pieces(
        body,
        schema.METRICS,
        names,
        _read_points_of_metric,
        read_limits or BodyReadLimits(),
        count=_count_points,
    )


def _decode_request_in_pieces(
    body: bytes,
    decoder: msgspec.json.Decoder[Any],
    names: Names,
    read: _Reader[T],
    read_limits: BodyReadLimits,
    ends: TraceEnds | None = None,
    count: Callable[[JsonItem, BodyReadLimits], Generator[None, None, int]] | None = None,
) -> Iterator[PayloadPiece[T]]:
    entries: list[tuple[int, JsonResource | None, JsonScopes]] = []
    for _ in json_request.collect_entries(body, decoder, names, read_limits, into=entries):
        yield PayloadPiece()
    if count is not None:
        for _ in _refuse_too_many_items(body, entries, read_limits, count):
            yield PayloadPiece()
    if ends is not None:
        for _ in _count_spans_of_traces(ends, entries, read_limits):
            yield PayloadPiece()
    filling: _PayloadPieceBuilder[T] = _PayloadPieceBuilder()
    for i, described, scopes in entries:
        resource = _decode_resource(described, f"{names[0]}[{i}]")
        if read_limits.count_work_and_check_turn(0):
            yield PayloadPiece()
        for j, scope_members, items in scopes:
            scope = (
                Scope(scope_members.name or "", scope_members.version or "")
                if scope_members
                else Scope("", "")
            )
            if read_limits.count_work_and_check_turn(0):
                yield PayloadPiece()
            for k, raw in enumerate(items):
                for _ in read(filling, resource, scope, raw, _JsonPlace(names, i, j, k), read_limits):
                    yield filling.take_finished_piece()
                if read_limits.count_work_and_check_turn(memoryview(raw).nbytes):
                    yield filling.take_finished_piece()
    yield filling.take_finished_piece()


def _refuse_too_many_items(
    body: bytes,
    entries: Iterable[tuple[int, JsonResource | None, JsonScopes]],
    read_limits: BodyReadLimits,
    count: Callable[[JsonItem, BodyReadLimits], Generator[None, None, int]],
) -> Iterator[None]:
    if not (yield from may_exceed_items(body, read_limits.max_items)):
        return
    counted = read_limits.limits_for_counting_pass()
    for raw in (raw for _, _, scopes in entries for _, _, items in scopes for raw in items):
        counted.count_items((yield from count(raw, counted)), 0)
        if counted.count_work_and_check_turn(memoryview(raw).nbytes):
            yield


def _count_spans_of_traces(
    ends: TraceEnds,
    entries: Iterable[tuple[int, JsonResource | None, JsonScopes]],
    read_limits: BodyReadLimits,
) -> Iterator[None]:
    for _, _, scopes in entries:
        for _, _, items in scopes:
            windows = (
                items.window_texts_and_counts()
                if isinstance(items, LazyJsonArray)
                else ((raw, 1) for raw in items)
            )
            for text, count in windows:
                for trace_id in _trace_ids_of_spans(text, count):
                    with suppress(ValueError):
                        ends.count_span(bytes.fromhex(trace_id))
                if read_limits.count_work_and_check_turn(memoryview(text).nbytes, count):
                    yield


def _trace_ids_of_spans(text: JsonItem, count: int) -> Iterable[str]:
    """
    Return the trace ids of spans. Spans without a readable one are skipped, because the decoder rejects them
    later.
    """
    if count == 1 and memoryview(text).nbytes > WINDOW:
        return _trace_id_of_large_span(text)
    spans: Iterable[JsonItem] = [text]
    if count > 1:
        array = b"[%b]" % bytes(text)
        try:
            return [span.traceId for span in schema.TRACE_IDS.decode(array)]
        except (ValueError, RecursionError):
            spans = schema.SPANS.decode(array)
    trace_ids = []
    for span in spans:
        with suppress(ValueError):
            trace_ids.append(schema.TRACE_ID.decode(span).traceId)
    return trace_ids


def _trace_id_of_large_span(span: JsonItem) -> list[str]:
    cut = JsonScanner(bytes(span), BodyReadLimits())
    with suppress(BadPayload, ValueError):
        members = run_generator_to_end(cut.read_document(partial(cut.read_members, read={})))
        return [msgspec.json.decode(members[b"traceId"], type=str)] if b"traceId" in members else []
    return []


def _decode_resource(resource: JsonResource | None, where: str) -> Resource:
    try:
        return Resource(attributes_from_pairs(resource.attributes if resource else None))
    except Malformed as error:
        raise BadPayload(f"{where}.resource{error}") from None


def _parse_time_ns(value: schema.Whole, field: str) -> int:
    return 0 if value is None else time_or_zero_if_impossible(parse_whole_number(value, field, 0, 1 << 64))


def _require_hex_id(value: str | None, size: int, field: str) -> str | None:
    if not value:
        return None
    try:
        raw = bytes.fromhex(value)
    except ValueError:
        raw = b""
    if len(raw) != size or len(value) != 2 * size:
        raise Malformed(f".{field}: must be {2 * size} hexadecimal digits, not base64")
    return raw.hex() if any(raw) else None


def _hex_id_or_none(value: Any, size: int) -> str | None:
    try:
        return _require_hex_id(value, size, "") if isinstance(value, str) else None
    except Malformed:
        return None


def _build_item_reader(
    decoder: msgspec.json.Decoder[Any], make: Callable[[Any, Resource, Scope], T]
) -> _Reader[T]:
    def read_item_or_large_item(
        piece_builder: _PayloadPieceBuilder[T],
        resource: Resource,
        scope: Scope,
        raw: JsonItem,
        where: _JsonPlace,
        read_limits: BodyReadLimits,
    ) -> Iterable[None]:
        if memoryview(raw).nbytes > MAX_PIECE:
            return read_large_item(piece_builder, resource, scope, raw, where, read_limits)
        try:
            item = decode_item(raw, decoder)
            if item is not None:
                piece_builder.add_item(make(item, resource, scope))
        except Malformed as error:
            piece_builder.reject_item(f"{where}{error}")
        return ()

    def read_large_item(
        piece_builder: _PayloadPieceBuilder[T],
        resource: Resource,
        scope: Scope,
        raw: JsonItem,
        where: _JsonPlace,
        read_limits: BodyReadLimits,
    ) -> Iterator[None]:
        try:
            large = yield from decode_large_item(raw, read_limits)
            item: Any = decode_item(large.text, decoder)
            item.attributes = large.attributes
            if decoder is schema.SPAN:
                item.events = large.events
            piece_builder.add_item(make(item, resource, scope))
        except (Malformed, BadPayload) as error:
            piece_builder.reject_item(f"{where}{error}")

    return read_item_or_large_item


def _build_span(span: schema.JsonSpan, resource: Resource, scope: Scope) -> Span:
    code = span.status.code if span.status else None
    attributes = attributes_from_pairs(span.attributes)
    events = [
        SpanEvent(event.name, attributes_from_pairs(event.attributes))
        for event in span.events or ()
        if event is not None and event.name in READ_EVENTS
    ]
    return Span(
        resource,
        scope,
        span.name or "",
        _require_hex_id(span.traceId, 16, "traceId"),
        _require_hex_id(span.spanId, 8, "spanId"),
        _require_hex_id(span.parentSpanId, 8, "parentSpanId"),
        _parse_time_ns(span.startTimeUnixNano, "startTimeUnixNano") or None,
        _parse_time_ns(span.endTimeUnixNano, "endTimeUnixNano") or None,
        attributes,
        2 if code in (2, "STATUS_CODE_ERROR") else 0,
        merge_call_events(attributes, events) if events else events,
    )


def _build_log_record(record: schema.JsonLogRecord, resource: Resource, scope: Scope) -> LogRecord:
    body = (record.body.stringValue if record.body else None) or ""
    time = _parse_time_ns(record.timeUnixNano, "timeUnixNano")
    if not time:
        time = _parse_time_ns(record.observedTimeUnixNano, "observedTimeUnixNano")
    return LogRecord(
        resource,
        scope,
        record.eventName or "",
        body if len(body) <= 256 and " " not in body else "",
        time or None,
        _hex_id_or_none(record.traceId, 16),
        _hex_id_or_none(record.spanId, 8),
        attributes_from_pairs(record.attributes),
    )


def _read_points_of_metric(
    piece_builder: _PayloadPieceBuilder[MetricPoint],
    resource: Resource,
    scope: Scope,
    raw: JsonItem,
    where: _JsonPlace,
    read_limits: BodyReadLimits,
) -> Iterator[None]:
    """
    Read the points of a metric into `piece_builder`. A metric that cannot be read counts as one rejected item.
    """
    try:
        metric = yield from _decode_metric(raw, read_limits)
    except (Malformed, BadPayload) as error:
        piece_builder.reject_item(f"{where}{error}")
        return
    if metric is None:
        return
    countable = CounterPoints(metric.name or "", metric.unit or "", resource, scope)
    for kind, name in _KINDS.items():
        data = getattr(metric, kind)
        if data is None:
            continue
        temporality = data.aggregationTemporality
        if isinstance(temporality, str):
            temporality = _TEMPORALITIES.get(temporality, 0)
        countable.set_kind(name, temporality or 0, bool(data.isMonotonic))
        points = data.dataPoints or ()
        read_limits.count_items(len(points), memoryview(raw).nbytes)
        for number, encoded in enumerate(points):
            _read_point_into_piece(
                piece_builder, countable, encoded, kind, f"{where}.{kind}.dataPoints[{number}]"
            )
            if read_limits.count_work_and_check_turn(memoryview(encoded).nbytes):
                yield


def _count_points(raw: JsonItem, read_limits: BodyReadLimits) -> Generator[None, None, int]:
    """Count the points of a metric; 0 if it is unreadable, because the reader rejects it later."""
    try:
        metric = yield from _decode_metric(raw, read_limits)
    except (Malformed, BadPayload):
        return 0
    kinds = () if metric is None else [getattr(metric, kind) for kind in _KINDS]
    return sum(len(data.dataPoints or ()) for data in kinds if data is not None)


def _decode_metric(raw: JsonItem, read_limits: BodyReadLimits) -> Generator[None, None, Any]:
    """Decode a metric. If it is large, its points are found first, and then decoded one by one."""
    if memoryview(raw).nbytes <= MAX_PIECE:
        return decode_item(raw, schema.METRIC)
    cut = JsonScanner(bytes(raw), read_limits.limits_for_next_pass())
    points = partial(cut.locate_array_elements, place_in_message=".dataPoints")
    read = {
        kind.encode(): partial(cut.read_members, read={b"dataPoints": points}, where=f".{kind}")
        for kind in _KINDS
    }
    members = yield from run_yielding_each_step(cut.read_document(partial(cut.read_members, read=read)))
    kinds = {kind: members.pop(kind.encode()) for kind in _KINDS if kind.encode() in members}
    metric: Any = decode_item(encode_small_members(members), schema.METRIC)
    for kind, inner in kinds.items():
        data_points = inner.pop(b"dataPoints", ())
        data: Any = decode_item(encode_small_members(inner), schema.DATA, f".{kind}")
        data.dataPoints = data_points
        setattr(metric, kind, data)
    return metric


def _read_point_into_piece(
    piece_builder: _PayloadPieceBuilder[MetricPoint],
    counter_points: CounterPoints,
    raw: JsonItem,
    kind: str,
    where: str,
) -> None:
    try:
        if memoryview(raw).nbytes > MAX_PIECE:
            raise Malformed(f": larger than {MAX_PIECE} bytes")
        encoded = decode_item(raw, schema.DATA_POINT)
        if encoded is None:
            return
        point = _build_point(counter_points, encoded, kind) if counter_points.is_read else None
        if point is None:
            piece_builder.ignore_item(CANNOT_COUNT)
        else:
            piece_builder.add_item(point)
    except Malformed as error:
        piece_builder.reject_item(f"{where}{error}")


_NUMBERS = frozenset({"sum", "gauge"})  # kinds of metrics whose points have one number each


def _build_point(counter_points: CounterPoints, point: schema.DataPoint, kind: str) -> MetricPoint | None:
    value: int | float | None = None
    if kind not in _NUMBERS:
        value = None if point.sum is None else parse_double(point.sum, "sum")
    elif point.asInt is not None:
        value = parse_whole_number(point.asInt, "asInt", -(1 << 63), 1 << 63)
    elif point.asDouble is not None:
        value = parse_double(point.asDouble, "asDouble")
    attributes = attributes_from_pairs(point.attributes)
    return counter_points.build_point(
        flags=0 if point.flags is None else parse_whole_number(point.flags, "flags", 0, 1 << 32),
        start_time=_parse_time_ns(point.startTimeUnixNano, "startTimeUnixNano"),
        time=_parse_time_ns(point.timeUnixNano, "timeUnixNano"),
        value=value,
        attributes=attributes,
        outside=attributes_dropped_by_decoding_rules(point.attributes, attributes),
    )
