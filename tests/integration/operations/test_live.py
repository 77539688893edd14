"""Event streams of the operator API: their content, their readers, and their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.core.paths import OPERATOR_API
from gateway.http import event_streams
from gateway.http.event_streams import EventStreams
from spool.deliveries.values import RouteSpec
from spool.record import AI_TELEMETRY
from spool.registry.documents import replace_fields
from spool.registry.operators import Actor
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.roles import FULL, NewRole, RoleLimits
from tests.integration.conftest import ACTOR, Serve
from tests.integration.operations.server import INGEST, OperatorServer, operator_server
from tests.integration.operations.streams import listening, signed_in
from tests.spool.contract.examples import add, call
from tests.waiting import limited

ROUTE = "archive/ai-telemetry"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "TICK_S", 0.01)
    monkeypatch.setattr(event_streams, "ALLOWED_S", 0.05)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, event_streams=EventStreams(2)) as server:
        await server.services.spool.deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY)])
        yield server


async def test_it_says_what_changed_and_nothing_more(server: OperatorServer) -> None:
    """A new record, a route, a rejected record and a key each name the lists that show them."""
    async with listening(server.url, await signed_in(server)) as stream:
        assert "text/event-stream" == stream.response.content_type
        assert stream.response.headers["Cache-Control"] == "no-store"
        assert stream.response.headers["X-Accel-Buffering"] == "no"
        await add(server.services.spool.log, call(1))
        assert ("changed", {"what": ["records", "ledger", "routes"]}) == await stream.event()
        deliveries = server.services.spool.deliveries
        await deliveries.set_route_state(ROUTE, "parked", "403")
        assert ("changed", {"what": ["routes"]}) == await stream.event()
        delivery = await deliveries.take_due_delivery(ROUTE, now=server.clock.now(), max_records=1)
        assert delivery is not None
        assert ("changed", {"what": ["routes"]}) == await stream.event()
        await deliveries.set_aside(delivery, error="no such model", status="400")
        assert ("changed", {"what": ["routes", "dead"]}) == await stream.event()
        await server.create("search team", scopes=[INGEST])
        money = [
            "views",
            "annotations",
            "prices",
            "budgets",
            "plans",
            "contracts",
            "recommendations",
            "notifications",
            "statements",
        ]  # a viewer may not see roles, so the stream does not report them
        assert ("changed", {"what": ["insights", *money, "keys", "connections"]}) == await stream.event()


async def test_a_stream_more_than_the_limit_is_refused(server: OperatorServer) -> None:
    """
    `server.max_event_streams` streams of different people are open. The next one is refused with the name of
    the setting, until one closes.
    """
    cookie = await signed_in(server)
    async with listening(server.url, await signed_in(server)):
        async with listening(server.url, await signed_in(server)):
            answer = await server.over_http("GET", "/changes", headers={"Cookie": cookie})
            assert (503, "too_many_event_streams") == answer.error[:2]
            assert "5" == answer.headers["Retry-After"]
            assert "server.max_event_streams" in answer.error[2]
        async with limited():
            while (await server.over_http("GET", "/changes", headers={"Cookie": cookie})).status != 200:
                pass


@pytest.mark.proves("event streams of one person")
async def test_one_person_leaves_streams_to_others(server: OperatorServer) -> None:
    """
    If one person opens too many pages, their oldest stream ends with an instruction to reconnect late. An
    administrator can still connect.
    """
    server.services.installation.event_streams = EventStreams(4, 3)
    viewer, administrator = await signed_in(server), await signed_in(server)
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(listening(server.url, viewer)) for _ in range(52)]
        for old in streams[:-3]:
            assert b"retry: 60000" in [line async for line in old.lines()]
        assert 3 == server.services.installation.event_streams.count
        heard = [await stack.enter_async_context(listening(server.url, administrator)) for _ in range(2)]
        assert [200, 200] == [
            stream.response.status for stream in heard
        ]  # the server ended the viewer's oldest streams to make room for these
        await add(server.services.spool.log, call(1))
        for stream in (*heard, *streams[-2:]):
            assert "changed" == (await stream.event())[0]


@pytest.mark.proves("A removed operator stays signed in")
async def test_it_ends_with_the_session(server: OperatorServer) -> None:
    """The stream ends with a sign-out or idle timeout. Listening does not keep a session alive."""
    cookie = await signed_in(server)
    async with listening(server.url, cookie) as stream:
        [session] = (await server.ask("GET", "/sessions")).payload["sessions"]
        await server.ask("DELETE", f"/sessions/{session['id']}")
        assert await stream.ends()
    async with listening(server.url, await signed_in(server)) as stream:
        server.clock.move(3601)
        assert await stream.ends()


@pytest.mark.proves("A withdrawn right stays in effect")
async def test_it_ends_when_rights_change(server: OperatorServer) -> None:
    """The stream ends when a role takes rights away. Other people's roles do not end it."""
    roles, actor = server.registry.roles, Actor("root", "here")
    account = {"email": "ada@example.com", "password": "correct horse battery", "role": "none"}
    await server.ask("POST", "/operators", account)
    signed = await server.over_http(
        "POST", "/sessions", {name: account[name] for name in ("email", "password")}
    )
    draft = NewRole(
        name="Costs", data_access=FULL, permission_sets=(VIEW_COSTS,), members=("ada@example.com",)
    )
    role = await roles.create(draft, known_dimensions=(), limits=RoleLimits(), actor=actor)
    async with listening(server.url, f"tollhouse={signed.cookies['tollhouse'].value}") as stream:
        other = replace_fields(draft, name="Others", members=())
        await roles.create(other, known_dimensions=(), limits=RoleLimits(), actor=actor)
        assert "changed" == (await stream.event())[0]
        await roles.change(role.id, {"members": ()}, known_dimensions=(), limits=RoleLimits(), actor=actor)
        assert await stream.ends()


async def test_a_silent_stream_is_kept_open(server: OperatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment is sent from time to time, because proxies close silent connections."""
    monkeypatch.setattr(event_streams, "COMMENT_S", 0.05)
    async with listening(server.url, await signed_in(server)) as stream:
        assert [b"\n", b":\n", b"\n", b":\n"] == [await stream.line() for _ in range(4)]


async def test_no_event_follows_the_loss_of_a_right(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a right is taken, a stream sends no further event, although the next regular check is far away."""
    monkeypatch.setattr(event_streams, "ALLOWED_S", 10**9)
    async with listening(server.url, await signed_in(server)) as stream:
        [session] = (await server.ask("GET", "/sessions")).payload["sessions"]
        await server.ask("DELETE", f"/sessions/{session['id']}")
        await add(server.services.spool.log, call(1))
        assert await stream.ends()


async def test_a_stop_ends_every_stream(serve: Serve) -> None:
    """
    A stop of the server ends every event stream at once, so that streams are not cut off only after the drain time.
    """
    serving = await serve()
    operators = serving.app.services.operators
    link = await operators.installation.require_registry().operators.create_sign_in_link(
        role="viewer", actor=ACTOR
    )
    async with serving.client.post(f"{serving.url}{OPERATOR_API}/sessions", json={"link": link}) as answer:
        cookie = f"tollhouse={answer.cookies['tollhouse'].value}"
    async with listening(serving.url, cookie) as stream:
        assert 1 == operators.installation.event_streams.count
        await serving.app.stop()
        assert await stream.ends()  # if the stream was cut off, this raises an error


async def test_page_closed_before_its_answer_causes_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """A page that closes before its answer causes no server error and no log line."""
    streams, ended = EventStreams(2), asyncio.Event()

    async def nothing() -> list[bytes]:
        return []

    async def may_listen() -> bool:
        return True

    async def handler(request: web.Request) -> web.StreamResponse:
        while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
        try:
            return await streams.serve_event_stream(request, nothing, may_listen, person="ada")
        finally:
            ended.set()

    app = web.Application()
    app.router.add_get("/", handler)
    async with TestServer(app) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        writer.transport.abort()
        await ended.wait()
    assert streams.count == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
