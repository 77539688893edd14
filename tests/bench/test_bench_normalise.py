"""
Cost of normalising per span and dialect, as a ratio. The yardstick decodes the same body with the official
classes and reads the same attributes into dicts.

The bodies contain values that change from call to call (ids, counts, users). A span of the conventions
has 15 attributes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.normalise import otlp
from gateway.normalise.outcome import ReadOptions
from tests.bench.yardstick import scalar
from tests.gateway.normalise.otlp.items import NOW, finished
from tests.rounds import IS_LONG

ROUNDS, SPANS = (60, 100) if IS_LONG else (15, 100)
# factor for a busy machine: the printed ratios are the result, and the assertion checks only the magnitude
SLACK = 10

Attributes = dict[str, Any]
chance = random.Random(7)


def digits(size: int) -> str:
    return f"{chance.getrandbits(4 * size):0{size}x}"


def counts() -> Attributes:
    return {
        "gen_ai.usage.input_tokens": chance.randrange(20_000),
        "gen_ai.usage.output_tokens": chance.randrange(2_000),
    }


def semconv() -> Attributes:
    return counts() | {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.request.max_tokens": 512,
        "gen_ai.request.temperature": 0.7,
        "gen_ai.response.id": f"chatcmpl-{digits(24)}",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.cache_read.input_tokens": chance.choice((0, 512, 1024)),
        "gen_ai.conversation.id": f"conv-{digits(8)}",
        "server.address": "api.openai.com",
        "server.port": 443,
        "user.id": f"u-{chance.randrange(500)}",
    }


def openllmetry() -> Attributes:
    return semconv() | {
        "traceloop.workflow.name": "report",
        "traceloop.association.properties.user_id": f"u-{chance.randrange(500)}",
        "traceloop.association.properties.plan": "gold",
        "gen_ai.usage.total_tokens": 5,
    }


def openinference() -> Attributes:
    return {
        "openinference.span.kind": "LLM",
        "llm.provider": "anthropic",
        "llm.system": "anthropic",
        "llm.model_name": "claude-sonnet-4-5",
        "llm.invocation_parameters": '{"max_tokens": 1024}',
        "llm.token_count.prompt": chance.randrange(20_000),
        "llm.token_count.prompt_details.cache_read": 10,
        "llm.token_count.completion": chance.randrange(2_000),
        "llm.token_count.total": 5,
        "llm.cost.total": 0.00875,
        "input.value": "a question " * 20,
        "output.value": "an answer " * 40,
        "session.id": digits(8),
        "user.id": digits(8),
        "metadata": '{"tenant": "acme", "experiment": 4}',
    }


def vercel_ai() -> Attributes:
    answer = f"resp_{digits(24)}"
    return counts() | {
        "ai.operationId": "ai.streamText.doStream",
        "ai.model.provider": "anthropic.messages",
        "ai.model.id": "claude-sonnet-4-0",
        "ai.response.finishReason": "stop",
        "ai.response.id": answer,
        "ai.response.model": "claude-sonnet-4-20250514",
        "ai.response.text": "an answer " * 40,
        "ai.response.providerMetadata": json.dumps(
            {"anthropic": {"cacheCreationInputTokens": chance.randrange(3000)}}
        ),
        "ai.usage.inputTokens": 7,
        "ai.usage.outputTokens": 445,
        "ai.usage.cachedInputTokens": chance.randrange(20_000),
        "ai.telemetry.metadata.userId": digits(6),
        "gen_ai.system": "anthropic.messages",
        "gen_ai.response.id": answer,
    }


def langfuse() -> Attributes:
    usage = {
        "input": chance.randrange(9000),
        "output": 380,
        "input_cached_tokens": 2000,
        "output_reasoning_tokens": 76,
    }
    return {
        "langfuse.observation.type": "generation",
        "langfuse.observation.level": "DEFAULT",
        "langfuse.observation.model.name": "claude-sonnet-4-5",
        "langfuse.observation.usage_details": json.dumps(usage),
        "langfuse.observation.cost_details": json.dumps(
            {"input": 0.00036, "output": 0.00684, "total": 0.0072}
        ),
        "langfuse.observation.input": "a question " * 20,
        "langfuse.observation.output": "an answer " * 40,
        "langfuse.trace.name": "support",
        "langfuse.trace.tags": ["beta", "eu"],
        "langfuse.trace.metadata.region": '"eu-west-1"',
        "user.id": digits(6),
        "session.id": digits(6),
    }


def strands() -> Attributes:
    return counts() | {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "strands-agents",
        "gen_ai.request.model": "us.anthropic.claude-sonnet-4-20250514-v1:0",
        "gen_ai.usage.prompt_tokens": 20,
        "gen_ai.usage.completion_tokens": 91,
        "gen_ai.usage.total_tokens": 1643,
        "gen_ai.usage.cache_read_input_tokens": chance.randrange(9000),
        "gen_ai.usage.cache_write_input_tokens": 0,
        "gen_ai.event.start_time": "2026-03-02T09:00:00.200000+00:00",
        "gen_ai.server.time_to_first_token": 640,
        "session.id": digits(8),
    }


def litellm() -> Attributes:
    usage = f"{{'prompt_tokens': 120, 'prompt_tokens_details': {{'cached_tokens': {chance.randrange(100)}}}}}"
    return semconv() | {
        "gen_ai.operation.name": "acompletion",
        "llm.request.type": "acompletion",
        "gen_ai.cost.total_cost": chance.random() / 100,
        "metadata.user_api_key_alias": "ci-key",
        "metadata.user_api_key_team_id": "team-green",
        "metadata.user_api_key_user_id": "u-3",
        "metadata.usage_object": usage,
    }


def plain_http() -> Attributes:
    return {
        "http.request.method": "POST",
        "url.full": f"https://shop.example/{digits(8)}",
        "url.scheme": "https",
        "server.address": "shop.example",
        "server.port": 443,
        "http.response.status_code": 200,
        "network.protocol.version": "1.1",
        "client.address": "10.0.0.1",
        "user_agent.original": "curl/8.5.0",
        "http.route": "/{page}",
    }


# Per dialect: scope, attributes and maximum ratio. The yardstick does not read objects inside attributes.
DIALECTS: dict[str, tuple[str, Callable[[], Attributes], float]] = {
    "otel": ("opentelemetry.instrumentation.openai_v2", semconv, 1.5),
    "openllmetry": ("opentelemetry.instrumentation.openai", openllmetry, 1.6),
    "openinference": ("openinference.instrumentation.anthropic", openinference, 2.8),
    "vercel_ai": ("ai", vercel_ai, 2.8),
    "langfuse": ("langfuse-sdk", langfuse, 4.2),
    "strands": ("strands.telemetry.tracer", strands, 2.0),
    "litellm": ("litellm", litellm, 2.2),
    "plain HTTP": ("opentelemetry.instrumentation.fastapi", plain_http, 1.0),
}


def put(target: Any, value: Any) -> None:
    if isinstance(value, list):
        for part in value:
            put(target.array_value.values.add(), part)
    else:
        setattr(target, {str: "string_value", int: "int_value", float: "double_value"}[type(value)], value)


def body(scope_name: str, attributes: Callable[[], Attributes]) -> bytes:
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = group.scope_spans.add()
    scope.scope.name = scope_name
    for number in range(SPANS):
        span = scope.spans.add(
            name="span", kind=3, trace_id=bytes.fromhex(digits(32)), span_id=bytes.fromhex(digits(16))
        )
        span.start_time_unix_nano = NOW + number
        span.end_time_unix_nano = NOW + number + 900_000_000
        for name, value in attributes().items():
            put(span.attributes.add(key=name).value, value)
    return message.SerializeToString()


def read_attributes(encoded: bytes) -> list[Attributes]:
    message = ExportTraceServiceRequest.FromString(encoded)
    return [
        {item.key: scalar(item.value) for item in span.attributes}
        for group in message.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def best(encoded: list[bytes], *actions: Callable[[bytes], object]) -> list[float]:
    """
    Return microseconds per span: the fastest of several rounds, in which the actions take turns. Noise
    only adds time.
    """
    times = [float("inf")] * len(actions)
    for _ in range(ROUNDS):
        for place, action in enumerate(actions):
            start = process_time()
            for one in encoded:
                action(one)
            times[place] = min(times[place], (process_time() - start) / len(encoded) / SPANS)
    return [seconds * 1e6 for seconds in times]


@pytest.mark.bench
@pytest.mark.parametrize("dialect", DIALECTS)
def test_normalising_costs_little_more_than_reading(dialect: str) -> None:
    """A span of the conventions becomes a record in about 1.5 times the time of reading it."""
    scope, attributes, limit = DIALECTS[dialect]
    encoded = [body(scope, attributes) for _ in range(5)]
    options = ReadOptions()

    def normalise(one: bytes) -> None:
        outcome = finished(otlp.normalise_otlp("traces", one, json=False, options=options))
        assert (SPANS if dialect != "plain HTTP" else 0) == len(outcome.records)

    ours, theirs = best(encoded, normalise, read_attributes)
    print(f"\n{dialect}: {ours:.1f} µs a span, reading {theirs:.1f} µs, ratio {ours / theirs:.2f}")
    assert ours <= theirs * limit * SLACK
