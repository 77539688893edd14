"""
Counters and agents' summary spans next to the calls that they repeat, in any order, with pauses and restarts.
Calls count, and nothing counts twice.

The payloads are those of the shared cases. One result depends on order by design (docs/promises/ordering.md): an
agent's sum whose run is reported later than it waits.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest

from tests.gateway.normalise.otlp.items import NOW, SECOND
from tests.gateway.normalise.otlp.payloads import attribute, span, traces
from tests.integration.order.cases import FOUND, Case
from tests.integration.order.running import (
    ORDERS,
    SEED,
    Request,
    Row,
    in_order,
    summed,
    told,
    told_in_memory,
    told_on_disk,
)
from tests.rounds import part

Piece = tuple[Case, tuple[Any, ...]]


def agent(scope: str, attributes: dict[str, Any]) -> Case:
    """Return the span of an agent run with Claude Code's session, to which its events and counters belong."""
    payload = traces(span(1, attributes), scope=scope, resource={"service.name": "shop"})
    return Case(scope, "otlp/traces", (({"resourceSpans": payload["resourceSpans"]},),))


OPENINFERENCE = agent(
    "openinference.instrumentation.claude_agent_sdk",
    {
        "openinference.span.kind": "AGENT", "llm.model_name": "claude-sonnet-4-5", "session.id": "cc-sess-1",
        "llm.token_count.prompt": 1000, "llm.token_count.completion": 100, "llm.cost.total": 0.5,
    },
)  # fmt: skip
LOGFIRE = agent(
    "logfire.claude_agent_sdk",
    {
        "logfire.span_type": "span", "gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 100, "operation.cost": 0.5, "gen_ai.conversation.id": "cc-sess-1",
    },
)  # fmt: skip


def spans(scope: str, *attributes: dict[str, Any]) -> Case:
    """Return calls of a service, each in its own trace."""
    pieces = []
    for number, said in enumerate(attributes, start=1):
        payload = traces(span(number, said), scope=scope, resource={"service.name": "desk"})
        pieces.append(({"resourceSpans": payload["resourceSpans"]},))
    return Case(scope, "otlp/traces", tuple(pieces))


def counters(scope: str, *points: dict[str, Any], service: str = "desk", cumulative: bool = False) -> Case:
    """Return token counters under the conventions' name."""
    pieces = []
    for point in points:
        value = point.pop("value")
        sum_ = {
            "aggregationTemporality": 2 if cumulative else 1,
            "isMonotonic": True,
            "dataPoints": [
                {
                    "attributes": [attribute(name, said) for name, said in point.items()],
                    "startTimeUnixNano": str(NOW),
                    "timeUnixNano": str(NOW + SECOND),
                    "asInt": str(value),
                }
            ],
        }
        metric = {"name": "gen_ai.client.token.usage", "unit": "{token}", "sum": sum_}
        resource = {"attributes": [attribute("service.name", service)]}
        metrics = [{"scope": {"name": scope}, "metrics": [metric]}]
        pieces.append(({"resourceMetrics": [{"resource": resource, "scopeMetrics": metrics}]},))
    return Case(f"{scope} counters", "otlp/metrics", tuple(pieces))


def of_model(model: str, input_tokens: int, output_tokens: int, **more: str) -> list[dict[str, Any]]:
    said = {"gen_ai.operation.name": "generate_content", "gen_ai.request.model": model, **more}
    counts = {"input": input_tokens, "output": output_tokens}
    return [{**said, "gen_ai.token.type": type, "value": value} for type, value in counts.items()]


OF_OPENINFERENCE = {
    "openinference.span.kind": "LLM", "llm.model_name": "gemini-2.5-pro", "llm.token_count.prompt": 320,
    "llm.token_count.completion": 18, "llm.token_count.total": 338,
}  # fmt: skip
OF_LOGFIRE = {
    "gen_ai.operation.name": "chat", "gen_ai.request.model": "openai/gpt-4o", "gen_ai.usage.input_tokens": 320,
    "gen_ai.response.model": "gpt-4o-2024-11-20", "gen_ai.usage.output_tokens": 18,
}  # fmt: skip
ADK = spans("openinference.instrumentation.google_adk", OF_OPENINFERENCE)

# For each reporter: its calls, and then its counters and summary spans.
REPORTERS: dict[str, tuple[Case, list[Case]]] = {
    "Claude Code": (FOUND["claude_code/api_request_events"], [FOUND["claude_code/metrics_delta"]]),
    "Codex": (FOUND["codex/sse_event_completed"], [FOUND["codex/turn_token_usage_metric"]]),
    "Gemini CLI": (FOUND["gemini_cli/api_response_logs"], [FOUND["gemini_cli/token_usage_cumulative"]]),
    "Claude Agent SDK, OpenInference": (
        FOUND["claude_code/api_request_events"], [FOUND["claude_code/metrics_delta"], OPENINFERENCE]
    ),
    "Google ADK, OpenInference": (ADK, [counters("gcp.vertex.agent", *of_model("gemini-2.5-pro", 320, 18))]),
    "Google ADK, cumulative": (
        ADK, [counters("gcp.vertex.agent", *of_model("gemini-2.5-pro", 320, 18), cumulative=True)]
    ),
    "Pydantic AI, model that answered": (
        spans("pydantic-ai", OF_LOGFIRE), [counters("strands.telemetry", *of_model("gpt-4o-2024-11-20", 320, 18))]
    ),
    "Claude Agent SDK, Logfire": (FOUND["claude_code/api_request_events"], [LOGFIRE]),
}  # fmt: skip
# seconds between two requests, so short that an agent's span still waits when its calls arrive
SHORT = 0.0, 1.0, 5.0
# seconds between two requests, so long that some counters are already counted and must be reversed
LONG = (*SHORT, 20.0, 100.0, 400.0)


def requests(pieces: Sequence[Piece], choice: random.Random) -> list[Request]:
    """Build requests. Neighbours of one case may share a request."""
    made = []
    for _, group in groupby(pieces, key=lambda piece: (piece[0].name, choice.random() < 0.5)):
        neighbours = list(group)
        made.append(neighbours[0][0].request([items for _, items in neighbours]))
    return made


def calls_of(rows: Sequence[Row]) -> list[Row]:
    """Return the calls that count."""
    return in_order([row for row in rows if row["kind"] == "inference" and not row["shadow"]])


@pytest.mark.parametrize("name", part([*REPORTERS], every=2))
def test_counters_and_calls_in_any_order(name: str) -> None:
    """In any order, the calls are the same as without counters, and the counters add up to zero."""
    calls, repeats = REPORTERS[name]
    print(f"TOLLHOUSE_ORDER_SEED={SEED}")
    choice = random.Random(f"{SEED} {name}")
    expected = calls_of(told_in_memory([calls.request(calls.pieces)])[0])
    pieces: list[Piece] = [(case, items) for case in (calls, *repeats) for items in case.pieces]
    pauses = LONG if all(case.format == "otlp/metrics" for case in repeats) else SHORT
    for number in range(4 * ORDERS):
        sent = requests(choice.sample(pieces, len(pieces)), choice)
        waits = [choice.choice(pauses) for _ in sent]
        restarts = [number % 2 == 1 and choice.random() < 0.5 for _ in sent]
        # All requests are within an hour, because senders of calls are known only for an hour.
        waits = waits if sum(waits) < 2000 else [0.0]
        rows, _ = told(sent, restarts, waits)
        assert expected == calls_of(rows)
        assert {} == summed(rows)


@pytest.mark.parametrize("name", REPORTERS)
def test_counters_without_calls_in_any_order(name: str) -> None:
    """Without calls, the counters count, and an agent's summary next to them does not."""
    _, repeats = REPORTERS[name]
    choice = random.Random(f"{SEED} {name} alone")
    counters = [case for case in repeats if case.format == "otlp/metrics"]
    pieces: list[Piece] = [(case, items) for case in repeats for items in case.pieces]
    expected = summed(told_in_memory([case.request(case.pieces) for case in counters])[0])
    for _ in range(ORDERS):
        sent = requests(choice.sample(pieces, len(pieces)), choice)
        rows, _ = told_on_disk(
            sent, [choice.random() < 0.3 for _ in sent], [choice.choice(SHORT) for _ in sent]
        )
        assert expected == summed(rows)
        assert (0 if counters else 1) == len(calls_of(rows))


@pytest.mark.parametrize(
    "others",
    [
        counters("gcp.vertex.agent", *of_model("text-embedding-005", 41, 0)),
        counters("gcp.vertex.agent", *of_model("gemini-2.5-pro", 41, 0), service="other"),
        counters("gcp.vertex.agent", *of_model("gemini-2.5-pro", 41, 0, **{"session.id": "another"})),
    ],
    ids=["another model", "another service", "another person's session"],
)
def test_calls_hide_only_their_own_counters(others: Case) -> None:
    """Calls hide only counters of their own service, model and session."""
    pieces = [(ADK, ADK.pieces[0]), *[(others, items) for items in others.pieces]]
    for order in (pieces, pieces[::-1]):
        rows, _ = told_in_memory(requests(order, random.Random(SEED)), LONG)
        assert 41 == sum(summed(rows).values())
        assert 1 == len(calls_of(rows))
