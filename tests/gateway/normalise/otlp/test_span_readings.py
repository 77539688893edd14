"""Facts that are decided once per shape or remembered per combination of texts, compared with reading them anew."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.normalise import otlp
from gateway.normalise.otlp import semconv, shapes
from gateway.normalise.otlp.spans import readings
from gateway.normalise.otlp.spans.readings import SpanReadingPlan
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from tests.bench.load.payloads import numbered, real_spans
from tests.gateway.normalise.otlp.items import finished
from tests.gateway.normalise.otlp.payloads import any_value, in_protobuf, normalised, span, traces
from tests.gateway.normalise.otlp.trace_requests import trace_requests
from tests.rounds import part

NAMES = (
    *(name for field in ("request_model", "response_model", "provider") for name in semconv.FIELDS[field]),
    *semconv.PLAIN_MODEL, *semconv.OPERATION, *semconv.REGION, *semconv.ADDRESS, semconv.CLOUD,
)  # fmt: skip
VALUES = (
    1, True, 0.5, "", "none", "chat", "embeddings", "google", "anthropic", "aws.bedrock", "gpt-5", "eu-west-1", "aws",
    "arn:aws:bedrock:us-east-1::x", "global.anthropic.claude-3", "gemini-2.5-pro", "x" * 3000, ["chat"],
)  # fmt: skip
SCOPES = (
    "ai",
    "litellm",
    "opentelemetry.instrumentation.genai.x",
    "com.anthropic.sdk.x",
    "vllm",
    "a.bedrock",
)


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    readings._named.clear()
    yield
    readings._named.clear()


def varied(body: bytes, chance: Random) -> bytes:
    """Return a request whose spans have other values, and other names in places."""
    message = ExportTraceServiceRequest.FromString(body)
    for group in message.resource_spans:
        for scope in group.scope_spans:
            if chance.random() < 0.2:
                scope.scope.name = chance.choice(SCOPES)
            for one in scope.spans:
                for attribute in one.attributes:
                    if attribute.key in NAMES and chance.random() < 0.3:
                        put(attribute.value, chance.choice(VALUES))
                if chance.random() < 0.4:
                    put(one.attributes.add(key=chance.choice(NAMES)).value, chance.choice(VALUES))
    return message.SerializeToString()


def put(target: Any, value: Any) -> None:
    target.Clear()
    json_format.ParseDict(any_value(value), target)


def read(body: bytes) -> ReadOutcome:
    return finished(otlp.normalise_otlp("traces", body, json=False, options=ReadOptions(host_id=True)))


def certain(outcome: ReadOutcome) -> ReadOutcome:
    """Replace random dedup keys."""
    for place, identity in enumerate(outcome.identities):
        if not identity.certain:
            outcome.identities[place] = identity._replace(id=b"")
            outcome.records[place].id = b""
    return outcome


@pytest.mark.parametrize("number", part(range(len(trace_requests())), every=9))
def test_remembered_facts_equal_facts_that_are_read(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(number)
    body = trace_requests()[number]
    bodies = [body, *[varied(body, chance) for _ in range(4)], numbered(real_spans(20, number), number)]
    bodies *= 2
    remembered = [certain(read(one)) for one in bodies]
    with monkeypatch.context() as patch:
        patch.setattr(SpanReadingPlan, "remembered_call_names", lambda reading, attributes: None)
        assert remembered == [certain(read(one)) for one in bodies]


def test_facts_of_models_are_read_once() -> None:
    read(numbered(real_spans(100, 1), 1))
    known = dict(readings._named)
    assert 20 == len(known)
    read(numbered(real_spans(100, 2), 2))
    assert known == readings._named


@pytest.mark.parametrize("value", [1, True, "none", "x" * 600])
def test_only_short_texts_are_remembered(value: object) -> None:
    """1 and True are equal as keys but differ as values, and a placeholder makes other attributes decide."""
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": value, "gen_ai.usage.input_tokens": 5}
    normalised(traces(span(1, call)))
    assert {} == readings._named


def test_remembered_facts_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "_MOST_NAMED", 10)
    calls = [
        {"gen_ai.operation.name": "chat", "gen_ai.request.model": f"model-{number}"} for number in range(25)
    ]
    read(in_protobuf(traces(*[span(number + 1, call) for number, call in enumerate(calls)])))
    assert 5 <= len(readings._named) <= 10


def test_readings_of_forgotten_shapes_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape and its readings refer to each other, so they are freed by garbage collection."""
    monkeypatch.setattr(shapes, "_MOST_SHAPES", 10)
    shapes._shapes.clear()
    shapes._by_names.clear()
    declared = sorted(shapes.DECLARED)
    for number in range(200):
        normalised(traces(span(1, dict.fromkeys(declared[number : number + 2], 1))))
    gc.collect()
    assert sum(type(found) is SpanReadingPlan for found in gc.get_objects()) <= 20
