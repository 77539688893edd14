"""Misuse by one key never causes a refusal for another key."""

from __future__ import annotations

import asyncio
import gzip
import re
import time
from typing import Any

import grpc
import pytest

from docs.generate.configuration import tables
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import KIB, MIB
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import JSON, json_span, json_traces, proto_span, proto_traces
from tests.rounds import part
from tests.waiting import until


async def keep_back(serving: Serving, key: str, body: bytes, coding: str) -> asyncio.StreamWriter:
    """Start an upload that never sends its last ten bytes. It ends when the writer is closed."""
    _, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    head = f"POST /v1/traces HTTP/1.1\r\nHost: t\r\nAuthorization: {key}\r\nContent-Type: {JSON}\r\n"
    head += f"Content-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body[:-10])
    await writer.drain()
    return writer


async def held(serving: Serving, n: int) -> None:
    """Wait until the unfinished bodies hold more than `n` bytes."""
    inflight = serving.app.services.receivers.inflight
    await until(lambda: inflight.held_bytes > n)


@pytest.mark.proves("One sender locks out all others")
@pytest.mark.parametrize("coding", part(["gzip", "identity"], every=2))
async def test_endless_upload_causes_no_refusal_of_other_keys(serve: Serve, coding: str) -> None:
    """
    An upload of 64 MiB never ends, as 64 KB of gzip or in full. Every request of another key is accepted,
    small or large.
    """
    serving = await serve(max_body_bytes=64 * MIB, max_inflight_bytes=64 * MIB)
    slow = await serving.make_key("slow", use_cases=[SEND_AI_TELEMETRY])
    plain = b" " * 64 * MIB
    writers = [
        await keep_back(serving, slow, gzip.compress(plain, 1) if coding == "gzip" else plain, coding)
        for _ in range(3 if coding == "gzip" else 1)
    ]
    await held(serving, 512 * KIB if coding == "gzip" else 63 * MIB)
    large = json_traces(json_span()) + b" " * 2 * MIB
    answers = [await serving.send("/v1/traces", json_traces(json_span())) for _ in range(100)]
    answers += [await serving.send("/v1/traces", large) for _ in range(3)]
    for writer in writers:
        writer.close()
    assert {200} == {answer.status for answer in answers}


async def test_many_small_bodies_of_one_key_leave_room_for_another(serve: Serve) -> None:
    """
    A key fills the general budget and its share of the reserve with small uploads. Other keys are still accepted.
    """
    limits = {"max_body_bytes": 64 * KIB, "max_inflight_bytes": 64 * KIB}
    serving = await serve(**limits, small_body_bytes=16 * KIB, small_body_reserve=64 * KIB)
    slow = await serving.make_key("slow", use_cases=[SEND_AI_TELEMETRY])
    writers = [await keep_back(serving, slow, b" " * 16 * KIB, "identity") for _ in range(20)]
    await held(serving, 80 * KIB)  # the held bodies use the whole budget and a part of the reserve
    answers = [await serving.send("/v1/traces", json_traces(json_span())) for _ in range(50)]
    for writer in writers:
        writer.close()
    assert {200} == {answer.status for answer in answers}


async def test_refusals_are_counted_by_their_type(serve: Serve) -> None:
    """Each type of refusal has its own metric value."""
    serving = await serve(max_body_bytes=64 * KIB)
    assert 413 == (await serving.send("/v1/traces", b" " * 65 * KIB)).status
    answer = await serving.send("/metrics", b"", method="GET", key=None)
    assert b'tollhouse_refused_requests_total{type="body_too_large"} 1.0' in answer.body


async def test_every_limit_that_is_shown_is_documented(serving: Serving) -> None:
    """The configuration reference says of every limit in `/metrics` what happens there."""
    answer = await serving.send("/metrics", b"", method="GET", key=None)
    shown = set(re.findall(r'tollhouse_limit{name="([^"]+)"}', answer.body.decode()))
    assert {"server.max_inflight_bytes", "spool.max_senders", "spool.max_series"} <= shown
    documented = {
        f"{table.header.strip('[]')}.{key.name}"
        for table in tables()
        for key in table.keys
        if key.setting.edge
    }
    assert set() == shown - documented


async def test_budget_filled_over_http_accepts_small_calls_over_grpc(serve: Serve) -> None:
    """HTTP and gRPC share the budget and its reserve."""
    serving = await serve(grpc_listen="127.0.0.1:0")
    slow = await serving.make_key("slow", use_cases=[SEND_AI_TELEMETRY])
    writer = await keep_back(serving, slow, b" " * 64 * MIB, "identity")
    await held(serving, 63 * MIB)
    async with grpc.aio.insecure_channel(serving.app.grpc_address) as channel:
        export: Any = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        metadata = (("authorization", serving.key),)
        spans = [proto_span() for _ in range(20)]
        for span in spans:
            span.start_time_unix_nano = time.time_ns()  # an old start gets a warning
        answers = [await export(proto_traces(span), metadata=metadata) for span in spans]
    writer.close()
    assert [b""] * 20 == answers
