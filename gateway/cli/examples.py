"""One small payload for each format, as its gateway would send it now: for a first record without a client."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time_ns
from typing import Any
from uuid import uuid4

MODEL, ANSWERED = "gpt-4o-mini", "gpt-4o-mini-2024-07-18"
INPUT, OUTPUT, CACHED = 1320, 212, 1024
COST = 0.0002484
TOOK_MS = 1200


@dataclass(frozen=True)
class Call:
    """A call that ended just now; every id is new each time."""

    end_ns: int = field(default_factory=time_ns)
    uuid: str = field(default_factory=lambda: str(uuid4()))
    trace_id: str = field(default_factory=lambda: secrets.token_hex(16))
    span_id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def start_ns(self) -> int:
        return self.end_ns - TOOK_MS * 1_000_000

    @property
    def response_id(self) -> str:
        return f"chatcmpl-{self.uuid}"


def example(format: str, call: Call | None = None) -> bytes:
    """A payload with one call in it."""
    return json.dumps(EXAMPLES[format](call or Call())).encode()


def _text(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _openai_usage() -> dict[str, Any]:
    return {
        "prompt_tokens": INPUT,
        "completion_tokens": OUTPUT,
        "total_tokens": INPUT + OUTPUT,
        "prompt_tokens_details": {"cached_tokens": CACHED},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _litellm(call: Call) -> Any:
    return [{
        "id": call.response_id, "litellm_call_id": str(uuid4()), "trace_id": call.trace_id, "call_type": "acompletion",
        "status": "success", "custom_llm_provider": "openai", "startTime": call.start_ns / 1e9,
        "endTime": call.end_ns / 1e9, "model": f"openai/{MODEL}", "model_group": MODEL, "prompt_tokens": INPUT,
        "completion_tokens": OUTPUT, "response_cost": COST, "request_tags": ["env:example"],
        "metadata": {
            "user_api_key_alias": "example-key", "user_api_key_team_id": "example-team",
            "user_api_key_user_id": "example-user", "usage_object": _openai_usage(),
        },
        "response": {"id": call.response_id, "model": MODEL},
    }]  # fmt: skip


def _openrouter(call: Call) -> Any:
    return {"data": {
        "id": f"gen-{call.end_ns // 10**9}-{secrets.token_urlsafe(15)}", "api_type": "completions",
        "model": f"openai/{MODEL}", "provider_name": "OpenAI", "created_at": _text(call.start_ns), "latency": TOOK_MS,
        "native_tokens_prompt": INPUT, "native_tokens_completion": OUTPUT, "native_tokens_cached": CACHED,
        "total_cost": COST, "cancelled": False, "external_user": "example-user",
    }}  # fmt: skip


def _langfuse(call: Call) -> Any:
    trace = {"id": call.trace_id, "userId": "example-user", "sessionId": "example-session", "tags": ["env:example"]}
    generation = {
        "id": call.uuid, "traceId": call.trace_id, "model": MODEL, "startTime": _text(call.start_ns),
        "endTime": _text(call.end_ns), "usageDetails": _openai_usage(), "costDetails": {"total": COST},
    }  # fmt: skip
    events = (("trace-create", trace), ("generation-create", generation))
    return {
        "batch": [
            {"id": str(uuid4()), "type": type, "timestamp": _text(call.end_ns), "body": body} for type, body in events
        ]
    }


def _kong(call: Call) -> Any:
    return {
        "request": {"id": call.uuid.replace("-", ""), "uri": "/v1/chat/completions"}, "response": {"status": 200},
        "started_at": call.start_ns // 1_000_000, "latencies": {"request": TOOK_MS}, "workspace_name": "default",
        "consumer": {"username": "example-user"}, "route": {"name": "example-route"},
        "ai": {"proxy": {
            "meta": {"provider_name": "openai", "request_model": MODEL, "response_model": ANSWERED},
            "usage": _openai_usage() | {"cost": COST}, "tried_targets": [{"route_type": "llm/v1/chat"}],
        }},
    }  # fmt: skip


def _portkey(call: Call) -> Any:
    return {
        "id": call.uuid, "trace_id": call.trace_id, "created_at": _text(call.start_ns), "response_time": TOOK_MS,
        "ai_org": "openai", "ai_model": MODEL, "req_units": INPUT, "res_units": OUTPUT, "cost": COST * 100,
        "request_url": "https://api.openai.com/v1/chat/completions", "response_status_code": 200,
        "workspace_slug": "example-team", "metadata": {"_user": "example-user", "env": "example"},
    }  # fmt: skip


def _bedrock(call: Call) -> Any:
    return {
        "schemaType": "ModelInvocationLog", "schemaVersion": "1.0", "timestamp": _text(call.start_ns),
        "accountId": "123456789012", "identity": {"arn": "arn:aws:iam::123456789012:user/example-user"},
        "region": "us-east-1", "requestId": call.uuid, "operation": "Converse", "modelId": "amazon.nova-lite-v1:0",
        "input": {"inputTokenCount": INPUT, "cacheReadInputTokenCount": 0, "cacheWriteInputTokenCount": 0},
        "output": {"outputTokenCount": OUTPUT}, "requestMetadata": {"team": "example-team"},
    }  # fmt: skip


def _cloudflare(call: Call) -> Any:
    return [{
        "id": call.uuid, "cached": False, "created_at": _text(call.start_ns), "duration": TOOK_MS, "model": MODEL,
        "path": "chat/completions", "provider": "openai", "request_type": "chat", "success": True, "status_code": 200,
        "tokens_in": INPUT, "tokens_out": OUTPUT, "cost": COST, "metadata": {"user_id": "example-user"},
    }]  # fmt: skip


def _envoy_ai_gateway(call: Call) -> Any:
    return {
        "x-request-id": call.uuid, "start_time": _text(call.start_ns), "duration": TOOK_MS, "response_code": 200,
        "response_flags": "-", "x-envoy-origin-path": "/v1/chat/completions", "route_name": "example-route",
        "gen_ai.provider.name": "default/example/route/rule/0", "gen_ai.request.model": MODEL,
        "gen_ai.request.model_override": None, "gen_ai.usage.input_tokens": INPUT,
        "gen_ai.usage.output_tokens": OUTPUT,
    }  # fmt: skip


def _helicone(call: Call) -> Any:
    return {
        "request_id": call.uuid, "user_id": "example-user", "request_body": "truncated", "response_body": "truncated",
        "request_response_url": "https://example.com/bodies", "model": MODEL, "provider": "OPENAI",
        "metadata": {"cost": COST, "promptTokens": INPUT, "completionTokens": OUTPUT, "latencyMs": TOOK_MS},
    }  # fmt: skip


def _bifrost(call: Call) -> Any:
    attributes = {
        "gen_ai.provider.name": "openai", "gen_ai.request.model": MODEL, "gen_ai.response.model": ANSWERED,
        "gen_ai.usage.prompt_tokens": INPUT, "gen_ai.usage.completion_tokens": OUTPUT, "gen_ai.usage.cost": COST,
        "bifrost.virtual_key.name": "example-key",
    }  # fmt: skip
    span = {
        "SpanID": call.span_id, "Name": f"chat {MODEL}", "Kind": "llm.call", "StartTime": _text(call.start_ns),
        "EndTime": _text(call.end_ns), "Status": "ok", "Attributes": attributes,
    }  # fmt: skip
    return {
        "TraceID": call.trace_id,
        "RootSpan": {"SpanID": secrets.token_hex(8), "Kind": "http.request"},
        "Spans": [span],
    }


def _apisix(call: Call) -> Any:
    return [{
        "start_time": call.start_ns // 1_000_000, "latency": float(TOOK_MS), "response": {"status": 200},
        "request": {"uri": "/v1/chat/completions", "headers": {"x-request-id": call.uuid}}, "route_id": "example-route",
        "consumer": {"username": "example-user"},
        "llm_summary": {
            "request_model": MODEL, "model": ANSWERED, "prompt_tokens": str(INPUT), "completion_tokens": str(OUTPUT),
            "cache_read_input_tokens": str(CACHED), "reasoning_tokens": "0",
        },
    }]  # fmt: skip


def _higress(call: Call) -> Any:
    said = {
        "model": MODEL, "input_token": str(INPUT), "output_token": str(OUTPUT), "cached_tokens": str(CACHED),
        "llm_service_duration": str(TOOK_MS), "consumer": "example-user",
    }  # fmt: skip
    return {
        "ai_log": json.dumps(said), "start_time": _text(call.start_ns), "request_id": call.uuid, "response_code": "200",
        "path": "/v1/chat/completions", "route_name": "example-route",
    }  # fmt: skip


def _agentgateway(call: Call) -> Any:
    return {
        "level": "info", "time": _text(call.end_ns), "duration": f"{TOOK_MS}ms", "scope": "request",
        "gateway": "default/gw", "route": "default/example", "http.status": 200, "trace.id": call.trace_id,
        "span.id": call.span_id, "jwt.sub": "example-user", "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai", "gen_ai.request.model": MODEL, "gen_ai.response.model": ANSWERED,
        "gen_ai.usage.input_tokens": INPUT, "gen_ai.usage.cache_read.input_tokens": CACHED,
        "gen_ai.usage.output_tokens": OUTPUT, "agw.ai.usage.cost.total": str(COST),
    }  # fmt: skip


def _vertex(call: Call) -> Any:
    return {
        "logging_time": _text(call.start_ns), "request_id": call.end_ns * 10 + secrets.randbelow(10),
        "model": "gemini-2.5-flash", "api_method": "generateContent",
        "full_request": {"labels": {"team": "example-team"}},
        "full_response": {
            "modelVersion": "gemini-2.5-flash",
            "usageMetadata": {
                "promptTokenCount": INPUT, "candidatesTokenCount": OUTPUT, "cachedContentTokenCount": CACHED,
            },
        },
    }  # fmt: skip


def _azure_apim(call: Call) -> Any:
    return [{
        "TimeGenerated": _text(call.start_ns), "OperationName": "ChatCompletions_Create", "CorrelationId": call.uuid,
        "DeploymentName": MODEL, "ModelName": ANSWERED, "PromptTokens": INPUT, "CompletionTokens": OUTPUT,
        "RequestId": call.response_id,
    }]  # fmt: skip


def _openmeter(call: Call) -> Any:
    return {
        "specversion": "1.0", "type": "litellm_tokens", "id": call.response_id, "time": _text(call.start_ns),
        "subject": "example-user", "source": "tollhouse-example",
        "data": {"model": MODEL, "prompt_tokens": INPUT, "completion_tokens": OUTPUT, "cost": COST},
    }  # fmt: skip


def _otlp(call: Call) -> Any:
    said = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": MODEL,
        "gen_ai.response.model": ANSWERED, "gen_ai.response.id": call.response_id, "gen_ai.usage.input_tokens": INPUT,
        "gen_ai.usage.output_tokens": OUTPUT,
    }  # fmt: skip
    values = {name: {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v} for name, v in said.items()}
    span = {
        "traceId": call.trace_id, "spanId": call.span_id, "name": f"chat {MODEL}", "kind": 3,
        "startTimeUnixNano": str(call.start_ns), "endTimeUnixNano": str(call.end_ns),
        "attributes": [{"key": name, "value": value} for name, value in values.items()],
    }  # fmt: skip
    service = {"key": "service.name", "value": {"stringValue": "example"}}
    return {"resourceSpans": [{"resource": {"attributes": [service]}, "scopeSpans": [{"spans": [span]}]}]}


EXAMPLES: dict[str, Callable[[Call], Any]] = {
    "litellm": _litellm, "openrouter": _openrouter, "langfuse": _langfuse, "kong": _kong, "portkey": _portkey,
    "bedrock": _bedrock, "cloudflare": _cloudflare, "envoy_ai_gateway": _envoy_ai_gateway, "helicone": _helicone,
    "bifrost": _bifrost, "apisix": _apisix, "higress": _higress, "agentgateway": _agentgateway, "vertex": _vertex,
    "azure_apim": _azure_apim, "openmeter": _openmeter, "otlp/traces": _otlp,
}  # fmt: skip
