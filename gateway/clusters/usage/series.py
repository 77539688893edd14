"""Decoding of metric samples from agents: bodies of remote write, and files of JSON or Parquet."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from gateway.core import parquet
from gateway.core.errors import BadPayload
from gateway.normalise.payload.wire_fields import LENGTH_DELIMITED, field_tag_start_and_end
from spool.bounded_reading import MAX_DECODED, MAX_ROW, check_json, too_large_error
from spool.container_files.values import REMOTE_WRITE, ContainerFile
from spool.errors import Invalid

MOST = 256 * 1024 * 1024  # maximum bytes of an unpacked file
MOST_BLOCK = 64 * 1024 * 1024  # maximum bytes of a remote-write body, because it is unpacked as a whole
MAX_SYMBOLS = 500_000  # maximum number of symbols (texts) in a remote-write body
_PIECE = 256 * 1024
NAME = "__name__"
_V2 = "io.prometheus.write.v2.Request"
_GZIP = b"\x1f\x8b"
# protobuf field numbers: the series in remote write 1, then the symbols and the series in remote write 2
_FIRST_SERIES, _SYMBOLS, _SECOND_SERIES = 1, 4, 5
_rows = msgspec.json.Decoder(list[msgspec.Raw])
# if the upper six bits of the tag have this value or more, the length of a literal follows the tag in Snappy
_LONG = 60


class MetricSeries(NamedTuple):
    """A series: its labels and its samples. A sample is a time in milliseconds and a value."""

    labels: Mapping[str, str]
    samples: Sequence[tuple[int, float]]


def parse_series(file: ContainerFile, content: bytes) -> Iterator[MetricSeries]:
    """Yield the series in a body or file. Raises Invalid if the content cannot be read."""
    if file.kind == REMOTE_WRITE:
        is_second = _V2 in file.request
        yield from _parse_remote_write(content, is_version_2=is_second)
    elif content.startswith(parquet.MAGIC):
        with tempfile.TemporaryFile() as unread:
            unread.write(content)
            unread.flush()
            for _, row in parquet.read_rows(file.reference, unread, max_unpacked_bytes=MOST):
                yield from _parse_row(row)
    else:
        yield from _parse_json(file.reference, content)


def _parse_remote_write(content: bytes, *, is_version_2: bool) -> Iterator[MetricSeries]:
    """
    Yield the series of a remote-write body one at a time, because a decoded body of a large cluster would
    need ten times its size.
    """
    body = unpack_snappy(content, MOST_BLOCK)
    try:
        if is_version_2:
            texts = (str(text, "utf-8") for number, text in _message_fields(body) if number == _SYMBOLS)
            symbols = list(islice(texts, MAX_SYMBOLS + 1))
            if len(symbols) > MAX_SYMBOLS:
                raise Invalid(f"a body of remote write has more than {MAX_SYMBOLS} symbols")
            for number, text in _message_fields(body):
                if number == _SECOND_SERIES:
                    series = _Second.FromString(_check_series_size(text))
                    yield MetricSeries(_resolve_labels(series.labels_refs, symbols), _read_samples(series))
        else:
            for number, text in _message_fields(body):
                if number == _FIRST_SERIES:
                    series = _First.FromString(_check_series_size(text))
                    yield MetricSeries(
                        {label.name: label.value for label in series.labels}, _read_samples(series)
                    )
    except (BadPayload, DecodeError, IndexError, UnicodeDecodeError) as error:
        raise Invalid("it is not a body of remote write") from error


def _message_fields(body: bytes) -> Iterator[tuple[int, bytes]]:
    message, at = memoryview(body), 0
    while at < len(body):
        tag, start, at = field_tag_start_and_end(message, at)
        if tag & 7 == LENGTH_DELIMITED:
            yield tag >> 3, body[start:at]


def _check_series_size(series: bytes) -> bytes:
    if len(series) > MAX_ROW:
        raise Invalid(f"a series of remote write has more than {MAX_ROW} bytes")
    return series


def _read_samples(series: Any) -> list[tuple[int, float]]:
    return [(sample.timestamp, sample.value) for sample in series.samples]


def _resolve_labels(places: Sequence[int], symbols: Sequence[str]) -> dict[str, str]:
    if any(index >= len(symbols) for index in places):
        raise Invalid("a label of remote write refers to a missing symbol")
    texts = [symbols[index] for index in places]
    return dict(zip(texts[::2], texts[1::2], strict=False))


def _parse_json(name: str, content: bytes) -> Iterator[MetricSeries]:
    try:
        for row in _json_rows(name, content):
            metric = msgspec.json.decode(row)
            yield from _parse_row(metric) if isinstance(metric, dict) else ()
    except (OSError, EOFError, ValueError, zlib.error, RecursionError) as error:
        raise Invalid(f"{name} is not a file of metrics: {error}") from error


def _json_rows(name: str, content: bytes) -> Iterator[bytes | msgspec.Raw]:
    """Yield the JSON of each metric. An array is decoded as a whole, up to MAX_DECODED bytes."""
    begun = bytearray()
    is_array = False
    for piece in _inflate_pieces(name, content):
        is_array = is_array or (not begun.strip() and piece.lstrip()[:1] == b"[")
        begun += piece
        if is_array:
            if len(begun) > MAX_DECODED:
                raise too_large_error(name)
            continue
        *lines, rest = begun.split(b"\n")
        if len(rest) > MAX_ROW:
            raise Invalid(f"{name} has a line of more than {MAX_ROW} bytes")
        begun = rest
        yield from _check_lines(name, lines)
    if is_array:
        check_json(name, begun)
        yield from _rows.decode(begun)
    else:
        yield from _check_lines(name, [begun])


def _check_lines(name: str, lines: Sequence[bytearray]) -> Iterator[bytes]:
    for line in lines:
        if line.strip():
            check_json(name, line)
            yield bytes(line)


def _inflate_pieces(name: str, content: bytes) -> Iterator[bytes]:
    bytes_left = MOST
    with io.BytesIO(content) if content[:1] in (b"[", b"{") else _open_compressed(name, content) as stream:
        while piece := bytes(stream.read(_PIECE)):
            bytes_left -= len(piece)
            if bytes_left < 0:
                raise Invalid(f"{name} has more than {MOST} bytes unpacked")
            yield piece


def _open_compressed(name: str, content: bytes) -> Any:
    if content.startswith(_GZIP):
        return gzip.GzipFile(fileobj=io.BytesIO(content))
    return parquet.open_brotli(name, content)


def _parse_row(row: Mapping[str, Any]) -> Iterator[MetricSeries]:
    try:
        labels = row.get("labels") or {}
        label_values = json.loads(labels) if isinstance(labels, str) else labels
        base_labels = {NAME: row["metric_name"], "node": row.get("node_name")}
        texts = {name: str(value) for name, value in {**base_labels, **label_values}.items() if value}
        yield MetricSeries(texts, [(_parse_milliseconds(row["timestamp"]), float(row["value"]))])
    except (KeyError, TypeError, ValueError, AttributeError):
        return


def _parse_milliseconds(timestamp: object) -> int:
    text = str(timestamp)
    if text.isdecimal():
        return int(text)
    at = datetime.fromisoformat(text)
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def _remote_write_series_types() -> tuple[Any, Any]:
    """Return the protobuf types of a series in remote write 1 and 2, with only the needed fields."""
    field = descriptor_pb2.FieldDescriptorProto
    repeated, single = field.LABEL_REPEATED, field.LABEL_OPTIONAL
    double, integer, text = field.TYPE_DOUBLE, field.TYPE_INT64, field.TYPE_STRING
    fields: dict[str, list[tuple[str, int, Any, Any]]] = {
        "Label": [("name", 1, text, single), ("value", 2, text, single)],
        "Sample": [("value", 1, double, single), ("timestamp", 2, integer, single)],
        "Series1": [("labels", 1, "Label", repeated), ("samples", 2, "Sample", repeated)],
        "Series2": [("labels_refs", 1, field.TYPE_UINT32, repeated), ("samples", 2, "Sample", repeated)],
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="tollhouse/remote_write.proto", package="tollhouse.remote_write", syntax="proto3"
    )
    for name, of_message in fields.items():
        message = file.message_type.add(name=name)
        for label, number, kind, often in of_message:
            added = message.field.add(name=label, number=number, label=often)
            if isinstance(kind, str):
                added.type, added.type_name = field.TYPE_MESSAGE, f".{file.package}.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptors = [pool.FindMessageTypeByName(f"{file.package}.{name}") for name in ("Series1", "Series2")]
    first, second = map(message_factory.GetMessageClass, descriptors)
    return first, second


_First, _Second = _remote_write_series_types()


def unpack_snappy(block: bytes, max_bytes: int) -> bytes:
    """Unpack a block of snappy. Raises Invalid if it is malformed or unpacks to more than `max_bytes` bytes."""
    try:
        size, position = _unpacked_size_and_header_length(block)
        if size > max_bytes:
            raise Invalid(f"the snappy block has {size} bytes unpacked, more than {max_bytes}")
        content = bytearray()
        while position < len(block):
            position = _unpack_snappy_element(block, position, content)
            if len(content) > size:
                break
    except IndexError:
        raise Invalid("the snappy block is truncated") from None
    if len(content) != size:
        raise Invalid("the snappy block differs from its stated size")
    return bytes(content)


def _unpacked_size_and_header_length(block: bytes) -> tuple[int, int]:
    size = 0
    for index in range(5):
        byte = block[index]
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size, index + 1
    raise Invalid("the snappy block states no size")


def _unpack_snappy_element(block: bytes, position: int, content: bytearray) -> int:
    tag = block[position]
    position += 1
    kind, upper = tag & 3, tag >> 2
    if kind == 0:
        return _append_literal(block, position, upper, content)
    if kind == 1:
        length = (upper & 7) + 4
        offset = (tag >> 5) << 8 | block[position]
        return _append_copy(content, offset, length, position + 1)
    width = 2 if kind == 2 else 4
    if position + width > len(block):
        raise IndexError
    offset = int.from_bytes(block[position : position + width], "little")
    return _append_copy(content, offset, upper + 1, position + width)


def _append_literal(block: bytes, position: int, upper: int, content: bytearray) -> int:
    if upper >= _LONG:
        width = upper - _LONG + 1
        upper = int.from_bytes(block[position : position + width], "little")
        position += width
    end = position + upper + 1
    if end > len(block):
        raise IndexError
    content += block[position:end]
    return end


def _append_copy(content: bytearray, offset: int, length: int, end: int) -> int:
    """
    Append a copy of `length` bytes that begin `offset` bytes before the end. The copy may include bytes that
    it has just added. Return `end`.
    """
    begin = len(content) - offset
    if not offset or begin < 0:
        raise Invalid("a copy in the snappy block refers to bytes before its start")
    piece = bytes(content[begin : begin + length])
    while len(piece) < length:
        piece += piece[: length - len(piece)]
    content += piece
    return end
