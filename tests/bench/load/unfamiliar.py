"""Requests of senders that nobody has tuned for: names, models, people, tags and order are drawn by a seed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from random import Random
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.bench.load.payloads import FLEET_USERS, REAL_MODELS, RUN

BODIES = 200
# the share of spans with each of these, as in captured requests; a conversation has 4 to 40 messages
LISTS, REDUCED, EVENTS, CONVERSATIONS = 0.06, 0.18, 0.08, 0.1
TEXTS = (
    "gen_ai.response.model", "gen_ai.conversation.id", "gen_ai.agent.name", "gen_ai.agent.id", "gen_ai.output.type",
    "user.id", "team.id", "cost_center", "department", "error.type", "cloud.region", "server.address", "http.route",
    "deployment.environment.name",
)  # fmt: skip
# people, agents and conversations are as many as in `payloads`; regions, addresses and others are fewer in any company
FEW, OTHERS = {*TEXTS} - {"user.id", "gen_ai.conversation.id", "gen_ai.agent.id"}, 200
NUMBERS = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.request.max_tokens", "gen_ai.request.temperature", "gen_ai.request.top_p", "gen_ai.request.choice.count",
    "server.port",
)  # fmt: skip


def unfamiliar_spans(spans: int, seed: int) -> Iterator[bytes]:
    """Yield requests. Each span has its own set of attributes, and up to 8 names that never recur."""
    chance = Random(seed)
    models = [f"model-{chance.getrandbits(24):x}" for _ in range(40)]
    for _ in range(BODIES):
        message = ExportTraceServiceRequest()
        group = message.resource_spans.add()
        service = group.resource.attributes.add(key="service.name")
        service.value.string_value = f"service-{chance.getrandbits(24):x}"
        scope = group.scope_spans.add()
        scope.scope.name = "opentelemetry.instrumentation.openai_v2"
        for number in range(spans):
            _add_span(scope, number, chance.choice(models), chance)
        yield message.SerializeToString()


def _add_span(scope: Any, number: int, model: str, chance: Random) -> None:
    span = scope.spans.add(name=f"chat {model}", kind=3)
    span.trace_id = RUN + number.to_bytes(7, "big") + b"\1"
    span.span_id = b"\1" + number.to_bytes(7, "big")
    span.start_time_unix_nano = time.time_ns()
    span.end_time_unix_nano = span.start_time_unix_nano + chance.randrange(200, 9000) * 1_000_000
    attributes = list(_attributes(number, model, chance).items())
    chance.shuffle(attributes)
    for name, value in attributes:
        said = span.attributes.add(key=name).value
        if isinstance(value, list):
            said.array_value.values.add(string_value=value[0])
        elif isinstance(value, str):
            said.string_value = value
        elif isinstance(value, float):
            said.double_value = value
        else:
            said.int_value = value
    if chance.random() < EVENTS:
        event = span.events.add(name="exception", time_unix_nano=span.end_time_unix_nano)
        event.attributes.add(key="exception.type").value.string_value = "TimeoutError"
        event.attributes.add(key="exception.stacktrace").value.string_value = "  File x.py, line 1\n" * 40


def _attributes(number: int, model: str, chance: Random) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": chance.choice(REAL_MODELS)[0],
        "gen_ai.request.model": model,
        "gen_ai.response.id": f"chatcmpl-{RUN.decode()}{number:016d}",
    }
    for name in chance.sample((*TEXTS, *NUMBERS), chance.randrange(4, 15)):
        drawn = chance.randrange(OTHERS if name in FEW else FLEET_USERS)
        attributes[name] = drawn if name in NUMBERS else f"{name.rpartition('.')[2]}-{drawn}"
    if "gen_ai.response.model" in attributes:
        attributes["gen_ai.response.model"] = f"{model}-2026-11-20"
    for name in ("gen_ai.request.temperature", "gen_ai.request.top_p"):
        if name in attributes:
            attributes[name] = 0.5
    for place in range(chance.randrange(9)):
        attributes[f"app.{RUN.decode()}.{number}.{place}"] = chance.choice(("on", "eu", "7f3a", 3))
    if chance.random() < LISTS:
        attributes["gen_ai.response.finish_reasons"] = ["stop"]
    if chance.random() < REDUCED:
        part = {"type": "text", "content": "an answer " * 30}
        attributes["gen_ai.output.messages"] = json.dumps([{"role": "assistant", "parts": [part]}])
    if chance.random() < CONVERSATIONS:
        for place in range(chance.randrange(4, 40)):
            attributes[f"llm.input_messages.{place}.message.role"] = "user"
            attributes[f"llm.input_messages.{place}.message.content"] = "a sentence " * chance.randrange(
                1, 40
            )
    return attributes
