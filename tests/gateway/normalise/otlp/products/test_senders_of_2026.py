"""
Senders of 2026: credits, costs and counters with product-specific names, and operations of newer conventions.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.normalise.outcome import MERGED, NOT_AI, UNRECOGNISED_AI
from spool.record import UsageMetric
from tests.gateway.normalise.otlp.items import log, point, read_logs, read_points
from tests.gateway.normalise.otlp.payloads import ENCODINGS, normalised, only, span, traces

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "claude-sonnet-5"}
USAGE = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 10}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("stated", "cost", "credits"),
    [
        ({"github.copilot.nano_aiu": 3_761_470_000}, "0.0376147", "3.76147"),
        ({"copilot_chat.copilot_usage_nano_aiu": 500_000_000}, "0.005", "0.5"),
        (
            {"github.copilot.nano_aiu": 1_299_000_000, "github.copilot.aiu": 7, "github.copilot.cost": 3},
            "0.01299",
            "1.299",
        ),
        ({"github.copilot.cost": 0.0}, None, None),
    ],
)
def test_credits_of_copilot_are_the_cost(
    stated: dict[str, Any], cost: str | None, credits: str | None, encoding: str
) -> None:
    """Copilot states its cost in credits of one cent each. Its value named cost counts requests."""
    record = only(traces(span(1, {**CHAT, **USAGE, **stated}), scope="github.copilot"), encoding=encoding)
    assert record.cost == cost
    assert record.tags.get("credits") == credits


def test_an_application_with_copilots_sdk_is_copilots() -> None:
    """
    An application with Copilot's SDK chooses its own scope, so the SDK is identified by Copilot's attributes.
    """
    record = only(traces(span(1, {**CHAT, **USAGE, "github.copilot.nano_aiu": 10**9}), scope="my-app"))
    assert record.source == "copilot_cli"
    assert record.provider == "github"
    assert record.cost == "0.01"


@pytest.mark.parametrize(
    ("stated", "cost"),
    [
        ({"gen_ai.cost.total_tokens": 0.0003}, "0.0003"),
        ({"gen_ai.cost.input_tokens": 0.0001, "gen_ai.cost.output_tokens": 0.0002}, "0.0003"),
        ({"gen_ai.usage.cost_usd": 0.5}, "0.5"),
        ({"gen_ai.usage.cost.amount": 0.25, "gen_ai.usage.cost.currency": "USD"}, "0.25"),
        ({"gen_ai.usage.cost.amount": 0.25, "gen_ai.usage.cost.currency": "usd "}, "0.25"),
        ({"gen_ai.usage.cost.amount": 0.25, "gen_ai.usage.cost.currency": "EUR"}, {"EUR": "0.25"}),
        ({"gen_ai.usage.cost.amount": 0.25, "gen_ai.usage.cost.currency": "credits"}, None),
        ({"gen_ai.usage.cost": 0.25, "gen_ai.usage.cost.currency": "EUR"}, {"EUR": "0.25"}),
        ({"gen_ai.usage.cost.amount": 0.25, "gen_ai.usage.cost.currency": "EUR", "cost_usd": 0.3}, "0.3"),
        ({"gen_ai.cost.amount": 0.25}, "0.25"),
        ({"gen_ai.cost.amount": 0.25, "gen_ai.usage.cost": 0.25}, "0.25"),
        ({"gen_ai.cost.amount": 0.25, "gen_ai.cost.currency": "jpy"}, {"JPY": "0.25"}),
    ],
)
def test_costs_under_other_names(stated: dict[str, Any], cost: str | dict[str, str] | None) -> None:
    """Sentry's costs are named like tokens. An amount in another currency keeps its currency."""
    record = only(traces(span(1, {**CHAT, **USAGE, **stated})))
    assert (record.charges or record.cost) == cost
    assert record.input_tokens == 100
    assert record.output_tokens == 10
    assert record.cost is None or not record.charges


@pytest.mark.parametrize(
    ("metadata", "provider", "cost"),
    [
        ({"gateway": {"cost": "0.00042", "marketCost": "0.0005", "generationId": "gen_1"}}, "gateway", "0.00042"),
        ({"openrouter": {"usage": {"cost": 0.00042, "costDetails": {"upstreamInferenceCost": 1}}}}, "openrouter.chat",
         "0.00042"),
        ({"gateway": {"cost": "unknown"}}, "gateway", None),
        ({"gateway": {"cost": -1}, "openai": {"cost": 3}}, "gateway", None),
    ],
)  # fmt: skip
def test_ai_sdk_states_what_a_gateway_charged(
    metadata: dict[str, Any], provider: str, cost: str | None
) -> None:
    """
    The AI SDK states what a gateway charged, Vercel's or OpenRouter. Vercel's gateway is not a provider, so
    the provider is read from the model.
    """
    call = {
        "ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "openai/gpt-6-sol",
        "ai.model.provider": provider, "ai.usage.inputTokens": 100, "ai.usage.outputTokens": 10,
        "ai.response.providerMetadata": json.dumps(metadata),
    }  # fmt: skip
    record = only(traces(span(1, call)))
    assert record.cost == cost
    assert record.input_tokens == 100
    assert record.provider == ("openai" if provider == "gateway" else provider)


def test_ag2_knows_no_price_of_some_models() -> None:
    """AG2 writes 0 for models without a price, so a cost of 0 is unknown."""
    call = {"ag2.span.type": "llm", **CHAT, **USAGE, "gen_ai.usage.cost": 0.0}
    assert None is only(traces(span(1, call))).cost


def test_pi_leaves_the_cache_out_of_the_input() -> None:
    """Pi's input excludes the cache, and its spans name Pi itself as the provider."""
    call = {
        **CHAT,
        "gen_ai.system": "pi",
        "gen_ai.usage.input_tokens": 900,
        "gen_ai.usage.cache_read_input_tokens": 700,
        "gen_ai.usage.output_tokens": 50,
        "pi.cost.usd": 0.00244,
    }
    record = only(traces(span(1, call, name="pi.llm_request"), scope="pi-otel"))
    assert record.source == "pi"
    assert record.provider == "anthropic"
    assert record.input_tokens == 1600
    assert record.cache_read_tokens == 700
    assert record.cost == "0.00244"


def test_turns_of_pis_extension_are_its_calls() -> None:
    """
    The turns of Pi's extension are its calls. The turns name no model, and the session span repeats their sums.
    """
    usage = {"llm.usage.input_tokens": 900, "llm.usage.output_tokens": 50, "llm.usage.cache_read_tokens": 700}
    spans = [
        span(1, {}, name="session"),
        span(2, {"llm.usage.total_tokens": 950}, name="agent.prompt", parent=1),
        span(3, {**usage, "llm.usage.total_tokens": 950}, name="agent.turn", parent=2),
    ]
    record = only(traces(*spans, scope="pi-otel-extension"))
    assert record.source == "pi"
    assert record.input_tokens == 900
    assert record.output_tokens == 50
    assert record.cache_read_tokens == 700


def test_counters_of_assistants_under_names_of_their_own() -> None:
    """
    Counters of assistants with product-specific names are read. Context sizes and session totals repeat the calls.
    """
    outcome = read_points(
        point("opencode.token.usage", 5, {"type": "reasoning", "model": "m"}),
        point("pi.tokens.input", 7),
        point("goose.session_tokens", 8694),
        point("opencode.session.token.total", 12),
    )
    assert {MERGED: 2} == dict(outcome.ignored)
    assert [("opencode", "reasoning", 5), ("pi", "input", 7)] == [
        (one.source, one.token_type, one.value) for one in outcome.records if isinstance(one, UsageMetric)
    ]


@pytest.mark.parametrize("beginning", ["opencode.", "claude_code.", "acme_", ""])
def test_opencodes_counters_are_its_own_under_any_beginning(beginning: str) -> None:
    """
    OpenCode's counters are recognized with any prefix. With Claude Code's prefix, they are still not counters
    of Claude Code.
    """
    types = ("input", "output", "reasoning", "cacheRead", "cacheCreation")
    points = [
        point(f"{beginning}token.usage", 5, {"type": type}, scope="com.opencode", unit="tokens")
        for type in types
    ]
    points += [
        point(f"{beginning}cost.usage", 0.5, scope="com.opencode", unit="USD"),
        point(f"{beginning}session.token.total", 20, scope="com.opencode"),
    ]
    outcome = read_points(*points)
    found = [one for one in outcome.records if isinstance(one, UsageMetric)]
    assert {one.source for one in found} == {"opencode"}
    assert dict(outcome.ignored) == {MERGED: 1}
    assert ["input_uncached", "output_visible", "reasoning", "cache_read", "cache_write", None] == [
        one.token_type for one in found
    ]
    assert {"opencode.token.usage", "opencode.cost.usage"} == {one.name for one in found}


def test_others_under_these_names_are_theirs() -> None:
    """If a span of another scope has names of a product, the span belongs to the product of its scope."""
    claude = point("claude_code.token.usage", 5, {"type": "input"}, scope="com.anthropic.claude_code")
    (record,) = read_points(claude).records
    assert "claude_code" == record.source


def test_a_step_of_a_counter_in_a_log_is_no_call() -> None:
    """Rust's tracing logs what it adds to counters, which are exported as metrics."""
    said = {"monotonic_counter.goose.session_tokens": 8694, "user_message": "PLANTED"}
    outcome = read_logs(
        log(said, resource={"service.name": "goose"}, body="PLANTED"),
        log({"monotonic_counter.unknown.session_tokens": 5}, resource={"service.name": "goose"}),
    )
    assert {MERGED: 1, UNRECOGNISED_AI: 1} == dict(outcome.ignored)
    assert "PLANTED" not in str((outcome.records, outcome.unrecognised))


def test_a_generation_of_a_realtime_session_is_a_call() -> None:
    """A generation of a realtime session is a call. Its session id takes the place of a conversation id."""
    call = {
        "gen_ai.operation.name": "realtime_inference", "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-realtime", "gen_ai.realtime_session.id": "sess_1", **USAGE,
    }  # fmt: skip
    record = only(traces(span(1, call)))
    assert record.operation == "realtime_inference"
    assert record.session == "sess_1"
    assert record.input_tokens == 100


def test_a_turn_of_a_conversation_repeats_its_calls() -> None:
    """
    The span of a conversation's turn, the entry point of a runner, sums up its calls, so it does not count.
    """
    turn = {"gen_ai.operation.name": "handle_conversation_turn", "gen_ai.request.model": "m", **USAGE}
    outcome = normalised(traces(span(1, turn), span(2, {**CHAT, **USAGE}, parent=1)))
    assert len(outcome.records) == 1
    assert dict(outcome.ignored) == {NOT_AI: 1}


def test_counters_of_the_draft_count_each_token_once() -> None:
    """
    Counters of the draft conventions count each token once. Parts of input and output are already in their
    totals, and another metric family repeats them.
    """
    beginning, model = "gen_ai.client.inference.", {"gen_ai.request.model": "m"}
    told = [("tokens", "type", word) for word in ("input", "output")]
    told += [("input_tokens_by_cache", "cache", word) for word in ("none", "read", "creation")]
    told += [("output_tokens_by_phase", "phase", word) for word in ("response", "reasoning")]
    points = [
        point(f"{beginning}{name}", 5, {f"gen_ai.token.{key}": word, **model}) for name, key, word in told
    ]
    points.append(point("gen_ai.client.token.usage", 5, {"gen_ai.token.type": "input", **model}))
    outcome = read_points(*points)
    assert {MERGED: 3} == dict(outcome.ignored)
    assert ["input", "output", "cache_read", "cache_write", "reasoning"] == [
        one.token_type for one in outcome.records if isinstance(one, UsageMetric)
    ]


@pytest.mark.parametrize("name", ["gen_ai.client.operation.cost", "gen_ai.usage.cost"])
@pytest.mark.parametrize(
    ("unit", "said", "counted_in"),
    [
        ("USD", {}, "USD"),
        ("", {}, "USD"),
        ("1", {"gen_ai.usage.cost.currency": "USD"}, "USD"),
        ("EUR", {}, "EUR"),
        ("1", {"gen_ai.usage.cost.currency": "eur"}, "EUR"),
        ("1", {"gen_ai.usage.cost.currency": "XTS"}, None),
    ],
)
def test_money_of_a_counter_keeps_its_currency(
    name: str, unit: str, said: dict[str, Any], counted_in: str | None
) -> None:
    """
    The money of a counter keeps its currency. A counter in an unknown currency is shown as unrecognized.
    """
    outcome = read_points(point(name, 0.5, {"gen_ai.request.model": "m", **said}, unit=unit))
    units = [(one.unit, one.value) for one in outcome.records if isinstance(one, UsageMetric)]
    assert ([(counted_in, "0.5")] if counted_in else []) == units
    assert counted_in or "in XTS" in outcome.unrecognised[0]
