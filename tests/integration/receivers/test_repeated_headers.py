"""On every listener, a header on which a decision depends may appear only once."""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp
import grpc
import pytest

from gateway.http.admission import SINGLE
from tests.gateway.http import raw
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import JSON, traces
from tests.integration.receivers.test_otlp_grpc import Calling

PATHS = ("/v1/traces", "/v1/events", "/v1/ai-telemetry/litellm", "/api/public/ingestion", "/mcp", "/v2/insights",
         "/console/api/keys", "/metrics", "/livez")  # fmt: skip


def request(path: str, names: tuple[str, str], values: tuple[str, str], *more: str) -> bytes:
    body = traces(JSON)
    own = {"Host": "t", "Content-Length": str(len(body)), "Content-Type": JSON}
    wanted = {name.lower() for name in names}
    lines = [f"{name}: {value}" for name, value in own.items() if name.lower() not in wanted]
    lines += [f"{name}: {value}" for name, value in zip(names, values, strict=True)]
    head = "\r\n".join([f"POST {path} HTTP/1.1", *lines, *more, "Connection: close", "", ""])
    return head.encode() + body


@pytest.mark.proves("Two programs on the path read different headers of one request")
async def test_two_keys_are_no_key(serving: Serving) -> None:
    """
    A request with two keys gets a 400 on every address, whichever key is valid and whatever the case of
    the header names.
    """
    for path in PATHS:
        for values in ((serving.key, "th_other"), ("th_other", serving.key), (serving.key, serving.key)):
            sent = request(path, ("Authorization", "authorization"), values)
            answer = raw.parsed(await raw.talk(serving.port, sent))
            assert 400 == answer.status, (path, values, answer)
        assert [] == await serving.records(), path


X: Sequence[str] = sorted(SINGLE)


@pytest.mark.proves("Two programs on the path read different headers of one request")
async def test_repeated_header_that_is_read_is_refused(serving: Serving) -> None:
    """
    Every header that Tollhouse reads may appear only once. For some of them, the HTTP parser itself
    refuses the repetition.
    """
    for name in X:
        given = {
            "authorization": serving.key, "host": "t", "content-length": str(len(traces(JSON))), "content-type": JSON,
            "content-encoding": "identity", "transfer-encoding": "chunked", "x-device-id": "laptop-1",
        }  # fmt: skip
        key = () if name == "authorization" else (f"Authorization: {serving.key}",)
        sent = request("/v1/traces", (name, name.title()), (given.get(name, "1"),) * 2, *key)
        answer = raw.parsed(await raw.talk(serving.port, sent))
        assert 400 == answer.status, answer
        assert [] == await serving.records(), name


async def test_lists_may_come_in_parts(serving: Serving) -> None:
    """Headers of proxies and lists of accepted types may be repeated, because no decision depends on them."""
    lines = ("Accept: a/b", "Accept: c/d", "Via: 1.1 one", "Via: 1.1 two", "X-Forwarded-For: 10.0.0.1",
             "X-Forwarded-For: 10.0.0.2", "Cookie: a=1", "Cookie: b=2", f"Authorization: {serving.key}")  # fmt: skip
    answer = raw.parsed(
        await raw.talk(serving.port, raw.post("/v1/traces", traces(JSON), f"Content-Type: {JSON}", *lines))
    )
    assert 200 == answer.status


async def test_the_operators_listeners_refuse_them(serve: Serve) -> None:
    """The operators' listeners refuse repeated headers as well, even on addresses of their own."""
    serving = await serve(operator_listen="127.0.0.1:0", metrics_listen="127.0.0.1:0")
    for url in (serving.app.url, serving.app.operator_url, serving.app.metrics_url):
        sent = request("/readyz", ("X-CSRF-Token", "x-csrf-token"), ("a", "b"))
        assert 400 == raw.parsed(await raw.talk(int(url.rpartition(":")[2]), sent)).status


async def test_the_operators_socket_refuses_two_names(serving: Serving) -> None:
    connector = aiohttp.UnixConnector(str(serving.app.config.data_dir / "operator.sock"))
    headers = [("X-Tollhouse-As", "ada@example.com"), ("X-Tollhouse-As", "eve@example.com")]
    async with (
        aiohttp.ClientSession(connector=connector) as client,
        client.get("http://localhost/console/api/keys", headers=headers) as answer,
    ):
        assert 400 == answer.status


@pytest.mark.parametrize("name", ["authorization", "x-device-id"])
async def test_grpc_refuses_them(serve: Serve, name: str) -> None:
    serving = await serve(grpc_listen="127.0.0.1:0")
    key = ("authorization", serving.key)
    metadata = (key, (name, serving.key if name == "authorization" else "a"), (name, "b"))
    async with grpc.aio.insecure_channel(serving.app.grpc_address) as channel:
        reply = await Calling(serving, channel).export(b"", metadata=metadata)
    assert grpc.StatusCode.INVALID_ARGUMENT == reply.code
