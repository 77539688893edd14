"""
Decoder for OTLP/protobuf.

A request is never parsed whole. It is cut between its fields into requests of at most 512 KiB that together
hold the same items. A piece ends when it is time for the event loop to run. A span with a bad id is rejected,
and the other spans still count. A log record with a bad id is accepted without the id.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from gateway.core.errors import BadPayload
from gateway.normalise.otlp import admission
from gateway.normalise.otlp.admission import RULES, decoding_rule_of_attribute
from gateway.normalise.otlp.decoding import pieces, wire
from gateway.normalise.otlp.decoding.pieces import Malformed, PayloadPiece, TraceEnds
from gateway.normalise.otlp.decoding.wire import Path, cut_request, encode_varint, refuse_too_many_items
from gateway.normalise.otlp.metrics import CANNOT_COUNT, CounterPoints
from gateway.normalise.otlp.model import (
    END_OF_TIME,
    READ_EVENTS,
    Attributes,
    LogRecord,
    MetricPoint,
    Resource,
    Scope,
    Span,
    SpanEvent,
    merge_call_events,
    time_or_zero_if_impossible,
)
from gateway.normalise.otlp.shapes import FIELD_NAMES
from gateway.normalise.outcome import MALFORMED, RejectedPayloadItem
from gateway.normalise.payload.body_limits import ITEM_BYTES, PART_BYTES, TURN, BodyReadLimits
from spool.caches import SeenKeys, remove_oldest_eighth

T = TypeVar("T")
Pair = tuple[str, Any]

_LEFT_OUT: Pair = ("", None)
_STRING, _INT, _DOUBLE = 0x0A, 0x18, 0x21  # protobuf tags of an AnyValue's fields


# A larger attribute is read only if it is plain text, because it may be a list of millions of empty values.
LARGE = 256 * 1024
_NUMBERS = ("int_value", "bool_value", "double_value")
_unpack_double: Callable[[bytes, int], tuple[float]] = Struct("<d").unpack_from


# Facts about an attribute name, found by the first bytes of its KeyValues (0a <length> name 12): the name, whether the
# attribute is dropped or reduced, whether it is reduced, and whether its values repeat. A named tuple takes five times
# as long to make, and senders invent names.
_Head = tuple[str, bool, bool, bool]


class _Known(dict[bytes, Pair]):
    """
    Cache of decoded attributes by the bytes of their KeyValue. It never holds content.

    `__missing__` decodes a KeyValue directly if its name comes first, followed by a text or a number.
    """

    def __missing__(self, raw: bytes) -> Pair:
        size = len(raw)
        at = raw[1] + 3 if size > 5 else size  # position of the value, after the bytes of its length
        if size < at + 3:
            return _decode_attribute_of_any_layout(raw)
        encoded = raw[:at]
        head = _heads.get(encoded) or _decode_attribute_head_before_value(encoded)
        if head is None:
            return _decode_attribute_of_any_layout(raw)
        value: Any = None
        length, kind = raw[at], raw[at + 1]
        if length >= 0x80:
            value = _text_of_long_attribute(raw, at)
        elif length != size - at - 1:
            return _decode_attribute_of_any_layout(raw)
        elif kind == _STRING:
            if raw[at + 2] == length - 2:
                value = raw[at + 3 :].decode()
        elif kind == _INT:
            value = _small_varint_at_end(raw, length)
        elif kind == _DOUBLE and length == 9:
            value = _unpack_double(raw, at + 2)[0]
        if value is None:
            return _decode_attribute_of_any_layout(raw)
        name, is_left_out, is_reduced, repeats = head
        if is_left_out or (length >= 0x80 and len(value) > admission.MAX_VALUE):
            return _attribute_with_reduced_text(name, value) if is_reduced else _LEFT_OUT
        pair = (name, value)
        if repeats:
            _remember_decoded_attribute(raw, pair)
        return pair


_DROPPED: _Head = ("", True, False, False)  # facts that stand for every dropped attribute name
_known = _Known()
_read = _known.__getitem__
_heads: dict[bytes, _Head] = {}
_seen_keys = SeenKeys()  # seen keys that are not in `_heads`, so that only recurring names are stored there
_MOST_KNOWN = 8192
_LONGEST_KNOWN = 160
# Attributes whose values differ on nearly every span, so caching them saves nothing. Values of sessions, users and
# other counts repeat.
_VARYING = frozenset(
    name
    for field in ("input", "total", "request_id", "provider_request_id", "cost")
    for name in FIELD_NAMES[field]
)


def attributes_from_encoded(encoded: Sequence[bytes]) -> Attributes:
    """
    Decode KeyValues into a dict without content. If a name is repeated, its last value counts.

    Raises DecodeError or UnicodeDecodeError if a KeyValue is invalid, even if it holds content.
    """
    # iterating over protobuf's own containers takes twice as long
    pairs: Sequence[bytes] = encoded[:]
    if len(pairs) >= _CONVERSATION and any(map(_is_known_dropped_attribute, _sample_from_middle(pairs))):
        pairs = _remove_attributes_that_rules_drop(pairs)
    attributes = dict(map(_read, pairs))
    attributes.pop("", None)
    return attributes


# Number of attributes from which a span or log record is searched for a conversation's messages, which are
# dropped. This is three times as fast as `_Known`, which hashes whole messages. A few attributes from the
# middle of the list are checked first, because without messages the search is wasted.
_CONVERSATION = 32
_SAMPLE = 4
_LONGEST_OPENING = 4096  # maximum bytes of a value whose first bytes are stored


class _Openings(dict[int, bytes]):
    """
    By size of an encoded value: the bytes before its text, if it holds one text. These are <length of the
    rest> 0a <length of the text>.
    """

    def __missing__(self, size: int) -> bytes:
        opening = b"\xff\xff\xff"  # stands for texts that are too long to store; no text has this size
        if size > _LONGEST_OPENING:
            return opening
        for text in range(max(0, size - 5), size):
            length = encode_varint(text)
            stated = encode_varint(1 + len(length) + text) + b"\x0a" + length
            if len(stated) + text == size:
                opening = stated
        self[size] = opening
        return opening


_openings = _Openings()


def _sample_from_middle(pairs: Sequence[bytes]) -> Sequence[bytes]:
    middle = len(pairs) // 2
    return pairs[middle : middle + _SAMPLE]


def _is_known_dropped_attribute(raw: bytes) -> bool:
    return len(raw) > 5 and _heads.get(raw[: raw[1] + 3]) is _DROPPED


def _remove_attributes_that_rules_drop(pairs: Iterable[bytes]) -> list[bytes]:
    """
    Return KeyValues without texts that would be dropped after decoding. Raises UnicodeDecodeError if such a
    text is invalid.
    """
    heads, openings, dropped = _heads.get, _openings, _DROPPED
    kept: list[bytes] = []
    for raw in pairs:
        at = raw[1] + 3 if len(raw) > 5 else 0
        if heads(raw[:at]) is dropped:
            opening = openings[len(raw) - at]
            if raw.startswith(opening, at):
                # check that the text is valid; the length bytes of a long text are never ASCII
                if not raw.isascii():
                    raw[at + len(opening) :].decode()
                continue
        kept.append(raw)
    return kept


def attributes_dropped_by_decoding_rules(
    encoded: Iterable[bytes], decoded_attributes: Attributes
) -> dict[str, object]:
    outside: dict[str, object] = {}
    for pair in map(_parse_pair, encoded):
        if (
            pair.key
            and pair.key not in decoded_attributes
            and (plain := _decoded_value(pair.value)) is not None
        ):
            outside[pair.key] = plain
    return outside


def _decoded_value(value: Any) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return _texts_of_array(value)
    return getattr(value, kind) if kind in ("string_value", *_NUMBERS) else None


def _attribute_with_reduced_text(name: str, value: Any) -> Pair:
    reduced = admission.reduced_content(name, value) if type(value) is str else None
    return _LEFT_OUT if reduced is None else (name, reduced)


def _small_varint_at_end(raw: bytes, length: int) -> int | None:
    """
    Read the varint of up to three bytes that ends `raw`, an encoded value of `length` bytes. Return None for
    other values.
    """
    last = raw[-1]
    if last >= 0x80:
        return None
    if length == 3:
        return raw[-2] & 0x7F | last << 7 if raw[-2] >= 0x80 else None
    if length == 2:
        return last
    if length == 4 and raw[-2] >= 0x80 and raw[-3] >= 0x80:
        return raw[-3] & 0x7F | (raw[-2] & 0x7F) << 7 | last << 14
    return None


def _text_of_long_attribute(raw: bytes, position: int) -> str | None:
    start = _position_after_length(raw, position)
    if start is None or raw[start] != _STRING:
        return None
    start = _position_after_length(raw, start + 1)
    return None if start is None else raw[start:].decode()


def _position_after_length(raw: bytes, position: int) -> int | None:
    size = len(raw)
    length = shift = 0
    while position < size and shift < 35:
        byte = raw[position]
        position += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return position if position + length == size and length else None
        shift += 7
    return None


def _decode_attribute_of_any_layout(raw: bytes) -> Pair:
    message = _parse_pair(raw)
    name = message.key
    rule = RULES[name]
    value = None if rule is admission.DROPPED else _decode_value_by_rule(message.value, rule, name)
    pair = _LEFT_OUT if value is None else (name, value)
    if (rule is admission.SCALAR and name not in _VARYING) or name in FIELD_NAMES["finish"]:
        _remember_decoded_attribute(raw, pair)
    return pair


def _parse_pair(raw: bytes) -> Any:
    if len(raw) > LARGE:
        encoded = wire.EncodedKeyValue.FromString(raw)
        # a value that is not a text may need more memory than its bytes
        if encoded.value[:1] != b"\x0a":
            return wire.KeyValue(key=encoded.key)
    return wire.KeyValue.FromString(raw)


def _decode_attribute_head_before_value(encoded: bytes) -> _Head | None:
    """
    Decode the head of an encoded attribute: the bytes up to its value. Heads that recur are remembered.
    Return None if the bytes have another form, or if the value may be a list of texts.
    """
    if encoded[0] != _STRING or encoded[1] >= 0x80 or encoded[-1] != 0x12:
        return None
    name = encoded[2:-1].decode()
    rule = decoding_rule_of_attribute(name)
    if rule is admission.WORDS:
        return None
    recurs = _seen_keys.add_and_return_whether_known(encoded)
    repeats = recurs and name not in _VARYING
    if rule is admission.SCALAR:
        head = (name, False, False, repeats)
    else:
        head = _DROPPED if rule is admission.DROPPED else (name, True, True, repeats)
    if recurs:
        if len(_heads) >= _MOST_KNOWN:
            remove_oldest_eighth(_heads)
        _heads[encoded] = head
    return head


def _remember_decoded_attribute(raw: bytes, pair: Pair) -> None:
    if len(raw) <= _LONGEST_KNOWN:
        if len(_known) >= _MOST_KNOWN:
            remove_oldest_eighth(_known)
        _known[raw] = pair


def _decode_value_by_rule(value: Any, decoding_rule: str, name: str) -> Any:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        text = value.string_value
        if decoding_rule is admission.REDUCED:
            return admission.reduced_content(name, text)
        return None if len(text) > admission.MAX_VALUE else text
    if kind in _NUMBERS:
        return getattr(value, kind) if decoding_rule is admission.SCALAR else None
    if kind == "array_value" and decoding_rule is admission.WORDS:
        return _texts_of_array(value)
    return None


def _texts_of_array(value: Any) -> list[str] | None:
    return [part.string_value for part in value.array_value.values if part.string_value] or None


# Field numbers that lead to the items. They are the same for every signal.
_PATH = (1, 2, 2)
# path from a metric over its kind of data
_POINTS = (*_PATH, (5, 7, 9, 10, 11), 1)

_NO_TRACE = bytes(16)
_NO_SPAN = bytes(8)
NO_EVENTS: list[SpanEvent] = []

_PARTS_OF_SPAN = ITEM_BYTES // PART_BYTES  # maximum parts of a span, apart from its attributes
# number of parts to read between two checks of the time, because a check takes as long as a part
_UNCHECKED_PARTS = 64
MANY = 1024  # attributes or events of an item read before the event loop gets a turn
_LARGEST_EVENT = 128 * 1024  # maximum bytes of an event, more than any stack trace has
_LARGEST_TEXT = 1024  # maximum bytes of a log record's body that may be an event name


# decodes the items of one piece of a request, whose first item has the given position in the request
DecodePiece = Callable[[bytes, int, BodyReadLimits], Iterator[PayloadPiece[T]]]


def traces(
    body: bytes, read_limits: BodyReadLimits | None = None, decode_piece: DecodePiece[Span] | None = None
) -> Iterator[PayloadPiece[Span]]:
    read_limits = read_limits or BodyReadLimits()
    decode_piece = decode_piece or decode_spans_of_piece
    ends = None
    for _ in refuse_too_many_items(body, _PATH, read_limits):
        yield PayloadPiece()
    if len(body) > pieces.LARGE_BODY:
        ends = yield from _count_spans_of_traces(body, read_limits)
    for part in _decode_request_in_pieces(body, wire.TracesRequest, decode_piece, _PATH, read_limits):
        if ends is not None:
            ends.mark_ended_traces(part)
        yield part


def logs(body: bytes, read_limits: BodyReadLimits | None = None) -> Iterator[PayloadPiece[LogRecord]]:
    read_limits = read_limits or BodyReadLimits()
    for _ in refuse_too_many_items(body, _PATH, read_limits):
        yield PayloadPiece()
    yield from _decode_request_in_pieces(body, wire.LogsRequest, _decode_logs_of_piece, _PATH, read_limits)


def metrics(body: bytes, read_limits: BodyReadLimits | None = None) -> Iterator[PayloadPiece[MetricPoint]]:
    read_limits = read_limits or BodyReadLimits()
    for _ in refuse_too_many_items(body, _POINTS, read_limits):
        yield PayloadPiece()
    yield from _decode_request_in_pieces(
        body, wire.MetricsRequest, _decode_points_of_piece, _POINTS, read_limits
    )


def _decode_request_in_pieces(
    body: bytes, message_class: Any, decode_piece: DecodePiece[T], path: Path, read_limits: BodyReadLimits
) -> Iterator[PayloadPiece[T]]:
    # JSON begins with this byte; in protobuf it would start a group, which OTLP never had
    if body[:1] == b"{":
        raise BadPayload("body: JSON, although the Content-Type announces protobuf")
    received = offset = 0
    for encoded in cut_request(body, path, read_limits=read_limits):
        size = len(encoded)
        try:
            parts = decode_piece(encoded, received, read_limits)
            # the memory of a large part is released while its items are read
            encoded = TURN
            for part in parts:
                received += part.received
                yield part
        except DecodeError:
            name = message_class.DESCRIPTOR.name
            raise BadPayload(
                f"body: not readable as {name}, in the part that starts near byte {offset}"
            ) from None
        except UnicodeDecodeError:
            raise BadPayload(
                f"body: text that is not UTF-8, in the part that starts near byte {offset}"
            ) from None
        offset += size


def _parse_piece_and_decode(
    message_class: Any, decode_items: Callable[[Any, int, int, BodyReadLimits], Iterator[PayloadPiece[T]]]
) -> DecodePiece[T]:
    def decode_piece(
        encoded: bytes, first_index: int, read_limits: BodyReadLimits
    ) -> Iterator[PayloadPiece[T]]:
        size = len(encoded)
        request = message_class.FromString(encoded)
        # the memory of a large part is released while its items are read
        encoded = TURN
        # pause after parsing, because the parser itself cannot pause
        if read_limits.count_work_and_check_turn(size):
            yield PayloadPiece()
        yield from decode_items(request, first_index, size, read_limits)

    return decode_piece


def _count_spans_of_traces(
    body: bytes, read_limits: BodyReadLimits
) -> Generator[PayloadPiece[Span], None, TraceEnds]:
    ends = TraceEnds()
    for encoded in cut_request(body, _PATH, read_limits=read_limits):
        try:
            request = wire.TracesRequest.FromString(encoded)
        except DecodeError:  # the decoding pass finds this error again, and reports its position
            break
        for resource_spans in request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    ends.count_span(span.trace_id)
        yield PayloadPiece()
    return ends


def _decode_spans(
    request: Any, first_index: int, size: int, read_limits: BodyReadLimits
) -> Iterator[PayloadPiece[Span]]:
    items = len(request.resource_spans)
    for resource_spans in request.resource_spans:
        items += len(resource_spans.scope_spans)
        for scope_spans in resource_spans.scope_spans:
            items += len(scope_spans.spans)
    read_limits.count_items(items, size)
    part: PayloadPiece[Span] = PayloadPiece()
    at, parts = first_index, 0  # position of the span, and parts since the last check of the time
    for resource_spans in request.resource_spans:
        encoded = resource_spans.resource.attributes
        if len(encoded) <= MANY:
            resource = Resource(attributes_from_encoded(encoded))
        else:
            resource = Resource((yield from _decode_attributes_with_pauses(encoded, read_limits)))
        for scope_spans in resource_spans.scope_spans:
            scope = Scope(scope_spans.scope.name, scope_spans.scope.version)
            if read_limits.count_work_and_check_turn(0):
                yield PayloadPiece()
            for span in scope_spans.spans:
                encoded, events = span.attributes, span.events
                size = len(encoded)
                if size <= MANY:
                    attributes = attributes_from_encoded(encoded)
                else:
                    attributes = yield from _decode_attributes_with_pauses(encoded, read_limits)
                exceptions = (
                    (yield from decode_events(events, attributes, read_limits)) if events else NO_EVENTS
                )
                try:
                    part.items.append((at, _build_span(resource, scope, span, attributes, exceptions)))
                except Malformed as error:
                    part.rejects.append(RejectedPayloadItem(at, MALFORMED, f"spans[{at}]{error}"))
                at += 1
                parts += size + _PARTS_OF_SPAN
                if parts < _UNCHECKED_PARTS:
                    continue
                if read_limits.count_work_and_check_turn(0, parts):
                    part.received = at - first_index
                    yield part
                    first_index, part = at, PayloadPiece()
                parts = 0
    part.received = at - first_index
    yield part


def _decode_log_records(
    request: Any, first_index: int, size: int, read_limits: BodyReadLimits
) -> Iterator[PayloadPiece[LogRecord]]:
    groups = [group.scope_logs for group in request.resource_logs]
    read_limits.count_items(
        _count_entries(groups) + sum(len(scope.log_records) for group in groups for scope in group), size
    )
    part: PayloadPiece[LogRecord] = PayloadPiece()
    for resource_logs in request.resource_logs:
        resource = Resource(
            (yield from _decode_attributes_with_pauses(resource_logs.resource.attributes, read_limits))
        )
        for scope_logs in resource_logs.scope_logs:
            scope = Scope(scope_logs.scope.name, scope_logs.scope.version)
            if read_limits.count_work_and_check_turn(0):
                yield PayloadPiece()
            for record in scope_logs.log_records:
                encoded = record.attributes
                if len(encoded) <= MANY:
                    attributes = attributes_from_encoded(encoded)
                else:
                    attributes = yield from _decode_attributes_with_pauses(encoded, read_limits)
                part.items.append(
                    (first_index + part.received, _build_log_record(resource, scope, record, attributes))
                )
                part.received += 1
                if read_limits.count_work_and_check_turn(0, len(encoded)):
                    yield part
                    first_index += part.received
                    part = PayloadPiece()
    yield part


def _decode_data_points(
    request: Any, first_index: int, size: int, read_limits: BodyReadLimits
) -> Iterator[PayloadPiece[MetricPoint]]:
    groups = [group.scope_metrics for group in request.resource_metrics]
    metrics = [metric for group in groups for scope in group for metric in scope.metrics]
    read_limits.count_items(
        _count_entries(groups) + len(metrics) + sum(len(_metric_points(metric)) for metric in metrics), size
    )
    part: PayloadPiece[MetricPoint] = PayloadPiece()
    for resource_metrics in request.resource_metrics:
        resource = Resource(
            (yield from _decode_attributes_with_pauses(resource_metrics.resource.attributes, read_limits))
        )
        for scope_metrics in resource_metrics.scope_metrics:
            scope = Scope(scope_metrics.scope.name, scope_metrics.scope.version)
            if read_limits.count_work_and_check_turn(0):
                yield PayloadPiece()
            for metric in scope_metrics.metrics:
                countable = _build_counter_points(metric, resource, scope)
                if read_limits.count_work_and_check_turn(0):
                    yield PayloadPiece()
                for encoded in _metric_points(metric):
                    point = (
                        (yield from _build_point(encoded, countable, read_limits))
                        if countable.is_read
                        else None
                    )
                    if point is None:
                        part.ignored[CANNOT_COUNT] = part.ignored.get(CANNOT_COUNT, 0) + 1
                    else:
                        part.items.append((first_index + part.received, point))
                    part.received += 1
                    if read_limits.count_work_and_check_turn(0, len(encoded.attributes)):
                        yield part
                        first_index += part.received
                        part = PayloadPiece()
    yield part


def _count_entries(groups: Sequence[Sequence[Any]]) -> int:
    return len(groups) + sum(map(len, groups))


def _decode_attributes_with_pauses(
    encoded: Sequence[bytes], read_limits: BodyReadLimits
) -> Generator[PayloadPiece[Any], None, Attributes]:
    attributes: Attributes = {}
    for start in range(0, len(encoded), MANY):
        chunk = encoded[start : start + MANY]
        attributes.update(attributes_from_encoded(chunk))
        if read_limits.count_work_and_check_turn(0, len(chunk)):
            yield PayloadPiece()
    return attributes


def _decode_events(
    events: Sequence[bytes], read_limits: BodyReadLimits
) -> Generator[PayloadPiece[Any], None, list[SpanEvent]]:
    span_events: list[SpanEvent] = []
    for raw in events:
        if read_limits.count_work_and_check_turn(len(raw)):
            yield PayloadPiece()
        if len(raw) > _LARGEST_EVENT:
            continue
        event = wire.Event.FromString(raw)
        if event.name in READ_EVENTS:
            encoded = [attribute.SerializeToString() for attribute in event.attributes]
            span_events.append(SpanEvent(event.name, attributes_from_encoded(encoded)))
    return span_events


def _build_span(
    resource: Resource, scope: Scope, span: Any, attributes: Attributes, events: list[SpanEvent]
) -> Span:
    trace_id, span_id, parent_id = span.trace_id, span.span_id, span.parent_span_id
    if len(trace_id) != 16 or len(span_id) != 8 or parent_id:
        _require_id_size(trace_id, 16, "trace_id")
        _require_id_size(span_id, 8, "span_id")
        _require_id_size(parent_id, 8, "parent_span_id")
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
        attributes,
        span.status.code,
        events,
    )


def _build_log_record(resource: Resource, scope: Scope, record: Any, attributes: Attributes) -> LogRecord:
    trace_id, span_id = record.trace_id, record.span_id
    body = wire.AnyValue.FromString(record.body).string_value if len(record.body) <= _LARGEST_TEXT else ""
    return LogRecord(
        resource,
        scope,
        record.event_name,
        body if len(body) <= 256 and " " not in body else "",
        time_or_zero_if_impossible(record.time_unix_nano)
        or time_or_zero_if_impossible(record.observed_time_unix_nano)
        or None,
        trace_id.hex() if len(trace_id) == 16 and trace_id != _NO_TRACE else None,
        span_id.hex() if len(span_id) == 8 and span_id != _NO_SPAN else None,
        attributes,
    )


def _metric_points(metric: Any) -> Sequence[Any]:
    kind = metric.WhichOneof("data")
    points: Sequence[Any] = getattr(metric, kind).data_points if kind else ()
    return points


def _build_counter_points(metric: Any, resource: Resource, scope: Scope) -> CounterPoints:
    countable = CounterPoints(metric.name, metric.unit, resource, scope)
    kind = metric.WhichOneof("data")
    if kind:
        data = getattr(metric, kind)
        countable.set_kind(
            kind, getattr(data, "aggregation_temporality", 0), getattr(data, "is_monotonic", False)
        )
    return countable


def _build_point(
    point: Any, counter_points: CounterPoints, read_limits: BodyReadLimits
) -> Generator[PayloadPiece[Any], None, MetricPoint | None]:
    if point.DESCRIPTOR.name == "NumberDataPoint":
        kind = point.WhichOneof("value")
        value = None if kind is None else getattr(point, kind)
    elif point.DESCRIPTOR.name == "SummaryDataPoint":  # the points of a summary always have a sum
        value = point.sum
    else:
        value = point.sum if point.HasField("sum") else None
    encoded = point.attributes
    attributes = yield from _decode_attributes_with_pauses(encoded, read_limits)
    outside: dict[str, object] = {}
    if len(encoded) > len(attributes):
        for start in range(0, len(encoded), MANY):
            chunk = encoded[start : start + MANY]
            outside.update(attributes_dropped_by_decoding_rules(chunk, attributes))
            if read_limits.count_work_and_check_turn(0, len(chunk)):
                yield PayloadPiece()
    return counter_points.build_point(
        flags=point.flags,
        start_time=time_or_zero_if_impossible(point.start_time_unix_nano),
        time=time_or_zero_if_impossible(point.time_unix_nano),
        value=value,
        attributes=attributes,
        outside=outside,
    )


def decode_resource(
    encoded: bytes, read_limits: BodyReadLimits
) -> Generator[PayloadPiece[Any], None, Resource]:
    """Decode a resource. Raises DecodeError or UnicodeDecodeError."""
    attributes = wire.Resource.FromString(encoded).attributes
    return Resource((yield from _decode_attributes_with_pauses(attributes, read_limits)))


def decode_span(
    resource: Resource, scope: Scope, encoded: bytes, read_limits: BodyReadLimits
) -> Generator[PayloadPiece[Any], None, Span]:
    """Decode a span. Raises DecodeError, UnicodeDecodeError or Malformed."""
    span = wire.Span.FromString(encoded)
    attributes = yield from _decode_attributes_with_pauses(span.attributes, read_limits)
    return _build_span(
        resource, scope, span, attributes, (yield from decode_events(span.events, attributes, read_limits))
    )


def decode_events(
    events: Sequence[bytes], attributes: Attributes, read_limits: BodyReadLimits
) -> Generator[PayloadPiece[Any], None, list[SpanEvent]]:
    """Return the exceptions of a span, and add the attributes of its call's events to `attributes`."""
    return merge_call_events(attributes, (yield from _decode_events(events, read_limits)))


def decode_in_place(attributes: Attributes, names: Iterable[str]) -> None:
    """
    Decode the values with these names, which are encoded KeyValues, and delete those that rules drop. Raises
    DecodeError or UnicodeDecodeError.
    """
    for name in names:
        known_name, value = _read(attributes[name])
        if known_name:
            attributes[name] = value
        else:
            del attributes[name]


decode_spans_of_piece = _parse_piece_and_decode(wire.TracesRequest, _decode_spans)
_decode_logs_of_piece = _parse_piece_and_decode(wire.LogsRequest, _decode_log_records)
_decode_points_of_piece = _parse_piece_and_decode(wire.MetricsRequest, _decode_data_points)


def _require_id_size(raw: bytes, size: int, field: str) -> None:
    if raw and len(raw) != size:
        raise Malformed(f".{field}: has {len(raw)} bytes instead of {size}")
