"""The rule, which sees only counts, against a cache that knows the content."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest

from gateway.money.waste.judging import AVOIDABLE, GROUPS
from spool import money
from tests.gateway.money.waste.examples import judged
from tests.gateway.money.waste.simulator import random_session


def found_classes(seed: int) -> Counter[str]:
    """Judge a random session, compare every class of every call, and return how often each class occurred."""
    session = random_session(seed)
    seen = Counter[str]()
    for each in judged(session.lanes):
        amounts = {name: Decimal(money.units_to_text(amount)) for name, amount in each.amounts.items()}
        expected = {name: amount for name, amount in session.expected[each.call.id].items() if amount}
        assert amounts == expected, (seed, each)
        assert not each.not_judged, (seed, each)
        seen.update(amounts)
    return seen


def test_all_eight_classes_equal_the_content_to_the_last_digit() -> None:
    seen = sum((found_classes(seed) for seed in range(12)), Counter[str]())
    assert set(seen) == set(GROUPS)


@pytest.mark.proof
def test_the_classes_of_three_hundred_sessions_equal_the_content() -> None:
    seen = sum((found_classes(seed) for seed in range(300)), Counter[str]())
    assert set(seen) == set(GROUPS)


@pytest.mark.parametrize("lifetime", ["five", "hour", "mixed", "unstated"])
@pytest.mark.parametrize("seed", range(4))
def test_a_clean_session_has_nothing_to_avoid(lifetime: str, seed: int) -> None:
    """Only the sub-agents' shared prompt is read by others; each conversation grows and never pauses for long."""
    for each in judged(random_session(seed, (), lifetime=lifetime).lanes):
        assert not any(GROUPS[name] == AVOIDABLE for name in each.amounts), each
