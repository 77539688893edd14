"""
Items of any signal whose names mention tokens or cost are counted or shown as unrecognized. Other
telemetry is ignored.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from gateway.normalise import otlp
from gateway.normalise.outcome import NOT_AI, UNRECOGNISED_AI, ReadOptions, ReadOutcome
from tests.gateway.normalise.otlp.items import finished, log, point, read_logs, read_points
from tests.gateway.normalise.otlp.payloads import in_json, normalised, span, traces

METRICS = [
    "some.token.usage", "some.cost.usage", "some.tokens.input", "some.agent.cost", "some.session_tokens",
    "own:prompt_tokens_total", "own:generation_tokens_total", "crewai.tokens", "kong_ai_llm_tokens_total",
    "some.assistant.credits", "devin.acu", "gen_ai.usage.tokens", "shop.model.tokens",
]  # fmt: skip
MODELS: list[dict[str, Any]] = [{}, {"cursor.model.name": "m"}, {"model_name": "m"}, {"my.model": "m"}]
NAMES = [
    "tokens", "token_count", "tokensUsed", "prompt_eval_count", "eval_count", "pi.cost.usd", "cost_usd", "credits",
    "acu_consumed", "some.nano_aiu", "llm_tokens_total",
]  # fmt: skip
PLAIN = [
    "auth.tokens.issued",
    "http.server.cost",
    "process.tokens",
    "oauth.access.tokens",
    "rate.bucket.tokens",
]


def is_shown(outcome: ReadOutcome, name: str) -> bool:
    """Return whether the only item is unrecognized under its name and gave no record."""
    (shape,) = outcome.unrecognised
    return dict(outcome.ignored) == {UNRECOGNISED_AI: 1} and name in shape and not outcome.records


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", METRICS)
def test_a_metric_of_no_family_is_shown(name: str, model: dict[str, Any]) -> None:
    """A metric of no known family is shown by its name, whether or not it names a model."""
    assert is_shown(read_points(point(name, 5, model)), name)


@pytest.mark.parametrize(
    ("name", "unit"), [("devin.acu", "ACU"), ("some.credits", "{credit}"), ("some.cost.usage", "EUR")]
)
def test_a_metric_in_a_unit_that_is_sold_is_shown(name: str, unit: str) -> None:
    """A metric in a unit that is sold, such as credits, is shown, because no rule counts it."""
    assert is_shown(read_points(point(name, 5, unit=unit)), name)


@pytest.mark.parametrize("name", ["gen_ai.client.token.usage", "some.tokens.input"])
@pytest.mark.parametrize("why", ["a gauge", "a sum that may fall", "without temporality"])
def test_a_point_that_cannot_count_is_shown_with_the_reason(name: str, why: str) -> None:
    """
    A point that cannot count is shown with the reason. For example, a gauge of tokens is a configuration
    error of the sender.
    """
    outcome = read_points(point(name, 5, {"gen_ai.token.type": "input"}, cannot_count=why))
    assert is_shown(outcome, name)
    assert why in outcome.unrecognised[0]


@pytest.mark.parametrize("encoding", ["json", "protobuf"])
@pytest.mark.parametrize("kind", ["gauge", "summary"])
def test_a_kind_of_metric_that_cannot_count_is_shown(kind: str, encoding: str) -> None:
    """A kind of metric that cannot count is shown in both encodings, and the rest of the request is read."""
    number = {"asInt": "5"} if kind == "gauge" else {"sum": 5.0, "count": "1"}
    metrics = [{"name": "llm.tokens", kind: {"dataPoints": [number]}}]
    payload = {"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}
    message = json_format.ParseDict(payload, ExportMetricsServiceRequest())
    body = in_json(payload) if encoding == "json" else message.SerializeToString()
    outcome = finished(otlp.normalise_otlp("metrics", body, json=encoding == "json", options=ReadOptions()))
    assert is_shown(outcome, "llm.tokens")
    assert f"a {kind}" in outcome.unrecognised[0]


def test_a_kind_of_token_of_no_measure_is_shown_with_its_word() -> None:
    """
    A token type of no known sum is shown with its name, because a record with it would be part of no sum.
    Known subsets of a sum are accepted on purpose.
    """
    said = {"gen_ai.request.model": "m", "gen_ai.token.type": "request"}
    assert is_shown(read_points(point("gen_ai.client.token.usage", 5, said)), "request")
    assert 1 == len(
        read_points(point("gen_ai.client.token.usage", 5, said | {"gen_ai.token.type": "audio"})).records
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_usage_is_shown_in_logs_and_spans(name: str) -> None:
    """A name of usage is shown in logs and spans of any product."""
    assert is_shown(read_logs(log({name: 5})), name)
    assert is_shown(normalised(traces(span(1, {name: 5}))), name)


@pytest.mark.parametrize(
    "event", ["task.finished", "gen_ai.client.something.new", "claude_code.api_new", "codex.new"]
)
def test_an_event_that_counts_is_shown_whatever_its_name_begins_with(event: str) -> None:
    """Events of a known product are ignored only if they have no counts."""
    said = {"model": "m", "input_tokens": 5}
    assert is_shown(read_logs(log(said, event_name=event)), "input_tokens")
    assert {NOT_AI: 1} == dict(read_logs(log({"model": "m", "input_tokens": 0}, event_name=event)).ignored)


@pytest.mark.parametrize("kind", ["openinference.span.kind", "langfuse.observation.type", "ag2.span.type"])
def test_a_span_of_an_unknown_kind_that_counts_is_shown(kind: str) -> None:
    """A span of an unknown kind is shown if it has counts, because a known product may add a kind of span."""
    said = {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 5}
    assert is_shown(normalised(traces(span(1, {kind: "evaluator", **said}))), kind)
    assert {NOT_AI: 1} == dict(normalised(traces(span(1, {kind: "agent", **said}))).ignored)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_telemetry_is_not_shown(name: str) -> None:
    """
    Plain telemetry, such as sign-in tokens and costs of HTTP requests, is not AI usage and is not shown.
    """
    assert {NOT_AI: 1} == dict(read_points(point(name, 5)).ignored)
    assert {NOT_AI: 1} == dict(read_logs(log({name: 5})).ignored)
    assert {NOT_AI: 1} == dict(normalised(traces(span(1, {name: 5}))).ignored)
