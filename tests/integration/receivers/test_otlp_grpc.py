"""OTLP over gRPC against a real server."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from gateway.operations.receivers.otlp_grpc import GrpcServer
from gateway.people.authentication.access import GUESSES
from gateway.service import listeners
from spool.errors import SpoolFull, SpoolUnavailable
from spool.registry.scopes import PING
from tests.integration.certificates import Certificates
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import JSON, PROTOBUF, proto_span, proto_traces, traces
from tests.waiting import until

SERVICES = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
    "profiles": "opentelemetry.proto.collector.profiles.v1development.ProfilesService",
}


@dataclass
class GrpcReply:
    """The result of a gRPC call."""

    code: grpc.StatusCode
    message: str
    body: bytes
    trailing: dict[str, Any]

    @property
    def details(self) -> Status:
        return Status.FromString(self.trailing["grpc-status-details-bin"])


@dataclass
class Calling:
    """A gateway with gRPC and a channel to it."""

    serving: Serving
    channel: grpc.aio.Channel

    async def export(
        self,
        body: bytes,
        *,
        signal: str = "traces",
        metadata: tuple[tuple[str, str], ...] | None = None,
        compression: grpc.Compression | None = None,
    ) -> GrpcReply:
        export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(
            f"/{SERVICES[signal]}/Export"
        )
        call = export(
            body,
            metadata=(("authorization", self.serving.key),) if metadata is None else metadata,
            compression=compression,
            timeout=60,
        )
        try:
            answer = await call
        except grpc.aio.AioRpcError:
            answer = b""
        return GrpcReply(
            await call.code(), await call.details(), answer, dict(await call.trailing_metadata())
        )


@pytest_asyncio.fixture
async def calling(serve: Serve) -> AsyncIterator[Calling]:
    limits = {"max_body_bytes": 256 * 1024, "max_inflight_bytes": 256 * 1024, "small_body_bytes": 16 * 1024}
    serving = await serve(grpc_listen="127.0.0.1:0", **limits)
    async with grpc.aio.insecure_channel(serving.app.grpc_address) as channel:
        yield Calling(serving, channel)


async def test_guesses_through_a_configured_proxy_count_against_their_sender(serve: Serve) -> None:
    """
    Behind a configured proxy, guesses count against the sender's address, over HTTP and gRPC. A valid key
    never has to wait.
    """
    serving = await serve(grpc_listen="127.0.0.1:0", trusted_proxies=("127.0.0.1",))
    loud, calm = {"X-Forwarded-For": "198.51.100.7"}, {"X-Forwarded-For": "198.51.100.8"}

    async def statuses(sender: dict[str, str], key: str) -> tuple[int, grpc.StatusCode]:
        status = (await serving.send("/v1/traces", b"{}", key=key, headers=sender)).status
        metadata = (("authorization", key), *((name.lower(), value) for name, value in sender.items()))
        async with grpc.aio.insecure_channel(serving.app.grpc_address) as channel:
            return status, (await Calling(serving, channel).export(b"", metadata=metadata)).code

    for _ in range(
        2 * GUESSES
    ):  # slightly more than the limit, because some attempts become available again meanwhile
        await serving.send("/v1/traces", b"{}", key="th_guess", headers=loud)
    assert (429, grpc.StatusCode.RESOURCE_EXHAUSTED) == await statuses(loud, "th_guess")
    assert (401, grpc.StatusCode.UNAUTHENTICATED) == await statuses(calm, "th_guess")
    assert (200, grpc.StatusCode.OK) == await statuses(loud, serving.key)


async def test_every_service_accepts_an_empty_request(calling: Calling) -> None:
    """All four services accept an empty request. Their empty answer means full success."""
    for signal in SERVICES:
        reply = await calling.export(b"", signal=signal)
        assert reply.code == grpc.StatusCode.OK, signal
        assert reply.body == b"", signal


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_calls_are_stored_and_get_a_receipt(calling: Calling, compression: grpc.Compression) -> None:
    """Plain and gzip calls are stored. The receipt is in the trailing metadata."""
    reply = await calling.export(traces(PROTOBUF, 50), compression=compression)
    assert grpc.StatusCode.OK == reply.code
    assert reply.trailing["tollhouse-receipt"].endswith(
        "; records=50; ignored=0; rejected=0; durability=fsync"
    )
    assert 50 == len(await calling.serving.records())


async def test_http_and_grpc_give_the_same_record(calling: Calling) -> None:
    """The same span over HTTP and gRPC is one record."""
    body = traces(PROTOBUF)
    assert grpc.StatusCode.OK == (await calling.export(body)).code
    assert 200 == (await calling.serving.send("/v1/traces", body, PROTOBUF)).status
    assert 1 == len(await calling.serving.records())


@pytest.mark.parametrize(
    ("error", "code", "wait_s"),
    [
        (SpoolFull("full", retry_after_s=7), grpc.StatusCode.UNAVAILABLE, 7),
        (SpoolUnavailable("closing"), grpc.StatusCode.UNAVAILABLE, 1),
        (ValueError("th_secret"), grpc.StatusCode.INTERNAL, None),
    ],
)
async def test_throttling_is_unavailable_with_retry_info(
    calling: Calling,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    code: grpc.StatusCode,
    wait_s: int | None,
) -> None:
    """RetryInfo is sent only if a repeat can help. An internal error reveals nothing about the message."""

    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(calling.serving.app.services.receivers.intake, "store_outcome", fail)
    reply = await calling.export(traces(PROTOBUF))
    assert code == reply.code
    assert code.value[0] == reply.details.code
    waits = []
    for detail in reply.details.details:
        info = RetryInfo()
        assert detail.Unpack(info)
        waits.append(info.retry_delay.seconds)
    assert ([] if wait_s is None else [wait_s]) == waits
    assert "th_secret" not in reply.message + str([vars(record) for record in caplog.records])


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_oversize_is_resource_exhausted_without_retry_info(
    calling: Calling, compression: grpc.Compression
) -> None:
    """
    The size limit holds before and after decompression. The refusal has no RetryInfo, because a repeat would
    not be smaller.
    """
    reply = await calling.export(b"\0" * 300 * 1024, compression=compression)
    assert grpc.StatusCode.RESOURCE_EXHAUSTED == reply.code
    assert "grpc-status-details-bin" not in reply.trailing or 0 == len(reply.details.details)
    assert grpc.StatusCode.OK == (await calling.export(traces(PROTOBUF))).code


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_message_is_inflated_within_the_bytes_in_hand(
    calling: Calling, compression: grpc.Compression
) -> None:
    """
    The gateway inflates messages itself, so that the inflated bytes count. 200 KiB of zeros arrive as a
    few hundred bytes.
    """
    inflight = calling.serving.app.services.receivers.inflight
    body = proto_traces(*(proto_span(model="m" * 200) for _ in range(300)))
    with inflight.new_share() as share:
        share.reserve_bytes(200 * 1024)
        refused = await calling.export(body, compression=compression)
        assert grpc.StatusCode.UNAVAILABLE == refused.code
    assert grpc.StatusCode.OK == (await calling.export(body, compression=compression)).code
    assert 0 == inflight.held_bytes
    too_large = await calling.export(bytes(300 * 1024), compression=compression)
    # the message names the setting, which gRPC's own error would not do
    assert "server.max_body_bytes" in too_large.message


async def test_compressed_bytes_that_are_damaged_are_invalid(calling: Calling) -> None:
    """Compressed bytes that are cut off, or have garbage at their end, are invalid."""
    packed = gzip.compress(traces(PROTOBUF))
    for body in (packed[:-5], packed[:4], packed + b"x", b"\x78\x9c" + b"x" * 20):
        assert grpc.StatusCode.INVALID_ARGUMENT == (await calling.export(body)).code


async def test_messages_are_received_a_few_at_a_time(serve: Serve) -> None:
    """
    However many gRPC calls a key begins, only a few messages are received at a time and all calls are answered.
    """
    serving = await serve(grpc_listen="127.0.0.1:0", max_grpc_messages=2)
    body = proto_traces(*(proto_span() for _ in range(200)))
    async with grpc.aio.insecure_channel(serving.app.grpc_address) as channel:
        calling = Calling(serving, channel)
        replies = await asyncio.gather(*(calling.export(body) for _ in range(12)))
    assert {grpc.StatusCode.OK} == {reply.code for reply in replies}
    await until(lambda: not serving.app.services.receivers.receiving.count, "calls leave after their answers")


BAD_DATA: Sequence[bytes] = [b"\xff\xff\xff", traces(JSON), traces(PROTOBUF)[:-5]]


async def test_bad_data_is_invalid_argument(calling: Calling) -> None:
    """Bad data gets INVALID_ARGUMENT, which is not retryable, and nothing is stored."""
    for body in BAD_DATA:
        reply = await calling.export(body)
        assert grpc.StatusCode.INVALID_ARGUMENT == reply.code, body
        assert not reply.details.details, body
        assert [] == await calling.serving.records(), body


async def test_a_partial_success_counts(calling: Calling) -> None:
    reply = await calling.export(proto_traces(proto_span(), proto_span(tokens=-5)))
    said = ExportTraceServiceResponse.FromString(reply.body).partial_success
    assert reply.code == grpc.StatusCode.OK
    assert said.rejected_spans == 1
    assert "implausible" in said.error_message


async def test_a_bad_id_costs_its_neighbours_nothing(calling: Calling) -> None:
    """
    If one span has a bad id, the other spans of the request are stored. If the bad span is the only one, the
    request is refused.
    """
    bad = proto_span()
    bad.parent_span_id = b"\1" * 9
    reply = await calling.export(proto_traces(proto_span(), bad, proto_span()))
    said = ExportTraceServiceResponse.FromString(reply.body).partial_success
    assert reply.code == grpc.StatusCode.OK
    assert said.rejected_spans == 1
    assert "item 1: spans[1].parent_span_id" in said.error_message
    assert 2 == len(await calling.serving.records())
    assert grpc.StatusCode.INVALID_ARGUMENT == (await calling.export(proto_traces(bad))).code


BAD_KEYS: Sequence[tuple[tuple[str, str], ...]] = [
    (),
    (("authorization", "th_unknown"),),
    (("authorization", "Bearer x"),),
]


async def test_without_a_good_key_it_is_unauthenticated(calling: Calling) -> None:
    """
    Without a valid key, a call is UNAUTHENTICATED. The metadata `authorization` must be exactly the key.
    """
    for metadata in BAD_KEYS:
        reply = await calling.export(traces(PROTOBUF), metadata=metadata)
        assert grpc.StatusCode.UNAUTHENTICATED == reply.code, metadata
        assert [] == await calling.serving.records(), metadata


async def test_a_key_without_the_scope_is_permission_denied(calling: Calling) -> None:
    key = await calling.serving.make_key("pinger", scopes=[PING])
    reply = await calling.export(traces(PROTOBUF), metadata=(("authorization", key),))
    assert grpc.StatusCode.PERMISSION_DENIED == reply.code
    assert "ai-telemetry-ingest:ingest-ai-telemetry" in reply.message


async def test_bytes_in_hand_are_shared_with_http(calling: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the shared limit, gRPC answers UNAVAILABLE with RetryInfo."""
    server = calling.serving.app.services.receivers
    with server.inflight.new_share() as share:
        share.reserve_bytes(200 * 1024)
        body = proto_traces(*(proto_span(model="m" * 200) for _ in range(300)))
        assert 56 * 1024 < len(body) < 256 * 1024
        reply = await calling.export(body)
    assert grpc.StatusCode.UNAVAILABLE == reply.code
    assert 1 == len(reply.details.details)
    assert 0 == server.inflight.held_bytes


async def test_calls_are_counted_by_code(calling: Calling) -> None:
    """The metric tollhouse_requests_total counts gRPC calls by the name of their code."""
    await calling.export(b"")
    await calling.export(b"", metadata=())
    answer = await calling.serving.send("/metrics", b"", None, method="GET")
    text = answer.body.decode()
    assert 'tollhouse_requests_total{endpoint="grpc/traces",status="OK"} 1.0' in text
    assert 'tollhouse_requests_total{endpoint="grpc/traces",status="UNAUTHENTICATED"} 1.0' in text


async def test_log_explains_a_grpc_client_on_the_http_port(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """A real gRPC client that connects to 4318 fails, and the log says why."""
    async with grpc.aio.insecure_channel(serving.app.url.removeprefix("http://")) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                f"/{SERVICES['traces']}/Export"
            )
            await call(b"", timeout=30)
    assert "grpc_on_http_port" in {getattr(record, "action", None) for record in caplog.records}


async def test_a_port_in_use_is_an_error(calling: Calling, serve: Serve) -> None:
    """Two gateways never share a gRPC port. The one that fails to start releases everything."""
    with pytest.raises(OSError, match="in use"):
        await serve(grpc_listen=calling.serving.app.grpc_address)


async def test_a_stop_finishes_the_call_in_hand(calling: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop of the server finishes a gRPC call that was accepted: it is answered after its commit."""
    monkeypatch.setattr(listeners, "DRAIN_S", 120.0)
    intake, begun, commit = calling.serving.app.services.receivers.intake, asyncio.Event(), asyncio.Event()
    take = intake.store_outcome

    async def slow(*arguments: Any) -> Any:
        begun.set()
        await commit.wait()
        return await take(*arguments)

    monkeypatch.setattr(intake, "store_outcome", slow)
    exporting = asyncio.create_task(calling.export(traces(PROTOBUF)))
    await begun.wait()
    stopping = asyncio.create_task(calling.serving.app.stop())
    await asyncio.sleep(0)
    commit.set()
    assert grpc.StatusCode.OK == (await exporting).code
    await stopping


async def test_tls_as_on_the_http_port(serve: Serve, certificates: Certificates) -> None:
    """Mutual TLS uses the same files: only clients with a certificate are accepted."""
    serving = await serve(grpc_listen="127.0.0.1:0", **certificates.server)
    ca = certificates.path("ca.pem").read_bytes()
    shown = grpc.ssl_channel_credentials(  # type: ignore[no-untyped-call]
        ca, certificates.path("client.key").read_bytes(), certificates.path("client.pem").read_bytes()
    )
    async with grpc.aio.secure_channel(serving.app.grpc_address, shown) as channel:
        assert grpc.StatusCode.OK == (await Calling(serving, channel).export(b"")).code
    nothing = grpc.ssl_channel_credentials(ca)  # type: ignore[no-untyped-call]
    async with grpc.aio.secure_channel(serving.app.grpc_address, nothing) as channel:
        assert grpc.StatusCode.UNAVAILABLE == (await Calling(serving, channel).export(b"")).code


async def test_a_stranger_is_refused_before_the_message_is_received(calling: Calling) -> None:
    """
    The key is checked before a gRPC message is received. So a message over every limit, under a wrong key, gets the
    answer for a wrong key.
    """
    reply = await calling.export(b"\0" * 8 * 1024 * 1024, metadata=(("authorization", "th_wrong"),))
    assert grpc.StatusCode.UNAUTHENTICATED == reply.code


async def test_messages_are_let_go_when_they_are_answered(calling: Calling) -> None:
    """
    Messages must be freed without the garbage collector, which runs rarely. Until then, sixteen large ones
    would take a gigabyte.
    """
    size = 128 * 1024
    # protobuf reads the added bytes as an unknown field
    large = proto_traces(proto_span()) + b"\x1a\x80\x80\x08" + bytes(size)
    rounds = 20
    assert grpc.StatusCode.OK is (await calling.export(large)).code
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(rounds):
            assert grpc.StatusCode.OK is (await calling.export(large)).code
            assert grpc.StatusCode.INVALID_ARGUMENT is (await calling.export(b"\xff" + large)).code
        await asyncio.sleep(0.1)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held < rounds * size / 2


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:{taken}", "address already in use"),
        ("192.0.2.1:0", "cannot assign requested address"),
        ("nowhere.invalid:0", "name"),
    ],
)
async def test_an_address_that_cannot_be_had_is_named_with_the_reason(address: str, reason: str) -> None:
    """
    If the address of gRPC is unusable, the error has the reason. gRPC gives none, so the address is tested
    before gRPC starts. Nothing has to be stopped afterwards.
    """
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = GrpcServer({}, max_bytes=1024, max_connections=1)
        address = address.format(taken=taken.getsockname()[1])
        with pytest.raises(OSError, match=f"cannot listen on {address} for gRPC: .*{reason}"):
            await server.start(address, None)
    await server.stop(0.0)
