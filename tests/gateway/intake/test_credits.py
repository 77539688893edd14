"""Copilot's credits of unknown scale, from the span to the stored record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.cli.explain import explain_payload
from gateway.configuration.sections import Config
from tests.gateway.normalise.otlp.payloads import in_json, span, traces

CHAT: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "claude-sonnet-4-5",
    "gen_ai.usage.input_tokens": 1000,
    "gen_ai.usage.output_tokens": 200,
}  # 0.003 + 0.003 dollars by list prices, which are 0.6 credits


def recorded(attributes: dict[str, Any]) -> dict[str, Any]:
    body = in_json(traces(span(1, attributes), scope="github.copilot"))
    (record,) = asyncio.run(explain_payload(body, "otlp/traces", Config()))["records"]
    return record  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("stated", "cost", "credits"),
    [
        (0.6, "0.006", "0.6"),
        (600_000_000, "0.006", "0.6"),
        (1.2, "0.012", "1.2"),
        (0.3, "0.003", "0.3"),
        (1.201, None, None),
        (0.299, None, None),
        (42_000, None, None),
        (0, None, None),
        (-1, None, None),
        ("many", None, None),
    ],
)
def test_the_scale_of_credits_is_that_of_the_estimate(
    stated: object, cost: str | None, credits: str | None
) -> None:
    """Credits and billionths are both read. A figure that fits neither scale gives no cost."""
    record = recorded({**CHAT, "github.copilot.aiu": stated})
    assert record["cost"] == cost
    assert record["cost_source"] == ("estimated" if cost is None else "reported")
    assert record["tags"].get("credits") == credits
    assert not record.get("charges")
    assert record["estimated_cost"] == "0.006"


@pytest.mark.parametrize(
    ("stated", "cost"), [(0.75, "0.0075"), (750_000_000, "0.0075"), (42_000, "0.00000042")]
)
def test_credits_of_a_model_without_a_price_are_compared_with_its_tokens(stated: object, cost: str) -> None:
    """More credits than tokens are billionths."""
    record = recorded({**CHAT, "gen_ai.request.model": "unheard-of-9", "github.copilot.aiu": stated})
    assert record["cost"] == cost


def test_credits_of_an_agent_are_a_sum_of_its_calls() -> None:
    """The span of an agent states the sum of its calls. It is no call and adds no cost."""
    agent = span(1, {**CHAT, "gen_ai.operation.name": "invoke_agent", "github.copilot.aiu": 0.6})
    call = span(2, {**CHAT, "github.copilot.aiu": 0.6}, parent=1)
    body = in_json(traces(agent, call, scope="github.copilot"))
    (record,) = asyncio.run(explain_payload(body, "otlp/traces", Config()))["records"]
    assert record["cost"] == "0.006"
