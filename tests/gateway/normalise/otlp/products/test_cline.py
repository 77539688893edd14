from __future__ import annotations

from typing import Any

import pytest

from gateway.normalise.outcome import MERGED, NOT_AI
from spool.record import Inference
from tests.gateway.normalise.otlp.items import log, picked, point, read_logs, read_points

WHO = {
    "distinct_id": "machine-5", "ulid": "01JTASKZ", "user_id": "usr-9", "organization_id": "org-9",
    "email": "a@b.example", "provider": "openai-native", "model": "gpt-5",
}  # fmt: skip
TURN = WHO | {
    "source": "assistant", "tokensIn": 800, "tokensOut": 120, "cacheWriteTokens": 0, "cacheReadTokens": 4096,
    "totalCost": 0.002712,
}  # fmt: skip


def turn(**changes: Any) -> Inference:
    (record,) = read_logs(log(TURN | changes, scope="cline", body="task.conversation_turn")).records
    assert isinstance(record, Inference)
    return record


def test_the_word_undefined_is_nothing() -> None:
    """The text "undefined" counts as missing, because JavaScript's missing values arrive in this form."""
    record = turn(
        cacheReadTokens="undefined",
        totalCost="undefined",
        user_id="undefined",
        email="undefined",
        provider="undefined",
    )
    assert {
        "cache_read_tokens": None, "cost": None, "user": None, "provider": "openai", "input_tokens": 800,
    } == picked(record, "cache_read_tokens", "cost", "user", "provider", "input_tokens")  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "canonical"),
    [
        ("anthropic", "anthropic"),
        ("bedrock", "aws.bedrock"),
        ("vertex", "gcp.vertex_ai"),
        ("openrouter", "openrouter"),
    ],
)
def test_providers_by_clines_names(provider: str, canonical: str) -> None:
    """Cline's provider names are mapped to OpenTelemetry's. Unknown names stay."""
    assert canonical == turn(provider=provider).provider


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        ("task.conversation_turn", {"source": "user", "tokensIn": "undefined"}),
        ("task.tokens", {}),
        ("task.summarize_task", {"currentTokens": 150000}),
    ],
)
def test_questions_repeats_and_summaries_are_no_calls(body: str, changes: dict[str, Any]) -> None:
    """
    Questions, repeats and summaries are no calls: `task.tokens` repeats the turn, and the user's half of a
    turn has no tokens.
    """
    assert {NOT_AI: 1} == read_logs(log(TURN | changes, scope="cline", body=body)).ignored


def test_the_counters_kinds_are_in_their_names() -> None:
    """
    The names of counters contain the token type. Totals count, but counters per response or per event repeat
    the same tokens.
    """
    names = ("cline.tokens.input.total", "cline.tokens.output.total", "cline.cache.read.tokens.total",
             "cline.cache.write.tokens.total", "cline.cost.total")  # fmt: skip
    repeats = ("cline.tokens.input.per_response", "cline.cost.per_event", "cline.cache.read.tokens.per_event")
    outcome = read_points(*(point(name, 5.0, WHO, cumulative=True) for name in (*names, *repeats)))
    assert [
        ("input_uncached", "{token}", 5), ("output", "{token}", 5), ("cache_read", "{token}", 5),
        ("cache_write", "{token}", 5), (None, "USD", 5),
    ] == [(p.template.token_type, p.template.unit, p.value) for p in outcome.points]  # fmt: skip
    assert {"usr-9"} == {p.template.user for p in outcome.points}
    assert {MERGED: 3} == outcome.ignored
