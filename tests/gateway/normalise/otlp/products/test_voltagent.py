"""VoltAgent's spans: a model's run reports its last call, and the agent the sum of its calls."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.normalise.outcome import ReadOutcome
from tests.gateway.normalise.otlp.payloads import ENCODINGS, normalised, span, traces
from tests.gateway.normalise.outcomes import inferences

SCOPE = "@voltagent/core"
RUN = {"operation.id": "run-1", "entity.type": "agent", "entity.name": "guide"}
MODEL = {**RUN, "span.type": "llm", "llm.model": "gpt-5", "llm.attempt": 1, "llm.tools.count": 0}
FAILED = {"status": {"code": 2}}


def used(begin: str, given: int, made: int, cost: float | None = None) -> dict[str, Any]:
    counts = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
    costs = {} if cost is None else {"usage.cost": cost}
    return {f"{begin}usage.{name}": count for name, count in counts.items()} | costs


AGENT = span(1, {**RUN, "ai.model.name": "gpt-5", **used("", 300, 30, 0.5)})
LAST_CALL = span(2, {**MODEL, "llm.tools.count": 2, **used("llm.", 200, 20, 0.5)}, parent=1)
ONLY_CALL = span(2, {**MODEL, **used("llm.", 300, 30, 0.5)}, parent=1)


def counted(outcome: ReadOutcome) -> list[tuple[Any, ...]]:
    return sorted((one.status, one.input_tokens, one.output_tokens, one.cost) for one in inferences(outcome))


def sent(*spans: dict[str, Any], encoding: str = "json", scope: str = SCOPE) -> ReadOutcome:
    return normalised(traces(*spans, scope=scope), encoding=encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_run_with_tools_counts_as_its_agent(encoding: str) -> None:
    """
    If a VoltAgent run uses tools, only the agent's span has the tokens of all calls, so it is counted. The stated
    cost is only that of the last call, so the cost is unknown.
    """
    assert [("ok", 300, 30, None)] == counted(sent(LAST_CALL, AGENT, encoding=encoding))
    assert [("ok", 300, 30, None)] == counted(sent(AGENT, encoding=encoding))
    assert [] == counted(sent(LAST_CALL, encoding=encoding))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_run_without_tools_is_one_call_with_its_cost(encoding: str) -> None:
    assert [("ok", 300, 30, "0.5")] == counted(sent(ONLY_CALL, AGENT, encoding=encoding))
    assert [("ok", 300, 30, "0.5")] == counted(sent(ONLY_CALL, encoding=encoding))


@pytest.mark.parametrize("last", [LAST_CALL, ONLY_CALL])
def test_failed_attempts_are_calls_of_their_own(last: dict[str, Any]) -> None:
    """Attempts that failed before the good one count as failed calls, whether or not the run uses tools."""
    failed = [span(number, MODEL | {"llm.tools.count": 2}, parent=1, **FAILED) for number in (3, 4)]
    calls = counted(sent(*failed, last, AGENT))
    assert [("error", None, None), ("error", None, None), ("ok", 300, 30)] == [call[:3] for call in calls]


@pytest.mark.parametrize("last", [LAST_CALL, ONLY_CALL])
def test_a_title_is_not_part_of_the_sum(last: dict[str, Any]) -> None:
    """VoltAgent's own calls, such as those for titles, have no attempt. The agent's sum leaves them out."""
    of_title = {name: value for name, value in MODEL.items() if name != "llm.attempt"}
    title = span(5, {**of_title, **used("llm.", 7, 3)}, parent=1)
    assert [(7, 3), (300, 30)] == [call[1:3] for call in counted(sent(title, last, AGENT))]


def test_an_agent_below_a_scorer_makes_calls_of_its_own() -> None:
    """
    The judge of a scorer is an agent with calls of its own. It is no duplicate of the agent that it judges, and the
    span of the scorer repeats its sum.
    """
    scorer = span(6, {**RUN, "span.type": "scorer", **used("", 50, 5)}, parent=1)
    judge = {**RUN, "operation.id": "run-2", "entity.name": "judge", "ai.model.name": "gpt-5-mini"}
    spans = (span(7, {**judge, **used("", 50, 5)}, parent=6), scorer, LAST_CALL, AGENT)
    assert [(50, 5), (300, 30)] == [call[1:3] for call in counted(sent(*spans))]


def test_an_agent_whose_calls_other_spans_report_repeats_them() -> None:
    """
    If the AI SDK's telemetry reports each call of an agent as a span of its own, the agent's sum repeats them and
    does not count.
    """
    inner = [
        span(
            number,
            {
                "ai.operationId": "ai.generateText.doGenerate",
                "ai.model.id": "gpt-5",
                "ai.usage.inputTokens": given,
                "ai.usage.outputTokens": 15,
            },
            parent=2,
        )
        for number, given in ((3, 100), (4, 200))
    ]
    payload = traces(LAST_CALL, AGENT, scope=SCOPE)
    payload["resourceSpans"] += traces(*inner, scope="ai")["resourceSpans"]
    assert [100, 200] == [call[1] for call in counted(normalised(payload))]


def test_runs_without_an_id_share_no_name() -> None:
    """Runs without an id share no name, because a shared name would make one call of two runs."""
    nameless = {name: value for name, value in MODEL.items() if name != "operation.id"}
    outcome = sent(span(2, {**nameless, **used("llm.", 300, 30)}))
    assert [("ok", 300, 30, None)] == counted(outcome)
    assert [()] == [identity.also for identity in outcome.identities]


def test_spans_of_another_scope_are_recognized() -> None:
    """VoltAgent's users may choose the name of the scope."""
    numbered = span(2, {**MODEL, "llm.model_index": 0, **used("llm.", 300, 30)})
    assert ["voltagent"] == [one.source for one in inferences(sent(numbered, scope="shop"))]
