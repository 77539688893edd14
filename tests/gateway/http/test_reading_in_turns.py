"""If a party has used much time, the next request on its connection is read only in the party's turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from aiohttp import web

from gateway.http.listening.connections import OpenConnections
from gateway.http.listening.listener import HttpServerConnection, Listener, wait_for_turn
from gateway.http.listening.plain_requests import LINES_A_TURN
from spool.turns.fair_turns import FairTurnParty, FairTurnScheduler
from tests.gateway.http import raw
from tests.waiting import awaited, limited

BODY = b"some"


class HeldTurns(FairTurnScheduler):
    """
    Turns that the test grants one by one. Several parties are active, and the party "heavy" has used much.
    """

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Callable[[], None]] = []
        self.came = asyncio.Event()
        for name, used_s in (("heavy", 100.0), ("light", 0.0)):
            party = self.find_or_add_party(name)
            party.charge_time(used_s)
            self.note_submission(party)
        self.are_shared = True

    def call_in_turn(self, party: FairTurnParty, job: Callable[[], None]) -> None:
        assert "heavy" == party.name
        self.jobs.append(job)
        self.came.set()

    async def job(self) -> Callable[[], None]:
        """Return the only job that waits for its turn."""
        async with limited():
            await self.came.wait()
        self.came.clear()
        [job] = self.jobs
        self.jobs.clear()
        return job


@dataclass
class Stand:
    """A listener with held turns. Its handler assigns each request to a party and records its body."""

    turns: HeldTurns = field(default_factory=HeldTurns)
    read: list[bytes] = field(default_factory=list)
    connections: list[HttpServerConnection] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)  # every answer waits for this gate
    port: int = 0

    async def handle(self, request: web.Request) -> web.Response:
        await wait_for_turn(request.headers["Party"])
        self.read.append(await request.read())
        assert isinstance(request.protocol, HttpServerConnection)
        self.connections.append(request.protocol)
        await self.gate.wait()
        return web.Response(text="kept")


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, party: str, body: bytes = BODY) -> None:
        self.writer.write(raw.post("/v1/traces", body, f"Party: {party}", close=False))

    async def answer(self) -> int:
        async with limited():
            found = raw.parsed(await self.reader.readuntil(b"\r\n\r\n"))
            await self.reader.readexactly(int(found.headers["content-length"]))
        return found.status

    async def asks(self, party: str, body: bytes = BODY) -> int:
        self.send(party, body)
        return await self.answer()


@pytest_asyncio.fixture
async def stand() -> AsyncIterator[Stand]:
    made = Stand()
    made.gate.set()
    application = web.Application()
    application.router.add_route("*", "/v1/traces", made.handle)
    connections = OpenConnections(4, setting="server.max_connections")
    listener = Listener(application, scheduler=made.turns, connections=connections)
    await listener.start("127.0.0.1:0")
    made.port = listener.port
    yield made
    await listener.stop()


@pytest_asyncio.fixture
async def client(stand: Stand) -> AsyncIterator[Client]:
    made = Client(*await asyncio.open_connection("127.0.0.1", stand.port))
    yield made
    made.writer.close()
    with suppress(OSError):
        await made.writer.wait_closed()


async def test_who_used_much_is_read_in_its_turn(stand: Stand, client: Client) -> None:
    """
    The first request of a heavy party is read at once, because the party is not known yet. The next request
    waits, and its connection does not count as idle.
    """
    assert 200 == await client.asks("heavy")
    client.send("heavy", b"first")
    job = await stand.turns.job()
    assert stand.read == [BODY]
    assert stand.connections[0].is_idle is False
    job()
    assert 200 == await client.answer()
    assert [BODY, b"first"] == stand.read


async def test_who_used_little_is_read_at_once(stand: Stand, client: Client) -> None:
    """
    A party that used little is read at once. If a heavy party used the connection before, only the next
    request on it waits.
    """
    for _ in range(3):
        assert 200 == await client.asks("light")
    assert 200 == await client.asks("heavy")
    client.send("light")
    (await stand.turns.job())()
    assert 200 == await client.answer()
    assert 200 == await client.asks("light")
    assert [] == stand.turns.jobs


async def test_who_used_much_is_read_at_once_when_alone(stand: Stand, client: Client) -> None:
    stand.turns.are_shared = False
    for _ in range(3):
        assert 200 == await client.asks("heavy")
    assert [] == stand.turns.jobs


async def test_a_request_in_pieces_waits_as_one(stand: Stand, client: Client) -> None:
    """
    If a request arrives in pieces, its later pieces wait as well, and the keep-alive timer does not
    close the connection.
    """
    assert 200 == await client.asks("heavy")
    body = bytes(range(256)) * 4096
    request = raw.post("/v1/traces", body, "Party: heavy", close=False)
    client.writer.write(request[:4096])
    job = await stand.turns.job()
    client.writer.write(request[4096:])
    [connection] = stand.connections
    connection._next_keepalive_close_time = 0.0
    connection._process_keepalive()
    job()
    assert 200 == await client.answer()
    assert [BODY, body] == stand.read


async def test_pipelined_request_waits_for_its_own_turn(
    stand: Stand, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipelined request that arrives while an earlier one is handled waits for a separate turn."""
    assert 200 == await client.asks("heavy")
    client.send("heavy", b"one")
    job = await stand.turns.job()
    stand.gate.clear()
    job()
    is_held = asyncio.Event()
    monkeypatch.setattr(stand.connections[0], "_pause_transport_reading", is_held.set)
    client.send("heavy", b"two")
    await awaited(is_held.wait())
    stand.gate.set()
    assert 200 == await client.answer()
    job = await stand.turns.job()
    assert [BODY, b"one"] == stand.read
    job()
    assert 200 == await client.answer()
    assert b"two" == stand.read[-1]


async def test_requests_that_come_together_have_one_turn(stand: Stand, client: Client) -> None:
    assert 200 == await client.asks("heavy")
    client.writer.write(2 * raw.post("/v1/traces", BODY, "Party: heavy", close=False))
    (await stand.turns.job())()
    assert await client.answer() == 200
    assert await client.answer() == 200
    assert 3 * [BODY] == stand.read


async def test_a_request_in_chunks_waits_too(stand: Stand, client: Client) -> None:
    """A chunked request waits although its length is unknown."""
    assert 200 == await client.asks("heavy")
    for _ in range(2):
        request = raw.chunked("/v1/traces", [BODY, BODY], "Party: heavy")
        client.writer.write(request.replace(b"Connection: close\r\n", b""))
        (await stand.turns.job())()
        assert 200 == await client.answer()
    assert [BODY, BODY + BODY, BODY + BODY] == stand.read


async def test_a_sender_that_went_is_not_read(stand: Stand, client: Client) -> None:
    assert 200 == await client.asks("heavy")
    client.send("heavy")
    job = await stand.turns.job()
    [connection] = stand.connections
    assert connection.transport is not None
    connection.transport.abort()
    assert b"" == await awaited(client.reader.read())
    job()
    assert [BODY] == stand.read


async def test_a_connection_that_cannot_be_read_ends(
    stand: Stand, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the parser raises an error, the connection is closed. Parties that wait for a turn still get it."""
    assert 200 == await client.asks("heavy")
    client.send("heavy")
    job = await stand.turns.job()

    def fail(*_: object) -> None:
        raise ValueError("what the parser raises")

    monkeypatch.setattr(stand.connections[0], "_take_whole_request", fail)
    job()
    assert b"" == await awaited(client.reader.read())


async def test_small_chunks_wait_for_turns(stand: Stand, client: Client) -> None:
    """The chunks of one request wait for the turns of its party, which is charged for them."""
    assert 200 == await client.asks("heavy")
    many = 3 * LINES_A_TURN
    request = raw.chunked("/v1/traces", many * [b"x"], "Party: heavy")
    client.writer.write(request)
    heavy, turns = stand.turns.find_or_add_party("heavy"), 0
    while len(stand.read) < 2:
        job = await stand.turns.job()
        assert len(stand.read) == 1
        used = heavy.used
        job()
        turns += 1
        assert turns == 1 or heavy.used > used
        while len(stand.read) < 2 and not stand.turns.jobs:  # noqa: ASYNC110 - the handler reads
            await asyncio.sleep(0)
    # one piece is read before the party of the request is known
    assert turns >= request.count(b"\r\n") // LINES_A_TURN - 1
    assert 200 == await client.answer()
    assert [BODY, many * b"x"] == stand.read
