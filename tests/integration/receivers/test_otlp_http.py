"""OTLP over HTTP against a real server, one test for each rule of the protocol, in both encodings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from google.rpc.status_pb2 import Status

from gateway.configuration.server import ServerSettings
from spool.errors import SpoolFull, SpoolUnavailable
from spool.registry.scopes import PING
from tests.gateway.http import raw
from tests.integration.conftest import ON_ONE_SERVER, Answer, Serving
from tests.integration.payloads import (
    ENCODINGS,
    JSON,
    PROTOBUF,
    SIGNALS,
    START,
    json_span,
    json_traces,
    proto_span,
    proto_traces,
    traces,
)

ADDRESSES = [f"/v1/{signal}" for signal in SIGNALS]
both_encodings = pytest.mark.parametrize("encoding", ENCODINGS)
all_signals = pytest.mark.parametrize("path", ADDRESSES)


def status_of(answer: Answer) -> tuple[int, str]:
    """Return the google.rpc.Status of a refusal, decoded by its stated media type."""
    if answer.headers["Content-Type"] == PROTOBUF:
        said = Status.FromString(answer.body)
        return said.code, said.message
    read = json.loads(answer.body)
    return read["code"], read["message"]


def empty(encoding: str) -> bytes:
    return b"{}" if encoding == JSON else b""


async def test_the_defaults_are_the_protocols_ports_on_loopback() -> None:
    """The defaults are 4318 for HTTP and 4317 for gRPC, reachable only from this machine."""
    assert ServerSettings().listen == "127.0.0.1:4318"
    assert ServerSettings().grpc_listen == "127.0.0.1:4317"


@ON_ONE_SERVER
@all_signals
@both_encodings
async def test_every_signal_is_accepted_in_both_encodings(
    one_server: Serving, path: str, encoding: str
) -> None:
    """An empty request succeeds, and the answer to a full success is empty."""
    answer = await one_server.send(path, empty(encoding), encoding)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == encoding
    assert empty(encoding) == answer.body


@ON_ONE_SERVER
@both_encodings
async def test_profiles_are_accepted_and_dropped(one_server: Serving, encoding: str) -> None:
    """A sender that exports all signals gets no error for profiles, but it needs a key."""
    answer = await one_server.send("/v1development/profiles", empty(encoding), encoding)
    assert answer.status == 200
    assert empty(encoding) == answer.body
    assert (
        401 == (await one_server.send("/v1development/profiles", empty(encoding), encoding, key=None)).status
    )


NOWHERE: Sequence[str] = [
    "/",
    "/v1",
    "/v1/spans",
    "/v1/traces//",
    "/v1/traces/x",
    "/V1/TRACES",
    "//v1/traces",
    "/v1/traces%0A",
]


@ON_ONE_SERVER
async def test_other_addresses_are_404_and_never_a_redirect(one_server: Serving) -> None:
    """Other addresses answer 404 and never redirect, because a redirect would lose the body of a POST."""
    for path in NOWHERE:
        answer = await one_server.send(path, b"{}")
        assert 404 == answer.status, path
        assert "Location" not in answer.headers, path
        assert "not_found" == json.loads(answer.body)["error"]["type"], path


OTHER_METHODS: Sequence[str] = ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"]


@ON_ONE_SERVER
@all_signals
async def test_other_methods_are_405(one_server: Serving, path: str) -> None:
    """
    For other methods, the answer is a 405 that names the allowed ones. It comes before checks of media type,
    key and body.
    """
    for method in OTHER_METHODS:
        answer = await one_server.send(path, b"", "text/plain", method=method, key=None)
        assert answer.status == 405, method
        assert answer.headers["Allow"] == "POST", method


SAME_TYPES: Sequence[tuple[str, str]] = [
    ("Application/JSON; charset=utf-8", JSON),
    ("application/json;charset=UTF-8", JSON),
    ("APPLICATION/JSON", JSON),
    ("Application/X-Protobuf; proto=x", PROTOBUF),
]


@ON_ONE_SERVER
async def test_media_types_match_whatever_their_case_and_parameters(one_server: Serving) -> None:
    """A media type is compared without case and parameters. The answer has the plain media type."""
    for content_type, plain in SAME_TYPES:
        answer = await one_server.send("/v1/traces", traces(plain), content_type)
        assert answer.status == 200, content_type
        assert answer.headers["Content-Type"] == plain, content_type


OTHER_TYPES: Sequence[str | None] = [None, "text/plain", "application/protobuf", "", "json", ";;;"]


@ON_ONE_SERVER
async def test_other_media_types_are_415(one_server: Serving) -> None:
    """Any other media type gets a 415. The message lists the two accepted types."""
    for content_type in OTHER_TYPES:
        answer = await one_server.send("/v1/traces", b"{}", content_type)
        code, message = status_of(answer)
        assert answer.status == 415, content_type
        assert code == 2, content_type
        assert PROTOBUF in message, content_type
        assert JSON in message, content_type


async def test_the_order_of_checks(serving: Serving) -> None:
    """
    Requests are checked in this order: method, key, coding, type, size, body. Without a valid key, the answer
    reveals nothing about the request.
    """
    wrong = {"Content-Encoding": "br"}
    huge = serving.app.services.receivers.max_body_bytes + 1
    assert 405 == (await serving.send("/v1/traces", b"", None, method="GET", key=None, headers=wrong)).status
    assert 401 == (await serving.send("/v1/traces", b"x", "text/plain", key=None, headers=wrong)).status
    coded = await serving.send("/v1/traces", b"x", "text/plain", headers=wrong)
    assert coded.status == 415
    assert b"Content-Encoding" in coded.body
    assert 415 == (await serving.send("/v1/traces", b"x", "text/plain")).status
    for authorization, status in (("Authorization: th_wrong", 401), (f"Authorization: {serving.key}", 413)):
        head = ["POST /v1/traces HTTP/1.1", "Host: t", f"Content-Length: {huge}", f"Content-Type: {JSON}"]
        data = "\r\n".join([*head, "Expect: 100-continue", authorization, "", ""]).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.write(data)
        assert str(status) == (await reader.readline()).split()[1].decode()
        writer.close()


NO_REQUESTS: Sequence[bytes] = [
    b"",
    b"1234",
    b"[]",
    b"null",
    b'"x"',
    b"{}{}",
    b'{"resourceSpans":[]} x',
    b"{",
    b"\xff",
]


@ON_ONE_SERVER
@all_signals
async def test_json_that_is_no_request_is_400(one_server: Serving, path: str) -> None:
    """For JSON that is no request, the error has code 3, is JSON, and quotes no value of the body."""
    for body in NO_REQUESTS:
        answer = await one_server.send(path, body)
        code, message = status_of(answer)
        assert answer.status == 400, body
        assert code == 3, body
        assert answer.headers["Content-Type"] == JSON, body
        assert message, body
        assert len(message) <= 1000, body


BAD_PROTOBUF: Sequence[bytes] = [
    b"\xff\xff\xff",
    b"\x0a\x7f",
    b"garbage that is not protobuf",
    b'{"resourceSpans":[]}',
]


@all_signals
async def test_bad_protobuf_is_400(serving: Serving, path: str) -> None:
    """Garbage, truncated bytes, and JSON under the protobuf type are refused in protobuf."""
    for body in BAD_PROTOBUF:
        answer = await serving.send(path, body, PROTOBUF)
        assert answer.status == 400, body
        assert status_of(answer)[0] == 3, body
        assert answer.headers["Content-Type"] == PROTOBUF, body


@both_encodings
async def test_the_same_request_again_is_the_same_record(serving: Serving, encoding: str) -> None:
    """A repeat after a lost answer is a duplicate, and the sender gets the same answer."""
    body = traces(encoding)
    first, again = (
        await serving.send("/v1/traces", body, encoding),
        await serving.send("/v1/traces", body, encoding),
    )
    assert again.status == 200
    assert first.body == again.body
    assert "records=1; ignored=0; rejected=0" in again.headers["Tollhouse-Receipt"]
    assert 1 == len(await serving.records())


@both_encodings
async def test_a_partial_success_keeps_the_good_spans(serving: Serving, encoding: str) -> None:
    """In a partial success, bad items are counted and explained. In JSON, the count is text."""
    if encoding == JSON:
        body = json_traces(json_span(), json_span(tokens=-5), json_span())
    else:
        body = proto_traces(proto_span(), proto_span(tokens=-5), proto_span())
    answer = await serving.send("/v1/traces", body, encoding)
    assert 200 == answer.status
    if encoding == JSON:
        partial = json.loads(answer.body)["partialSuccess"]
        number, message = partial["rejectedSpans"], partial["errorMessage"]
    else:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

        said = ExportTraceServiceResponse.FromString(answer.body).partial_success
        number, message = str(said.rejected_spans), said.error_message
    assert "1" == number
    assert "implausible" in message
    assert "records=2; ignored=0; rejected=1" in answer.headers["Tollhouse-Receipt"]
    assert 2 == len(await serving.records())


async def test_spans_that_are_no_ai_calls_are_a_plain_success(serving: Serving) -> None:
    """A batch without GenAI data gets no warning. Its receipt counts ignored items."""
    span = json_span(
        attributes=[{"key": "http.request.method", "value": {"stringValue": "GET"}}], name="GET /"
    )
    answer = await serving.send("/v1/traces", json_traces(span))
    assert answer.status == 200
    assert answer.body == b"{}"
    assert "records=0; ignored=1; rejected=0; durability=fsync" in answer.headers["Tollhouse-Receipt"]


@both_encodings
@pytest.mark.parametrize(
    ("error", "status", "code", "wait"),
    [
        (SpoolFull("full", retry_after_s=7), 503, 14, "7"),
        (SpoolUnavailable("closing"), 503, 14, "1"),
        (ValueError("th_secret prompt"), 500, 2, None),
    ],
)
async def test_trouble_inside_is_retryable_unless_it_is_our_mistake(
    serving: Serving,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    encoding: str,
    error: Exception,
    status: int,
    code: int,
    wait: str | None,
) -> None:
    """
    A 503 with Retry-After is sent if a repeat can help. A 500 for an internal error reveals nothing
    about the request.
    """

    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(serving.app.services.receivers.intake, "store_outcome", fail)
    answer = await serving.send("/v1/traces", traces(encoding), encoding)
    assert answer.status == status
    assert status_of(answer)[0] == code
    assert answer.headers.get("Retry-After") == wait
    assert encoding == answer.headers["Content-Type"]
    assert "th_secret" not in str([vars(record) for record in caplog.records]) + answer.body.decode(
        errors="replace"
    )
    assert "Tollhouse-Receipt" not in answer.headers


BAD_KEYS: Sequence[str | None] = [None, "th_unknown", "thd_device_1_00", "Basic dTpw", " "]


@both_encodings
async def test_without_a_good_key_it_is_401(serving: Serving, encoding: str) -> None:
    """Without a valid key the answer is a 401, which is not retryable, and nothing is stored."""
    for key in BAD_KEYS:
        answer = await serving.send("/v1/traces", traces(encoding), encoding, key=key)
        assert answer.status == 401, key
        assert status_of(answer)[0] == 16, key
        assert "Retry-After" not in answer.headers, key
        assert [] == await serving.records(), key


@both_encodings
async def test_a_key_without_the_scope_is_403(serving: Serving, encoding: str) -> None:
    """For a key without the scope, the 403 names the missing scope and what grants it."""
    key = await serving.make_key("pinger", scopes=[PING])
    answer = await serving.send("/v1/traces", traces(encoding), encoding, key=key)
    code, message = status_of(answer)
    assert answer.status == 403
    assert code == 7
    assert "ai-telemetry-ingest:ingest-ai-telemetry" in message
    assert "Send AI Telemetry" in message


async def test_success_is_said_after_the_commit(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """No success is sent before the commit has finished."""
    intake = serving.app.services.receivers.intake
    take, commit = intake.store_outcome, asyncio.Event()

    async def slow(*arguments: Any) -> Any:
        await commit.wait()
        return await take(*arguments)

    monkeypatch.setattr(intake, "store_outcome", slow)
    sending = asyncio.create_task(serving.send("/v1/traces", traces(JSON)))
    done, _ = await asyncio.wait({sending}, timeout=0.2)
    assert not done
    commit.set()
    assert 200 == (await sending).status
    assert 1 == len(await serving.records())


async def test_the_receipt_opens_for_the_operator(serving: Serving) -> None:
    """The receipt's id reveals nothing to the sender. Only the operator can resolve it."""
    answer = await serving.send("/v1/traces", traces(JSON, 3))
    fields = dict(part.split("=", 1) for part in answer.headers["Tollhouse-Receipt"].split("; "))
    assert fields["records"] == "3"
    assert fields["durability"] == "fsync"
    assert await serving.app.services.storage.log.describe_receipt(fields["id"])


async def test_every_item_malformed_is_400(serving: Serving) -> None:
    """A request without any readable item is not a success."""
    answer = await serving.send("/v1/traces", json_traces(json_span(name=5), json_span(attributes="x")))
    assert answer.status == 400
    assert status_of(answer)[0] == 3


async def test_time_beyond_64_bit_nanoseconds_is_stored_as_no_time(serving: Serving) -> None:
    """
    A time beyond 64-bit nanoseconds never causes a 500, in a call or in a counter that the log has to remember.
    """
    never = str((1 << 64) - 1)
    span = json_span(startTimeUnixNano=never, endTimeUnixNano=never)
    counted = {"startTimeUnixNano": str(START), "timeUnixNano": never, "asInt": "5"}
    metric = {
        "name": "cline.tokens.output.total",
        "sum": {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": [counted]},
    }
    metrics = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    assert 200 == (await serving.send("/v1/traces", json_traces(span))).status
    assert 200 == (await serving.send("/v1/metrics", json.dumps(metrics).encode())).status
    assert [(None, None), (START, None)] == [
        (one.start_time, one.end_time) for one in await serving.records()
    ]


async def test_a_client_that_closes_early_writes_nothing(serving: Serving) -> None:
    """If a client closes the connection before its request is complete, nothing of the request is stored."""
    body = traces(JSON, 5)
    head = (f"Content-Type: {JSON}", f"Authorization: {serving.key}")
    whole = raw.post("/v1/traces", body, *head)
    _, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    writer.write(whole[:-100])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert 200 == (await serving.send("/v1/traces", traces(JSON))).status
    assert 1 == len(await serving.records())
