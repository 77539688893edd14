"""
A receiver on the internet for platforms that export by themselves: TLS, a header of the sender's choice for the
key, addresses from which a key may be used, and the test of an export.
"""

from __future__ import annotations

import gzip
import json
import logging
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import grpc
import orjson
import pytest

from gateway.configuration.server import ServerSettings
from gateway.core.paths import OPERATOR_API
from gateway.http.admission import SINGLE
from gateway.service.app import TollhouseApp
from spool.registry.scopes import ENROLL, SEND_AI_TELEMETRY
from tests.gateway.http import raw
from tests.gateway.normalise.otlp.payloads import in_json, in_protobuf, span, traces
from tests.integration.certificates import Certificates
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.payloads import JSON, PROTOBUF, json_span, json_traces
from tests.integration.receivers.test_otlp_grpc import Calling
from tests.rounds import part

HEADER = "X-Tollhouse-Key"
SCOPE = "com.anthropic.claude-platform"
FAR = "198.51.100.7"


def call() -> bytes:
    return json_traces(json_span())


def exported(*spans: dict[str, Any]) -> dict[str, Any]:
    return traces(*spans, scope=SCOPE, resource={"service.name": "claude-platform"})


def request_span(number: int) -> dict[str, Any]:
    stated = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.response.id": f"msg_{number}",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
    }
    return span(number, stated, name="anthropic.messages.create", kind=2)


TEST = exported(span(9, {}, name="anthropic.test", kind=1))


async def operator(serving: Serving, path: str) -> Any:
    """Read an answer of the operator API over the operator socket."""
    connector = aiohttp.UnixConnector(str(serving.app.config.data_dir / "operator.sock"))
    async with (
        aiohttp.ClientSession(connector=connector) as client,
        client.get(
            f"http://localhost{OPERATOR_API}{path}", headers={"X-Tollhouse-As": quote("root@example.com")}
        ) as answer,
    ):
        return await answer.json()


def tls(certificates: Certificates) -> dict[str, Path]:
    files = certificates.server
    return {name: files[name] for name in ("tls_cert_file", "tls_key_file")}


# --- The key in a header of the sender's choice ---------------------------------------------------------------


async def test_an_export_under_tls_with_its_own_header_is_counted(
    serve: Serve, certificates: Certificates
) -> None:
    """
    Protobuf and JSON are accepted, with and without gzip. A proxy in front may use Authorization for itself.
    """
    serving = await serve(key_headers=(HEADER,), **tls(certificates))
    assert serving.url.startswith("https://")
    number = 0
    async with aiohttp.ClientSession() as client:
        for encode, media_type in ((in_protobuf, PROTOBUF), (in_json, JSON)):
            for coding in ({}, {"Content-Encoding": "gzip"}):
                number += 1
                body = encode(exported(request_span(number)))
                headers = {
                    HEADER.lower(): serving.key,
                    "Authorization": "Basic cHJveHk6c2VjcmV0",
                    "Content-Type": media_type,
                    **coding,
                }
                sent = gzip.compress(body) if coding else body
                async with client.post(
                    serving.url + "/v1/traces", data=sent, headers=headers, ssl=certificates.anonymous()
                ) as answer:
                    assert answer.status == 200
    found = [(record.source, record.sender_key) for record in await serving.records()]
    assert [("claude_platform", "sender")] * 4 == found


async def test_no_header_but_authorization_holds_a_key_unless_it_is_set(serve: Serve) -> None:
    plain, set_up = await serve(), await serve(key_headers=(HEADER, "X-Other"))
    for serving, expected in ((plain, 401), (set_up, 200)):
        answer = await serving.send("/v1/traces", call(), key=None, headers={HEADER: serving.key})
        assert expected == answer.status
        assert 200 == (await serving.send("/v1/traces", call())).status
    other = await set_up.send("/v1/traces", call(), headers={"X-Other": "th_wrong"})
    assert 401 == other.status, "a wrong key in the header must not fall back to Authorization"


@pytest.mark.proves("A header with a key opens more than telemetry, or hides a second key")
async def test_hostile_headers_are_refused_without_a_trace_of_the_key(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Hostile headers for the key (two keys, a repeated header, a prefix, odd bytes or no value) get 400 or 401, never
    500, and no trace of the key is left.
    """
    caplog.set_level(logging.DEBUG)
    serving = await serve(key_headers=(HEADER, "X-Other"))
    key, media_type = serving.key, f"Content-Type: {JSON}"
    for lines, expected in (
        ((f"{HEADER}: {key}", f"{HEADER.lower()}: {key}"), 400),
        ((f"{HEADER}: {key}", f"X-Other: {key}"), 400),
        ((f"{HEADER}: Bearer {key}",), 401),
        ((f"{HEADER}:", f"Authorization: {key}"), 401),
        ((f"{HEADER}: {key[:-1]}", f"Authorization: {key}"), 401),
        ((f"{HEADER}: {key} {key}",), 401),
        ((f"{HEADER}: {'k' * 4096}",), 401),
        (("Cookie: x=1", f"X-Forwarded-For: {key}"), 401),
    ):
        answer = raw.parsed(await raw.talk(serving.port, raw.post("/v1/traces", call(), media_type, *lines)))
        assert expected == answer.status, lines
        assert key.encode() not in answer.body
    for odd in (b"\xff\xfe", "schlüssel".encode(), b"\xc3"):
        head = raw.post("/v1/traces", call(), media_type, f"{HEADER}: ODD").replace(b"ODD", odd)
        assert raw.parsed(await raw.talk(serving.port, head)).status in (400, 401)
    assert [] == await serving.records()
    assert not any(key in record.getMessage() or key in str(vars(record)) for record in caplog.records)


@pytest.mark.proves("A header with a key opens more than telemetry, or hides a second key")
async def test_the_header_opens_only_addresses_for_telemetry(serve: Serve) -> None:
    """
    The configured header for keys is accepted only at addresses for telemetry, on a shared and on a separate
    listener. Neither the API for keys nor the operator API accepts it.
    """
    shared = await serve(key_headers=(HEADER,))
    apart = await serve(key_headers=(HEADER,), operator_listen="127.0.0.1:0")
    for serving in (shared, apart):
        for path in ("/v2/insights", "/mcp", f"{OPERATOR_API}/keys"):
            headers = {HEADER: serving.key}
            answer = await serving.send(path, b"", method="GET", key=None, headers=headers, content_type=None)
            assert answer.status in (401, 403, 404, 405), (path, answer.status)
    async with apart.client.get(
        f"{apart.app.operator_url}{OPERATOR_API}/keys", headers={HEADER: apart.key}
    ) as refused:
        assert 401 == refused.status
    async with apart.client.post(
        f"{apart.app.operator_url}/v1/traces", data=call(), headers={HEADER: apart.key, "Content-Type": JSON}
    ) as unknown:
        assert 404 == unknown.status
    assert 404 == (await apart.send(f"{OPERATOR_API}/keys", b"", method="GET", content_type=None)).status


async def test_grpc_reads_the_header_as_well(serve: Serve) -> None:
    serving = await serve(grpc_listen="127.0.0.1:0", key_headers=(HEADER,))
    body = in_protobuf(exported(request_span(1)))
    name = HEADER.lower()
    async with grpc.aio.insecure_channel(serving.app.grpc_address) as channel:
        calling = Calling(serving, channel)
        reply = await calling.export(body, metadata=((name, serving.key),))
        assert grpc.StatusCode.OK == reply.code
        reply = await calling.export(body, metadata=((name, serving.key), (name, serving.key)))
        assert grpc.StatusCode.INVALID_ARGUMENT == reply.code
        # a wrong value in the configured header is refused, and the server never falls back to Authorization
        for value in ("", "th_wrong"):
            both = ((name, value), ("authorization", serving.key))
            assert grpc.StatusCode.UNAUTHENTICATED == (await calling.export(body, metadata=both)).code


async def test_a_reload_applies_to_open_connections(serve: Serve) -> None:
    """
    A reload applies to open connections: if the header or the allowed addresses change, a connection whose head was
    already checked is checked again.
    """
    serving = await serve(key_headers=(HEADER,))
    access = serving.app.services.operators.senders.access
    settings = serving.app.config.server

    async def status() -> int:
        return (await serving.send("/v1/traces", call(), key=None, headers={HEADER: serving.key})).status

    assert [200] * 3 == [await status() for _ in range(3)]
    access.configure(replace(settings, key_headers=()), None)
    assert 401 == await status()
    access.configure(replace(settings, key_addresses={"sender": (FAR,)}), None)
    assert 403 == await status()
    access.configure(settings, None)
    assert 200 == await status()


# --- Addresses from which a key may be used -------------------------------------------------------------------


@pytest.mark.proves("A platform's key is stolen and used from elsewhere")
@pytest.mark.parametrize(
    ("networks", "expected"),
    [
        (("127.0.0.1",), 200),
        (("127.0.0.0/8", FAR), 200),
        (("::ffff:127.0.0.0/104",), 200),
        ((FAR,), 403),
        (("127.0.0.2",), 403),
        (("::1",), 403),
    ],
)
async def test_a_key_is_accepted_only_from_its_addresses(
    serve: Serve, networks: tuple[str, ...], expected: int
) -> None:
    serving = await serve(key_addresses={"sender": networks})
    other = await serving.make_key("other sender", use_cases=[SEND_AI_TELEMETRY])
    answer = await serving.send("/v1/traces", call())
    assert expected == answer.status
    if expected == 403:
        assert b"server.key_addresses" in answer.body
        assert not any(name.encode() in answer.body for name in networks)
    assert 200 == (await serving.send("/v1/traces", call(), key=other)).status
    assert (1 + (expected == 200)) == len(await serving.records())


async def test_a_refusal_is_counted_and_logged_with_the_address(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """
    If a key is used from an address that is not allowed, the refusal is counted and logged with the address. The
    body is not read, and the key does not count as used.
    """
    serving = await serve(key_addresses={"sender": (FAR,)})
    with caplog.at_level(logging.WARNING):
        assert 403 == (await serving.send("/v1/traces", b"no json")).status
    [line] = [record for record in caplog.records if getattr(record, "action", "") == "request_refused"]
    assert ("address_not_allowed", "127.0.0.1") == (vars(line)["type"], vars(line)["address"])
    text = await (await serving.client.get(serving.app.operator_url + "/metrics")).text()
    assert 'type="address_not_allowed"} 1.0' in text
    shown = (await operator(serving, "/keys/sender"))["key"]
    assert ("Not In Use", [FAR]) == (shown["last_accessed"], shown["allowed_addresses"])


def has_ipv6() -> bool:
    with closing(socket.socket(socket.AF_INET6)) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(
    ("networks", "from_v4", "from_v6"),
    [
        (("127.0.0.1",), True, False),
        (("::1",), False, True),
        (("198.51.100.0/24", "2001:db8::/32"), False, False),
    ],
)
async def test_ipv6_listeners_see_the_same_addresses(
    serve: Serve, networks: tuple[str, ...], from_v4: bool, from_v6: bool
) -> None:
    """On a listener for both families, an IPv4 sender has a mapped address, such as ::ffff:127.0.0.1."""
    serving = await serve(listen="[::1]:0", grpc_listen="[::]:0", key_addresses={"sender": networks})
    async with serving.client.post(
        f"http://[::1]:{serving.port}/v1/traces",
        data=call(),
        headers={"Authorization": serving.key, "Content-Type": JSON},
    ) as answer:
        assert from_v6 == (answer.status == 200)
    port = serving.app.grpc_address.rpartition(":")[2]
    for host, is_accepted in (("127.0.0.1", from_v4), ("[::1]", from_v6)):
        async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
            reply = await Calling(serving, channel).export(b"")
        assert (grpc.StatusCode.OK if is_accepted else grpc.StatusCode.PERMISSION_DENIED) == reply.code


@pytest.mark.proves("A sender claims an allowed address")
@pytest.mark.parametrize(
    ("proxies", "forwarded", "expected"),
    part(
        [
            ((), FAR, 403),  # if no proxy is trusted, anybody could send this header, so it is ignored
            ((), f"{FAR}, 127.0.0.1", 403),
            (("127.0.0.1",), FAR, 200),
            (("127.0.0.1",), f"[{FAR}]", 200),
            (("127.0.0.1",), f"::ffff:{FAR}", 200),
            (("127.0.0.1",), f"203.0.113.9, {FAR}", 200),
            # the sender itself wrote the first address, so it does not count
            (("127.0.0.1",), f"{FAR}, 203.0.113.9", 403),
            (("127.0.0.1",), f"{FAR}, 127.0.0.1", 200),
            (("127.0.0.1",), f"{FAR}, nonsense", 403),
            (("127.0.0.1",), "", 403),
            (("127.0.0.1",), None, 403),  # the proxy states no address of the sender
            (("10.0.0.0/8",), FAR, 403),
        ],
        every=2,
    ),
)
async def test_a_proxy_states_the_address_only_if_it_is_trusted(
    serve: Serve, proxies: tuple[str, ...], forwarded: str | None, expected: int
) -> None:
    serving = await serve(
        trusted_proxies=proxies, key_addresses={"sender": (FAR,)}, grpc_listen="127.0.0.1:0"
    )
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
    assert expected == (await serving.send("/v1/traces", call(), headers=headers)).status
    headers |= {"Forwarded": f"for={FAR}", "X-Real-IP": FAR, "X-Forwarded-Host": FAR}
    assert expected == (await serving.send("/v1/traces", call(), headers=headers)).status
    metadata = (("authorization", serving.key), *((name.lower(), value) for name, value in headers.items()))
    async with grpc.aio.insecure_channel(serving.app.grpc_address) as channel:
        reply = await Calling(serving, channel).export(b"", metadata=metadata)
    refused = expected == 403
    assert (grpc.StatusCode.PERMISSION_DENIED if refused else grpc.StatusCode.OK) == reply.code


@pytest.mark.proves("A platform's key is stolen and used from elsewhere")
async def test_every_use_of_a_key_is_restricted(serve: Serve) -> None:
    """
    Every use of a key is restricted by its addresses: patterns, keys of devices and the API for keys follow the
    same rule. An exact name takes precedence.
    """
    serving = await serve(key_addresses={"*": (FAR,), "open *": ("127.0.0.0/8",), "open but": (FAR,)})
    statuses: dict[str, int] = {}
    for name in ("closed", "open door", "open but"):
        key = await serving.make_key(name, use_cases=[SEND_AI_TELEMETRY])
        statuses[name] = (await serving.send("/v1/traces", call(), key=key)).status
    assert {"closed": 403, "open door": 200, "open but": 403} == statuses
    fleet = await serving.make_key("open fleet", scopes=[ENROLL])
    enrolled = orjson.dumps({"device_id": "laptop-1", "want_key": True})
    answer = await serving.send("/v1/ai-control-plane/enroll", enrolled, key=fleet)
    device = json.loads(answer.body)["key"]
    assert 403 == (await serving.send("/v1/traces", call(), key=device)).status


# --- The test of an export ------------------------------------------------------------------------------------


@pytest.mark.parametrize("media_type", [JSON, PROTOBUF])
async def test_a_test_span_is_answered_shown_and_not_counted(
    serve: Serve, media_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    serving = await serve()
    assert "last_test" not in (await operator(serving, "/keys/sender"))["key"]
    body = in_json(TEST) if media_type == JSON else in_protobuf(TEST)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            answer = await serving.send("/v1/traces", body, media_type)
            assert (200, b"{}" if media_type == JSON else b"") == (answer.status, answer.body)
    assert [] == await serving.records()
    assert 1 == [getattr(record, "action", "") for record in caplog.records].count("export_test")
    listed = (await operator(serving, "/keys?name=sender"))["keys"]
    assert listed[0]["last_test"] == (await operator(serving, "/keys/sender"))["key"]["last_test"]
    [terms] = [
        row for row in (await operator(serving, "/status"))["topics"] if row["topic"] == "ai-telemetry"
    ]
    assert 3 == terms["ignored.test_span"]


async def test_the_time_of_a_test_survives_a_restart(serve: Serve) -> None:
    """
    The time of a test export survives a restart. Under another key it is not shown, and the time of a deleted key
    is deleted as well.
    """
    serving = await serve()
    old = await serving.make_key("old", use_cases=[SEND_AI_TELEMETRY])
    for key in (serving.key, old):
        await serving.send("/v1/traces", in_json(TEST), key=key)
    before = (await operator(serving, "/keys/sender"))["key"]["last_test"]
    registry = serving.app.services.storage.registry
    assert registry is not None
    await registry.keys.delete("old", confirm="old", actor=ACTOR)
    await serving.app.stop()
    again = TollhouseApp(serving.app.config, version="0")
    await again.start()
    try:
        restarted = Serving(app=again, key=serving.key, client=serving.client)
        assert before == (await operator(restarted, "/keys/sender"))["key"]["last_test"]
        found = again.services.storage.registry
        assert found is not None
        assert 1 == len(await found.export_tests.all())
    finally:
        await again.stop()


async def test_calls_sent_with_a_test_span_count(serve: Serve) -> None:
    serving = await serve()
    body = in_json(exported(request_span(1), span(9, {}, name="anthropic.test", kind=1)))
    assert 200 == (await serving.send("/v1/traces", body)).status
    assert 1 == len(await serving.records())
    assert "last_test" in (await operator(serving, "/keys/sender"))["key"]


# --- Settings -------------------------------------------------------------------------------------------------


def problems(**server: Any) -> list[str]:
    return list(ServerSettings(**server).problems("server"))


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        ("X-Tollhouse-Key", True),
        ("x_api_key", True),
        ("X-Api-Key", True),
        ("k" * 128, True),
        ("k" * 129, False),
        ("", False),
        ("X Key", False),
        ("X-Key:", False),
        ("Schlüssel", False),
        ("Cookie", False),
        ("Authorization", False),
        ("X-Forwarded-For", False),
        ("x_forwarded_for", False),
        ("Content-Type", False),
        ("Proxy-Authorization", False),
    ],
)
def test_only_a_free_header_may_hold_a_key(name: str, is_good: bool) -> None:
    assert is_good == (not problems(key_headers=(name,)))
    assert is_good or "server.key_headers[0]" in problems(key_headers=(name,))[0]


def test_no_header_that_decides_something_else_may_hold_a_key() -> None:
    """
    A header that decides something else may not be configured for keys. The only exceptions are headers in which
    other products send their key.
    """
    free = {name for name in SINGLE if not problems(key_headers=(name,))}
    assert {"x-api-key", "x-amz-firehose-access-key"} == free


@pytest.mark.parametrize(
    "networks", [(), ("everywhere",), ("0.0.0.0/0",), ("::/0",), ("::ffff:0:0/96",), ("10.0.0.0/33",), ("",)]
)
def test_an_entry_names_some_addresses(networks: tuple[str, ...]) -> None:
    """An entry of allowed addresses that matches none or all is a mistake, which the start reports."""
    assert ["server.key_addresses.claude"] == [
        problem.partition(" ")[0] for problem in problems(key_addresses={"claude": networks})
    ]


async def test_names_that_match_no_key_are_shown(serve: Serve) -> None:
    """
    Names in the settings of addresses that match no key are shown, because a misspelled name would restrict
    nothing. Names of devices are not listed, because device keys are not.
    """
    names = {"sender": (FAR,), "sen*": (FAR,), "sendr": (FAR,), "device *": (FAR,)}
    serving = await serve(key_addresses=names)
    assert ["sendr"] == (await operator(serving, "/keys"))["unknown_names"]
    await serving.make_key("sendr", use_cases=[SEND_AI_TELEMETRY])
    assert "unknown_names" not in await operator(serving, "/keys")
