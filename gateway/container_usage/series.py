"""Samples of metrics as agents send them: bodies of remote write, and files of JSON or Parquet. Pure."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from gateway.container_usage.snappy import unpacked
from gateway.errors import BadPayload
from gateway.normalise.payload.wire_fields import LENGTH_DELIMITED, field_at
from gateway.statements import parquet
from spool.container_files.values import REMOTE_WRITE, ContainerFile
from spool.errors import Invalid

MOST = 256 * 1024 * 1024  # bytes of a body or file once it is unpacked
NAME = "__name__"
_V2 = "io.prometheus.write.v2.Request"
_GZIP = b"\x1f\x8b"
_FIRST_SERIES, _SYMBOLS, _SECOND_SERIES = 1, 4, 5  # fields of the messages of remote write 1 and 2
_rows = msgspec.json.Decoder(list[msgspec.Raw])


class MetricSeries(NamedTuple):
    """`samples` are times in milliseconds with values."""

    labels: Mapping[str, str]
    samples: Sequence[tuple[int, float]]


def series_of(file: ContainerFile, content: bytes) -> Iterator[MetricSeries]:
    """Yield what a body or file has. Invalid where it cannot be read."""
    if file.kind == REMOTE_WRITE:
        is_second = _V2 in file.request
        yield from _of_remote_write(content, is_second=is_second)
    elif content.startswith(parquet.MAGIC):
        name = file.reference
        parquet.columns_of(
            name,
            content,
            most=MOST,
        )
        for _, row in parquet.rows_of(name, content):
            yield from _of_row(row)
    else:
        yield from _of_json(file.reference, content)


def _of_remote_write(content: bytes, *, is_second: bool) -> Iterator[MetricSeries]:
    """Read one series after the other: a body of a large cluster as a whole would be ten times its bytes."""
    body = unpacked(content, MOST)
    try:
        if is_second:
            symbols = [str(text, "utf-8") for number, text in _fields(body) if number == _SYMBOLS]
            for number, text in _fields(body):
                if number == _SECOND_SERIES:
                    each = _Second.FromString(text)
                    yield MetricSeries(_named(each.labels_refs, symbols), _samples(each))
        else:
            for number, text in _fields(body):
                if number == _FIRST_SERIES:
                    each = _First.FromString(text)
                    yield MetricSeries(_labels(each), _samples(each))
    except (BadPayload, DecodeError, IndexError, UnicodeDecodeError) as error:
        raise Invalid("it is no body of remote write") from error


def _fields(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message that have a length, with their numbers."""
    message, at = memoryview(body), 0
    while at < len(body):
        tag, start, at = field_at(message, at)
        if tag & 7 == LENGTH_DELIMITED:
            yield tag >> 3, body[start:at]


def _samples(series: Any) -> list[tuple[int, float]]:
    return [(sample.timestamp, sample.value) for sample in series.samples]


def _labels(series: Any) -> dict[str, str]:
    return {label.name: label.value for label in series.labels}


def _named(places: Sequence[int], symbols: Sequence[str]) -> dict[str, str]:
    if any(place >= len(symbols) for place in places):
        raise Invalid("a label of remote write names no symbol")
    words = [symbols[place] for place in places]
    return dict(
        zip(
            words[::2],
            words[1::2],
            strict=False,
        )
    )


def _of_json(name: str, content: bytes) -> Iterator[MetricSeries]:
    """Read an array of metrics, or one of each line, one after the other."""
    text = _inflated(name, content)
    try:
        rows: Iterable[bytes | msgspec.Raw] = io.BytesIO(text)
        if text.lstrip()[:1] == b"[":
            rows = _rows.decode(text)
        for row in rows:
            if bytes(row).strip():
                told = msgspec.json.decode(row)
                yield from _of_row(told) if isinstance(told, dict) else ()
    except msgspec.DecodeError as error:
        raise Invalid(f"{name} is no file of metrics: {error}") from error


def _inflated(name: str, content: bytes) -> bytes:
    if content[:1] in (b"[", b"{"):
        return content
    try:
        with _opened(name, content) as stream:
            found = stream.read(MOST + 1)
    except (OSError, EOFError, ValueError) as error:
        raise Invalid(f"{name} is no file of metrics: {error}") from error
    if len(found) > MOST:
        raise Invalid(f"{name} has more than {MOST} bytes unpacked")
    return bytes(found)


def _opened(name: str, content: bytes) -> Any:
    if content.startswith(_GZIP):
        return gzip.GzipFile(fileobj=io.BytesIO(content))
    return parquet.brotli_of(name, content)


def _of_row(row: Mapping[str, Any]) -> Iterator[MetricSeries]:
    """Read one metric as the agent's files have it; nothing of one that is none."""
    try:
        labels = row.get("labels") or {}
        known = json.loads(labels) if isinstance(labels, str) else labels
        more = {NAME: row["metric_name"], "node": row.get("node_name")}
        told = {name: str(value) for name, value in {**more, **known}.items() if value}
        yield MetricSeries(told, [(_milliseconds(row["timestamp"]), float(row["value"]))])
    except (KeyError, TypeError, ValueError, AttributeError):
        return


def _milliseconds(told: object) -> int:
    text = str(told)
    if text.isdecimal():
        return int(text)
    at = datetime.fromisoformat(text)
    known = at if at.tzinfo else at.replace(tzinfo=UTC)
    return int(known.timestamp() * 1000)


def _types() -> tuple[Any, Any]:
    """Return the messages of a series of remote write 1 and 2, with the fields that are read."""
    field = descriptor_pb2.FieldDescriptorProto
    many, one = field.LABEL_REPEATED, field.LABEL_OPTIONAL
    double, whole, text = field.TYPE_DOUBLE, field.TYPE_INT64, field.TYPE_STRING
    fields: dict[str, list[tuple[str, int, Any, Any]]] = {
        "Label": [("name", 1, text, one), ("value", 2, text, one)],
        "Sample": [("value", 1, double, one), ("timestamp", 2, whole, one)],
        "Series1": [("labels", 1, "Label", many), ("samples", 2, "Sample", many)],
        "Series2": [("labels_refs", 1, field.TYPE_UINT32, many), ("samples", 2, "Sample", many)],
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="tollhouse/remote_write.proto", package="tollhouse.remote_write", syntax="proto3"
    )
    for name, of_message in fields.items():
        message = file.message_type.add(name=name)
        for label, number, kind, often in of_message:
            added = message.field.add(
                name=label,
                number=number,
                label=often,
            )
            if isinstance(kind, str):
                added.type, added.type_name = field.TYPE_MESSAGE, f".{file.package}.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = [pool.FindMessageTypeByName(f"{file.package}.{name}") for name in ("Series1", "Series2")]
    first, second = map(message_factory.GetMessageClass, found)
    return first, second


_First, _Second = _types()
