"""Connections are limited, and a flood of connections costs only the flooding address."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio
from aiohttp import web

from gateway.configuration.server import ServerSettings
from gateway.http.listening.connections import OpenConnections, connection_limit, raise_descriptor_limit
from gateway.http.listening.listener import Listener
from tests.gateway.http import raw
from tests.waiting import awaited


@dataclass(eq=False)
class Peer:
    place: str
    is_idle: bool = True
    has_ended: bool = False

    def end(self) -> None:
        self.has_ended = True


def test_longest_idle_connection_of_the_largest_address_is_closed() -> None:
    """
    A new connection closes the longest idle connection of the address that has the most. Other
    addresses lose none.
    """
    connections = OpenConnections(4)
    lone, flood = Peer("lone"), [Peer("flood") for _ in range(3)]
    for peer in (lone, *flood):
        assert connections.add(peer)
    connections.mark_active(flood[0])
    assert connections.add(Peer("new"))
    assert [False, False, True, False] == [peer.has_ended for peer in (lone, *flood)]
    assert 4 == connections.count


def test_an_address_that_floods_pays_itself() -> None:
    """
    Above the limit, a new connection of the address with the most connections replaces another connection
    of that address.
    """
    connections = OpenConnections(3)
    lone = Peer("lone")
    connections.add(lone)
    flood = [Peer("flood") for _ in range(50)]
    assert all(connections.add(peer) for peer in flood)
    assert sum(peer.has_ended for peer in flood) == 48
    assert lone.has_ended is False
    assert connections.count == 3


def test_a_connection_is_its_keys_once_one_was_admitted() -> None:
    """
    After one accepted request, a connection counts for its key instead of its address. A flood from the same
    proxy address then does not close it.
    """
    connections = OpenConnections(10)
    known = Peer("proxy")
    connections.add(known)
    connections.assign_key(known, "steady")
    flood = [Peer("proxy") for _ in range(50)]
    assert all(connections.add(peer) for peer in flood)
    assert known.has_ended is False
    assert sum(peer.has_ended for peer in flood) == 41
    assert connections.count == 10
    connections.remove(known)
    assert 9 == connections.count


def test_a_request_in_hand_is_never_cut() -> None:
    """If the largest address has no idle connection, the new connection is refused until one ends."""
    connections = OpenConnections(2)
    busy = [Peer("busy", is_idle=False) for _ in range(2)]
    assert all(connections.add(peer) for peer in busy)
    refused = Peer("new")
    assert not connections.add(refused)
    connections.remove(refused)
    assert 2 == connections.count
    connections.remove(busy[0])
    assert connections.add(Peer("new"))


def test_the_limit_leaves_descriptors_for_files() -> None:
    """`max_connections` is limited to 80 % of the soft descriptor limit, shared by all listeners."""
    alone = ServerSettings(grpc_listen="")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
        assert (400, 800, 50) == tuple(
            map(connection_limit, (ServerSettings(), alone, replace(alone, max_connections=50)))
        )
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        assert 104 == connection_limit(alone)
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest_asyncio.fixture
async def in_hand() -> asyncio.Semaphore:
    """Return a semaphore that is released once for each request that the handler received."""
    return asyncio.Semaphore(0)


@pytest_asyncio.fixture
async def listener(in_hand: asyncio.Semaphore) -> AsyncIterator[Listener]:
    """Start a listener for two connections. Its handler answers when `hold` is set."""
    application = web.Application()
    hold = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        in_hand.release()
        await hold.wait()
        return web.Response()

    application.router.add_get("/", answer)
    listener = Listener(application, connections=OpenConnections(2))
    await listener.start("127.0.0.1:0")
    yield listener
    hold.set()
    await listener.stop()


GET = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"


async def test_connection_over_the_limit_gets_503_with_retry_after(
    listener: Listener, in_hand: asyncio.Semaphore
) -> None:
    """If every connection is busy, the next one receives 503 with Retry-After before it is closed."""
    writers = []
    for _ in range(2):
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(GET)
        writers.append(writer)
        await in_hand.acquire()
    reader, late = await asyncio.open_connection("127.0.0.1", listener.port)
    answer = raw.parsed(await reader.read())
    assert answer.status == 503
    assert answer.headers["retry-after"] == "5"
    assert int(answer.headers["content-length"]) == len(answer.body)
    for writer in (*writers, late):
        writer.close()


async def test_an_idle_connection_gives_way(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A connection that has sent only half a header has no request yet, so it counts as idle. The oldest idle
    connection is closed for the newest one.
    """
    has_read = asyncio.Event()
    monkeypatch.setattr(OpenConnections, "mark_active", lambda *_: has_read.set())
    reader, slow = await asyncio.open_connection("127.0.0.1", listener.port)
    slow.write(GET[:10])
    await has_read.wait()
    others = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(2)]
    assert b"" == await awaited(reader.read())
    for writer in (slow, *(other for _, other in others)):
        writer.close()
