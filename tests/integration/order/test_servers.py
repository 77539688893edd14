"""Counters of a model server next to the calls that it answered never count as further calls."""

from __future__ import annotations

from tests.integration.order.cases import FOUND
from tests.integration.order.running import in_order, told_in_every_order
from tests.integration.order.test_counters import spans

SERVER = FOUND["vllm/served_tokens_cumulative"]


def test_served_tokens_never_count_in_addition_to_calls() -> None:
    """
    Tokens that a model server counted never count beside the calls that it answered. The counters arrive hours
    before or after the calls, with stops in between. The application has another service name.
    """
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "Qwen/Qwen3-32B",
        "gen_ai.usage.input_tokens": 20,
    }
    calls = spans("own", call)
    told = [calls.request(calls.pieces), SERVER.request(SERVER.pieces)]
    for pauses in ([], [7200]):
        for rows, _ in told_in_every_order(told, pauses, times=1):
            metrics = in_order([row for row in rows if row["kind"] == "usage_metric"])
            assert 5 == len(metrics)
            assert all(row["shadow"] for row in metrics)
            assert [20] == [row["input_tokens"] for row in rows if row["kind"] == "inference"]
