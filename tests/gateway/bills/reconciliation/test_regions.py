"""
Regions are compared only if both sides use the same names. An expensive region is found next to another cause.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from random import Random

import pytest

from tests.gateway.bills.reconciliation.judging import dollars, holds, sums_of
from tests.gateway.bills.reconciliation.plants import PLANTS, Plant, difference, planted
from tests.gateway.bills.reconciliation.simulator import ANTHROPIC, AZURE, GOOGLE

SEED = 3486783679


def plant(name: str, provider: str) -> Plant:
    return PLANTS[name](Random(f"{SEED} {name} {provider}"), provider)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("provider", "other"),
    [(GOOGLE, "batch share"), (AZURE, "half"), (GOOGLE, "discount"), (ANTHROPIC, "discount")],
)
async def test_region_claim_holds_next_to_another_cause(provider: str, other: str) -> None:
    """
    Each claim is within 2 % of its cause, measured without or with the other cause. Nothing else is claimed.
    """
    plants = [plant("region", provider), plant(other, provider)]
    result = await planted(provider, SEED, plants)
    holds(result)
    sums, whole = sums_of(result), dollars(result.total.difference)
    first, second = [dollars(difference(provider, SEED, [plant])) for plant in plants]
    assert {"region", *plants[1].causes} == set(sums)
    [cause] = plants[1].causes
    for claimed, share in ((sums["region"], (first, whole - second)), (sums[cause], (second, whole - first))):
        near = max(map(abs, share)) / 50 + Decimal("0.005")
        assert min(share) - near <= claimed <= max(share) + near


async def test_other_names() -> None:
    """
    If a source uses other region names, or names regions for only some calls, the comparison ignores regions.
    """
    regional = plant("region", GOOGLE)

    def otherwise(name: str, keys: int) -> Plant:
        return Plant(
            causes=(),
            told=lambda calls: [
                replace(call, region=name) if call.region and call.time % 2 < keys else call for call in calls
            ],
        )

    assert "day, model, tier, region, context window" == (await planted(GOOGLE, SEED, [regional])).finest
    for told in (otherwise("europe", 2), otherwise("", 1)):
        result = await planted(GOOGLE, SEED, [regional, told])
        assert "day, model, tier, context window" == result.finest
        assert result.total.parts["volume"] == 0
        assert {"region"} == set(sums_of(result))
