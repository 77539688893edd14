"""Paths that the listener finds by their text get the same answers as from aiohttp."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib.metadata import version
from typing import NamedTuple

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer, make_mocked_request

from gateway.http import bodies
from gateway.http.listening.listener import Listener
from gateway.http.listening.plain_requests import Handle, handle_by_exact_path
from gateway.service.addresses.areas import AddressArea, AddressAreaResource, AddressAreaRoutes
from tests.acceptance.conftest import ROOT
from tests.gateway.http import raw

NAME = web.AppKey("NAME", str)


def application() -> web.Application:
    """
    Create routes by text, pattern, method and sub-application, with one header that every response gets.
    """

    async def tell(request: web.Request) -> web.Response:
        route = request.match_info.route.resource
        said = (
            f"{request.method} {route and route.canonical} {dict(request.match_info)} {dict(request.query)}"
        )
        return web.Response(text=f"{said} {request.app[NAME]} {len(await request.read())}")

    async def fail(_: web.Request) -> web.Response:
        raise web.HTTPGone(text="gone")

    async def mark(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Marked"] = request.path

    made, inner = web.Application(), web.Application()
    made[NAME], inner[NAME] = "outer", "inner"
    for path in ("/", "/v1/traces", "/v1/gone", "/v1/a b", "/v1/{name}", "/v1/traces/{name}", "/api/mine"):
        made.router.add_route(
            "*", path, fail if path == "/v1/gone" else tell, expect_handler=bodies.delay_http_100_continue
        )
    made.router.add_get("/only/get", tell)
    inner.router.add_route("*", "/mine", tell)
    inner.router.add_route("*", "/other", tell)
    made.add_subapp("/api", inner)
    made.router.add_route("*", "/{tail:.*}", tell)
    made.on_response_prepare.append(mark)
    return made


class Ports(NamedTuple):
    ours: int
    aiohttps: int


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ports() -> AsyncIterator[Ports]:
    """Serve the same application with the listener and with aiohttp's own server."""
    listener, plain = Listener(application()), TestServer(application())
    await listener.start("127.0.0.1:0")
    await plain.start_server()
    assert plain.port is not None
    yield Ports(listener.port, plain.port)
    await plain.close()
    await listener.stop()


METHODS = ("GET", "POST", "HEAD", "OPTIONS", "DELETE", "PATCH")
PATHS = (
    "/",
    "/v1/traces",
    "/v1/traces/",
    "//v1/traces",
    "/v1//traces",
    "/v1/traces?",
    "/v1/traces?a=1&b=%20",
    "/v1/traces#part",
    "/v1/trace%73",
    "/v1%2Ftraces",
    "/v1/./traces",
    "/v1/../v1/traces",
    "/v1/Traces",
    "/v1/gone",
    "/v1/a%20b",
    "/v1/tracesx",
    "/v1/traces/x",
    "/only/get",
    "/api/mine",
    "/api/other",
    "/api/none",
    "/nowhere/at/all",
    "http://elsewhere/v1/traces",
)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("method", METHODS)
async def test_every_path_is_answered_as_by_aiohttp(ports: Ports, method: str) -> None:
    """Status, headers and body are equal for exact, pattern, escaped and doubled paths, with every method."""
    for path in PATHS:
        request = raw.post(path, b"four").replace(b"POST", method.encode(), 1)
        plain = await told(ports.aiohttps, request)
        for _ in range(2):  # two requests, because only the first one uses the router
            assert plain == await told(ports.ours, request), path


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("expected", ["100-continue", "miracles"])
async def test_what_is_expected_is_answered_as_by_aiohttp(ports: Ports, expected: str) -> None:
    """A request with an Expect header is handled by the route's expect handler."""
    request = raw.post("/v1/traces", b"four", f"Expect: {expected}")
    assert await told(ports.aiohttps, request) == await told(ports.ours, request)


async def told(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    answer = raw.parsed(await raw.talk(port, request))
    return (
        answer.status,
        {name: value for name, value in answer.headers.items() if name != "date"},
        answer.body,
    )


async def test_middlewares_are_never_passed_by() -> None:
    """If an application has middlewares, it handles every request itself."""

    @web.middleware
    async def refuse(request: web.Request, handler: Handle) -> web.StreamResponse:
        return web.Response(status=418)

    async def take(_: web.Request) -> web.Response:
        return web.Response()

    made = web.Application(middlewares=[refuse])
    made.router.add_route("*", "/v1/traces", take)
    listener = Listener(made)
    await listener.start("127.0.0.1:0")
    try:
        assert 418 == raw.parsed(await raw.talk(listener.port, raw.post("/v1/traces", b""))).status
    finally:
        await listener.stop()


async def test_router_is_used_once_for_an_exact_path() -> None:
    """
    The router is used once for an exact path that accepts every method, and each time for any other path.
    """

    async def plain(_: web.Request) -> web.Response:
        return web.Response()

    asked: list[str] = []

    async def otherwise(request: web.Request) -> web.StreamResponse:
        asked.append(request.raw_path)
        match = await made.router.resolve(request)
        match.add_app(made)
        match.freeze()
        request._match_info = match
        return await match.handler(request)

    areas = AddressAreaRoutes(
        AddressArea(modules=("tests.gateway.http",), paths=("/area",)), lambda router: _add(router, plain)
    )
    made = web.Application()
    made.router.register_resource(AddressAreaResource("/area", areas))
    for path in ("/v1/traces", "/v1/{name}"):
        made.router.add_route("*", path, plain)
    made.router.add_get("/only/get", plain)
    made.freeze()
    handle = handle_by_exact_path(made, otherwise)
    paths = ("/v1/traces", "/area/plain", "/v1/other", "/only/get", "/v1/traces?a=1", "/nowhere")
    for path in paths * 2:
        with suppress(web.HTTPException):
            await handle(make_mocked_request("GET", path))
    assert [*paths, *paths[2:]] == asked


def _add(router: web.UrlDispatcher, handler: Handle) -> None:
    router.add_route("*", "/area/plain", handler)


def test_aiohttp_is_of_the_one_minor_release_whose_private_names_are_known() -> None:
    """The short way uses private names, which may change in any minor release. So only one is accepted."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [line for line in project["dependencies"] if line.startswith("aiohttp")]
    installed = version("aiohttp")
    major, minor = map(int, installed.split(".")[:2])
    message = (
        f"aiohttp {installed} is installed, but pyproject.toml requires {required}. "
        "gateway/http/listening/plain_requests.py uses private names of aiohttp: compare each of them with this "
        "release, run tests/gateway/http, and let pyproject.toml require this minor release."
    )
    assert [f"aiohttp>={major}.{minor},<{major}.{minor + 1}"] == required, message
