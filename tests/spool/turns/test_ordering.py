"""Long lists are sorted and summed in steps, with the same result as at once."""

from __future__ import annotations

import random

import pytest

from spool.turns import threads
from spool.turns.threads import STEP, sort_in_short_steps, sum_columns


@pytest.mark.parametrize("length", [0, 1, STEP, STEP + 1, 3 * STEP + 7])
def test_the_order_is_that_of_all_at_once(length: int) -> None:
    """Equal values keep their order, also across steps. The values themselves are never compared."""
    chance = random.Random(length)
    values = [(chance.randrange(50), object()) for _ in range(length)]
    assert sorted(values, key=lambda each: -each[0]) == sort_in_short_steps(
        iter(values), key=lambda each: -each[0]
    )


@pytest.mark.parametrize("length", [0, 1, STEP, STEP + 1, 2 * STEP + 7])
def test_columns_are_summed(length: int) -> None:
    assert (length, sum(range(length)), 0) == sum_columns([(1, place, 0) for place in range(length)], 3)


def test_no_step_orders_more_than_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    No step sorts more than a part of the list. Other code runs in between, so the key of a later value is
    read after earlier values are sorted.
    """
    monkeypatch.setattr(threads, "STEP", 4)
    said: list[str] = []

    class Key:
        def __init__(self, value: int) -> None:
            self.value = value
            said.append("key")

        def __lt__(self, other: Key) -> bool:
            said.append("compared")
            return self.value < other.value

    assert [*range(20)] == sort_in_short_steps(range(19, -1, -1), key=Key)
    assert 4 == said.index("compared")
