"""
Reads of stored responses, as captured from LiteLLM's log. The program makes a response, one in background mode and
one as a stream, and reads each of the first two twice, lists its items, cancels it and deletes it.

A read is no call. But in background mode, only the read states counts.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.clients.capture import PLACE, read
from tests.integration.order.running import SEED, Request
from tests.integration.order.test_assistants_behind_litellm import (
    LATE_S,
    MILLIONTH,
    calls_that_count,
    records_after,
)
from tests.integration.order.test_captured_agents import pieces_of
from tests.rounds import some

CAPTURED = read(PLACE / "litellm_reads/responses.jsonl.gz")
ITEMS = [item for sent in CAPTURED.requests if not sent.path.endswith("/metrics") for item in pieces_of(sent)]
# by output tokens: the first call has a price itself, and the second one is in background mode
PRICES_OF_READS = {705: 0.010358, 710: 0.01}


def with_priced_reads(item: Request) -> Request:
    """Return an item of LiteLLM's log as some versions write it: with counts and a price in each read."""
    if item.format != "litellm" or b"aget_responses" not in item.body:
        return item
    [event] = json.loads(item.body)
    usage = event["response"]["usage"]
    totals = {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}
    cost = PRICES_OF_READS[usage["completion_tokens"]]
    return replace(item, body=json.dumps([event | totals | {"response_cost": cost}]).encode())


@pytest.mark.parametrize("are_priced", [False, True], ids=["unpriced", "priced"])
async def test_a_read_of_a_response_is_no_call(*, are_priced: bool) -> None:
    chance = random.Random(f"{SEED} {are_priced}")
    items = [with_priced_reads(item) for item in ITEMS] if are_priced else ITEMS
    orders = [items, items[::-1], *[chance.sample(items, len(items)) for _ in some(range(60), every=30)]]
    for number, order in enumerate(orders):
        pause = LATE_S if number % 3 == 2 else 0.0
        calls = calls_that_count(await records_after(order * 2, pause=pause, directory=None))
        expected = Counter((call.input_tokens, call.output_tokens) for call in CAPTURED.told)
        assert expected == Counter((call.input_tokens, call.output_tokens) for call in calls)
        spent = sum((Decimal(call.cost or 0) for call in calls), Decimal(0))
        assert CAPTURED.cost is not None
        expected_cost = CAPTURED.cost + Decimal("0.01") * are_priced
        assert expected_cost.quantize(MILLIONTH) == spent.quantize(MILLIONTH)
        assert all(call.estimated_cost for call in calls)


@pytest.mark.parametrize("created_at", [1e300, -5, 10**30, "soon"])
async def test_an_impossible_time_of_creation_is_no_read(created_at: object) -> None:
    """Bad input of a sender must not end the request."""
    reads = [item for item in ITEMS if item.format == "litellm" and b"aget_responses" in item.body]
    [event] = json.loads(with_priced_reads(reads[0]).body)
    event["response"]["created_at"] = created_at
    body = json.dumps([event]).encode()
    assert [] == calls_that_count(
        await records_after([replace(reads[0], body=body)], pause=0.0, directory=None)
    )
