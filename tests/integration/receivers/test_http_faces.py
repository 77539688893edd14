"""HTTP features other than OTLP: compression, CORS, health, metrics, TLS, the operator API and stopping."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession
from backports import zstd

from gateway.configuration.server import ServerSettings
from gateway.configuration.values import is_loopback
from gateway.http.listening.listener import operator_listen_address
from gateway.service import listeners
from tests.integration.certificates import Certificates
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import ENCODINGS, JSON, traces
from tests.waiting import limited

ORIGIN = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}


async def test_compressed_requests_are_accepted(serving: Serving) -> None:
    """gzip, deflate and zstd are accepted in both encodings."""
    for encoding in ENCODINGS:
        for coding, pack in PACKERS.items():
            headers = {"Content-Encoding": coding}
            answer = await serving.send("/v1/traces", pack(traces(encoding, 20)), encoding, headers=headers)
            assert answer.status == 200, (encoding, coding)
            assert "records=20;" in answer.headers["Tollhouse-Receipt"], (encoding, coding)
    assert len(await serving.records()) == 20 * len(ENCODINGS) * len(PACKERS)


BAD_CODINGS: Sequence[tuple[str, bytes, int]] = [
    ("gzip", gzip.compress(traces(JSON))[:-4], 400),
    ("gzip", traces(JSON), 400),
    ("snappy", traces(JSON), 415),
    ("br", traces(JSON), 415),
]


async def test_bad_codings_keep_nothing(serving: Serving) -> None:
    """Bodies that aiohttp would accept as a short body are refused."""
    for coding, body, status in BAD_CODINGS:
        answer = await serving.send("/v1/traces", body, headers={"Content-Encoding": coding})
        assert answer.status == status, (coding, body, status)
        assert answer.headers["Content-Type"] == JSON, (coding, body, status)
        assert [] == await serving.records(), (coding, body, status)


async def test_the_limit_holds_after_decompression(serve: Serve) -> None:
    """A small gzip body that is too large when inflated gets 413, which is not retryable."""
    serving = await serve(max_body_bytes=64 * 1024, max_inflight_bytes=64 * 1024)
    body = gzip.compress(b" " * 65 * 1024)
    answer = await serving.send("/v1/traces", body, headers={"Content-Encoding": "gzip"})
    assert answer.status == 413
    assert answer.headers.get("Retry-After") is None
    assert 413 == (await serving.send("/v1/traces", b" " * 65 * 1024)).status


async def test_cors_is_off_by_default(serving: Serving) -> None:
    """Without CORS, a preflight is an ordinary method and is refused."""
    answer = await serving.send("/v1/traces", b"", method="OPTIONS", headers=ORIGIN, key=None)
    assert 405 == answer.status
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_cors_admits_the_origins_that_are_named(serve: Serve) -> None:
    """
    A preflight of an allowed origin gets 204 with the needed headers, and answers name the origin. Other
    origins get neither.
    """
    serving = await serve(cors_origins=("https://*.example",))
    answer = await serving.send("/v1/traces", b"", method="OPTIONS", headers=ORIGIN, key=None)
    assert answer.status == 204
    assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
    assert "POST" == answer.headers["Access-Control-Allow-Methods"]
    allowed = answer.headers["Access-Control-Allow-Headers"].split(", ")
    assert {"authorization", "content-type", "content-encoding"} == set(allowed)
    answer = await serving.send("/v1/traces", b"{}", headers={"Origin": "https://app.example"})
    assert answer.status == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
    stranger = {**ORIGIN, "Origin": "https://example.evil"}
    answer = await serving.send("/v1/traces", b"", method="OPTIONS", headers=stranger, key=None)
    assert 405 == answer.status
    assert "Access-Control-Allow-Origin" not in answer.headers


HEALTH: Sequence[str] = ["/livez", "/readyz"]


async def test_health_needs_no_key(serving: Serving) -> None:
    """On the operator listener, health has a body."""
    for path in HEALTH:
        answer = await serving.send(path, b"", None, method="GET", key=None)
        assert 200 == answer.status, path
        assert json.loads(answer.body), path


async def test_readiness_shows_the_operator_what_needs_attention(serving: Serving) -> None:
    """The body of the readiness answer names what needs attention, even if the gateway is ready."""
    answer = await serving.send("/readyz", b"", None, method="GET", key=None)
    report = json.loads(answer.body)
    assert report["ready"] is True
    assert report["reasons"] == []
    assert report["routes"] == []
    assert {"keys", "clock", "space"} <= set(report)


async def test_metrics_count_what_was_sent(serving: Serving) -> None:
    """The operator listener serves /metrics without a key."""
    await serving.send("/v1/traces", traces(JSON, 3))
    await serving.send("/v1/traces", b"{", headers={})
    answer = await serving.send("/metrics", b"", None, method="GET", key=None)
    text = answer.body.decode()
    assert 200 == answer.status
    assert 'tollhouse_records_received_total{topic="ai-telemetry"} 3.0' in text
    assert 'tollhouse_requests_total{endpoint="otlp/traces",status="200"} 1.0' in text
    assert 'tollhouse_requests_total{endpoint="otlp/traces",status="400"} 1.0' in text
    for name in ("tollhouse_spool_bytes", "tollhouse_loop_lag_seconds", "tollhouse_commit_seconds_count"):
        assert f"\n{name} " in text


@pytest.mark.proves("Senders reach the operator API through their port")
async def test_on_a_public_address_the_operators_side_is_elsewhere(serve: Serve) -> None:
    """
    On 0.0.0.0, a server offers health without a body and no operator address, because the operator API is on
    another listener.
    """
    serving = await serve(listen="0.0.0.0:0", operator_listen="127.0.0.1:0")
    for path, status in (("/livez", 200), ("/readyz", 200), ("/metrics", 404), ("/console/api/keys", 404)):
        answer = await serving.send(path, b"", None, method="GET", key=None)
        assert status == answer.status, path
        assert status == 404 or b"" == answer.body
    async with ClientSession() as client, client.get(serving.app.operator_url + "/metrics") as response:
        assert 200 == response.status
    async with ClientSession() as client, client.post(serving.app.operator_url + "/v1/traces") as response:
        assert 404 == response.status


@pytest.mark.proves("images, locks, the metrics listener")
async def test_metrics_have_a_listener_of_their_own(serve: Serve) -> None:
    """The metrics listener serves metrics and health but no operator API, which stays on loopback."""
    serving = await serve(listen="0.0.0.0:0", operator_listen="127.0.0.1:0", metrics_listen="0.0.0.0:0")
    metrics = serving.app.metrics_url
    paths = {"/metrics": 200, "/livez": 200, "/readyz": 200, "/console/": 404, "/console/api/keys": 404,
             "/console/api/sessions": 404, "/openapi.json": 404, "/v1/traces": 404}  # fmt: skip
    async with ClientSession() as client:
        for path, status in paths.items():
            async with client.get(metrics + path) as response:
                assert status == response.status, path
        async with client.get(metrics + "/metrics") as response:
            assert "tollhouse_spool_bytes" in await response.text()
    assert serving.app.operator_url.startswith("http://127.0.0.1:")


def test_the_operators_side_by_address() -> None:
    """The operator API uses `listen` if that is loopback, else its own address, by default 127.0.0.1:4319."""
    assert operator_listen_address(ServerSettings(listen="127.0.0.1:4318")) is None
    assert operator_listen_address(ServerSettings(listen="[::1]:4318")) is None
    assert operator_listen_address(ServerSettings(listen="localhost:4318")) is None
    assert "127.0.0.1:4319" == operator_listen_address(ServerSettings(listen="0.0.0.0:4318"))
    assert "127.0.0.1:4319" == operator_listen_address(ServerSettings(listen="tollhouse.example:4318"))
    assert "10.0.0.1:9" == operator_listen_address(
        ServerSettings(listen="127.0.0.1:4318", operator_listen="10.0.0.1:9")
    )
    assert not is_loopback("localhost.example")


async def test_many_slow_connections_do_not_slow_others_down(serving: Serving) -> None:
    """Connections that send nothing or half a body do not slow others down."""
    half = f"POST /v1/traces HTTP/1.1\r\nHost: t\r\nAuthorization: {serving.key}\r\nContent-Type: {JSON}\r\n"
    slow = [await asyncio.open_connection("127.0.0.1", serving.port) for _ in range(200)]
    for number, (_, writer) in enumerate(slow):
        writer.write((half + ("Content-Length: 100\r\n\r\n{" if number % 2 else "")).encode())
    answer = await serving.send("/v1/traces", traces(JSON))
    assert 200 == answer.status
    for _, writer in slow:
        writer.close()


async def test_a_stop_finishes_the_request_in_hand(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    During a stop, new connections are refused, a kept-alive one gets 503, and an accepted request is
    answered and stored.
    """
    monkeypatch.setattr(listeners, "DRAIN_S", 120.0)
    serving = await serve()
    intake, gate = serving.app.services.receivers.intake, serving.app.services.receivers.in_hand
    begun, closing, commit = asyncio.Event(), asyncio.Event(), asyncio.Event()
    take, close = intake.store_outcome, gate.close_and_wait

    async def slow(*arguments: Any) -> Any:
        begun.set()
        await commit.wait()
        return await take(*arguments)

    async def noted(timeout_s: float) -> bool:
        closing.set()
        return await close(timeout_s)

    monkeypatch.setattr(intake, "store_outcome", slow)
    monkeypatch.setattr(gate, "close_and_wait", noted)
    idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", serving.port)
    sending = asyncio.create_task(serving.send("/v1/traces", traces(JSON)))
    await begun.wait()
    stopping = asyncio.create_task(serving.app.stop())
    await closing.wait()
    idle_writer.write(b"POST /v1/traces HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n\r\n")
    assert b" 503 " in await idle_reader.readline()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", serving.port)
    commit.set()
    answer = await sending
    assert answer.status == 200
    assert "Tollhouse-Receipt" in answer.headers
    await stopping
    idle_writer.close()


async def test_tls_and_client_certificates(serve: Serve, certificates: Certificates) -> None:
    """With a client CA, only clients with its certificate are accepted."""
    serving = await serve(**certificates.server)
    assert serving.url.startswith("https://")
    headers = {"Authorization": serving.key, "Content-Type": JSON}
    url = serving.url + "/v1/traces"
    async with serving.client.post(
        url, data=traces(JSON), headers=headers, ssl=certificates.client()
    ) as response:
        assert 200 == response.status
    # the connection may close before or after the request was written
    with pytest.raises((OSError, ClientError)):
        async with serving.client.post(
            url, data=traces(JSON), headers=headers, ssl=certificates.anonymous()
        ) as response:
            await response.read()


async def test_connections_of_operators_have_a_limit_of_their_own(serve: Serve) -> None:
    """
    If the limit is reached, the oldest idle operator connection is closed for a new one. Senders
    lose no connection.
    """
    serving = await serve(operator_listen="127.0.0.1:0", max_operator_connections=2)
    port = int(serving.app.operator_url.rpartition(":")[2])
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    async with limited():
        assert b"" == await streams[0][0].read()
    assert 2 == serving.app.services.operators.installation.connections.count
    assert 200 == (await serving.send("/v1/traces", b"{}")).status
    for _, writer in streams:
        writer.close()
