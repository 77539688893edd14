"""Small bodies that expand a lot or cause disproportionate work. They must not delay other senders."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from typing import NamedTuple

MIB = 1 << 20
PROTOBUF, JSON = "application/x-protobuf", "application/json"


class Bomb(NamedTuple):
    path: str
    content_type: str
    make: Callable[[int], bytes]  # a function that makes a hostile body of about this many bytes
    is_packed: bool = True  # whether the hostile body is sent as gzip
    method: str = "POST"


def field(number: int, payload: bytes) -> bytes:
    """Encode a length-delimited protobuf field."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _repeated(head: bytes, item: bytes, tail: bytes = b"") -> Callable[[int], bytes]:
    return lambda size: head + b",".join([item] * (size // (len(item) + 1))) + tail


def _spans(content: Callable[[int], bytes]) -> Callable[[int], bytes]:
    return lambda size: field(1, field(2, content(size)))


def _names(size: int) -> bytes:
    """Make a span with a different attribute name in every sixteen bytes."""
    pairs = [
        field(9, field(1, b"n%d" % one) + field(2, field(1, b"v"))) for one in range(min(size // 16, 100_000))
    ]
    return field(1, field(2, field(2, field(1, b"\1" * 16) + b"".join(pairs))))


def _numbers(size: int, number: bytes) -> bytes:
    return b"[" + b",".join([number] * (size // (len(number) + 1))) + b"]"


def _call(size: int, number: bytes) -> bytes:
    """
    Make one LiteLLM event that consists mostly of messages. Without a model it becomes no deliverable record.
    """
    return b'{"id":"x","call_type":"completion","messages":%b}' % _numbers(size, number)


def _generation(size: int, number: bytes) -> bytes:
    # the generation has no id, so it is read and then rejected
    body = b'{"model":"m","usageDetails":{"input":1},"input":%b}' % _numbers(size, number)
    return b'{"id":"e","type":"generation-create","body":%b}' % body


def _packed_document(size: int) -> bytes:
    """Make a log record after another line, which expands to the size."""
    record = b'{"schemaType":"ModelInvocationLog","input":{"inputBodyJson":%b}}' % _numbers(size, b"NaN")
    return json.dumps(
        {"records": [{"data": base64.b64encode(gzip.compress(b"{}\n" + record)).decode()}]}
    ).encode()


def _firehose(size: int) -> bytes:
    lines = base64.b64encode(gzip.compress(b'{"a":1}\n' * (size // 8))).decode()
    return json.dumps({"requestId": "r", "timestamp": 1, "records": [{"data": lines}] * 4}).encode()


_TRACES, _LITELLM, _LANGFUSE = "/v1/traces", "/v1/ai-telemetry/litellm", "/api/public/ingestion"
_ANY = "/v1/ai-telemetry"  # this address recognizes the format by the body
_IN_SPANS = b'{"resourceSpans":[{"scopeSpans":[{"spans":['

BOMBS = {
    "zeros": Bomb(_TRACES, PROTOBUF, bytes),
    "fields nobody knows": Bomb(_TRACES, PROTOBUF, lambda size: field(1, b"\x18\x00" * (size // 2))),
    "spans in protobuf": Bomb(_TRACES, PROTOBUF, _spans(lambda size: b"\x12\x00" * (size // 2))),
    "resources in protobuf": Bomb("/v1/logs", PROTOBUF, lambda size: b"\x0a\x00" * (size // 2)),
    "attributes in protobuf": Bomb(
        _TRACES, PROTOBUF, _spans(lambda size: field(2, b"\x4a\x00" * (size // 2)))
    ),
    "points in protobuf": Bomb(
        "/v1/metrics", PROTOBUF, _spans(lambda size: field(2, field(7, b"\x0a\x00" * (size // 2))))
    ),
    "a list in protobuf": Bomb(
        _TRACES,
        PROTOBUF,
        _spans(lambda size: field(2, field(9, field(2, field(5, b"\x0a\x00" * (size // 2)))))),
    ),
    "spans in JSON": Bomb(_TRACES, JSON, _repeated(_IN_SPANS, b"{}", b"]}]}]}")),
    "resources in JSON": Bomb(_TRACES, JSON, _repeated(b'{"resourceSpans":[', b"{}", b"]}")),
    "attributes in JSON": Bomb(_TRACES, JSON, _repeated(_IN_SPANS + b'{"attributes":[', b"{}", b"]}]}]}]}")),
    "points in JSON": Bomb(
        "/v1/metrics",
        JSON,
        _repeated(
            b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"sum":{"dataPoints":[', b"{}", b"]}}]}]}]}"
        ),
    ),
    "items of a gateway": Bomb(_LITELLM, JSON, _repeated(b"[", b"{}", b"]")),
    "lines of a gateway": Bomb(_LITELLM, JSON, lambda size: b"{}\n" * (size // 3)),
    "blank lines": Bomb(_LITELLM, JSON, lambda size: b'{"a":1}\n' + b" \n" * (size // 2)),
    "events of Langfuse": Bomb(_LANGFUSE, JSON, _repeated(b'{"batch":[', b"{}", b"]}")),
    "lines in a delivery": Bomb("/v1/ai-telemetry/bedrock", JSON, _firehose, is_packed=False),
    "one call": Bomb(_LITELLM, JSON, lambda size: _call(size, b"[]")),
    "one call with NaN": Bomb(_LITELLM, JSON, lambda size: _call(size, b"NaN")),
    "items with NaN": Bomb(_LITELLM, JSON, _repeated(b"[", b'{"messages":%b}' % _numbers(400, b"NaN"), b"]")),
    "one call behind another": Bomb(
        _LITELLM, JSON, lambda size: _call(1, b"1") + b"\n" + _call(size, b"NaN")
    ),
    "one event of Langfuse": Bomb(_LANGFUSE, JSON, lambda size: b'{"batch":[%b]}' % _generation(size, b"[]")),
    "one event with NaN": Bomb(
        _LANGFUSE, JSON, lambda size: b'{"batch":[{},%b]}' % _generation(size, b"NaN")
    ),
    "events with NaN": Bomb(_LANGFUSE, JSON, _repeated(b'{"batch":[', _generation(400, b"NaN"), b"]}")),
    "one event, format unknown": Bomb(_ANY, JSON, lambda size: b'{"batch":[%b]}' % _generation(size, b"NaN")),
    "half characters": Bomb(_LITELLM, JSON, lambda size: _call(size, b'"%b"' % (b"\\ud800" * 100_000))),
    "bytes that are no text": Bomb(_LANGFUSE, JSON, lambda size: b'{"batch":[NaN,"%b"]}' % (b"\xff" * size)),
    "one document in a delivery": Bomb("/v1/ai-telemetry/bedrock", JSON, _packed_document, is_packed=False),
    "one usage event with NaN": Bomb(
        "/v1/events", JSON, lambda size: b'{"data":{"a":%b}}' % _numbers(size, b"NaN")
    ),
    "one span": Bomb(_TRACES, JSON, lambda size: _IN_SPANS + b'{"other":%b}]}]}]}' % _numbers(size, b"[[]]")),
    "digits": Bomb(_TRACES, JSON, lambda size: _IN_SPANS + b'{"other":%b}]}]}]}' % (b"1" * size)),
    "a stream": Bomb(
        "/unit-cost/v1/telemetry/metric/s", JSON, lambda size: _numbers(size, b"[]"), method="PUT"
    ),
    "brackets": Bomb(_LITELLM, JSON, lambda size: b"[" * (size // 4)),
    "100,000 names": Bomb(_TRACES, PROTOBUF, _names, is_packed=False),
    "a prompt": Bomb(
        _TRACES,
        JSON,
        lambda size: (
            _IN_SPANS
            + b'{"attributes":[{"key":"input","value":{"stringValue":"'
            + b"x" * size
            + b'"}}]}]}]}]}'
        ),
        is_packed=False,
    ),
}
