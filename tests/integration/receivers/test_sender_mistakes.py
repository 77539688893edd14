"""
Mistakes of senders. No mistake gets a bare success, and the answer or the log line has the word that corrects it.

The remedies follow from rules (nearest address, form of the key, first bytes, members of a signal), not from
this list.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from backports import zstd
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from gateway.money.insights.detector_facts import InsightFacts
from gateway.money.insights.detectors.fields import misdated_calls
from spool.registry.scopes import CREATE_EVENT, HEARTBEAT, INGEST, MANAGE_RECORDS
from tests.gateway.http import raw
from tests.integration.conftest import ON_ONE_SERVER, Serving
from tests.integration.payloads import JSON, PROTOBUF, START, json_span, json_traces, traces
from tests.integration.receivers.test_ai_telemetry import LITELLM

JSON_LOGS = json.dumps(
    {
        "resourceLogs": [
            {"scopeLogs": [{"logRecords": [{"timeUnixNano": str(START), "body": {"stringValue": "x"}}]}]}
        ]
    }
).encode()
JSON_METRICS = json.dumps(
    {
        "resourceMetrics": [
            {
                "scopeMetrics": [
                    {
                        "metrics": [
                            {
                                "name": "m",
                                "gauge": {"dataPoints": [{"timeUnixNano": str(START), "asInt": "1"}]},
                            }
                        ]
                    }
                ]
            }
        ]
    }
).encode()


def protobuf_logs() -> bytes:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.time_unix_nano = START
    record.severity_text = "INFO"
    record.body.string_value = "x"
    return request.SerializeToString()


def protobuf_metrics() -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = "m"
    point = metric.gauge.data_points.add()
    point.time_unix_nano = START
    point.as_int = 1
    return request.SerializeToString()


DAY_NS = 86_400 * 1_000_000_000


class Mistake(NamedTuple):
    """A request. `remedy` is a pattern of the words in the answer that correct it."""

    remedy: str
    path: str = "/v1/traces"
    body: bytes | None = None  # None means a request with one call
    type: str | None = JSON
    method: str = "POST"
    key: str | None = ""  # `{key}` stands for the valid key
    headers: Mapping[str, str] = {}


SPANS_HERE = r"/v1/traces.*OTEL_EXPORTER_OTLP_"
PATHS: Sequence[Mistake] = [
    Mistake(SPANS_HERE, "/"),
    Mistake(SPANS_HERE, "/", type=PROTOBUF),
    Mistake(SPANS_HERE, "/v1"),
    Mistake(SPANS_HERE, "/v1/"),
    Mistake(SPANS_HERE, "/v1/trace"),
    Mistake(SPANS_HERE, "/trace"),
    Mistake(SPANS_HERE, "/traces"),
    Mistake(SPANS_HERE, "/v1/spans"),
    Mistake(SPANS_HERE, "/V1/TRACES"),
    Mistake(SPANS_HERE, "//v1/traces"),
    Mistake(SPANS_HERE, "/v1//traces"),
    Mistake(SPANS_HERE, "/v1/traces%0A"),
    Mistake(SPANS_HERE, "/v1/traces%20"),
    Mistake(SPANS_HERE, "/v2/traces"),
    Mistake(SPANS_HERE, "/v1/traces/v1/traces"),
    Mistake(SPANS_HERE, "/v1/logs/v1/traces"),
    Mistake(SPANS_HERE, "/otel/v1/traces"),
    Mistake(SPANS_HERE, "/otlp/v1/traces"),
    Mistake(SPANS_HERE, "/api/v1/otlp/v1/traces"),
    Mistake(SPANS_HERE, "/v1/ai-telemetry/v1/traces"),
    Mistake(SPANS_HERE, "/v1/tarces"),
    Mistake(SPANS_HERE, "/api/traces"),
    Mistake(SPANS_HERE, "/api/v2/spans"),
    Mistake(r"/v1/metrics.*OTEL_EXPORTER_OTLP_", "/v1/metric", JSON_METRICS),
    Mistake(r"/v1/metrics.*OTEL_EXPORTER_OTLP_", "/v1/traces/v1/metrics", JSON_METRICS),
    Mistake(r"/v1/logs.*OTEL_EXPORTER_OTLP_", "/v1/log", JSON_LOGS),
    Mistake(r"/v1/logs.*OTEL_EXPORTER_OTLP_", "/logs", JSON_LOGS),
    Mistake(r"gRPC.*server\.grpc_listen", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"),
    Mistake(r"forwards no calls", "/v1/chat/completions", b"{}"),
    Mistake(r"forwards no calls", "/v1/messages", b"{}"),
    Mistake(r"forwards no calls", "/v1/responses", b"{}"),
    Mistake(r"forwards no calls", "/chat/completions", b"{}"),
    Mistake(r"forwards no calls", "/v1beta/models/gemini-2.5-pro:generateContent", b"{}"),
    Mistake(r"/v1/ai-telemetry/litellm", "/litellm", b"{}"),
    Mistake(r"/v1/ai-telemetry/litellm", "/v1/litellm", b"{}"),
    Mistake(r"litellm", "/v1/ai-telemetry/lite-llm", b"{}"),
    Mistake(r"/v1/ai-telemetry", "/v1/ai_telemetry", b"{}"),
    Mistake(r"/v1/ai-telemetry", "/ai-telemetry", b"{}"),
    Mistake(r"/v1/events", "/v1/event", b"{}"),
    Mistake(r"[Pp]arameter", "/v1/traces?key=x"),
]
# people try an address with a browser, and some programs with another method
PATHS_BY_OTHER_METHODS = [
    mistake._replace(method=method)
    for mistake in PATHS
    if not mistake.path.startswith(("/v1/ai-telemetry/", "/v1/traces?"))
    for method in ("GET", "DELETE")
]
METHODS: Sequence[Mistake] = [
    Mistake(r"only POST", method="GET"),
    Mistake(r"only POST", method="PUT"),
    Mistake(r"only POST", "/v1/logs", method="DELETE"),
]
HEADERS: Sequence[Mistake] = [
    Mistake(r"Content-Type must be application/x-protobuf or application/json", type=None),
    Mistake(r"Content-Type must be .* application/json", type="text/plain"),
    Mistake(r"Content-Type must be .* application/json", type="application/x-www-form-urlencoded"),
    Mistake(r"Content-Type must be application/x-protobuf", type="application/protobuf"),
    Mistake(r"Content-Type must be application/x-protobuf", type="application/grpc"),
    Mistake(r"send Content-Type: application/json", type=PROTOBUF, body=traces(JSON)),
    Mistake(r"send Content-Type: application/json", type=PROTOBUF, body=b"\n " + traces(JSON)),
    Mistake(r"send Content-Type: application/json", type=PROTOBUF, body=b"[" + traces(JSON) + b"]"),
    Mistake(r"send Content-Type: application/x-protobuf", type=JSON, body=traces(PROTOBUF)),
    Mistake(r"send Content-Type: application/x-protobuf", type=JSON, body=traces(PROTOBUF, 300)),
]
KEYS: Sequence[Mistake] = [
    Mistake(r"Authorization", key=None),
    Mistake(r"Authorization", key=" "),
    Mistake(r"Bearer.*server\.accept_bearer", key="Bearer {key}"),
    Mistake(r"Basic", key="Basic {key}"),
    Mistake(r"Basic", key="Basic " + base64.b64encode(b"user:th_x").decode()),
    Mistake(r"quotes", key='"{key}"'),
    Mistake(r"quotes", key="'{key}'"),
    Mistake(r"placeholder", key="KEY"),
    Mistake(r"placeholder", key="YOUR_API_KEY"),
    Mistake(r"placeholder", key="<key>"),
    Mistake(r"placeholder", key="$TOLLHOUSE_KEY"),
    Mistake(r"placeholder", key="${TOLLHOUSE_KEY}"),
    Mistake(r"placeholder", key="th_..."),
    Mistake(r"only the key", key="Authorization={key}"),
    Mistake(r"only the key", key="Authorization: {key}"),
    Mistake(r"only the key", key="api-key {key}"),
    Mistake(r"only the key", key="Token {key}"),
    Mistake(r"only the key", key="Authorization=Bearer%20{key}"),
    Mistake(r"spaces", key="{key} x"),
    Mistake(r"begins with th_", key="sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"),
    Mistake(r"Authorization", key=None, headers={"X-Api-Key": "{key}"}),
    Mistake(r"Authorization", key=None, headers={"Api-Key": "{key}"}),
]
PLAIN = traces(JSON)
ENCODINGS: Sequence[Mistake] = [
    Mistake(r"Content-Encoding: gzip", body=gzip.compress(PLAIN)),
    Mistake(r"Content-Encoding: gzip", body=gzip.compress(traces(PROTOBUF)), type=PROTOBUF),
    Mistake(r"Content-Encoding: zstd", body=zstd.compress(PLAIN)),
    Mistake(r"Content-Encoding: zstd", body=zstd.compress(traces(PROTOBUF)), type=PROTOBUF),
    Mistake(r"Content-Encoding: deflate", body=zlib.compress(PLAIN)),
    Mistake(r"Content-Encoding: deflate", body=zlib.compress(traces(PROTOBUF)), type=PROTOBUF),
    Mistake(r"Content-Encoding: gzip", path="/v1/ai-telemetry", body=gzip.compress(b'{"id": 1}')),
    Mistake(r"Content-Encoding: gzip", path="/v1/ai-telemetry/litellm", body=gzip.compress(b'{"id": 1}')),
    Mistake(
        r"compressed twice", body=gzip.compress(gzip.compress(PLAIN)), headers={"Content-Encoding": "gzip"}
    ),
    Mistake(r"without Content-Encoding", body=PLAIN, headers={"Content-Encoding": "gzip"}),
    Mistake(r"without Content-Encoding", body=PLAIN, headers={"Content-Encoding": "zstd"}),
    Mistake(r"truncated", body=gzip.compress(PLAIN)[:-5], headers={"Content-Encoding": "gzip"}),
    Mistake(r"gzip, deflate, zstd", body=PLAIN, headers={"Content-Encoding": "br"}),
    Mistake(r"gzip, deflate, zstd", body=PLAIN, headers={"Content-Encoding": "snappy"}),
    Mistake(r"UTF-8", body=PLAIN.decode().encode("utf-16")),
    Mistake(r"Content-Encoding: gzip", path="/v1/events", body=gzip.compress(b'{"type": "x"}')),
    Mistake(
        r"Content-Encoding: gzip",
        path="/unit-cost/v1/telemetry/allocation/s",
        body=gzip.compress(b'{"records": [{}]}'),
    ),
    Mistake(
        r"Content-Encoding: gzip",
        path="/v1/ai-control-plane/heartbeat",
        body=gzip.compress(b'{"device_id": "x"}'),
    ),
    Mistake(r"JSON text", body=json.dumps(PLAIN.decode()).encode()),
    Mistake(r"URL-encoded", body=quote(PLAIN.decode()).encode()),
    Mistake(r"XML", body=b"<spans/>"),
    Mistake(r"snappy.*gzip", body=b"\xff\x06\x00\x00sNaPpY..."),
    Mistake(r"base64", body=base64.b64encode(traces(PROTOBUF)), type=PROTOBUF),
]
SIGNALS: Sequence[Mistake] = [
    Mistake(r"resourceSpans.*/v1/traces", "/v1/logs", traces(JSON)),
    Mistake(r"resourceSpans.*/v1/traces", "/v1/metrics", traces(JSON)),
    Mistake(r"resourceLogs.*/v1/logs", "/v1/traces", JSON_LOGS),
    Mistake(r"resourceLogs.*/v1/logs", "/v1/metrics", JSON_LOGS),
    Mistake(r"resourceMetrics.*/v1/metrics", "/v1/traces", JSON_METRICS),
    Mistake(r"resourceMetrics.*/v1/metrics", "/v1/logs", JSON_METRICS),
    Mistake(r"spans.*/v1/traces", "/v1/logs", traces(PROTOBUF), PROTOBUF),
    Mistake(r"spans.*/v1/traces", "/v1/metrics", traces(PROTOBUF), PROTOBUF),
    Mistake(r"log records.*/v1/logs", "/v1/traces", protobuf_logs(), PROTOBUF),
    Mistake(r"log records.*/v1/logs", "/v1/metrics", protobuf_logs(), PROTOBUF),
    Mistake(r"metrics.*/v1/metrics", "/v1/traces", protobuf_metrics(), PROTOBUF),
    Mistake(r"metrics.*/v1/metrics", "/v1/logs", protobuf_metrics(), PROTOBUF),
    Mistake(r"resourceLogs.*/v1/logs", "/v1/traces", PLAIN[:-1] + b"," + JSON_LOGS[1:]),
    Mistake(r"resourceSpans.*/v1/traces", "/v1/logs", PLAIN.replace(b"resourceSpans", b"resource_spans")),
    Mistake(r"resourceSpans.*/v1/traces", "/v1/logs", b" " * 1_100_000 + PLAIN),
]
MEMBERS: Sequence[Mistake] = [
    Mistake(r"resourceSpans", body=b'{"resourceSpan": []}'),
    Mistake(r"resourceSpans", body=b'{"spans": [{"name": "x"}]}'),
    Mistake(r"resourceSpans", body=b'{"data": {"resourceSpans": [{}]}}'),
    Mistake(r"resourceSpans", body=b'{"ResourceSpans": [{}]}'),
    Mistake(r"scopeSpans", body=PLAIN.replace(b"scopeSpans", b"instrumentationLibrarySpans")),
    Mistake(r"scopeSpans.*spans", body=PLAIN.replace(b'"spans"', b'"Spans"')),
    Mistake(r"resourceSpans", body=b'{"resourceSpans": {}}'),
    Mistake(r"resourceSpans", body=b"[" + PLAIN + b"]"),
    Mistake(r"one JSON document", body=PLAIN + b"\n" + PLAIN),
    Mistake(r"resourceLogs", "/v1/logs", b'{"logs": ["x"]}'),
    Mistake(r"resourceMetrics", "/v1/metrics", b'{"metrics": [{"name": "x"}]}'),
    Mistake(r"/v1/ai-telemetry", body=b'{"id": "x", "call_type": "acompletion", "model": "gpt-4o"}'),
    Mistake(r"traceId", body=json_traces(json_span(traceId="xyz"))),
    Mistake(r"spanId", body=json_traces(json_span(spanId="zz"))),
    Mistake(r"is empty", body=b""),
    Mistake(r"not stored", "/v1development/profiles", b'{"resourceProfiles": [{}]}'),
    Mistake(r"not stored", "/v1development/profiles", b"\n\x00", PROTOBUF),
    Mistake(r"not a JSON object", "/v1development/profiles", b"{"),
    Mistake(r"incomplete number", "/v1development/profiles", b"\xff", PROTOBUF),
    Mistake(r"resourceSpans", body=b'{"resourceSpans": [{"resource": {"attributes": []}}]}'),
]
EVERY_SENDER = (INGEST, CREATE_EVENT, MANAGE_RECORDS, HEARTBEAT)
GROUPS = {
    "paths": PATHS,
    "paths by other methods": PATHS_BY_OTHER_METHODS,
    "methods": METHODS,
    "headers": HEADERS,
    "keys": KEYS,
    "encodings": ENCODINGS,
    "signals": SIGNALS,
    "members": MEMBERS,
}


async def send_mistake(serving: Serving, mistake: Mistake) -> tuple[int, str]:
    """Return the status and the text of the answer. It never contains the key."""
    key = None if mistake.key is None else mistake.key.replace("{key}", serving.key)
    headers = {name: value.replace("{key}", serving.key) for name, value in mistake.headers.items()}
    body = traces(mistake.type or JSON) if mistake.body is None else mistake.body
    sent = list(headers.items())
    if key is not None:
        sent.append(("Authorization", key or serving.key))
    if mistake.type is not None:
        sent.append(("Content-Type", mistake.type))
    # a raw request, because a client library would normalize the path
    data = raw.post(mistake.path, body, *(f"{name}: {value}" for name, value in sent))
    data = data.replace(b"POST ", f"{mistake.method} ".encode(), 1)
    answer = raw.parsed(await raw.talk(serving.port, data))
    text = answer.body.decode(errors="replace")
    assert serving.key not in text, mistake
    return answer.status, text


@ON_ONE_SERVER
@pytest.mark.parametrize("group", GROUPS)
async def test_a_mistake_gets_no_bare_success_and_its_answer_has_the_remedy(
    one_server: Serving, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No answer and no log line has the key."""
    lacking = []
    before = len(await one_server.records())
    one_server.key = await one_server.make_key(f"sender of {group}", scopes=EVERY_SENDER)
    for mistake in GROUPS[group]:
        status, text = await send_mistake(one_server, mistake)
        assert status != 500, mistake
        if not re.search(mistake.remedy, text, re.DOTALL):
            sent = (
                f"{mistake.method} {mistake.path} {mistake.type} {mistake.key} {(mistake.body or b'')[:60]!r}"
            )
            lacking.append(f"{sent}: {mistake.remedy!r} is not in {status} {text!r}")
    assert not lacking, "\n".join(lacking)
    assert before == len(await one_server.records())
    assert one_server.key not in str([vars(record) for record in caplog.records])


SLASHES: Sequence[tuple[str, bytes, str]] = [
    ("/v1/traces/", traces(JSON), JSON),
    ("/v1/traces/", traces(PROTOBUF), PROTOBUF),
    ("/v1/ai-telemetry/", traces(JSON), JSON),
    ("/v1/ai-telemetry/otlp/traces/", traces(JSON), JSON),
    ("/api/public/otel/v1/traces/", traces(JSON), JSON),
]


async def test_a_slash_may_close_the_path_of_a_sender(serving: Serving) -> None:
    """Senders join a base address and a path, and some end with a slash."""
    for number, (path, body, encoding) in enumerate(SLASHES, start=1):
        answer = await serving.send(path, body, encoding)
        assert answer.status == 200, path
        assert number == len(await serving.records()), path


async def test_the_log_has_the_wrong_path_without_a_key(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """A path in a log line is cut, and a segment that may be a key or a name is replaced."""
    paths = [
        ("/otel/v1/traces", "/otel/v1/traces"),
        (f"/helicone/{serving.key}", "/helicone/..."),
        (f"/v1/ai-telemetry/lite-llm/{serving.key}?key={serving.key}", "/v1/ai-telemetry/lite-llm/..."),
        ("/hooks/d41d8cd98f00b204e9800998ecf8427e/v1", "/hooks/.../v1"),
        ("/a%0Ab/eve@example.com", "/.../..."),
        ("/" + "a/" * 500, ("/" + "a/" * 500)[:120]),
    ]
    for path, _ in paths:
        await serving.send(path, b"{}")
    refused = [record for record in caplog.records if getattr(record, "status", 0) == 404]
    assert [shown for _, shown in paths] == [vars(record)["path"] for record in refused]
    assert serving.key not in str([vars(record) for record in caplog.records])


async def test_a_body_without_items_is_counted_and_logged(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """It is one ignored item, so the accounting shows it. An empty request is no mistake."""
    answer = await serving.send("/v1/traces", b'{"spans": []}')
    assert "records=0; ignored=1; rejected=0" in answer.headers["Tollhouse-Receipt"]
    assert "0" == json.loads(answer.body)["partialSuccess"]["rejectedSpans"]
    assert ["no_items"] == [vars(record)["action"] for record in caplog.records if "action" in vars(record)][
        -1:
    ]
    metrics = await serving.send("/metrics", b"", None, method="GET", key=None)
    assert b'tollhouse_records_ignored_total{reason="no_items",topic="ai-telemetry"} 1.0' in metrics.body
    assert b"{}" == (await serving.send("/v1/traces", b"{}")).body


def clock_mistakes() -> Sequence[tuple[int, str]]:
    """Return start times and the words of their warnings. Times are relative to now, as the server judges them."""
    now = time.time_ns()
    year = 1 + datetime.now(UTC).year
    next_year = int(datetime(year, 6, 1, tzinfo=UTC).timestamp())
    return [
        (now // 1_000_000_000, "1970.*nanoseconds"),
        (now // 1_000_000, "1970.*nanoseconds"),
        (now // 1_000, "1970.*nanoseconds"),
        (now - 400 * DAY_NS, "more than 31 days ago"),
        (now - 32 * DAY_NS, "more than 31 days ago"),
        (next_year * 1_000_000_000, f"{year}.*ahead of the clock"),
        (now + DAY_NS // 12, "ahead of the clock"),
    ]


async def test_a_wrong_clock_is_stored_with_a_warning_and_an_insight(serving: Serving) -> None:
    """The calls are kept under their date, so the sender and the operator get to know it."""
    right = time.time_ns() - 30 * DAY_NS
    answer = await serving.send("/v1/traces", json_traces(json_span(startTimeUnixNano=str(right))))
    assert b"{}" == answer.body
    for number, (start, words) in enumerate(clock_mistakes(), start=2):
        times: dict[str, Any] = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 5)}
        answer = await serving.send("/v1/traces", json_traces(json_span(**times), json_span(**times)))
        partial = json.loads(answer.body)["partialSuccess"]
        assert "0" == partial["rejectedSpans"]
        assert re.search(f"2 items begin in .*{words}", partial["errorMessage"]), (start, partial)
        assert 2 * number - 1 == len(await serving.records())
    saver = serving.app.services.operators.spool.sender_fields
    assert saver is not None
    facts = InsightFacts(now=time.time(), sender_fields=await saver.store_and_read_recent())
    titles = {finding.draft.title for finding in misdated_calls(facts)}
    assert "6 calls of sender begin in 1970" in titles
    assert 14 == sum(int(title.partition(" ")[0]) for title in titles)


async def test_gateways_and_events_with_a_wrong_clock_get_a_warning(serving: Serving) -> None:
    """Their answers have it as `warnings`. The items are stored, and a right clock gets none."""
    serving.key = await serving.make_key("gateway", scopes=EVERY_SENDER)
    logged = json.loads(LITELLM)[0]
    year = datetime.now(UTC).year + 1
    starts = [
        (time.time() - 60, ""),
        (1_700_000, "in 1970.*unit"),
        (time.time() + 366 * 86_400, f"in {year}.*clock of the sender"),
    ]
    for number, (start, words) in enumerate(starts):
        call = logged | {"id": f"call-{number}", "startTime": start, "endTime": start + 1}
        when = datetime.fromtimestamp(start, UTC).isoformat()
        event = {"id": f"event-{number}", "source": "billing", "type": "sale", "time": when, "data": {}}
        for path, item in (("/v1/ai-telemetry/litellm", call), ("/v1/events", event)):
            answer = json.loads((await serving.send(path, json.dumps(item).encode())).body)
            assert 1 == answer["accepted"], answer
            warnings = answer.get("warnings", [])
            assert bool(words) == bool(warnings), (path, answer)
            assert re.search(words, " ".join(warnings)), (path, answer)
