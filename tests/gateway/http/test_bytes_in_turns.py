"""However much work arrives in few bytes, other work goes on after LINES_A_TURN lines, and nothing is lost."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from gateway.http.listening.listener import Listener
from gateway.http.listening.plain_requests import LINES_A_TURN
from tests.gateway.http import raw
from tests.waiting import limited

GET = b"GET /read HTTP/1.1\r\nHost: tollhouse\r\n\r\n"
UPGRADE = GET[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
LAST = raw.post("/read", b"last")
MANY = 20 * LINES_A_TURN


def chunked(chunks: list[bytes]) -> bytes:
    return raw.chunked("/read", chunks).replace(b"Connection: close\r\n", b"")


# Bytes that arrive at once, and the sizes of the bodies in them.
FLOODS = {
    "chunks": (chunked([b"x"] * MANY), [MANY]),
    "empty requests": (GET * MANY, [0] * MANY),
    "requests": (raw.post("/read", b"x", close=False) * MANY, [1] * MANY),
    "chunked requests": (chunked([b"x"]) * MANY, [1] * MANY),
    "chunks behind a known body": (raw.post("/read", b"xx", close=False) + chunked([b"x"] * MANY), [2, MANY]),
    "chunks behind a declined upgrade": (UPGRADE + chunked([b"x"] * MANY), [0, MANY]),
    "requests behind a declined upgrade": (UPGRADE + GET * MANY, [0] * (MANY + 1)),
}


@pytest_asyncio.fixture
async def listener() -> AsyncIterator[Listener]:
    async def read(request: web.Request) -> web.Response:
        return web.Response(text=f"<{len(await request.read())}>")

    application = web.Application()
    application.router.add_route("*", "/read", read)
    made = Listener(application)
    await made.start("127.0.0.1:0")
    yield made
    await made.stop()


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the bytes that aiohttp's protocol gets, call by call."""
    found: list[bytes] = []
    receive = web.RequestHandler.data_received

    def keep(connection: web.RequestHandler, received: bytes) -> None:
        found.append(received)
        receive(connection, received)

    monkeypatch.setattr(web.RequestHandler, "data_received", keep)
    return found


def sizes_in(answers: bytes) -> list[int]:
    return [int(size) for size in re.findall(rb"<(\d+)>", answers)]


@pytest.mark.parametrize("name", FLOODS)
async def test_flood_is_read_in_turns_of_limited_lines(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    data, sizes = FLOODS[name]
    turn, lines = 0, Counter[int]()
    receive = web.RequestHandler.data_received

    def count(connection: web.RequestHandler, received: bytes) -> None:
        lines[turn] += received.count(b"\r\n")
        receive(connection, received)

    monkeypatch.setattr(web.RequestHandler, "data_received", count)
    talk = asyncio.create_task(raw.talk(listener.port, data + LAST))
    while not talk.done():
        turn += 1
        await asyncio.sleep(0)
    assert [*sizes, 4] == sizes_in(await talk)
    assert max(lines.values()) == LINES_A_TURN


@pytest.mark.parametrize("lines", [LINES_A_TURN - 1, LINES_A_TURN, LINES_A_TURN + 1])
async def test_line_beyond_a_turn_is_handled_in_the_next(
    listener: Listener, pieces: list[bytes], lines: int
) -> None:
    """A request with as many lines as a turn allows is handled at once, and one line more in the next turn."""
    data = raw.post("/read", b"x", *(f"H{number}: x" for number in range(lines - 5)))
    assert data.count(b"\r\n") == lines
    assert [1] == sizes_in(await raw.talk(listener.port, data))
    assert next(piece for piece in pieces if piece).count(b"\r\n") == min(lines, LINES_A_TURN)
    assert b"".join(pieces) == data


async def test_a_body_of_known_length_is_not_cut(listener: Listener, pieces: list[bytes]) -> None:
    """The line ends in a body of known length cost no turns once the parser knows the length."""
    body = b"\r\n" * 10 * MANY
    assert [len(body)] == sizes_in(await raw.talk(listener.port, raw.post("/read", body)))
    cut = [piece for piece in pieces[1:] if 0 < piece.count(b"\r\n") <= LINES_A_TURN]
    assert len(cut) <= 1


@pytest.mark.parametrize("seed", range(3))
async def test_requests_of_all_kinds_in_pieces_of_any_size(listener: Listener, seed: int) -> None:
    """Every request has its answer, in order, however its bytes arrive."""
    chance = random.Random(seed)
    data, sizes = b"", list[int]()
    for _ in range(200):
        body = chance.choice([b"x", b"\r", b"\n", b"\r\n"]) * chance.randrange(300)
        pieces = [body[at : at + 3] for at in range(0, len(body), 3)]
        kinds = {GET: 0, raw.post("/read", body, close=False): len(body), chunked(pieces): len(body)}
        request = chance.choice(list(kinds))
        data += request
        sizes.append(kinds[request])
    data += LAST
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    answers = asyncio.create_task(reader.read())
    at = 0
    while at < len(data):
        size = chance.choice([1, 10, 1000, 50_000])
        writer.write(data[at : at + size])
        at += size
        await asyncio.sleep(0)
    async with limited():
        assert [*sizes, 4] == sizes_in(await answers)
    writer.close()
