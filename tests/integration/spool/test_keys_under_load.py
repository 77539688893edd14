"""Changes of keys in a whole server while connections use the keys without a pause."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest
from aiohttp import ClientSession, TCPConnector

from spool.registry.operators import Actor
from spool.registry.scopes import SEND_AI_TELEMETRY
from tests.integration.certificates import Certificates
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import JSON, PROTOBUF, traces
from tests.integration.receivers.test_otlp_grpc import SERVICES
from tests.rounds import part

ACTOR = Actor("ada@example.com", "127.0.0.1")
CONNECTIONS = 50


@pytest.mark.parametrize("verb", part(["delete", "disable", "rotate"], every=2))
async def test_access_ends_with_the_answer(serving: Serving, verb: str) -> None:
    """50 connections send with a key. No request that starts after the answer to the change is accepted."""
    registry = serving.app.services.storage.registry
    assert registry is not None
    secret = await serving.make_key("streaming", use_cases=[SEND_AI_TELEMETRY])
    body, headers = traces(JSON), {"Authorization": secret, "Content-Type": JSON}
    answered: list[tuple[float, int]] = []
    stop, flowing, after = asyncio.Event(), asyncio.Event(), asyncio.Event()
    over = float("inf")

    async def stream(session: ClientSession) -> None:
        while not stop.is_set():
            began = time.monotonic()
            async with session.post(f"{serving.url}/v1/traces", data=body, headers=headers) as response:
                await response.read()
            answered.append((began, response.status))
            if len(answered) >= CONNECTIONS * 3:
                flowing.set()
            if sum(began > over for began, _ in answered[-CONNECTIONS * 4 :]) >= CONNECTIONS * 3:
                after.set()

    async with ClientSession(connector=TCPConnector(limit=CONNECTIONS)) as session:
        streams = [asyncio.create_task(stream(session)) for _ in range(CONNECTIONS)]
        await flowing.wait()
        if verb == "delete":
            await registry.keys.delete("streaming", confirm="streaming", actor=ACTOR)
        elif verb == "disable":
            await registry.keys.disable("streaming", actor=ACTOR)
        else:
            await registry.keys.rotate("streaming", overlap_s=0, actor=ACTOR)
        over = time.monotonic()
        await after.wait()
        stop.set()
        await asyncio.gather(*streams)
    assert 200 in {status for began, status in answered if began < over}
    assert {401} == {status for began, status in answered if began > over}


@pytest.mark.parametrize("verb", part(["delete", "disable"], every=2))
async def test_access_over_grpc_ends_with_the_answer(serve: Serve, verb: str) -> None:
    """50 connections call without a pause. No call that starts after the answer to the change is accepted."""
    serving = await serve(grpc_listen="127.0.0.1:0")
    registry = serving.app.services.storage.registry
    assert registry is not None
    metadata = (("authorization", await serving.make_key("streaming", use_cases=[SEND_AI_TELEMETRY])),)
    body = traces(PROTOBUF)
    answered: list[tuple[float, grpc.StatusCode]] = []
    stop, flowing, after = asyncio.Event(), asyncio.Event(), asyncio.Event()
    over, late = float("inf"), 0

    async def stream() -> None:
        nonlocal late
        own = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(serving.app.grpc_address, options=own) as channel:
            export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                f"/{SERVICES['traces']}/Export"
            )
            while not stop.is_set():
                began = time.monotonic()
                call = export(body, metadata=metadata, timeout=60)
                answered.append((began, await call.code()))
                late += began > over
                if len(answered) >= CONNECTIONS * 3:
                    flowing.set()
                if late >= CONNECTIONS * 3:
                    after.set()

    streams = [asyncio.create_task(stream()) for _ in range(CONNECTIONS)]
    await flowing.wait()
    if verb == "delete":
        await registry.keys.delete("streaming", confirm="streaming", actor=ACTOR)
    else:
        await registry.keys.disable("streaming", actor=ACTOR)
    over = time.monotonic()
    await after.wait()
    stop.set()
    await asyncio.gather(*streams)
    assert grpc.StatusCode.OK in {code for began, code in answered if began < over}
    assert {grpc.StatusCode.UNAUTHENTICATED} == {code for began, code in answered if began > over}


async def test_over_tls_the_session_cookie_is_secure(serve: Serve, certificates: Certificates) -> None:
    """Over TLS, the session cookie has the Secure attribute, so a browser never sends it over plain HTTP."""
    server = await serve(
        tls_cert_file=certificates.path("server.pem"), tls_key_file=certificates.path("server.key")
    )
    registry = server.app.services.storage.registry
    assert registry is not None
    link = await registry.operators.create_sign_in_link(role="viewer", actor=ACTOR)
    url = f"{server.app.url}/console/api/sessions"
    async with (
        ClientSession() as session,
        session.post(url, json={"link": link}, ssl=certificates.anonymous()) as response,
    ):
        assert 201 == response.status
        cookie = response.cookies["__Secure-tollhouse"]
        assert cookie["secure"] is True
        assert cookie["httponly"] is True
        assert cookie["samesite"] == "Strict"
