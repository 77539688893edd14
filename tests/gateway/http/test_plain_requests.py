"""The short path for plain requests gives the same answers as aiohttp's parser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from aiohttp import web

from gateway.http import bodies
from gateway.http.listening.listener import Listener
from gateway.http.listening.plain_requests import FastPathRequestHandler, WholeBody
from tests.gateway.http import raw
from tests.waiting import limited

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Stand:
    """A listener whose handler does what the header `Wish` says. It records which path each request took."""

    is_short: list[bool] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    # A request with the wish "wait" is answered only after this event.
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.is_short.append(isinstance(request.content, WholeBody))
        self.asked.set()
        body = await request.read()
        wish = request.headers.get("Wish", "")
        if wish == "wait":
            await self.gate.wait()
        if wish == "gone":
            raise web.HTTPGone(text="gone")
        if wish == "bug":
            raise ValueError(wish)
        if wish == "nothing":
            return web.Response(status=204)
        if wish == "pieces":
            pieces = web.StreamResponse()
            await pieces.prepare(request)
            await pieces.write(b"a piece")
            return pieces
        if wish == "abort" and request.transport is not None:
            request.transport.abort()
        told = web.Response(
            text=f"{request.method} {request.path_qs} {sorted(request.headers.items())} {body!r}"
        )
        # The keep-alive time ends while the request is still handled.
        if wish == "late" and isinstance(request.protocol, FastPathRequestHandler):
            request.protocol._next_keepalive_close_time = 0.0
            request.protocol._process_keepalive()
        if wish == "leave":
            told.force_close()
        return told


def application(stand: Stand) -> web.Application:
    made = web.Application()
    for path in ("/v1/traces", "/v1/logs"):
        made.router.add_route("*", path, stand.handle, expect_handler=bodies.delay_http_100_continue)

    async def mark(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Marked"] = request.path

    made.on_response_prepare.append(mark)
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand() -> AsyncIterator[Stand]:
    made = Stand()
    listener = Listener(application(made))
    await listener.start("127.0.0.1:0")
    made.port = listener.port
    yield made
    await listener.stop()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        with suppress(ConnectionError):  # the other side may have closed the connection already
            await self._writer.drain()

    async def answer(self) -> bytes:
        """
        Read one answer without its Date header. If the connection ends early, return the bytes received so far.
        """
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            headers = raw.parsed(head).headers
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
            if "transfer-encoding" in headers:
                body = await self._reader.readuntil(b"\r\n0\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            return error.partial
        except ConnectionError:
            return b""
        return b"\r\n".join([line for line in head.split(b"\r\n") if not line.startswith(b"Date")]) + body


@asynccontextmanager
async def connected(stand: Stand) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    try:
        async with limited():
            yield Client(reader, writer)
    finally:
        writer.close()


def post(body: bytes, *headers: str, path: str = "/v1/traces") -> bytes:
    return raw.post(path, body, *headers, close=False)


async def answers(stand: Stand, requests: Sequence[bytes]) -> list[bytes]:
    """Send requests one after another on one connection; return the answers."""
    async with connected(stand) as client:
        found = []
        for request in requests:
            await client.send(request)
            found.append(await client.answer())
        return found


@pytest.mark.parametrize("wish", ["", "gone", "bug", "nothing", "pieces", "late"])
async def test_a_later_request_is_answered_as_the_first(stand: Stand, wish: str) -> None:
    """
    A later request on a connection gets the same answer as the first. The result of the handler and the
    length of the body make no difference.
    """
    requests = [post(body, f"Wish: {wish}", "X-More: 1") for body in (b"one", b"two", b"three", b"")]
    alone = [(await answers(stand, [request]))[0] for request in requests]
    stand.is_short.clear()
    together = await answers(stand, requests)
    if wish == "bug":  # after an error in the handler, the server closes the connection
        assert [alone[0], b"", b"", b""] == together
        return
    assert alone == together
    assert [False, True, True, True] == stand.is_short


OTHERS = {
    "another path": post(b"four", path="/v1/logs"),
    "a query": post(b"four", path="/v1/traces?a=1"),
    "another header": post(b"four", "X-More: 1"),
    "an expectation": post(b"four", "Expect: 100-continue"),
    "another method": post(b"four").replace(b"POST", b"PUT"),
    "no body": b"GET /v1/traces HTTP/1.1\r\nHost: tollhouse\r\n\r\n",
    "chunks": raw.chunked("/v1/traces", [b"fo", b"ur"]).replace(b"Connection: close\r\n", b""),
    "its last": raw.post("/v1/traces", b"four"),
    "a length twice": post(b"four", "Content-Length: 4"),
    "a length that is none": post(b"four").replace(b": 4", b": +4"),
}


@pytest.mark.parametrize("name", OTHERS)
async def test_what_is_not_plain_is_for_the_parser(stand: Stand, name: str) -> None:
    """
    Unusual requests are read by the parser, even after plain ones. Plain requests after them are still answered.
    """
    plain, other = post(b"four"), OTHERS[name]
    (first,), (alone,) = await answers(stand, [plain]), await answers(stand, [other])
    stand.is_short.clear()
    found = await answers(stand, [plain, plain, other, plain])
    ends = b"close" in alone.lower() or alone.startswith(b"HTTP/1.0")
    assert [first, first, alone, b"" if ends else first] == found
    assert [False, True] == stand.is_short[:2]
    assert True not in stand.is_short[2:3]


async def test_a_request_in_pieces_is_for_the_parser(stand: Stand) -> None:
    """
    A request that arrives in pieces is read by the parser. The next complete request takes the short path again.
    """
    plain = post(b"a body")
    [first] = await answers(stand, [plain])
    stand.is_short.clear()
    async with connected(stand) as client:
        for end in (len(plain), len(plain) - 6, len(plain) - 3, len(plain)):
            await client.send(plain[:end])
            if end < len(plain):
                stand.asked.clear()
                await stand.asked.wait()  # the handler starts as soon as the header has arrived
                await client.send(plain[end:])
            assert first == await client.answer()
    assert [False, False, False, True] == stand.is_short


async def test_requests_that_come_together_are_answered_in_order(stand: Stand) -> None:
    """Requests that arrive while another is handled wait for it, on either path."""
    plain, waits = post(b"one"), post(b"two", "Wish: wait")
    stand.gate.set()
    [of_plain], [of_waits] = await answers(stand, [plain]), await answers(stand, [waits])
    stand.gate.clear()
    async with connected(stand) as client:
        await client.send(waits)
        stand.gate.set()
        assert of_waits == await client.answer()
        stand.gate.clear()
        stand.asked.clear()
        await client.send(waits)
        await stand.asked.wait()
        assert stand.is_short[-1]
        await client.send(plain + waits)
        await client.send(plain)
        stand.gate.set()
        found = [await client.answer() for _ in range(4)]
    assert [of_waits, of_plain, of_waits, of_plain] == found


@pytest.mark.parametrize("wish", ["leave", "abort"])
async def test_a_connection_ends_with_its_request(stand: Stand, wish: str) -> None:
    """A connection ends after its request if the answer says so, or if the sender has closed it."""
    usual, ends = post(b"four", "Wish: usual"), post(b"four", f"Wish: {wish}")
    expected = [(await answers(stand, [request]))[0] for request in (usual, ends)]
    assert [*expected, b""] == await answers(stand, [usual, ends, usual])
    async with connected(stand) as client:
        await client.send(ends)
        assert expected[1] == await client.answer()
        assert b"" == await client.answer()


async def test_a_stop_waits_for_a_request() -> None:
    """A request on the short path is answered before a stop closes its connection."""
    stand = Stand()
    listener = Listener(application(stand))
    await listener.start("127.0.0.1:0")
    stand.port = listener.port
    waits = post(b"four", "Wish: wait")
    async with connected(stand) as client:
        stand.gate.set()
        await client.send(waits)
        expected = await client.answer()
        stand.gate.clear()
        stand.asked.clear()
        await client.send(waits)
        await stand.asked.wait()
        stopping = asyncio.create_task(listener.stop())
        for _ in range(3):  # let the stop begin before the request ends
            await asyncio.sleep(0)
        stand.gate.set()
        assert expected == await client.answer()
        assert b"" == await client.answer()
        await stopping
    assert [False, True] == stand.is_short
