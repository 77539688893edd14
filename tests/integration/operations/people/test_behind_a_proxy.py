"""
The operator API behind a proxy that ends TLS: the client address of sign-in attempts, and the session cookie.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gateway.core.paths import OPERATOR_API
from gateway.operations.holders.operators import ACCOUNT_BURST, SHARED_BURST, SIGN_IN_BURST
from tests.integration.operations.server import ADA, OperatorServer, operator_server

NAME = "console.example.com"
PROXY, STRANGER, OWNER = "127.0.0.3", "127.0.0.4", "127.0.0.5"
PASSWORD, WRONG = "correct horse battery", "wrong wrong wrong"
SESSIONS = f"{OPERATOR_API}/sessions"


@asynccontextmanager
async def installation(directory: Path, **settings: Any) -> AsyncIterator[OperatorServer]:
    """Start an operator server with one account."""
    async with operator_server(directory, hosts=frozenset({NAME}), **settings) as server:
        body = {"email": ADA, "password": PASSWORD, "role": "admin"}
        assert 201 == (await server.ask("POST", "/operators", body)).status
        yield server


@asynccontextmanager
async def reverse_proxy(server: OperatorServer, address: str = PROXY) -> AsyncIterator[str]:
    """
    Run a reverse proxy that connects from `address` and appends the client's address to X-Forwarded-For.
    """

    async def forward(session: aiohttp.ClientSession, request: web.Request) -> web.Response:
        before = request.headers.getall("X-Forwarded-For", [])
        headers = {name: value for name, value in request.headers.items() if name != "X-Forwarded-For"}
        headers["X-Forwarded-For"] = ", ".join([*before, request.remote or ""])
        headers["X-Forwarded-Proto"] = "https"
        url, body = f"{server.url}{request.path_qs}", await request.read()
        async with session.request(
            request.method, url, headers=headers, data=body, allow_redirects=False
        ) as answer:
            return web.Response(status=answer.status, body=await answer.read(), headers=shown(answer.headers))

    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", partial(forward, session))
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def shown(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, value in headers.items()
        if name in ("Set-Cookie", "Retry-After", "Content-Type")
    ]


async def sign_in(
    url: str,
    password: str,
    *,
    address: str,
    host: str = NAME,
    email: str = ADA,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """
    Sign in from an address of this machine, under the console's host name; return the status and the cookie.
    """
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    sent = {"Host": host, **(headers or {})}
    body = {"email": email, "password": password}
    async with (
        aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as browser,
        browser.post(f"{url}{SESSIONS}", json=body, headers=sent) as answer,
    ):
        return answer.status, answer.headers.get("Set-Cookie", "")


@pytest.mark.proves("behind a proxy")
@pytest.mark.proves("An attacker behind a shared proxy locks everybody out")
@pytest.mark.parametrize("proxies", [[], [PROXY]], ids=["not named", "named"])
async def test_a_stranger_locks_nobody_out(tmp_path: Path, proxies: list[str]) -> None:
    """
    A stranger who sends wrong passwords through the same proxy locks nobody out: the owner can still sign in,
    whether or not the proxy is configured.
    """
    async with (
        installation(tmp_path, proxies=proxies, is_behind_tls=True) as server,
        reverse_proxy(server) as url,
    ):
        tried = [
            (await sign_in(url, WRONG, address=STRANGER, email="nobody@example.com"))[0] for _ in range(12)
        ]
        expected = [401] * SIGN_IN_BURST + [429] if proxies else [401] * 12
        assert expected == tried[: len(expected)]
        status, cookie = await sign_in(url, PASSWORD, address=OWNER)
        assert status == 201
        assert cookie.startswith("__Secure-tollhouse=")
        assert "; Secure" in cookie
        [session] = (await server.ask("GET", "/sessions")).payload["sessions"]
        assert (OWNER if proxies else PROXY) == session["address"]


@pytest.mark.proves("behind a proxy")
@pytest.mark.proves("A sender forges the address that limits it")
@pytest.mark.parametrize("proxies", [[], [PROXY]], ids=["none is named", "another is named"])
async def test_who_is_not_named_is_not_believed(tmp_path: Path, proxies: list[str]) -> None:
    """
    X-Forwarded headers count only from a configured proxy. Otherwise the sender keeps one limit whatever it
    writes, and gets no Secure cookie.
    """
    async with installation(tmp_path, proxies=proxies) as server:
        server.services.people.shared_sign_ins.charge(f"address {STRANGER}", SHARED_BURST - 3)
        statuses = []
        for place in range(6):
            told = {"X-Forwarded-For": f"198.51.100.{place}", "X-Forwarded-Proto": "https"}
            status, _ = await sign_in(
                server.url, WRONG, address=STRANGER, email=f"{place}@example.com", headers=told
            )
            statuses.append(status)
        assert statuses[0] == 401
        assert statuses[-1] == 429
        status, cookie = await sign_in(
            server.url, PASSWORD, address=OWNER, headers={"X-Forwarded-Proto": "https"}
        )
        assert status == 201
        assert "Secure" not in cookie


async def test_what_a_sender_writes_before_its_own_address_is_nothing(tmp_path: Path) -> None:
    """
    The configured proxy appends the real address to a list that the sender started. Only the
    appended address counts.
    """
    async with installation(tmp_path, proxies=[PROXY]) as server, reverse_proxy(server) as url:
        for place in range(SIGN_IN_BURST + 1):
            told = {"X-Forwarded-For": f"198.51.100.{place}"}
            status, _ = await sign_in(
                url, WRONG, address=STRANGER, email=f"{place}@example.com", headers=told
            )
        assert 429 == status


async def test_two_proxies_in_a_row(tmp_path: Path) -> None:
    """
    With two configured proxies, the address that the outer one saw counts. An unconfigured proxy counts as
    the client itself.
    """
    async with (
        installation(tmp_path, proxies=[PROXY, "127.0.0.6"]) as server,
        reverse_proxy(server, PROXY) as inner,
    ):
        told = {"X-Forwarded-For": f"198.51.100.1, {OWNER}"}
        for through, seen in (("127.0.0.6", OWNER), ("127.0.0.7", "127.0.0.7")):
            assert 201 == (await sign_in(inner, PASSWORD, address=through, headers=told))[0]
            sessions = (await server.ask("GET", "/sessions")).payload["sessions"]
            assert seen in {session["address"] for session in sessions}


async def test_a_shared_address_limits_less_than_an_account() -> None:
    """
    An address with many users needs more attempts than one account. Otherwise one person could lock out all.
    """
    assert ACCOUNT_BURST < SHARED_BURST


async def test_session_cookie_on_loopback_has_no_secure_attribute(tmp_path: Path) -> None:
    """
    On a loopback address, a session cookie has no `Secure` attribute. Such a request did not come through the TLS
    proxy, and a browser would not store a `Secure` cookie.
    """
    async with installation(tmp_path, is_behind_tls=True) as server:
        status, cookie = await sign_in(server.url, PASSWORD, address=OWNER, host="localhost")
        assert status == 201
        assert cookie.startswith("tollhouse=")
        assert "Secure" not in cookie
