"""
Prepared bodies of the load. Every id contains a mark that each request replaces by its number, so every call
of a request is new.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from isal import igzip
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# This text is replaced by a number. It is as long as the number's digits, so that a body's length never
# changes.
RUN = b"@@run@@@"
# the digits in a received record are the request's number and the position within the request
IDS = re.compile(rb"chatcmpl-(\d{24})")
FLEET_USERS = 5000
LITELLM = Path(__file__).parents[2] / "cases/gateway/litellm/slp-batch-array.json"


def numbered(template: bytes, number: int) -> bytes:
    """Return the template as the body of the request with that number."""
    return template.replace(RUN, b"%08d" % number)


def texts_of(number: int, users: int) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.id": f"chatcmpl-{RUN.decode()}{number:016d}",
        "gen_ai.conversation.id": f"conversation-{number % 10}",
        "gen_ai.output.type": "text",
        "server.address": "api.openai.com",
        "user.id": f"user-{number % users}",
    }


def numbers_of(number: int) -> dict[str, int]:
    return {
        "gen_ai.usage.input_tokens": 1200 + number,
        "gen_ai.usage.output_tokens": 80,
        "gen_ai.usage.cache_read.input_tokens": 1024,
        "gen_ai.request.max_tokens": 512,
        "gen_ai.request.choice.count": 1,
        "server.port": 443,
    }


def protobuf_spans(spans: int, *, first: int = 0, users: int = 50, age_s: int = 0) -> bytes:
    """
    Make a request with GenAI spans of 15 attributes, as an SDK exports them. Users count up from
    `first`, modulo `users`.
    """
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    service = group.resource.attributes.add(key="service.name")
    service.value.string_value = "shop"
    scope = group.scope_spans.add()
    scope.scope.name = "opentelemetry.instrumentation.openai_v2"
    for number in range(first, first + spans):
        span = scope.spans.add(name="chat gpt-4o", kind=3)
        span.trace_id = RUN + number.to_bytes(7, "big") + b"\1"
        span.span_id = b"\1" + number.to_bytes(7, "big")
        span.start_time_unix_nano = time.time_ns() - age_s * 1_000_000_000
        span.end_time_unix_nano = span.start_time_unix_nano + 900_000_000
        for key, text in texts_of(number, users).items():
            span.attributes.add(key=key).value.string_value = text
        for key, value in numbers_of(number).items():
            span.attributes.add(key=key).value.int_value = value
    return message.SerializeToString()


# (provider, request model, response model), which alternate within a request
REAL_MODELS = tuple(
    (provider, model, f"{model}-2026-08")
    for provider, models in {
        "openai": ("gpt-5", "gpt-5-mini", "gpt-4o", "gpt-4.1", "o4-mini"),
        "anthropic": ("claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5", "claude-3-7-sonnet"),
        "gcp.gemini": ("gemini-3-pro", "gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"),
        "aws.bedrock": ("amazon.nova-pro-v1:0", "amazon.nova-lite-v1:0", "meta.llama3-3-70b-instruct-v1:0"),
        "mistral_ai": ("mistral-large-latest", "mistral-small-latest"),
        "deepseek": ("deepseek-chat", "deepseek-reasoner"),
    }.items()
    for model in models
)
REAL_SERVICES, REAL_TEAMS = 200, 12


def real_spans(spans: int, service: int, *, conversation_of_span: bool = False) -> bytes:
    """
    Make a request of one of REAL_SERVICES with the variety of an organization: alternating models and
    providers, 12 teams, 5,000 users, tags, and a new conversation per request or per span.
    """
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    for key, text in {"service.name": f"service-{service}", "deployment.environment.name": "prod"}.items():
        group.resource.attributes.add(key=key).value.string_value = text
    scope = group.scope_spans.add()
    scope.scope.name = "opentelemetry.instrumentation.openai_v2"
    chance = Random(service)
    for number in range(spans):
        provider, request_model, response_model = REAL_MODELS[(service + number) % len(REAL_MODELS)]
        user = chance.randrange(FLEET_USERS)
        span = scope.spans.add(name=f"chat {request_model}", kind=3)
        span.trace_id = RUN + number.to_bytes(7, "big") + b"\1"
        span.span_id = b"\1" + number.to_bytes(7, "big")
        span.start_time_unix_nano = time.time_ns()
        span.end_time_unix_nano = span.start_time_unix_nano + chance.randrange(200, 9000) * 1_000_000
        conversation = f"conversation-{RUN.decode()}"
        texts = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": request_model,
            "gen_ai.response.model": response_model,
            "gen_ai.response.id": f"chatcmpl-{RUN.decode()}{number:016d}",
            "gen_ai.conversation.id": f"{conversation}-{number}" if conversation_of_span else conversation,
            "user.id": f"user-{user:04}",
            "team.id": f"team-{user % REAL_TEAMS:02}",
            "app.feature": f"feature-{service % 30}",
            "cost_center": f"center-{user % 40}",
        }
        numbers = {
            "gen_ai.usage.input_tokens": chance.randrange(200, 60_000),
            "gen_ai.usage.output_tokens": chance.randrange(10, 2_000),
            "gen_ai.usage.cache_read.input_tokens": chance.randrange(0, 200),
            "gen_ai.request.max_tokens": 4096,
        }
        for key, text in texts.items():
            span.attributes.add(key=key).value.string_value = text
        for key, value in numbers.items():
            span.attributes.add(key=key).value.int_value = value
    return message.SerializeToString()


def json_spans(spans: int) -> bytes:
    """Make the spans of `protobuf_spans` as OTLP JSON."""

    def span_of(number: int) -> dict[str, Any]:
        start = time.time_ns()
        attributes: list[dict[str, Any]] = [
            {"key": key, "value": {"stringValue": text}} for key, text in texts_of(number, users=50).items()
        ]
        attributes += [
            {"key": key, "value": {"intValue": str(value)}} for key, value in numbers_of(number).items()
        ]
        return {
            "traceId": f"{RUN.decode()}{number:022x}01",
            "spanId": f"01{number:014x}",
            "name": "chat gpt-4o",
            "kind": 3,
            "startTimeUnixNano": str(start),
            "endTimeUnixNano": str(start + 900_000_000),
            "attributes": attributes,
        }

    scope = {
        "scope": {"name": "opentelemetry.instrumentation.openai_v2"},
        "spans": [span_of(number) for number in range(spans)],
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}).encode()


def odd_json_spans(spans: int) -> bytes:
    """Make OTLP JSON spans in which no two share a model, a name, an attribute name or a conversation."""
    message = json.loads(json_spans(spans))
    for number, span in enumerate(message["resourceSpans"][0]["scopeSpans"][0]["spans"]):
        mark = f"{RUN.decode()}-{number}"
        span["name"] = f"chat model-{mark}"
        own = {"gen_ai.request.model", "gen_ai.response.model", "gen_ai.conversation.id", "user.id"}
        kept = [attribute for attribute in span["attributes"] if attribute["key"] not in own]
        texts = {**{key: f"{key}-{mark}" for key in own}, f"app.label_{mark}": "1"}
        span["attributes"] = kept + [
            {"key": key, "value": {"stringValue": text}} for key, text in sorted(texts.items())
        ]
    return json.dumps(message).encode()


def assistant_events(events: int) -> bytes:
    """Make OTLP JSON log records of Claude Code's API requests, each with its own session."""
    now = time.time_ns()

    def record_of(number: int) -> dict[str, Any]:
        session = f"{RUN.decode()}-{number}"
        texts = {
            "event.name": "api_request",
            "session.id": session,
            "user.id": f"user-{session}",
            "model": "claude-sonnet-4-5",
            "request_id": f"req_{RUN.decode()}{number:016d}",
            "cost_usd": "0.0153",
            "input_tokens": "1200",
            "output_tokens": "80",
            "cache_read_tokens": "1024",
            "cache_creation_tokens": "0",
            "duration_ms": "900",
        }
        attributes = [{"key": key, "value": {"stringValue": text}} for key, text in texts.items()]
        body = {"stringValue": "claude_code.api_request"}
        return {"timeUnixNano": str(now), "body": body, "attributes": attributes}

    scope = {
        "scope": {"name": "com.anthropic.claude_code.events"},
        "logRecords": [record_of(number) for number in range(events)],
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "claude-code"}}]}
    return json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}).encode()


def counter_points(points: int, *, first: int = 0) -> bytes:
    """
    Make cumulative Claude Code token counters as OTLP JSON, one series each. They grow with each request.
    """
    seconds = int(time.time())

    def point_of(number: int) -> dict[str, Any]:
        texts = {"session.id": f"session-{number}", "type": "input", "model": "claude-sonnet-4-5"}
        return {
            "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in texts.items()],
            "startTimeUnixNano": str((seconds - 60) * 1_000_000_000),
            "timeUnixNano": f"{seconds}{RUN.decode()}0",
            "asInt": f"1{RUN.decode()}",
        }

    counter = {
        "name": "claude_code.token.usage",
        "unit": "tokens",
        "sum": {
            "aggregationTemporality": 2,
            "isMonotonic": True,
            "dataPoints": [point_of(number) for number in range(first, first + points)],
        },
    }
    scope = {"scope": {"name": "com.anthropic.claude_code"}, "metrics": [counter]}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "claude-code"}}]}
    return json.dumps({"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}).encode()


def litellm_events(events: int) -> bytes:
    """Make a batch of LiteLLM logging payloads of real size, including the model's price and the messages."""
    cases, now = _litellm_cases(), time.time()
    return json.dumps([_litellm_event(cases[number % 2], number, now) for number in range(events)]).encode()


def fleet_events(events: int, bodies: int = 100) -> Iterator[bytes]:
    """
    Yield batches of LiteLLM payloads for 500 teams, 5,000 users and 200 models, with calls from 300 days.
    """
    cases, now, chance = _litellm_cases(), time.time(), Random(bodies)

    def event_of(number: int) -> dict[str, Any]:
        user, model = chance.randrange(FLEET_USERS), f"openai/model-{chance.randrange(200):03}"
        event = _litellm_event(cases[0], number, now - chance.randrange(300 * 86_400))
        who = {"user_api_key_user_id": f"user-{user:04}", "user_api_key_team_id": f"team-{user % 500:03}"}
        return event | {"model": model, "metadata": event["metadata"] | who}

    for _ in range(bodies):
        yield json.dumps([event_of(number) for number in range(events)]).encode()


def _litellm_cases() -> list[dict[str, Any]]:
    """Return two chats whose id is the id of the call."""
    cases: list[dict[str, Any]] = json.loads(LITELLM.read_bytes())[:2]
    prices = {f"{kind}_cost_per_token_above_{step}k_tokens": 1.25e-06 for kind in "io" for step in range(25)}
    for event in cases:
        event["model_map_information"]["model_map_value"] |= prices
        event["messages"] = [{"role": "user", "content": "What does it cost? " * 60}]
    return cases


def _litellm_event(case: dict[str, Any], number: int, now: float) -> dict[str, Any]:
    times = {"startTime": now - 1, "endTime": now, "completionStartTime": now - 0.5}
    id = f"chatcmpl-{RUN.decode()}{number:016d}"
    return case | times | {"id": id, "litellm_call_id": id}


def usage_events(events: int) -> bytes:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def event_of(number: int) -> dict[str, Any]:
        return {
            "id": f"event-{RUN.decode()}{number:016d}",
            "type": "document.converted",
            "subject": f"customer-{number % 50}",
            "time": now,
            "data": {"pages": 12, "plan": "gold"},
        }

    return json.dumps([event_of(number) for number in range(events)]).encode()


def device_id(number: int) -> str:
    return f"laptop-{number:06d}"


def heartbeat(number: int) -> bytes:
    """Make the heartbeat of a laptop agent; each number is a different device."""
    return json.dumps(
        {
            "device_id": device_id(number),
            "hostname": device_id(number),
            "platform": "linux",
            "agent_version": "1.0.0",
            "user": f"user-{number % 50}",
            "sent_at": time.time(),
            "spool": {"records": 12, "oldest_age_s": 3.5},
            "sources": {"claude-code": {"last_seen": "2026-11-21T03:00:00Z", "records": 400}},
        }
    ).encode()


def _plain(body: bytes) -> bytes:
    return body


def _gzipped(body: bytes) -> bytes:
    packed: bytes = igzip.compress(body, compresslevel=1)
    return packed


def _zstandard(body: bytes) -> bytes:
    return zstd.compress(body, 1)


def inflated(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        plain: bytes = igzip.decompress(body)  # type: ignore[no-untyped-call]
        return plain
    return zstd.decompress(body) if encoding == "zstd" else body


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {"": _plain, "gzip": _gzipped, "zstd": _zstandard}
