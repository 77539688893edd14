"""VoltAgent: the spans of a model's run and of its agent arrive in requests of their own, in any order."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from tests.gateway.normalise.otlp.payloads import span, traces
from tests.integration.order.running import Request, told_in_memory, told_on_disk
from tests.rounds import part

RUN = {"operation.id": "run-1", "entity.type": "agent", "entity.name": "guide"}
MODEL = {**RUN, "span.type": "llm", "llm.model": "gpt-5"}
AGENT = span(1, {**RUN, "ai.model.name": "gpt-5", "usage.prompt_tokens": 300, "usage.completion_tokens": 30})


def model_run(tools: int, given: int, made: int) -> dict[str, Any]:
    counts = {"llm.usage.prompt_tokens": given, "llm.usage.completion_tokens": made}
    return span(2, {**MODEL, "llm.attempt": 2, "llm.tools.count": tools, **counts}, parent=1)


FAILED = span(3, {**MODEL, "llm.attempt": 1}, parent=1, status={"code": 2})
TITLE = span(4, {**MODEL, "llm.usage.prompt_tokens": 7, "llm.usage.completion_tokens": 3}, parent=1)


def request(one: dict[str, Any]) -> Request:
    return Request("otlp/traces", json.dumps(traces(one, scope="@voltagent/core")).encode())


@pytest.mark.parametrize("main", [model_run(0, 300, 30), model_run(2, 200, 20)], ids=["alone", "with tools"])
@pytest.mark.parametrize("spans", part([pytest.param(each) for each in permutations(range(4))], every=4))
def test_each_call_counts_once(main: dict[str, Any], spans: tuple[int, ...]) -> None:
    """
    Each call of VoltAgent counts once. Each span arrives in its own request. The run and its agent are one call,
    and attempts and titles are calls as well.
    """
    requests = [request((AGENT, main, FAILED, TITLE)[number]) for number in spans]
    told = told_on_disk(requests, [True] * 4) if spans[0] == 3 else told_in_memory(requests)
    rows, conflicts = told
    assert conflicts == 0
    calls = sorted((row["status"], row["input_tokens"], row["output_tokens"]) for row in rows)
    assert calls == [("error", None, None), ("ok", 7, 3), ("ok", 300, 30)]
