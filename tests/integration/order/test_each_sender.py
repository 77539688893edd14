"""
Each sender of 2026 reports calls in every way it supports, and each body arrives twice. In any order and with
stops in between, every token counts once. The results of its exports are in the shared cases.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest

from tests.gateway.normalise.otlp.items import SECOND
from tests.gateway.normalise.otlp.payloads import attribute, in_json, span, traces
from tests.integration.order.cases import CASES, FORMATS, MEMBERS
from tests.integration.order.running import Request, Row, told_in_memory, told_on_disk
from tests.rounds import some

STARTED = 1_795_168_800
AT = STARTED * SECOND


@dataclass(frozen=True)
class Sender:
    """
    `calls` reports the calls. `again` has other reports or summaries of the same calls. `tokens` are the true
    input and output tokens.
    """

    calls: Request
    again: Sequence[Request]
    tokens: tuple[int, int]


def case(name: str, keep: Callable[[dict[str, Any]], bool] = lambda _: True) -> Request:
    """Return a shared case, or only the items that `keep` selects."""
    payload = json.loads((CASES / f"{name}.json").read_text())
    if not isinstance(payload, dict) or not (root := next((each for each in MEMBERS if each in payload), "")):
        return Request(name.split("/")[1], json.dumps(payload).encode())
    scopes, items = MEMBERS[root]
    for resource in payload[root]:
        for scope in resource[scopes]:
            scope[items] = [item for item in scope[items] if keep(item)]
    return Request(FORMATS[root], json.dumps(payload).encode())


def lines(name: str) -> Request:
    return Request(name.split("/")[1], (CASES / f"{name}.ndjson").read_bytes())


def is_agent(item: dict[str, Any]) -> bool:
    """Return whether a span is a summary of the calls below it."""
    said = {each["key"]: each["value"].get("stringValue") for each in item["attributes"]}
    return (
        said.get("gen_ai.operation.name") == "invoke_agent" or said.get("ai.operationId") == "ai.generateText"
    )


def is_call(item: dict[str, Any]) -> bool:
    return not is_agent(item)


def is_route(item: dict[str, Any]) -> bool:
    """Return whether a span is Traefik's route span, which contains the attempts and is no call itself."""
    return str(item["spanId"]) == "0000007e00000002"


def is_attempt(item: dict[str, Any]) -> bool:
    return item["spanId"] in ("0000007e00000003", "0000007e00000004")


def route_with_tokens() -> Request:
    """Return the route span with the attributes of the answered attempt."""
    payload = json.loads((CASES / "otlp/traefik/attempts.json").read_text())
    [scope] = payload["resourceSpans"][0]["scopeSpans"]
    [route] = [item for item in scope["spans"] if is_route(item)]
    route["attributes"] = scope["spans"][-1]["attributes"]
    scope["spans"] = [route]
    return Request("otlp/traces", json.dumps(payload).encode())


def counters(
    service: str,
    scope: str,
    points: dict[str, dict[str, int]],
    *,
    key: str = "gen_ai.token.type",
    **said: Any,
) -> Request:
    """Return counters by metric name and token type, for the minute of the calls."""
    metrics = []
    for name, types in points.items():
        data = [
            {
                "attributes": [attribute(name_, value) for name_, value in {**said, key: type}.items()],
                "startTimeUnixNano": str(AT), "timeUnixNano": str(AT + 60 * SECOND), "asInt": str(tokens),
            }
            for type, tokens in types.items()
        ]  # fmt: skip
        sum_ = {"aggregationTemporality": 1, "isMonotonic": True, "dataPoints": data}
        metrics.append({"name": name, "unit": "{token}", "sum": sum_})
    resource = {"attributes": [attribute("service.name", service)]}
    scopes = [{"scope": {"name": scope}, "metrics": metrics}]
    return Request(
        "otlp/metrics", in_json({"resourceMetrics": [{"resource": resource, "scopeMetrics": scopes}]})
    )


def chat(service: str, scope: str, **said: Any) -> Request:
    """Return one call by the semantic conventions."""
    told = span(1, {"gen_ai.operation.name": "chat", **said}, start=AT)
    return Request("otlp/traces", in_json(traces(told, scope=scope, resource={"service.name": service})))


def usage(model: str, input_tokens: int, output_tokens: int) -> dict[str, Any]:
    return {
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": input_tokens,
        "gen_ai.usage.output_tokens": output_tokens,
    }


def kongs_log() -> Request:
    """Return a log entry of the service and minute of the metering events."""
    (entry, *_) = json.loads((CASES / "gateway/kong/http-log-batch-priced-and-cache-hit.json").read_text())
    entry["started_at"], entry["service"] = STARTED * 1000, entry["service"] | {"name": "openai-chat"}
    entry["consumer"] = {"username": "alice"}
    return Request("kong", json.dumps([entry]).encode())


def opencodes_spans() -> Request:
    """Return spans of the session of the counters."""
    call = {
        "openinference.span.kind": "LLM", "llm.model_name": "claude-sonnet-5", "session.id": "ses_01",
        "llm.token_count.prompt": 900, "llm.token_count.completion": 120, "llm.token_count.total": 19_800,
        "llm.token_count.prompt_details.cache_read": 18_000, "llm.token_count.prompt_details.cache_write": 700,
        "llm.token_count.completion_details.reasoning": 80,
    }  # fmt: skip
    told = span(1, call, name="opencode.llm", start=STARTED * SECOND)
    return Request(
        "otlp/traces", in_json(traces(told, scope="com.opencode", resource={"service.name": "opencode"}))
    )


def opencodes_event() -> Request:
    said = {
        "event.name": "api_request", "session.id": "ses_01", "model": "claude-sonnet-5", "provider": "anthropic",
        "input_tokens": 900, "output_tokens": 120, "reasoning_tokens": 80, "cache_read_tokens": 18_000,
        "cache_creation_tokens": 700, "duration_ms": 1000,
    }  # fmt: skip
    record = {
        "timeUnixNano": str(AT + SECOND),
        "attributes": [attribute(name, value) for name, value in said.items()],
    }
    resource = {"attributes": [attribute("service.name", "opencode")]}
    scopes = [{"scope": {"name": "com.opencode"}, "logRecords": [record]}]
    return Request("otlp/logs", in_json({"resourceLogs": [{"resource": resource, "scopeLogs": scopes}]}))


def served(model: str) -> Request:
    """Return a call that an application sent to a model server."""
    return chat("shop", "app", **usage(model, 20, 5))


SERVERS = {
    "vllm": ("vllm/served_tokens_cumulative", "Qwen/Qwen3-32B"),
    "sglang": ("sglang/served_tokens_cumulative", "Qwen/Qwen3-32B"),
    "tgi": ("tgi/served_tokens_histograms", "qwen3"),
    "nim": ("nim/served_tokens_bare_names", "qwen3"),
    "llama.cpp": ("llama_cpp/served_tokens_cumulative", "qwen3"),
    "ollama": ("ollama/exporter_tokens", "qwen3:8b"),
}
MODEL = {"gen_ai.request.model": "gpt-4", "gen_ai.provider.name": "openai"}
BOTH = {"input": 52, "output": 47}
SENDERS = {
    "cursor": Sender(case("otlp/cursor/api_events"), [case("otlp/cursor/counters_delta")], (19_440, 330)),
    "copilot cli": Sender(
        case("otlp/copilot_cli/credits_of_calls", is_call),
        [
            case("otlp/copilot_cli/credits_of_calls", is_agent),
            counters(
                "github-copilot",
                "github.copilot",
                {"gen_ai.client.token.usage": {"input": 100_389, "output": 397}},
                **{"gen_ai.request.model": "claude-sonnet-5"},
            ),
        ],
        (101_689, 457),
    ),
    "copilot chat": Sender(
        case("otlp/copilot_chat/agent_trace", is_call),
        [case("otlp/copilot_chat/agent_trace", is_agent)],
        (3_600, 550),
    ),
    "kong metering": Sender(kongs_log(), [case("gateway/openmeter/kong-llm-requests")], (1_320, 212)),
    "opencode": Sender(
        opencodes_spans(),
        [opencodes_event(), case("otlp/opencode/counters_with_chosen_prefix")],
        (19_600, 200),
    ),
    "pi, pi-otel": Sender(
        case("otlp/pi/pi_otel_request"),
        [
            counters(
                "pi",
                "pi-otel",
                {"gen_ai.client.token.usage": {"input": 900, "output": 50}},
                **{"gen_ai.request.model": "claude-sonnet-5", "gen_ai.system": "pi"},
            )
        ],
        (1_600, 50),
    ),
    "pi, extension": Sender(case("otlp/pi/extension_turns"), [case("otlp/pi/counters")], (1_900, 150)),
    "goose": Sender(
        case("otlp/goose/reply_stream", is_call),
        [case("otlp/goose/reply_stream", is_agent), case("otlp/goose/session_tokens")],
        (17_000, 86),
    ),
    "sentry": Sender(
        case("otlp/sentry/agent_and_call", is_call), [case("otlp/sentry/agent_and_call", is_agent)], (200, 20)
    ),
    "qwen code": Sender(
        case("otlp/qwen_code/api_events"),
        [
            counters(
                "qwen-code",
                "qwen-code",
                {"qwen-code.token.usage": {"input": 1500, "output": 180}},
                key="type",
                model="qwen3-coder-plus",
                **{"session.id": "2f0c7b52-1a2b-4c3d-8e4f-001122334455"},
            )
        ],
        (1500, 180),
    ),
    "realtime": Sender(
        case("otlp/otel_genai/realtime_inference"),
        [case("otlp/otel_genai/inference_usage_by_modality")],
        (1_200, 300),
    ),
    "conventions": Sender(
        case("otlp/otel_genai/chat_simple"),
        [
            counters(
                "joke-service",
                "opentelemetry.instrumentation.openai_v2",
                {"gen_ai.client.token.usage": BOTH, "gen_ai.client.inference.tokens": BOTH},
                **MODEL,
            ),
            counters(
                "joke-service",
                "opentelemetry.instrumentation.openai_v2",
                {
                    "gen_ai.client.inference.usage.input_tokens": {"": 52},
                    "gen_ai.client.inference.usage.output_tokens": {"": 47},
                },
                **MODEL,
            ),
        ],
        (52, 47),
    ),
    "vercel": Sender(
        case("otlp/vercel_ai/gateway_charged", is_call),
        [case("otlp/vercel_ai/gateway_charged", is_agent)],
        (100, 10),
    ),
    "openrouter": Sender(
        case("otlp/openrouter/broadcast_generation"),
        [
            Request("openrouter", case("otlp/openrouter/broadcast_generation").body),
            Request(
                "openrouter",
                in_json(
                    {
                        "data": {
                            "id": "gen-1772442-abc",
                            "created_at": "2026-03-02T09:00:00Z",
                            "model": "anthropic/claude-sonnet-4.5",
                            "native_tokens_prompt": 2100,
                            "native_tokens_completion": 640,
                            "native_tokens_cached": 1800,
                            "native_tokens_reasoning": 300,
                            "tokens_prompt": 2400,
                            "tokens_completion": 700,
                            "total_cost": 0.01131,
                            "generation_time": 1200,
                            "provider_name": "Amazon Bedrock",
                        }
                    }
                ),
            ),
        ],
        (2_100, 640),
    ),
    "aisix": Sender(
        lines("gateway/aisix/object-store-lines"),
        [
            chat(
                "aisix",
                "aisix",
                **usage("claude-sonnet-5", 912, 40),
                **{"gen_ai.response.id": "msg_01AbCdEfGhIjKlMnOpQr", "gen_ai.provider.name": "anthropic"},
            )
        ],
        (1_412, 120),
    ),
    "snowflake": Sender(
        lines("gateway/snowflake/usage-history-rows"),
        [
            Request(
                "snowflake", lines("gateway/snowflake/usage-history-rows").body.replace(b"0.0093", b"0.0094")
            )
        ],
        (2_700, 520),
    ),
    "databricks": Sender(
        case("gateway/databricks/serving-endpoint-usage"),
        [
            Request(
                "databricks",
                in_json(
                    {
                        "databricks_request_id": "58db0e4d-2fc8-4861-976c-bc1228a16631",
                        "request_date": "2026-07-04",
                        "request_time": "2026-07-04 19:40:26.829000",
                        "status_code": 200,
                        "execution_duration_ms": 5798,
                        "served_entity_id": "2c5e22cf20044862812dfb724749c87c",
                        "request": "{}",
                        "response": json.dumps(
                            {
                                "id": "chatcmpl-2f9c0e6e",
                                "object": "chat.completion",
                                "model": "gpt-4o-2024-08-06",
                                "usage": {"prompt_tokens": 41_472, "completion_tokens": 9027},
                            }
                        ),
                    }
                ),
            )
        ],
        (41_472, 9027),
    ),
    "traefik": Sender(
        case("otlp/traefik/attempts"),
        [
            counters(
                "traefik",
                "github.com/traefik/traefik",
                {"gen_ai.client.token.usage": {"input": 120, "output": 30}},
                **{"gen_ai.request.model": "gpt-6-sol", "gen_ai.response.model": "gpt-6-sol-2026-09-01"},
            )
        ],
        (120, 30),
    ),
    "traefik, the route apart": Sender(
        case("otlp/traefik/attempts", is_attempt),
        [case("otlp/traefik/attempts", is_route), route_with_tokens()],
        (120, 30),
    ),
    "coder": Sender(
        case("otlp/claude_code/api_request_events"),
        [
            case("otlp/coder/tokens_under_two_names", lambda item: "aibridged" in item["name"]),
            case("otlp/coder/tokens_under_two_names", lambda item: "aibridged" not in item["name"]),
        ],
        (20_602, 434),
    ),
    **{
        name: Sender(served(model), [case(f"otlp/{path}")], (20, 5))
        for name, (path, model) in SERVERS.items()
    },
}


def tokens(rows: Sequence[Row]) -> tuple[int, int]:
    """Return the input and output tokens of all calls and counters that count."""
    calls = [
        row for row in rows if row["kind"] == "inference" and not row["shadow"] and row["status"] != "cached"
    ]
    counted = [row for row in rows if row["kind"] == "usage_metric" and not row["shadow"]]
    found = []
    for side in ("input", "output"):
        of_calls = sum(row[f"{side}_tokens"] or 0 for row in calls)
        of_counters = sum(int(row["value"]) for row in counted if str(row["token_type"]).startswith(side))
        found.append(of_calls + of_counters)
    return found[0], found[1]


@pytest.mark.parametrize("name", SENDERS)
def test_reports_of_one_call_count_once_in_every_order(name: str) -> None:
    """
    A sender's reports of one call are tried in all orders, one of them also with a stop after each body. Outside
    proofs, two orders are tried.
    """
    sender = SENDERS[name]
    orders = list(permutations([sender.calls, *sender.again]))
    found = [told_in_memory(order * 2)[0] for order in some(orders, every=len(orders) // 2)]
    found.append(told_on_disk(orders[-1] * 2, [True])[0])
    assert [sender.tokens] * len(found) == [tokens(rows) for rows in found]
