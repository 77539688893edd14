"""
A report without token counts, and a later one with counts under the same id, are one call. This holds for ids
that several calls may share, whose dedup key contains the counts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from tests.gateway.normalise.formats.payloads import case
from tests.integration.order.running import Request, Row, told_in_every_order, told_in_memory

CALL_ID = "7596bc95-42a8-4fd2-a00f-256df48f3c93"


def litellm(id: str, input_tokens: int | None, **more: Any) -> Request:
    event = case("litellm", "slp-batch-array")[0]
    event["metadata"]["usage_object"] = None
    event |= {"id": id, "litellm_call_id": CALL_ID, "response": {}, "response_cost": 0.5}
    event |= {"prompt_tokens": input_tokens, "completion_tokens": input_tokens and input_tokens // 10}
    return Request("litellm", json.dumps([event | more]).encode())


def envoy(input_tokens: int | None) -> Request:
    line = case("envoy_ai_gateway", "access-log-line")
    line = {name: value for name, value in line.items() if "tokens" not in name}
    line |= {"gen_ai.usage.input_tokens": input_tokens, "gen_ai.usage.output_tokens": input_tokens and 132}
    return Request("envoy_ai_gateway", json.dumps(line).encode())


def counted(rows: Sequence[Row]) -> tuple[int, int]:
    """Return the number of calls, and their input with corrections."""
    calls = [row for row in rows if row["kind"] == "inference" and not row["shadow"]]
    return len(calls), sum(row["input_tokens"] or 0 for row in rows if not row["shadow"])


@pytest.mark.parametrize("pauses", [(), (60.0,)])
@pytest.mark.parametrize(
    ("without", "later"),
    [
        (litellm("chatcmpl-12", None), litellm("chatcmpl-12", 1320)),
        (litellm(CALL_ID, None), litellm(CALL_ID, 1320)),
        (litellm("chatcmpl-Lab0076Zq7cVQ2k1", None), litellm("chatcmpl-Lab0076Zq7cVQ2k1", 1320)),
        (envoy(None), envoy(1320)),
    ],
)
def test_the_counts_arrive_later(without: Request, later: Request, pauses: Sequence[float]) -> None:
    for rows, _ in told_in_every_order((without, later), pauses):
        assert (1, 1320) == counted(rows)


@pytest.mark.parametrize(
    "other",
    [
        litellm("chatcmpl-12", 1400),
        litellm("chatcmpl-12", None, startTime=1795158586.5),
        litellm("chatcmpl-12", None, model="openai/gpt-4o"),
        litellm("chatcmpl-12", None, status="failure"),
        litellm("chatcmpl-13", None),
    ],
)
def test_other_calls_stay_apart(other: Request) -> None:
    """Other counts, another start, model, outcome or id are another call."""
    for order in permutations((litellm("chatcmpl-12", 1320), other)):
        assert 2 == counted(told_in_memory(order * 2)[0])[0]
