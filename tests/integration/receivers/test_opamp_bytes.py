"""WebSocket frames byte by byte: what breaks the protocol, slow peers, and hostile bytes. Never a 500."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.devices.opamp.messages import ServerToAgent
from gateway.http.listening import websocket
from gateway.http.listening.plain_requests import LINES_A_TURN
from gateway.http.listening.websocket import FRAMES_A_TURN, WebSocket
from gateway.operations.devices import opamp
from tests.integration.conftest import Serve, Serving
from tests.integration.receivers.opamp import ALL, Agent, config, find, post, read
from tests.waiting import limited, until

BINARY, CLOSE, PING, PONG = 2, 8, 9, 10


def frame(payload: bytes, kind: int = BINARY, *, final: bool = True, mask: bytes = b"mask") -> bytes:
    size = len(payload)
    head = bytes((0x80 * final | kind,))
    if size < 126:
        head += bytes((0x80 | size,))
    elif size < 65536:
        head += b"\xfe" + size.to_bytes(2)
    else:
        head += b"\xff" + size.to_bytes(8)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


class Peer:
    """The client's side of a connection after the handshake, as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def frame(self) -> tuple[int, bytes]:
        async with limited():
            head = await self.reader.readexactly(2)
            size = head[1]
            if size == 126:
                size = int.from_bytes(await self.reader.readexactly(2))
            return head[0] & 0x0F, await self.reader.readexactly(size)

    async def close_code(self) -> int | None:
        """Return the code of the close frame, or None if the connection was cut without one."""
        code = None
        try:
            while True:
                kind, payload = await self.frame()
                if kind == CLOSE:
                    code = int.from_bytes(payload[:2])
        except (asyncio.IncompleteReadError, ConnectionError):
            return code


@asynccontextmanager
async def connected(server: Serving, key: str, *, rest: bytes = b"") -> AsyncIterator[Peer]:
    """Open a connection. `rest` is sent in one piece with the handshake."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = (
        f"GET /v1/opamp HTTP/1.1\r\nHost: localhost:{server.port}\r\nAuthorization: {key}\r\n"
        "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    )
    writer.write(head.encode() + rest)
    async with limited():
        answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer
    assert b"xtensions" not in answer
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


async def started(serve: Serve, **devices: Any) -> tuple[Serving, str]:
    server = await serve(config=config(**{"max_body_bytes": 2000, **devices}))
    return server, await server.make_key("fleet", scopes=ALL)


def sent(agent: Agent, *, full: bool = True) -> bytes:
    message: bytes = agent.message(full=full).SerializeToString()
    return b"\0" + message


async def test_a_message_in_pieces(serve: Serve) -> None:
    """
    An OpAMP message is read in pieces: as several frames, with a ping between them, and with bytes that arrive one
    at a time.
    """
    server, key = await started(serve)
    agent = Agent()
    message = sent(agent)
    pieces = frame(message[:5], final=False) + frame(b"are you there", PING) + frame(b"", 0, final=False)
    async with connected(server, key, rest=pieces + frame(message[5:], 0)) as peer:
        assert await peer.frame() == (PONG, b"are you there")
        kind, payload = await peer.frame()
        assert (kind, ServerToAgent.FromString(payload[1:]).instance_uid) == (BINARY, agent.uid.bytes)
        for byte in frame(sent(agent, full=False)):
            await peer.send(bytes((byte,)))
        kind, payload = await peer.frame()
        assert ServerToAgent.FromString(payload[1:]).flags == 0
        await peer.send(b"".join(frame(sent(agent, full=False)) for _ in range(20)))
        for _ in range(20):
            assert ServerToAgent.FromString((await peer.frame())[1][1:]).flags == 0
        await peer.send(frame((1000).to_bytes(2), CLOSE))
        assert await peer.close_code() == 1000
    assert find(server, agent.id).hostname == "mill"


@pytest.mark.proves("An OpAMP client sends huge, nested, endless or slow messages")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x82\x02\0\0", 1002),  # not masked
        (b"\xc2" + frame(b"x")[1:], 1002),  # a frame with a reserved bit, as in compressed messages
        (frame(b"x", 3), 1002),
        (frame(b"x", 0), 1002),  # a continuation frame without a message to continue
        # a second message begins before the first one is complete
        (frame(b"x", final=False) + frame(b"y"), 1002),
        (frame(b"x" * 126, PING), 1002),
        (frame(b"x", PING, final=False), 1002),
        (frame(b"x" * 2001), 1009),
        (b"\x82\xff" + b"\xff" * 8 + b"mask", 1009),
        (frame(b"x" * 1500, final=False) + frame(b"x" * 501, 0), 1009),
        (frame(b"", final=False) + frame(b"", 0, final=False) * 10, 1008),
        (b"GET / HTTP/1.1\r\n\r\n", 1002),
    ],
)
async def test_what_breaks_the_protocol(serve: Serve, data: bytes, code: int) -> None:
    server, key = await started(serve)
    async with connected(server, key, rest=data) as peer:
        assert await peer.close_code() == code
    services = server.app.services.receivers
    await until(lambda: not (len(services.websockets) or services.inflight.held_bytes))


# Frames that cost work without a message that is charged to the key.
CHEAP = {
    "ping": (b"", frame(b"", PING)),
    "pong": (b"", frame(b"", PONG)),
    "empty continuation": (frame(b"x" * 126, final=False), frame(b"", 0, final=False)),
    "small fragment": (frame(b"x" * 126, final=False), frame(b"x" * 125, 0, final=False)),
}


async def test_frames_that_arrive_with_the_handshake(serve: Serve) -> None:
    """Frames that arrive together with the handshake are read, also if their bytes look like many lines of HTTP."""
    server, key = await started(serve)
    lines = b"\r\n" * LINES_A_TURN
    pings = frame(lines[:120], PING, mask=bytes(4)) * 3
    async with connected(server, key, rest=pings + frame(sent(Agent()))) as peer:
        for _ in range(3):
            assert await peer.frame() == (PONG, lines[:120])
        assert (await peer.frame())[0] == BINARY


@pytest.mark.parametrize("name", CHEAP)
async def test_control_frames_of_a_second(serve: Serve, name: str) -> None:
    """
    As many control frames per second as the setting allows are accepted, also in a later second. One more closes
    the connection.
    """
    server, key = await started(serve, max_opamp_control_frames=3)
    begin, cheap = CHEAP[name]
    agent = Agent()
    async with connected(server, key, rest=begin + cheap * 3) as peer:
        await asyncio.sleep(1.1)
        await peer.send(cheap * 2)
        if begin:
            await peer.send(frame(b"", 0))
        await peer.send(frame(sent(agent)))
        while (await peer.frame())[0] != BINARY:
            pass
    async with connected(server, key, rest=begin + cheap * 4) as peer:
        assert await peer.close_code() == 1008


@pytest.mark.parametrize("name", CHEAP)
async def test_other_work_continues_during_a_flood_of_frames(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """However many frames arrive at once, other work goes on after FRAMES_A_TURN of them, and none is lost."""
    server, key = await started(serve, max_body_bytes=10**6, max_opamp_control_frames=10**9)
    begin, cheap = CHEAP[name]
    turn, many = 0, 10 * FRAMES_A_TURN
    handled = Counter[int]()
    handle = WebSocket._handle_frame

    def count(socket: WebSocket, each: Any) -> None:
        handled[turn] += 1
        handle(socket, each)

    monkeypatch.setattr(WebSocket, "_handle_frame", count)
    async with connected(server, key) as peer:
        peer.writer.write(begin + cheap * many)
        async with limited():
            while handled.total() < many + bool(begin):
                turn += 1
                await asyncio.sleep(0)
    assert max(handled.values()) == FRAMES_A_TURN


@pytest.mark.proves("An OpAMP client sends huge, nested, endless or slow messages")
async def test_slow_peers(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is cut if a message does not end, if the peer answers no ping, or if it reads nothing."""
    for name, seconds in (
        ("SLOW_S", 0.3),
        ("PING_S", 0.5),
        ("PONG_S", 0.5),
        ("CLOSE_S", 0.2),
        ("CHECK_S", 0.1),
    ):
        monkeypatch.setattr(websocket, name, seconds)
    server, key = await started(serve, max_opamp_control_frames=10**9)
    receivers = server.app.services.receivers
    async with connected(server, key) as slow, connected(server, key) as dead:
        await slow.send(frame(b"x" * 1000, final=False))
        await until(lambda: bool(receivers.inflight.held_bytes))
        assert receivers.inflight.held_bytes == 1000
        assert await slow.close_code() == 1008
        assert await dead.frame() == (PING, b"")
        assert await dead.close_code() is None
    assert receivers.inflight.held_bytes == 0
    agent = Agent()
    messages = b"".join(frame(b"x" * 125, PING) for _ in range(1000))
    async with connected(server, key) as deaf:
        await deaf.send(frame(sent(agent)))
        for _ in range(1000):
            try:
                async with asyncio.timeout(0.2):
                    await deaf.send(messages)
            except (TimeoutError, ConnectionError):
                break  # the server reads no more from the peer, because the peer does not read its answers
        else:
            raise AssertionError("the server kept everything")
        await until(lambda: not len(receivers.websockets))
    assert read(await post(server, agent.message(), key)).flags == 0


async def test_a_peer_that_answers_pings_stays(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A peer that answers pings stays: an open connection counts as a report, so a client without heartbeats is not
    stated as silent.
    """
    monkeypatch.setattr(opamp, "LOOK_S", 0.1)
    for name, seconds in (("PING_S", 0.1), ("PONG_S", 5.0), ("CHECK_S", 0.05)):
        monkeypatch.setattr(websocket, name, seconds)
    server = await serve(config=config(heartbeat_interval=1))
    key = await server.make_key("fleet", scopes=ALL)
    agent = Agent()
    async with connected(server, key, rest=frame(sent(agent))) as peer:
        assert (await peer.frame())[0] == BINARY
        seen = find(server, agent.id).last_seen
        async with limited():
            while find(server, agent.id).last_seen <= seen:
                kind, _ = await peer.frame()
                assert kind == PING
                await peer.send(frame(b"", PONG))


@pytest.mark.proves("An OpAMP client sends huge, nested, endless or slow messages")
@pytest.mark.parametrize("seed", range(2))
async def test_random_messages(serve: Serve, seed: int) -> None:
    """Random bytes, and valid messages with changed bytes, are answered or refused, and never with a 500."""
    server, key = await started(serve)
    chance = random.Random(seed)
    victim = Agent()
    read(await post(server, victim.message(full=True, healthy=True), key))
    before = find(server, victim.id)
    for number in range(60):
        body = (
            bytearray(sent(Agent())[1:]) if number % 2 else bytearray(chance.randbytes(chance.randrange(300)))
        )
        for _ in range(chance.randrange(1, 6)):
            if body:
                body[chance.randrange(len(body))] = chance.randrange(256)
        data = bytes(body[: chance.randrange(len(body) + 1)])
        assert (await post(server, data, key)).status in (200, 400, 429)
        async with connected(server, key, rest=frame(b"\0" + data)) as peer:
            kind, payload = await peer.frame()
            assert kind == BINARY
            answer = ServerToAgent.FromString(payload[1:])
            assert "Internal" not in answer.error_response.error_message
    assert find(server, victim.id) == before
    assert server.app.services.receivers.in_hand.count == 0


async def test_random_frames(serve: Serve) -> None:
    """Whatever bytes follow the handshake, the connection ends and the server goes on."""
    server, key = await started(serve)
    for _ in range(60):
        async with connected(server, key, rest=os.urandom(64)) as peer:
            peer.writer.write_eof()
            await peer.close_code()
    agent = Agent()
    assert read(await post(server, agent.message(full=True), key)).flags == 0


@given(st.binary(max_size=200), st.binary(min_size=4, max_size=4))
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_masks(payload: bytes, mask: bytes) -> None:
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    assert websocket._unmask(masked, mask) == payload
