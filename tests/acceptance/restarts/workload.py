"""
Requests of all kinds of senders in two halves, in which the second depends on state from the first.

Each piece is a pair of request lists. Its name says the state that it needs: repeats, added reports, counters
next to calls, partial reports, sums under idempotency keys.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.acceptance.payloads import attribute, request, span
from tests.clients.capture import SentRequest, kept
from tests.gateway.normalise.formats.langfuse.events import batch, create, trace, update

CASES = Path(__file__).parents[2] / "cases"
CLAUDE_CODE = CASES / "otlp/claude_code"
JSON = "application/json"
HOUR_NS = 3600 * 10**9
# start time of the calls, the same in every run of the workload
BEGAN_NS = (time.time_ns() // HOUR_NS - 2) * HOUR_NS
MONTH = "2026-11"
STREAM = "/unit-cost/v1/telemetry/allocation/calls/sum"
DROPS = "/v2/connections/billing/external/bill/billing_drops"
PLANE = "/v1/ai-control-plane"
MCP_CALLS_A_DAY = 3
FORMATS = (
    "agentgateway", "aisix", "bifrost", "cloudflare", "databricks", "higress", "kong", "litellm", "openrouter",
    "portkey", "snowflake",
)  # fmt: skip
LEFT_OUT = {
    "otel-span": "no log of a gateway",
    "log-hook-images": "nothing identifies its calls: their ids are made at random",
}


class Sent(NamedTuple):
    path: str
    body: bytes
    kind: str = JSON
    method: str = "POST"
    key: str = "one"  # the key of the call, as one of `KEYS`
    headers: Mapping[str, str] = {}


class Halves(NamedTuple):
    before: Sequence[Sent]
    after: Sequence[Sent]


KEYS = "one", "two"


def calls(*spans: dict[str, Any], key: str = "one") -> Sent:
    return Sent("/v1/traces", request(list(spans)), key=key)


def call(number: int, *, tokens: int = 100, **more: str | int) -> dict[str, Any]:
    """Make one call. The same number is the same call."""
    made = span(f"chatcmpl-{number:032d}", tokens=tokens, start_ns=BEGAN_NS + number * 10**9, **more)
    return {**made, "traceId": f"{number + 1:032x}", "spanId": f"{number + 1:016x}"}


def json_of(path: str, body: Any, **more: Any) -> Sent:
    return Sent(path, json.dumps(body).encode(), **more)


def repeats() -> Halves:
    """Repeat calls under the same key and under another key, and add new calls."""
    first = calls(*(call(number) for number in range(40)))
    again = calls(*(call(number) for number in range(30, 60)), key="two")
    return Halves([first, first], [first, again])


def later_reports() -> Halves:
    """Add fields by later reports of a call: a gateway's log after a span, and a second span."""
    plain = [call(number, user__id="ann") for number in range(100, 110)]
    dearer = [call(number, gen_ai__usage__cost=f"0.0{number}", session__id="s") for number in range(100, 110)]
    litellm = (CASES / "gateway/litellm/slp-batch-array.json").read_bytes()
    log = Sent("/v1/ai-telemetry/litellm", litellm)
    return Halves([calls(*plain[:8]), log], [calls(*dearer), calls(*plain), log])


def formats() -> Halves:
    """Send the native logs of gateways, and repeat them after the cut."""
    files = [file for name in FORMATS for file in sorted((CASES / "gateway" / name).glob("*.json"))]
    sent = [
        Sent(f"/v1/ai-telemetry/{file.parent.name}", file.read_bytes())
        for file in files
        if not file.name.endswith(".expected.json") and file.stem not in LEFT_OUT
    ]
    return Halves(sent[::2], sent)


def metric(name: str, value: int, *, cumulative: bool, at: int, since: int = 0, **attributes: str) -> Sent:
    """Make one point of a counter. `at` and `since` are seconds."""
    said = [attribute(key.replace("__", "."), value) for key, value in attributes.items()]
    point = {
        "attributes": said,
        "startTimeUnixNano": str(BEGAN_NS + since * 10**9),
        "timeUnixNano": str(BEGAN_NS + at * 10**9),
        "asInt": str(value),
    }  # fmt: skip
    total = {"aggregationTemporality": 2 if cumulative else 1, "isMonotonic": True, "dataPoints": [point]}
    resource = {"attributes": [attribute("service.name", f"meter-{name}")]}
    metrics = [{"name": "gen_ai.client.token.usage", "unit": "{token}", "sum": total}]
    scopes = [{"scope": {"name": "meters"}, "metrics": metrics}]
    return json_of("/v1/metrics", {"resourceMetrics": [{"resource": resource, "scopeMetrics": scopes}]})


def cumulative_counters() -> Halves:
    """Send points of one cumulative series, and restart the series after the cut."""

    def point(value: int, at: int, since: int = 0) -> Sent:
        said = {"gen_ai__token__type": "input", "gen_ai__request__model": "gpt-4o"}
        return metric("cumulative", value, cumulative=True, at=at, since=since, **said)

    return Halves([point(100, 10), point(130, 20)], [point(130, 20), point(190, 30), point(5, 50, since=40)])


def delta_counters() -> Halves:
    """Repeat a metric point, and send a new one."""

    def point(value: int, since: int) -> Sent:
        said = {"gen_ai__token__type": "output", "gen_ai__request__model": "gpt-4o"}
        return metric("delta", value, cumulative=False, at=since + 5, since=since, **said)

    return Halves([point(7, 0), point(8, 5)], [point(7, 0), point(8, 5), point(9, 10)])


def claude_code(session: bytes, name: str) -> Sent:
    body = (CLAUDE_CODE / f"{name}.json").read_bytes().replace(b"cc-sess-1", session)
    # requests of another session are other calls, so their ids are replaced
    body = body.replace(b"req_", b"req_" + session + b"_")
    return Sent("/v1/metrics" if name.startswith("metrics") else "/v1/logs", body)


def counters_beside_calls() -> Halves:
    """Send counters after their calls, before them, with them, and repeated."""
    events, counters = "api_request_events", "metrics_delta"
    return Halves(
        [
            claude_code(b"calls-first", events),
            claude_code(b"counters-first", counters),
            claude_code(b"both-first", events),
            claude_code(b"both-first", counters),
        ],
        [
            claude_code(b"calls-first", counters),
            claude_code(b"counters-first", events),
            claude_code(b"both-first", counters),
            claude_code(b"both-first", events),
            claude_code(b"both-later", counters),
            claude_code(b"both-later", events),
        ],
    )


def counters_of_a_joined_reporter() -> Halves:
    """Two services report one call before the cut. After it, the counter of the second service repeats the call."""

    def told(service: str) -> Sent:
        body = json.loads(request([call(900, tokens=10)]))
        body["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"] = service
        return json_of("/v1/traces", body)

    said = {"gen_ai__token__type": "input", "gen_ai__request__model": "gpt-4o"}
    counters = [metric(name, 10, cumulative=False, at=905, since=900, **said) for name in ("first", "second")]
    return Halves([told("meter-first"), told("meter-second")], counters)


def halves_of_calls() -> Halves:
    """Send Langfuse's create and update on different sides of the cut, and both on one side."""

    def sent(*events: Any) -> Sent:
        return Sent("/api/public/ingestion", batch(*events))

    whole, late = sent(create("told"), update("told")), sent(update("late"))
    return Halves(
        [sent(create("cut", traceId="cut"), trace("cut")), whole, late],
        [sent(update("cut")), whole, sent(create("late")), sent(create("new"), update("new"))],
    )


def usage_events() -> Halves:
    def event(number: int) -> dict[str, Any]:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGAN_NS // 10**9 + number))
        kind = {"specversion": "1.0", "id": str(number), "source": "/app", "type": "api.call"}
        return {**kind, "time": at, "subject": "acme", "data": {"count": number}}

    first = json_of("/v1/events", [event(number) for number in range(5)])
    return Halves([first], [first, json_of("/v1/events", [event(number) for number in range(3, 9)])])


def unit_costs() -> Halves:
    """
    Send sums under idempotency keys. A repeat adds nothing, and another body under a used key is refused.
    """

    def amount(value: int, key: str) -> Sent:
        record = {"timestamp": "2026-11-01T10:00:00Z", "granularity": "HOURLY", "element_name": "acme"}
        body = {"records": [{**record, "filter": {"Region": ["eu"]}, "value": value}]}
        return json_of(STREAM, body, headers={"Idempotency-Key": key})

    return Halves(
        [amount(2, "a"), amount(2, "a"), amount(3, "b")], [amount(2, "a"), amount(9, "b"), amount(4, "c")]
    )


def billing_drops() -> Halves:
    def drop(cost: str, key: str, hour: int) -> Sent:
        row = {"time/usage_start": f"{MONTH}-01T{hour:02}:00:00Z", "cost/cost": cost, "resource/id": "r"}
        body = {"month": MONTH, "operation": "sum", "data": [row]}
        return json_of(DROPS, body, headers={"Idempotency-Key": key})

    return Halves([drop("1.25", "a", 10)], [drop("1.25", "a", 10), drop("7", "a", 10), drop("2.5", "b", 11)])


def devices() -> Halves:
    def said(verb: str, id: str, **more: Any) -> Sent:
        return json_of(f"{PLANE}/{verb}", {"device_id": id, "hostname": id, "platform": "linux", **more})

    return Halves(
        [said("enroll", "laptop"), said("heartbeat", "laptop", spool={"records": 3}), said("heartbeat", "stranger")],
        [said("heartbeat", "laptop", spool={"records": 0}), said("enroll", "laptop"), said("heartbeat", "other")],
    )  # fmt: skip


def assistants() -> Halves:
    """Send one tool call more than the daily limit permits, after all earlier records are decided."""
    words = {"name": "get_cost_data", "arguments": {}}
    ask = json_of("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": words}, key="two")
    return Halves([ask] * (MCP_CALLS_A_DAY - 1), [ask, ask])


PIECES: Sequence[Callable[[], Halves]] = (
    usage_events,
    repeats,
    later_reports,
    formats,
    cumulative_counters,
    delta_counters,
    counters_beside_calls,
    counters_of_a_joined_reporter,
    halves_of_calls,
    unit_costs,
    billing_drops,
    devices,
)


def captured(families: Collection[str] = ()) -> Halves:
    """
    Cut the captured requests of real clients in half, and repeat the end of the first half. The default is all
    families of clients.
    """
    requests = [
        (one.at, capture.family, one)
        for capture in kept()
        for one in capture.requests
        if not families or capture.family in families
    ]
    sent = [
        _as_captured(one, KEYS[len(family) % 2])
        for _, family, one in sorted(requests, key=lambda row: row[:2])
    ]
    cut = len(sent) // 2
    return Halves(sent[:cut], sent[cut - cut // 5 :])


def _as_captured(one: SentRequest, key: str) -> Sent:
    headers = dict(one.headers)
    return Sent(one.path, one.body, kind=headers.pop("content-type"), key=key, headers=headers)


def together(*pieces: Halves) -> Halves:
    """Join the pieces of a workload: all first halves, then all second halves."""
    return Halves(
        [sent for piece in pieces for sent in piece.before],
        [sent for piece in pieces for sent in piece.after],
    )


def workload() -> Halves:
    return together(*(piece() for piece in PIECES))


def unpacked(body: bytes, coding: str) -> bytes:
    return gzip.decompress(body) if coding == "gzip" else body
