"""OTLP/HTTP against a real server, one test per rule (numbers: rows of the protocol checklist), in both encodings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from google.rpc.status_pb2 import Status

from gateway.service.configuration.sections import ServerSettings
from spool.errors import SpoolFull, SpoolUnavailable
from spool.record import Inference
from spool.registry.scopes import PING
from tests.gateway.http import raw
from tests.integration.conftest import BY_BOTH, ON_ONE_SERVER, Answer, Serve, Serving
from tests.integration.payloads import (
    ENCODINGS,
    JSON,
    PROTOBUF,
    REQUESTS,
    SIGNALS,
    START,
    json_span,
    json_traces,
    proto_span,
    proto_traces,
    traces,
)

pytestmark = pytest.mark.asyncio

ADDRESSES = [f"/v1/{signal}" for signal in SIGNALS]
both_encodings = pytest.mark.parametrize("encoding", ENCODINGS)
all_signals = pytest.mark.parametrize("path", ADDRESSES)


def status_of(answer: Answer) -> tuple[int, str]:
    """The google.rpc.Status of a refusal, in the encoding that it claims."""
    if answer.headers["Content-Type"] == PROTOBUF:
        said = Status.FromString(answer.body)
        return said.code, said.message
    read = json.loads(answer.body)
    return read["code"], read["message"]


def empty(encoding: str) -> bytes:
    return b"{}" if encoding == JSON else b""


async def test_the_defaults_are_the_protocols_ports_on_loopback() -> None:
    """1: 4318 for HTTP and 4317 for gRPC, reachable from this machine alone."""
    assert ServerSettings().listen == "127.0.0.1:4318"
    assert ServerSettings().grpc_listen == "127.0.0.1:4317"


@ON_ONE_SERVER
@all_signals
@both_encodings
async def test_every_signal_is_taken_in_both_encodings(one_server: Serving, path: str, encoding: str) -> None:
    """2, 6, 13, 40: an empty request is a full success, and a full success is empty."""
    answer = await one_server.send(path, empty(encoding), encoding)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == encoding
    assert empty(encoding) == answer.body


@ON_ONE_SERVER
@both_encodings
async def test_profiles_are_taken_and_dropped(one_server: Serving, encoding: str) -> None:
    """3: a sender that exports all signals is not told off, but it needs a key."""
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
    "/v1/traces/",
    "/v1/traces/x",
    "/V1/TRACES",
    "//v1/traces",
    "/v1/traces%0A",
]


@ON_ONE_SERVER
async def test_other_addresses_are_404_and_never_a_redirect(one_server: Serving) -> None:
    """4, 11, 51: a redirected POST would lose its body."""
    for path in NOWHERE:
        answer = await one_server.send(path, b"{}")
        assert 404 == answer.status, path
        assert "Location" not in answer.headers, path
        assert "not_found" == json.loads(answer.body)["error"]["type"], path


OTHER_METHODS: Sequence[str] = ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"]


@ON_ONE_SERVER
@all_signals
async def test_other_methods_are_405(one_server: Serving, path: str) -> None:
    """5, 55: the answer says what is allowed, before type, key and body are looked at."""
    for method in OTHER_METHODS:
        answer = await one_server.send(path, b"", "text/plain", method=method, key=None)
        assert answer.status == 405, method
        assert answer.headers["Allow"] == "POST", method


SAME_TYPES: Sequence[str] = [
    "Application/JSON; charset=utf-8",
    "application/json;charset=UTF-8",
    "APPLICATION/JSON",
]


@ON_ONE_SERVER
async def test_media_types_match_whatever_their_case_and_parameters(one_server: Serving) -> None:
    """7, 9: parsed as a media type, answered with the plain one."""
    for content_type in SAME_TYPES:
        answer = await one_server.send("/v1/traces", traces(JSON), content_type)
        assert answer.status == 200, content_type
        assert answer.headers["Content-Type"] == JSON, content_type


@ON_ONE_SERVER
async def test_protobuf_with_parameters(one_server: Serving) -> None:
    """7: the same for protobuf."""
    answer = await one_server.send("/v1/traces", traces(PROTOBUF), "Application/X-Protobuf; proto=x")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == PROTOBUF


OTHER_TYPES: Sequence[str | None] = [None, "text/plain", "application/protobuf", "", "json", ";;;"]


@ON_ONE_SERVER
async def test_other_media_types_are_415(one_server: Serving) -> None:
    """8: the message lists the two types."""
    for content_type in OTHER_TYPES:
        answer = await one_server.send("/v1/traces", b"{}", content_type)
        code, message = status_of(answer)
        assert answer.status == 415, content_type
        assert code == 2, content_type
        assert PROTOBUF in message, content_type
        assert JSON in message, content_type


async def test_the_order_of_checks(serving: Serving) -> None:
    """10: method, key, coding, type, size, body. Who may not send is told nothing of what was sent."""
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


@both_encodings
async def test_chunked_uploads_are_taken(serving: Serving, encoding: str) -> None:
    """12: every OpenTelemetry JS exporter sends chunks, compressed or not."""
    body = traces(encoding)
    chunks = [body[:10], body[10:11], body[11:]]
    head = (f"Content-Type: {encoding}", f"Authorization: {serving.key}")
    answer = raw.parsed(await raw.talk(serving.port, raw.chunked("/v1/traces", chunks, *head)))
    assert 200 == answer.status
    assert 1 == len(await serving.records())


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
    """14, 15, 44: code 3, in JSON, and no value of the body in the message."""
    for body in NO_REQUESTS:
        answer = await one_server.send(path, body)
        code, message = status_of(answer)
        assert answer.status == 400, body
        assert code == 3, body
        assert answer.headers["Content-Type"] == JSON, body
        assert message, body
        assert len(message) <= 1000, body


async def test_unknown_fields_are_ignored_at_every_level(serving: Serving) -> None:
    """16: a sender of a newer protocol is understood."""
    new: dict[str, Any] = {"new": {"a": [1, None, {"b": "c"}]}}
    span = {**json_span(), **new}
    request = {
        "resourceSpans": [
            {"resource": {**new}, "scopeSpans": [{"scope": new, "spans": [span], **new}], **new}
        ],
        **new,
    }
    answer = await serving.send("/v1/traces", json.dumps(request).encode())
    assert answer.status == 200
    assert answer.body == b"{}"
    assert 1 == len(await serving.records())


async def test_ids_are_hex_of_any_case(serving: Serving) -> None:
    """17: upper case is the same id; an empty parent is none."""
    span = json_span(traceId="5B8EFFF798038103D269B633813FC60C", spanId="EEE19B7EC3C1B174", parentSpanId="")
    assert 200 == (await serving.send("/v1/traces", json_traces(span))).status
    [record] = await serving.records()
    assert isinstance(record, Inference)
    assert record.trace_id == "5b8efff798038103d269b633813fc60c"
    assert record.span_id == "eee19b7ec3c1b174"


BASE64_IDS: Sequence[dict[str, Any]] = [
    {"traceId": "W47/95gDgQPSabYzgT/GDA=="},
    {"spanId": "7uGbfsPBsXQ="},
    {"traceId": "ab"},
]


async def test_base64_ids_are_400_and_the_field_is_named(serving: Serving) -> None:
    """17: the answer names the field and never the value."""
    for ids in BASE64_IDS:
        answer = await serving.send("/v1/traces", json_traces(json_span(**ids)))
        code, message = status_of(answer)
        assert answer.status == 400, ids
        assert code == 3, ids
        assert next(iter(ids)) in message, ids
        assert next(iter(ids.values())) not in message, ids
        assert [] == await serving.records(), ids


@pytest.mark.parametrize("ids", [{"traceId": "0" * 32, "spanId": "0" * 16}, {"traceId": "", "spanId": ""}])
async def test_zero_and_empty_ids_are_no_ids(serving: Serving, ids: dict[str, Any]) -> None:
    """18: such a span is taken; its ids are null."""
    assert 200 == (await serving.send("/v1/traces", json_traces(json_span(**ids)))).status
    [record] = await serving.records()
    assert isinstance(record, Inference)
    assert record.trace_id is None
    assert record.span_id is None


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "SPAN_KIND_CLIENT", "status": {"code": "STATUS_CODE_OK"}},
        {"kind": 99},
        {"startTimeUnixNano": 1_790_000_000_000_000_000, "endTimeUnixNano": 1_790_000_001_000_000_000},
        {"attributes": [*json_span()["attributes"], {"key": "score", "value": {"doubleValue": "NaN"}}]},
        {"attributes": [*json_span()["attributes"], {"key": "raw", "value": {"bytesValue": "AAECAw=="}}]},
        {
            "attributes": [
                *json_span()["attributes"],
                {"key": "nothing", "value": {}},
                {"key": "none", "value": None},
            ]
        },
        {"status": None, "events": None, "links": None, "droppedAttributesCount": 3, "flags": 257},
        {
            "attributes": [
                *json_span()["attributes"],
                {
                    "key": "deep",
                    "value": {"kvlistValue": {"values": [{"key": "a", "value": {"arrayValue": {}}}]}},
                },
            ]
        },
    ],
    ids=[
        "enum names",
        "unknown enum",
        "number times",
        "NaN",
        "bytes",
        "empty values",
        "null members",
        "nested",
    ],
)
async def test_lenient_forms_are_taken(serving: Serving, changes: dict[str, Any]) -> None:
    """19 to 25: what the specification or real senders allow is understood."""
    span = {**json_span(), **changes}
    answer = await serving.send("/v1/traces", json_traces(span))
    assert answer.status == 200
    assert answer.body == b"{}"
    assert 1 == len(await serving.records())


async def test_snake_case_names_are_understood(serving: Serving) -> None:
    """23: lowerCamelCase is required of senders, and some write the names of the .proto files."""
    span = json_span()
    named = {
        "trace_id": span["traceId"],
        "span_id": span["spanId"],
        "name": span["name"],
        "start_time_unix_nano": span["startTimeUnixNano"],
        "end_time_unix_nano": span["endTimeUnixNano"],
        "attributes": span["attributes"],
    }
    request = {"resource_spans": [{"scope_spans": [{"spans": [named]}]}]}
    assert 200 == (await serving.send("/v1/traces", json.dumps(request).encode())).status
    assert 1 == len(await serving.records())


BAD_PROTOBUF: Sequence[bytes] = [
    b"\xff\xff\xff",
    b"\x0a\x7f",
    b"garbage that is not protobuf",
    b'{"resourceSpans":[]}',
]


@BY_BOTH
@all_signals
async def test_bad_protobuf_is_400(serving: Serving, path: str) -> None:
    """26 to 28, 9: garbage, truncation and JSON under the protobuf type, refused in protobuf."""
    for body in BAD_PROTOBUF:
        answer = await serving.send(path, body, PROTOBUF)
        assert answer.status == 400, body
        assert status_of(answer)[0] == 3, body
        assert answer.headers["Content-Type"] == PROTOBUF, body


async def test_truncated_protobuf_is_400(serving: Serving) -> None:
    """27: half a request keeps nothing."""
    body = traces(PROTOBUF, 3)
    answer = await serving.send("/v1/traces", body[: len(body) // 2], PROTOBUF)
    assert answer.status == 400
    assert status_of(answer)[0] == 3
    assert [] == await serving.records()


async def test_invalid_utf8_is_never_500(serving: Serving) -> None:
    """26: text that is not UTF-8 is the sender's mistake."""
    body = proto_traces(proto_span()).replace(b"openai", b"open\xff\xfe")
    answer = await serving.send("/v1/traces", body, PROTOBUF)
    assert answer.status in (200, 400)


async def test_deep_nesting_is_400_and_no_crash(serving: Serving) -> None:
    """29: depth is bounded, in both encodings."""
    depth = 100_000
    opening = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"a","value":'
    nested = b'{"arrayValue":{"values":[' * depth + b"]}}" * depth
    answer = await serving.send("/v1/traces", opening + nested + b"}]}]}]}]}")
    assert 400 == answer.status
    message = b""
    for _ in range(2000):
        message = REQUESTS["traces"]().SerializeToString() + b"\x0a" + _size(len(message)) + message
    assert 400 == (await serving.send("/v1/traces", message, PROTOBUF)).status
    assert 200 == (await serving.send("/v1/traces", traces(JSON))).status


def _size(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@BY_BOTH
@both_encodings
async def test_the_same_request_again_is_the_same_record(serving: Serving, encoding: str) -> None:
    """30: a repeat after a lost answer is absorbed, and the sender is not told which."""
    body = traces(encoding)
    first, again = (
        await serving.send("/v1/traces", body, encoding),
        await serving.send("/v1/traces", body, encoding),
    )
    assert again.status == 200
    assert first.body == again.body
    assert "records=1; ignored=0; rejected=0" in again.headers["Tollhouse-Receipt"]
    assert 1 == len(await serving.records())


@BY_BOTH
@both_encodings
async def test_a_partial_success_keeps_the_good_spans(serving: Serving, encoding: str) -> None:
    """41: bad items are counted and explained; JSON carries the number as text."""
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


@both_encodings
@pytest.mark.parametrize("field", ["traceId", "spanId", "parentSpanId"])
async def test_a_bad_id_costs_its_neighbours_nothing(serving: Serving, encoding: str, field: str) -> None:
    """17, 41: one span with a bad id among good ones is a partial success that names item and field."""
    if encoding == JSON:
        body = json_traces(json_span(), {**json_span(), field: "W47/95gDgQPS"}, json_span())
    else:
        bad, field = (
            proto_span(),
            {"traceId": "trace_id", "spanId": "span_id", "parentSpanId": "parent_span_id"}[field],
        )
        setattr(bad, field, b"\1" * 9)
        body = proto_traces(proto_span(), bad, proto_span())
    answer = await serving.send("/v1/traces", body, encoding)
    assert 200 == answer.status
    assert b"item 1: " in answer.body
    assert field.encode() in answer.body
    assert "records=2; ignored=0; rejected=1" in answer.headers["Tollhouse-Receipt"]
    assert 2 == len(await serving.records())


async def test_a_bad_id_costs_a_log_record_nothing(serving: Serving) -> None:
    """17: an event is a call without the ids of the span around it."""
    attributes = {
        "event.name": "api_request",
        "model": "claude-sonnet-4-5",
        "input_tokens": "12",
        "output_tokens": "5",
    }
    event = {
        "timeUnixNano": str(START),
        "traceId": "W47/95gDgQPSabYzgT/GDA==",
        "spanId": "7uGbfsPBsXQ=",
        "attributes": [{"key": name, "value": {"stringValue": value}} for name, value in attributes.items()],
    }
    logs = [{"scope": {"name": "com.anthropic.claude_code.events"}, "logRecords": [event]}]
    answer = await serving.send("/v1/logs", json.dumps({"resourceLogs": [{"scopeLogs": logs}]}).encode())
    assert answer.status == 200
    assert answer.body == b"{}"
    [record] = await serving.records()
    assert isinstance(record, Inference)
    assert record.input_tokens == 12
    assert record.trace_id is None
    assert record.span_id is None


async def test_spans_that_are_no_ai_calls_are_a_plain_success(serving: Serving) -> None:
    """42: a batch without GenAI data carries no warning; the receipt says that it was ignored."""
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
    """45 to 49: 503 with Retry-After for what a repeat mends; 500 tells nothing of what was sent."""

    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(serving.app.services.receivers.intake, "take", fail)
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
    """50: never retryable, and nothing is kept."""
    for key in BAD_KEYS:
        answer = await serving.send("/v1/traces", traces(encoding), encoding, key=key)
        assert answer.status == 401, key
        assert status_of(answer)[0] == 16, key
        assert "Retry-After" not in answer.headers, key
        assert [] == await serving.records(), key


@both_encodings
async def test_a_bearer_prefix_is_401_and_the_message_says_what_to_do(
    serving: Serving, encoding: str
) -> None:
    """The key is the whole value of the header."""
    answer = await serving.send(
        "/v1/traces", traces(encoding), encoding, headers={"Authorization": f"Bearer {serving.key}"}
    )
    code, message = status_of(answer)
    assert answer.status == 401
    assert code == 16
    assert "Authorization" in message
    assert serving.key not in message


async def test_accept_bearer_admits_it(serve: Serve) -> None:
    """server.accept_bearer is for senders that can do nothing else."""
    serving = await serve(accept_bearer=True)
    answer = await serving.send(
        "/v1/traces", traces(JSON), headers={"Authorization": f"Bearer {serving.key}"}
    )
    assert 200 == answer.status


@both_encodings
async def test_a_key_without_the_scope_is_403(serving: Serving, encoding: str) -> None:
    """50: the message names the missing scope and what grants it."""
    key = await serving.make_key("pinger", scopes=[PING])
    answer = await serving.send("/v1/traces", traces(encoding), encoding, key=key)
    code, message = status_of(answer)
    assert answer.status == 403
    assert code == 7
    assert "ai-telemetry-ingest:ingest-ai-telemetry" in message
    assert "Send AI Telemetry" in message


async def test_success_is_said_after_the_commit(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """52: no answer leaves while the intake still works."""
    intake = serving.app.services.receivers.intake
    take, commit = intake.take, asyncio.Event()

    async def slow(*arguments: Any) -> Any:
        await commit.wait()
        return await take(*arguments)

    monkeypatch.setattr(intake, "take", slow)
    sending = asyncio.create_task(serving.send("/v1/traces", traces(JSON)))
    done, _ = await asyncio.wait({sending}, timeout=0.2)
    assert not done
    commit.set()
    assert 200 == (await sending).status
    assert 1 == len(await serving.records())


@BY_BOTH
async def test_the_receipt_opens_for_the_operator(serving: Serving) -> None:
    """The id of a receipt reveals nothing to the sender and is resolved by the operator."""
    answer = await serving.send("/v1/traces", traces(JSON, 3))
    fields = dict(part.split("=", 1) for part in answer.headers["Tollhouse-Receipt"].split("; "))
    assert fields["records"] == "3"
    assert fields["durability"] == "fsync"
    assert await serving.app.services.storage.log.receipt(fields["id"])


@BY_BOTH
async def test_every_item_malformed_is_400(serving: Serving) -> None:
    """A request of which nothing could be read is not a success."""
    answer = await serving.send("/v1/traces", json_traces(json_span(name=5), json_span(attributes="x")))
    assert answer.status == 400
    assert status_of(answer)[0] == 3


async def test_a_time_beyond_all_clocks_is_kept_without_a_time(serving: Serving) -> None:
    """20: no 64-bit number of nanoseconds is a 500; a call, and a counter that the log has to remember."""
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


async def test_keep_alive_serves_many_requests(serving: Serving) -> None:
    """56: one connection, many requests."""
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    for _ in range(3):
        head = (f"Content-Type: {JSON}", f"Authorization: {serving.key}")
        writer.write(raw.post("/v1/traces", b"{}", *head, close=False))
        answer = raw.parsed(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(2))
        assert answer.status == 200
        assert answer.body == b"{}"
    writer.close()


async def test_a_client_that_closes_early_writes_nothing(serving: Serving) -> None:
    """59: a request that never arrived in full is not kept in part."""
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
