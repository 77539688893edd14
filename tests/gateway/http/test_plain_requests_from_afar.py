"""The short path over TLS and behind a trusted proxy gives the same results as aiohttp's parser."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from gateway.http.listening.forwarded import TrustedProxies
from gateway.http.listening.listener import Listener
from gateway.http.listening.plain_requests import WholeBody
from gateway.http.listening.tls import Certificate
from tests.gateway.http import raw
from tests.integration.certificates import Certificates
from tests.tools import program
from tests.waiting import limited

pytestmark = pytest.mark.asyncio(loop_scope="module")
BODY = bytes(range(256)) * 100  # longer than one TLS record


@dataclass
class Stand:
    """
    A TLS listener behind a trusted local proxy. It records each request's origin and the path that it took.
    """

    trust: ssl.SSLContext
    asked: list[tuple[str | None, str, int]] = field(default_factory=list)
    is_short: list[bool] = field(default_factory=list)
    port: int = 0

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.asked.append((request.remote, request.scheme, len(body)))
        self.is_short.append(isinstance(request.content, WholeBody))
        return web.Response(body=body[::-1])

    async def answers(self, requests: Sequence[bytes]) -> list[bytes]:
        """Send requests one after another on one connection; return the bodies of the answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)
        found = []
        try:
            async with limited():
                for request in requests:
                    writer.write(request)
                    head = raw.parsed(await reader.readuntil(b"\r\n\r\n"))
                    found.append(await reader.readexactly(int(head.headers["content-length"])))
        finally:
            writer.close()
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    program("openssl")
    files = Certificates(tmp_path_factory.mktemp("certificates"))
    made = Stand(files.anonymous())
    application = web.Application()
    application.router.add_route("*", "/v1/traces", made.handle)
    listener = Listener(
        application,
        certificate=Certificate(Path(files.path("server.pem")), Path(files.path("server.key")), None),
        proxies=TrustedProxies(["127.0.0.1"]),
    )
    await listener.start("127.0.0.1:0")
    made.port = listener.port
    yield made
    await listener.stop()


def post(body: bytes, *headers: str) -> bytes:
    return raw.post("/v1/traces", body, *headers, close=False)


async def test_requests_over_tls_go_the_short_way(stand: Stand) -> None:
    """Over TLS, bodies of one record and of several records arrive complete."""
    bodies = [b"one", b"two", BODY, b"", b"five"]
    stand.is_short.clear()
    stand.asked.clear()
    assert [body[::-1] for body in bodies] == await stand.answers([post(body) for body in bodies])
    assert [False, True] == stand.is_short[:2]
    assert stand.is_short[-1]
    assert [("127.0.0.1", "https", len(body)) for body in bodies] == stand.asked


async def test_each_request_of_a_proxy_is_of_whom_it_says(stand: Stand) -> None:
    """
    Each request of a proxy has the origin that its header names. If the origin is the same as before, the
    request takes the short path. Another origin on the same connection is recognized.
    """
    one = post(b"body", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: http")
    other = post(b"body", "X-Forwarded-For: 203.0.113.77", "X-Forwarded-Proto: https")
    stand.is_short.clear()
    stand.asked.clear()
    await stand.answers([one, one, other, one, one])
    of_one, of_other = ("203.0.113.9", "http", 4), ("203.0.113.77", "https", 4)
    assert [of_one, of_one, of_other, of_one, of_one] == stand.asked
    assert [False, True, False, False, True] == stand.is_short
