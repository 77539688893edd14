"""
OTLP message classes in which the messages inside an item stay encoded as bytes, because protobuf's own
objects are expensive.

For a span with fifteen attributes, keys and values take 10 of the 12 us of parsing, and a message of two
bytes takes a hundred bytes of memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Generator, Iterator
from contextlib import suppress
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from gateway.core.errors import BadPayload, Refusal
from gateway.normalise.otlp.decoding.pieces import MAX_PIECE
from gateway.normalise.payload.body_limits import ITEM_BYTES, LARGEST_VALUE, TURN, BodyReadLimits
from gateway.normalise.payload.wire_fields import LENGTH_DELIMITED, field_tag_start_and_end, overrun_error

# Message types that are never read: exemplars, links, buckets and quantiles. They stay encoded.
_ENCODED = frozenset(
    {
        "attributes",
        "body",
        "events",
        "links",
        "exemplars",
        "quantile_values",
        "positive",
        "negative",
        "metadata",
        "entity_refs",
    }
)
_SERVICES = (trace_service_pb2, metrics_service_pb2, logs_service_pb2)


def _build_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add_descriptor_file(file: FileDescriptor) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for dependency in file.dependencies:
            add_descriptor_file(dependency)
        copy = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(copy)
        for message in list(copy.message_type):
            _keep_fields_encoded(message)
            if message.name == "KeyValue":
                encoded = copy.message_type.add()
                encoded.CopyFrom(message)
                encoded.name = "EncodedKeyValue"
                _keep_fields_encoded(encoded, {"value"})
        pool.Add(copy)

    for service in _SERVICES:
        add_descriptor_file(service.DESCRIPTOR)
    return pool


def _keep_fields_encoded(message: descriptor_pb2.DescriptorProto, names: Collection[str] = _ENCODED) -> None:
    # few of the nested types are read, but all of them are checked
    for field in message.field:
        if field.name in names and field.type == descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE:
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")


def _message_class(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"opentelemetry.proto.{name}"))


_pool = _build_pool()

TracesRequest = _message_class("collector.trace.v1.ExportTraceServiceRequest")
MetricsRequest = _message_class("collector.metrics.v1.ExportMetricsServiceRequest")
LogsRequest = _message_class("collector.logs.v1.ExportLogsServiceRequest")
KeyValue = _message_class("common.v1.KeyValue")
AnyValue = _message_class("common.v1.AnyValue")
Event = _message_class("trace.v1.Span.Event")
EncodedKeyValue = _message_class("common.v1.EncodedKeyValue")
Resource = _message_class("resource.v1.Resource")
InstrumentationScope = _message_class("common.v1.InstrumentationScope")
Span = _message_class("trace.v1.Span")


# path to a field: field numbers, or tuples of alternative field numbers
Path = tuple[int | tuple[int, ...], ...]

_TURN = 1024  # fields read before the event loop gets a turn
# number of fields that the counting pass assumes per item, with those around the items
_FIELDS_AN_ITEM = 8
# If the shared fields of a message are too large to repeat in each piece, the message stays whole, up to this
# multiple of the size of a piece.
_MOST_UNCUT = 8


def cut_request(
    body: bytes, path: Path, limit: int = MAX_PIECE, *, read_limits: BodyReadLimits | None = None
) -> Iterator[bytes]:
    """
    Cut a request into requests of at most `limit` bytes, which together hold the same items.

    `path` names the repeated fields to descend through. Its last field holds the items, which are never cut,
    so a piece with a large item may exceed `limit`. The fields of an item larger than a piece count as items,
    because each takes memory when it is parsed. Yields TURN whenever the event loop may run. Raises
    BadPayload for invalid protobuf, and Refusal 413 for too many items.
    """
    if len(body) <= limit:
        return iter((body,))
    return _cut_message(
        memoryview(body), path, limit, (read_limits or BodyReadLimits()).limits_for_next_pass()
    )


def _cut_message(message: memoryview, path: Path, limit: int, read_limits: BodyReadLimits) -> Iterator[bytes]:
    if len(message) <= limit:
        yield bytes(message)
        return
    if not path:
        yield (yield from _remove_largest_fields(message, read_limits))
        return
    beside, parts = yield from _split_message_fields(message, path[0], read_limits, limit // 4)
    if parts is None:
        yield from _count_fields_as_items(message, path, read_limits.limits_for_next_pass())
        if len(message) > limit * _MOST_UNCUT:
            shared = f"The resource or scope of a large body takes more than {limit // 4} bytes"
            raise Refusal(413, "body_too_large", f"{shared}; send smaller batches.")
        yield bytes(message)
        return
    group, size = [beside], len(beside)
    inner = max(limit - len(beside) - 16, limit // 2)
    for tag, start, end in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        payload = message[start:end]
        whole = (bytes(payload),) if end - start <= inner else None
        for piece in whole or _cut_message(payload, path[1:], inner, read_limits):
            if not piece and start != end:
                yield TURN
                continue
            if size + len(piece) > limit and len(group) > 1:
                yield _join_and_clear(group)
                group, size = [beside], len(beside)
            group += (encode_varint(tag), encode_varint(len(piece)), piece)
            size += max(len(piece) + 8, ITEM_BYTES)
            piece = TURN  # replace the piece, so that its memory is free while the next one is read
    yield _join_and_clear(group)


def _join_and_clear(parts: list[bytes]) -> bytes:
    joined = b"".join(parts)
    parts.clear()
    return joined


def _split_message_fields(
    message: memoryview,
    wanted_field_numbers: int | tuple[int, ...],
    read_limits: BodyReadLimits,
    max_other_bytes: int,
) -> Generator[bytes, None, tuple[bytes, array[int] | None]]:
    """
    Split a message. Return the bytes of the fields to repeat in every piece, and the positions of the wanted
    fields.

    Each wanted field has three positions: its tag, and the start and end of its payload. The positions are
    None if the other fields exceed `max_other_bytes` bytes.
    """
    beside = bytearray()
    # an array, because hundreds of thousands of positions are held while the body is read
    parts = array("Q")
    wanted_tags = _field_tags(wanted_field_numbers)
    size = len(message)
    at = walked = counted = 0
    while at < size:
        begin = at
        tag = message[at]
        # the usual case is handled first: a field with a short value
        if tag in wanted_tags and at + 1 < size and message[at + 1] < 0x80:
            start = at + 2
            at = start + message[at + 1]
            if at > size:
                raise overrun_error(begin, size)
        else:
            tag, start, at = field_tag_start_and_end(message, begin)
        if tag in wanted_tags:
            parts.extend((tag, start, at))
        elif len(beside) + at - begin > max_other_bytes:
            return b"", None
        else:
            beside += message[begin:at]
        walked += 1
        if walked % _TURN == 0:
            read_limits.count_items(len(parts) // 3 - counted, size)
            counted = len(parts) // 3
            yield TURN
    read_limits.count_items(len(parts) // 3 - counted, size)
    return bytes(beside), parts


def _remove_largest_fields(message: memoryview, read_limits: BodyReadLimits) -> Generator[bytes, None, bytes]:
    """
    Return a message without fields that are larger than any value that is read. Each field counts as an item.
    Yields TURN whenever the event loop may run.
    """
    pieces: list[memoryview] = []
    at = begin = walked = 0
    while at < len(message):
        field = at
        _, _, at = field_tag_start_and_end(message, field)
        read_limits.count_items(1, at - field)
        if at - field > LARGEST_VALUE:
            pieces.append(message[begin:field])
            begin = at
        walked += 1
        if walked % _TURN == 0:
            yield TURN
    return b"".join([*pieces, message[begin:]])


def _count_fields_as_items(message: memoryview, path: Path, read_limits: BodyReadLimits) -> Iterator[bytes]:
    """Count each field as an item, down to the end of a path. Raises Refusal 413 above the limit."""
    wanted_tags = _field_tags(path[0]) if len(path) > 1 else frozenset[int]()
    at = walked = 0
    while at < len(message):
        begin = at
        tag, start, at = field_tag_start_and_end(message, begin)
        read_limits.count_items(1, at - begin)
        if tag in wanted_tags:
            yield from _count_fields_as_items(message[start:at], path[1:], read_limits)
        walked += 1
        if walked % _TURN == 0:
            yield TURN


def refuse_too_many_items(body: bytes, item_field_path: Path, read_limits: BodyReadLimits) -> Iterator[bytes]:
    """
    Raise Refusal 413 if a large body holds too many items.

    The check runs before any item is read, so a body that exceeds the limit only at its end is refused as a
    whole. Invalid protobuf and bodies with too many other fields pass here, because the decoding pass reports
    them.
    """
    if len(body) <= max(MAX_PIECE, 2 * read_limits.max_items):
        return iter(())
    return _count_items_before_decoding(body, item_field_path, read_limits)


def _count_items_before_decoding(body: bytes, path: Path, read_limits: BodyReadLimits) -> Iterator[bytes]:
    with suppress(BadPayload, _TooManyFields):
        yield from _yield_fields_at_path(
            memoryview(body),
            path,
            read_limits.limits_for_counting_pass(),
            [_FIELDS_AN_ITEM * read_limits.max_items],
        )


class _TooManyFields(Exception):
    """Raised if the pass that counts the items of a body was stopped, because it would take as long as decoding."""


def _yield_fields_at_path(
    message: memoryview, path: Path, read_limits: BodyReadLimits, remaining_field_count: list[int]
) -> Iterator[bytes]:
    # alternative fields are parts of an item
    wanted_tags, is_message = (_field_tags(path[0]), isinstance(path[0], int))
    at = 0
    while at < len(message):
        tag, start, at = field_tag_start_and_end(message, at)
        remaining_field_count[0] -= 1
        if remaining_field_count[0] % _TURN == 0:
            if remaining_field_count[0] < 0:
                raise _TooManyFields
            yield TURN
        if tag in wanted_tags:
            if is_message:
                read_limits.count_items(1, 0)
            if path[1:]:
                yield from _yield_fields_at_path(
                    message[start:at], path[1:], read_limits, remaining_field_count
                )


def _field_tags(numbers: int | tuple[int, ...]) -> frozenset[int]:
    several = (numbers,) if isinstance(numbers, int) else numbers
    return frozenset(number << 3 | LENGTH_DELIMITED for number in several)


def encode_varint(number: int) -> bytes:
    if number < 0x80:
        return number.to_bytes(1, "big")
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
