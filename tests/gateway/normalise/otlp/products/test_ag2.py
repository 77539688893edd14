"""AG2's spans: a call, and a second span that records its usage again."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.normalise.outcome import MERGED, NOT_AI, UNRECOGNISED_AI
from tests.gateway.normalise.otlp.payloads import ENCODINGS, normalised, only, span, traces
from tests.gateway.normalise.outcomes import inferences

SCOPE = "opentelemetry.instrumentation.ag2"
AGENT = {"ag2.span.type": "agent", "gen_ai.operation.name": "invoke_agent"}
CALL = {
    "ag2.span.type": "llm",
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4.1",
    "gen_ai.usage.input_tokens": 700,
    "gen_ai.usage.output_tokens": 30,
    "gen_ai.usage.cache_read_input_tokens": 512,
    "gen_ai.usage.thinking_tokens": 9,
}
USAGE = {
    "ag2.span.type": "usage",
    "ag2.usage.kind": "model_call",
    "gen_ai.response.model": "gpt-4.1",
    "gen_ai.usage.input_tokens": 700,
    "gen_ai.usage.output_tokens": 30,
    "ag2.usage.total_tokens": 730,
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("with_agent", [True, False])
def test_usage_span_repeats_the_call_next_to_it(with_agent: bool, encoding: str) -> None:
    """
    AG2's usage span repeats the call next to it. The two spans share only their parent, which may be
    in another request.
    """
    around = [span(1, AGENT)] if with_agent else []
    outcome = normalised(
        traces(*around, span(2, CALL, parent=1), span(3, USAGE, parent=1), scope=SCOPE), encoding=encoding
    )
    assert ({MERGED: 1} | ({NOT_AI: 1} if with_agent else {})) == dict(outcome.ignored)
    (record,) = inferences(outcome)
    assert record.source == "ag2"
    assert record.input_tokens == 700
    assert record.output_tokens == 30
    assert record.cache_read_tokens == 512
    assert record.reasoning_tokens == 9


def test_claudes_input_lacks_the_cache() -> None:
    """AG2 passes on Anthropic's count, so Claude's input excludes the cache."""
    claude = {
        **CALL,
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.usage.input_tokens": 3000,
        "gen_ai.usage.cache_read_input_tokens": 2000,
        "gen_ai.usage.cache_creation_input_tokens": 100,
    }
    assert 5100 == only(traces(span(1, claude), scope=SCOPE)).input_tokens


@pytest.mark.parametrize(
    "spans",
    [
        (span(3, USAGE, parent=1),),
        (span(3, {**USAGE, "ag2.usage.kind": "tool_call"}, parent=1), span(2, CALL, parent=1)),
        (span(3, {**USAGE, "gen_ai.usage.output_tokens": 31}, parent=1), span(2, CALL, parent=1)),
    ],
)
def test_other_spans_of_usage_are_shown_and_not_counted(spans: tuple[dict[str, Any], ...]) -> None:
    """
    A usage span without a call next to it, of another kind, or with other counts is shown as unrecognized
    and not counted.
    """
    outcome = normalised(traces(*spans, scope=SCOPE))
    assert len(spans) - 1 == len(outcome.records)
    assert {UNRECOGNISED_AI: 1} == dict(outcome.ignored)
    assert "ag2.span.type" in outcome.unrecognised[0]


# --- the same rule for other products --------------------------------------------------------------------------

NAMED = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "openai/gpt-4.1"}
COUNTS = {"gen_ai.usage.input_tokens": 700, "gen_ai.usage.output_tokens": 30}
GUESSED = {"gen_ai.response.model": "gpt-4.1", **COUNTS}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_guessed_call_repeats_a_sibling_that_is_one(order: tuple[int, ...]) -> None:
    """
    A span that names no operation is only guessed to be a call. If a sibling is a call with the same model
    and counts, the guessed span repeats it.
    """
    spans = [span(2, {**NAMED, **COUNTS}, parent=1), span(3, GUESSED, parent=1)]
    record = only(traces(*[spans[place] for place in order]))
    assert f"{2:016x}" == record.span_id


@pytest.mark.parametrize(
    "other",
    [
        span(3, GUESSED, parent=9),
        span(3, {**GUESSED, "gen_ai.usage.input_tokens": 701}, parent=1),
        span(3, {**GUESSED, "gen_ai.response.model": "gpt-4.1-mini"}, parent=1),
        span(3, {**NAMED, **COUNTS}, parent=1),
    ],
)
def test_other_siblings_are_calls_of_their_own(other: dict[str, Any]) -> None:
    """
    A sibling is a separate call if it has another parent, other counts or another model, or if both are
    named as calls.
    """
    outcome = normalised(traces(span(2, {**NAMED, **COUNTS}, parent=1), other))
    assert 2 == len(outcome.records)
