"""Repeated rows or reports next to another cause each get their own amount, to the cent."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pytest

from tests.gateway.bills.reconciliation.judging import dollars, holds, sums_of
from tests.gateway.bills.reconciliation.plants import PLANTS, difference, planted
from tests.gateway.bills.reconciliation.simulator import ANTHROPIC, OPENAI


@pytest.mark.proof
@pytest.mark.parametrize(
    ("provider", "again", "other"),
    [
        (ANTHROPIC, "twice", "batch share"),
        (OPENAI, "twice", "plain cache"),
        (ANTHROPIC, "double report", "batch share"),
        (ANTHROPIC, "double report", "plain cache"),
        (OPENAI, "double report", "twice"),
    ],
)
async def test_claims_of_repeats_hold_next_to_another_cause(provider: str, again: str, other: str) -> None:
    """
    Tokens of another tier or kind are matched only within the same time, so large inputs that changed their
    tier are not claimed as a price. A repeat is valued at the billed price or the counted price.
    """
    seed = 3016937225
    plants = {name: PLANTS[name](Random(f"{seed} {name} {provider}"), provider) for name in (again, other)}
    result = await planted(provider, seed, plants.values())
    holds(result)
    sums = sums_of(result)
    alone = dollars(difference(provider, seed, [plants[other]]))
    assert {cause for plant in plants.values() for cause in plant.causes} == set(sums)
    [cause] = plants[other].causes
    assert abs(sums[cause] - alone) <= Decimal("0.005")
    assert abs(dollars(result.total.unexplained)) <= Decimal("0.005")
