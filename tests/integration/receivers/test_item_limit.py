"""Every receiver limits the items of a body (server.max_items)."""

from __future__ import annotations

import base64
from collections.abc import Callable

import grpc
import pytest

from spool.registry.scopes import CREATE_EVENT, INGEST
from tests.integration.conftest import Serve
from tests.integration.payloads import JSON, PROTOBUF
from tests.rounds import part

LIMIT = 1000
AROUND = 2  # number of items that are not spans: a resource and a scope


def _spans(count: int) -> bytes:
    items = b"\x12\x00" * count
    scope = b"\x12" + _varint(len(items)) + items
    return b"\x0a" + _varint(len(scope)) + scope


def _varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80, number >> 7]) if number > 0x7F else bytes([number])


def _json(head: bytes, item: bytes, tail: bytes) -> Callable[[int], bytes]:
    return lambda count: head + b",".join([item] * count) + tail


DOORS: dict[str, tuple[str, str, Callable[[int], bytes], int]] = {
    "protobuf": ("/v1/traces", PROTOBUF, _spans, LIMIT - AROUND),
    "JSON": (
        "/v1/traces",
        JSON,
        _json(b'{"resourceSpans":[{"scopeSpans":[{"spans":[', b"{}", b"]}]}]}"),
        LIMIT - AROUND,
    ),
    "requests in an array": (
        "/v1/ai-telemetry/otlp/traces", JSON, _json(b"[", b'{"resourceSpans":[]}', b"]"), LIMIT,
    ),
    "array": ("/v1/ai-telemetry/litellm", JSON, _json(b"[", b"{}", b"]"), LIMIT),
    "lines": ("/v1/ai-telemetry/kong", JSON, lambda count: b"{}\n" * count, LIMIT),
    "Firehose": (
        "/v1/ai-telemetry/bedrock",
        JSON,
        lambda count: b'{"requestId":"r","timestamp":1,"records":[{"data":"%b"}]}'
        % base64.b64encode(b"{}\n" * count),
        LIMIT - 2,  # the delivery and its record are wrappers that count as items
    ),
    "CloudEvents": ("/api/v1/events", "application/cloudevents-batch+json", _json(b"[", b"{}", b"]"), LIMIT),
    "Langfuse": ("/api/public/ingestion", JSON, _json(b'{"batch":[', b'{"type":"x"}', b"]}"), LIMIT),
    "usage events": ("/v1/events", JSON, _json(b"[", b'{"type":"x"}', b"]"), LIMIT),
}  # fmt: skip


@pytest.mark.parametrize("door", part([*DOORS], every=2))
async def test_the_items_of_a_body_are_bounded(serve: Serve, door: str) -> None:
    """
    A body with exactly the maximum number of items is accepted. One item more gets a 413 that says what to do.
    """
    path, content_type, body, most = DOORS[door]
    serving = await serve(max_items=LIMIT)
    key = await serving.make_key("both", scopes=[INGEST, CREATE_EVENT])
    assert 413 != (await serving.send(path, body(most), content_type, key=key)).status
    refused = await serving.send(path, body(most + 1), content_type, key=key)
    assert 413 == refused.status
    assert b"server.max_items" in refused.body


async def test_the_items_of_a_message_are_bounded(serve: Serve) -> None:
    """A gRPC message with too many items gets RESOURCE_EXHAUSTED, which no exporter retries."""
    serving = await serve(grpc_listen="127.0.0.1:0", max_items=LIMIT)
    async with grpc.aio.insecure_channel(serving.app.grpc_address) as channel:
        export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        )
        sender = (("authorization", serving.key),)
        await export(_spans(LIMIT - AROUND), metadata=sender, timeout=60)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await export(_spans(LIMIT - AROUND + 1), metadata=sender, timeout=60)
    assert grpc.StatusCode.RESOURCE_EXHAUSTED == refused.value.code()
    assert "server.max_items" in (refused.value.details() or "")
