"""
The items of every shared case in any order, in one request or many, with restarts in between, give the same
records, sums and conflicts.

Each exception below is a row in docs/promises/ordering.md.
"""

from __future__ import annotations

import random

import pytest

from tests.integration.order.cases import FOUND
from tests.integration.order.running import ORDERS, SEED, cut, summed, told, told_in_memory, without
from tests.rounds import part

# After a restart, Langfuse's trace no longer finds its open generations. Therefore these fields stay empty.
LATE = {"langfuse": ("user", "team", "session", "tags")}


@pytest.mark.parametrize("name", part([*FOUND], every=4))
def test_the_items_of_a_case_in_any_order(name: str) -> None:
    """
    Every other order has restarts. Ids are ignored, because a call without an identifier gets a random one.
    """
    case, choice = FOUND[name], random.Random(f"{SEED} {name}")
    print(f"TOLLHOUSE_ORDER_SEED={SEED}")
    expected = without(told_in_memory([case.request(case.pieces)]), "id")
    for number in range(ORDERS):
        pieces = [choice.sample(piece, len(piece)) for piece in choice.sample(case.pieces, len(case.pieces))]
        groups = cut(pieces, [choice.random() < 0.5 for _ in pieces])
        requests = [case.request(group) for group in groups]
        restarts = [number % 2 == 1 and choice.random() < 0.5 for _ in requests]
        # The increases of a cumulative counter depend on the order of its points, so the test compares only sums.
        if case.format == "otlp/metrics":
            assert summed(expected[0]) == summed(told(requests, restarts)[0])
            continue
        late = LATE.get(case.format, ()) if any(restarts) else ()
        assert without(expected, *late) == without(told(requests, restarts), "id", *late)
