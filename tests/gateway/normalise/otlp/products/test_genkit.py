"""Genkit's actions: models and embedders are calls, but flows and tools are not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.normalise.outcome import NOT_AI
from tests.gateway.normalise.otlp.payloads import ENCODINGS, normalised, only, records, said, span, traces

SECRET = "canary-5d1e"
USAGE = {
    "inputTokens": 1120, "outputTokens": 53, "totalTokens": 1184, "thoughtsTokens": 11, "cachedContentTokens": 1000,
    "inputCharacters": 4400, "custom": {"secret": SECRET},
}  # fmt: skip


def action(output: Any = None, **changes: str) -> dict[str, Any]:
    """Create a model action with its input and output."""
    attributes = {
        "genkit:type": "action",
        "genkit:metadata:subtype": "model",
        "genkit:name": "googleai/gemini-2.5-flash",
        "genkit:input": json.dumps({"messages": [{"content": [{"text": SECRET}]}]}),
        "genkit:state": "success",
        "genkit:sessionId": "session-7",
    }
    if output is not None:
        attributes["genkit:output"] = output if isinstance(output, str) else json.dumps(output)
    return attributes | {name.replace("_", ":"): value for name, value in changes.items()}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kept_in", ["raw", "custom"])
def test_a_models_action_is_a_call(kept_in: str, encoding: str) -> None:
    """
    A Genkit model action is a call. Usage and id are inside its answer, and the plugin prefix of the model
    name gives the provider.
    """
    raw = {"responseId": "Zk3PaKm2Hc2vnsEPvNqGsAQ", "candidates": [SECRET]}
    output = {"message": {"role": "model", "content": [{"text": SECRET}]}, "usage": USAGE, kept_in: raw}
    record = only(traces(span(1, action(output)), scope="genkit-tracer"), encoding=encoding)
    assert {
        "source": "genkit",
        "provider": "gcp.gemini",
        "operation": "chat",
        "request_model": "gemini-2.5-flash",
        "request_id": "Zk3PaKm2Hc2vnsEPvNqGsAQ",
        "input_tokens": 1120,
        "output_tokens": 64,
        "cache_read_tokens": 1000,
        "reasoning_tokens": 11,
        "status": "ok",
        "session": "session-7",
    } == said(record)


def test_the_id_of_an_answer_joins_genkit_and_the_providers_sdk() -> None:
    """The answer's id matches Genkit's action and the span of the provider's SDK, even in another trace."""
    answer = "chatcmpl-AbCdEfGhIjKlMnOpQrStUv"
    output = {"usage": {"inputTokens": 12, "outputTokens": 3}, "raw": {"id": answer}}
    ours = only(traces(span(1, action(output, genkit_name="openai/gpt-4o"))))
    theirs = only(traces(span(2, {"gen_ai.operation.name": "chat", "gen_ai.response.id": answer})))
    assert theirs.id == ours.id
    assert ours.provider == "openai"
    assert ours.request_model == "gpt-4o"


def test_flows_tools_and_prompts_are_no_calls() -> None:
    """Flows, tools and prompts are no calls. They may repeat the answer of the model action inside them."""
    output = {"usage": USAGE}
    kinds = ["flow", "tool", "prompt", "util"]
    around = [
        span(n, {**action(output), "genkit:metadata:subtype": kind}) for n, kind in enumerate(kinds, start=2)
    ]
    outcome = normalised(traces(*around, span(1, action(output), parent=2)))
    assert [len(outcome.records)] == [1]
    assert dict(outcome.ignored) == {NOT_AI: 4}


def test_an_embedders_action_is_a_call_without_counts() -> None:
    """Embedders report no token counts."""
    embedder = {
        **action(),
        "genkit:metadata:subtype": "embedder",
        "genkit:name": "vertexai/text-embedding-005",
    }
    record = only(traces(span(1, embedder)))
    assert record.operation == "embeddings"
    assert record.provider == "gcp.vertex_ai"
    assert record.input_tokens is None


def test_a_state_of_error_is_a_failure() -> None:
    """An action with the state "error" is a failure, even if the status of its span is unset."""
    assert "error" == only(traces(span(1, action(genkit_state="error")))).status


@pytest.mark.parametrize(
    "output",
    ["", SECRET, "[]", "{", '{"usage": 3}', '{"usage": {"inputTokens": -4}}', '{"usage": {"inputTokens": "x"}}',
     {"raw": {"id": SECRET}}, {"raw": {"id": f"{SECRET} and many other words"}}, {"raw": SECRET, "custom": [SECRET]}],
)  # fmt: skip
def test_an_answer_that_can_not_be_read_costs_the_call_nothing(output: Any) -> None:
    """If the answer cannot be read, the call is still stored, without the answer."""
    (record,) = records(traces(span(1, action(output))))
    assert record.input_tokens is None
    assert record.request_id is None
    assert SECRET not in repr(record)


OPENAI_USAGE = {
    "prompt_tokens": 900, "completion_tokens": 45, "prompt_tokens_details": {"cached_tokens": 640},
    "completion_tokens_details": {"reasoning_tokens": 17},
}  # fmt: skip
CLAUDE_USAGE = {"input_tokens": 260, "output_tokens": 45, "cache_read_input_tokens": 640}


@pytest.mark.parametrize("kept_in", ["raw", "custom"])
@pytest.mark.parametrize(
    ("stated", "usage", "expected"),
    [
        (900, OPENAI_USAGE, (900, 640, 17)),
        (900, CLAUDE_USAGE, (900, 640, None)),
        (260, CLAUDE_USAGE, (900, 640, None)),
        (800, OPENAI_USAGE, (800, None, None)),
    ],
)
def test_providers_own_usage_object_adds_the_parts(
    stated: int, usage: dict[str, Any], expected: tuple[int | None, ...], kept_in: str
) -> None:
    """
    The provider's own usage object adds the parts, because the OpenAI plugin reports only sums. A usage
    object with other sums belongs to another answer.
    """
    sums = {"inputTokens": stated, "outputTokens": 45, "totalTokens": stated + 45}
    output = {"usage": sums, kept_in: {"id": "chatcmpl-00ff11ee22dd33cc44bb", "usage": usage}}
    record = only(traces(span(1, action(output))))
    assert expected == (record.input_tokens, record.cache_read_tokens, record.reasoning_tokens)
    assert 45 == record.output_tokens
