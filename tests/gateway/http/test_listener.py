"""The listener: input that is not valid HTTP/1.1, pipelined requests, and handlers that fail."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.helpers import DEFAULT_CHUNK_SIZE
from aiohttp.web_protocol import MAX_MSG_QUEUE_SIZE

from gateway.http.listening import listener as listeners
from gateway.http.listening.listener import Listener
from tests.gateway.http import raw
from tests.waiting import limited

LARGE = 2 * 1024 * 1024


async def boom(_: web.Request) -> web.Response:
    raise LookupError("th_secret")


async def size(request: web.Request) -> web.Response:
    """
    Wait until the body has ended or backpressure has paused its sender, and then answer with the body's size.
    """
    while not (request.content.is_eof() or request.protocol._reading_paused):  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)
    return web.Response(text=f"<{len(await request.read())}>")


async def read_at_once(request: web.Request) -> web.Response:
    return web.Response(text=f"<{len(await request.read())}>")


@pytest_asyncio.fixture
async def listener() -> AsyncIterator[Listener]:
    application = web.Application(client_max_size=2 * LARGE)
    application.router.add_get("/boom", boom)
    application.router.add_post("/size", size)
    application.router.add_post("/read", read_at_once)
    made = Listener(application)
    await made.start("127.0.0.1:0")
    yield made
    await made.stop()


async def test_grpc_on_the_http_port_is_400_and_a_log_line(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """The HTTP/2 preface gets an HTTP/1.1 answer, and a log line explains it to the operator."""
    answer = raw.parsed(await raw.talk(listener.port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
    assert 400 == answer.status
    assert b"gRPC has a port of its own" in answer.body
    assert ["grpc_on_http_port"] == [getattr(record, "action", None) for record in caplog.records]


async def test_tls_on_a_port_without_tls_is_a_log_line(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """The client's library reports only a wrong version, so the operator gets the reason."""
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLError):
        await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
    assert ["tls_on_plain_port"] == [getattr(record, "action", None) for record in caplog.records]
    assert "http:// instead of https://" in caplog.text


@pytest.mark.proves("Requests are smuggled, or error answers quote them")
@pytest.mark.parametrize(
    "data", [b"th_secret /\r\n\r\n", b"GET / HTTP/1.1\r\nAuthorization\x00: th_secret\r\n\r\n"]
)
async def test_a_broken_request_is_not_quoted(
    listener: Listener, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    """Neither the answer nor the log repeats any part of a broken request."""
    caplog.set_level(logging.DEBUG)
    answer = raw.parsed(await raw.talk(listener.port, data))
    assert 400 == answer.status
    assert "bad_request" == json.loads(answer.body)["error"]["type"]
    assert "th_secret" not in answer.body.decode() + caplog.text


async def test_requests_that_come_together_are_answered_in_order(listener: Listener) -> None:
    """Many requests are pipelined before the first answer. Some have bodies large enough to pause reading."""
    sizes = [LARGE if number % 20 == 3 else number for number in range(60)]
    requests = [raw.post("/size", b"x" * n, close=False) for n in sizes]
    said = await raw.talk(listener.port, b"".join(requests) + raw.post("/size", b"end"))
    assert [f"<{n}>" for n in (*sizes, 3)] == re.findall("<[0-9]+>", said.decode())


async def test_request_after_a_body_of_many_chunks_is_read(listener: Listener) -> None:
    """
    A request is read although the body before it has so many chunks that reading pauses at the last one.
    aiohttp's parser then stops inside the next body.
    """
    chunks = [b"x"] * (DEFAULT_CHUNK_SIZE // 16 + 1)  # one chunk more than the parser may queue
    first = raw.chunked("/size", chunks).replace(b"Connection: close\r\n", b"")
    said = await raw.talk(
        listener.port, first + raw.post("/read", b"next", close=False) + raw.post("/read", b"end")
    )
    assert [f"<{n}>" for n in (len(chunks), 4, 3)] == re.findall("<[0-9]+>", said.decode())


async def test_many_pipelined_requests_after_a_late_body_are_answered(listener: Listener) -> None:
    """
    Pipelined requests are answered even if there are more than aiohttp's parser can queue. They arrive
    together with the late body of an earlier request.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    head, _, body = raw.post("/read", b"late", "Expect: 100-continue", close=False).partition(b"\r\n\r\n")
    async with limited():
        writer.write(head + b"\r\n\r\n")
        await reader.readuntil(b"100 Continue\r\n\r\n")
        others = [
            raw.post("/read", b"x" * number, close=False) for number in range(1, 2 * MAX_MSG_QUEUE_SIZE)
        ]
        writer.write(body + b"".join(others) + raw.post("/read", b"end"))
        said = await reader.read()
    writer.close()
    assert [f"<{n}>" for n in (4, *range(1, 2 * MAX_MSG_QUEUE_SIZE), 3)] == re.findall(
        "<[0-9]+>", said.decode()
    )


async def test_a_bug_in_a_handler_is_500_without_its_words(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The text of an exception may contain received data, so only its type is reported, and only in the log.
    """
    answer = raw.parsed(
        await raw.talk(listener.port, b"GET /boom HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
    )
    assert answer.status == 500
    assert json.loads(answer.body)["error"]["type"] == "internal"
    assert "LookupError" in str([vars(record) for record in caplog.records])
    assert "th_secret" not in answer.body.decode() + str([vars(record) for record in caplog.records])


async def test_headers_that_never_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that sends half a request line is closed after the keep-alive time."""
    monkeypatch.setattr(listeners, "KEEP_ALIVE_S", 0.1)
    made = Listener(web.Application())
    await made.start("127.0.0.1:0")
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(b"POST /v1/tra")
        async with limited():
            assert b"" == await reader.read()
        writer.close()
    finally:
        await made.stop()


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_is_accepted_before_the_stop_is_closed(turns: int) -> None:
    """No socket stays open, however many turns of the loop lie between the connection and the stop."""

    async def connect_and_stop() -> None:
        made = Listener(web.Application())
        await made.start("127.0.0.1:0")
        with socket.create_connection(("127.0.0.1", made.port)) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await made.stop()
            for _ in range(2):  # asyncio closes a socket one turn after its transport
                await asyncio.sleep(0)
            client.setblocking(False)
            with suppress(ConnectionResetError):  # the connection was not accepted at all
                assert b"" == client.recv(1)  # a BlockingIOError would mean that the connection is still open

    asyncio.run(connect_and_stop())


async def test_a_port_in_use_is_an_error(listener: Listener) -> None:
    second = Listener(web.Application())
    with pytest.raises(OSError, match="address already in use"):
        await second.start(f"127.0.0.1:{listener.port}")
    await second.stop()
