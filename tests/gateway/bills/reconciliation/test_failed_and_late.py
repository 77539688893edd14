"""
Failed calls that used tokens, and rows that a bill has on a later day, at random keys, models and days.

The planted cause is found with its amount, alone and next to another cause. No other cause is stated as a fact, and no
exact claim contradicts the month.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import product
from random import Random, SystemRandom

import pytest

from gateway.bills.reconciliation.causes.month import MISSING, ONE_SIDED
from gateway.bills.reconciliation.claims import EXACT
from gateway.bills.reconciliation.comparing import Reconciliation
from tests.gateway.bills.reconciliation.judging import (
    INVENTED,
    RIGHT,
    WRONG,
    dollars,
    holds,
    judged_alone,
    judged_together,
    sums_of,
)
from tests.gateway.bills.reconciliation.plants import FAILED, LATE, PLANTS, Plant, planted
from tests.gateway.bills.reconciliation.plants import full_days as full_days
from tests.gateway.bills.reconciliation.simulator import ALL_PROVIDERS, BEDROCK, DAY_S, OPENAI
from tests.rounds import IS_LONG, part

SEED = int(os.environ.get("TOLLHOUSE_SEED", SystemRandom().randrange(2**32) if IS_LONG else 41))
PAIRS = 400 if IS_LONG else 1
CLEAN = 20 if IS_LONG else 2  # number of random months without any cause


@cache
def plant_of(provider: str, seed: int, name: str) -> Plant:
    return PLANTS[name](Random(f"{seed} {name} {provider}"), provider)


def plants_of(provider: str, seed: int, names: Iterable[str]) -> list[Plant]:
    """Return plants, or nothing if the provider's bill cannot show them or cannot tell them apart."""
    plants = [plant_of(provider, seed, name) for name in names]
    causes = [cause for plant in plants for cause in plant.causes]
    is_possible = all(provider in plant.providers for plant in plants)
    return plants if is_possible and len(set(causes)) == len(causes) else []


def pairs() -> list[tuple[str, int, str, str]]:
    every = [
        (provider, SEED, first, second)
        for provider, first, second in product(ALL_PROVIDERS, (*FAILED, *LATE), PLANTS)
        if first != second and plants_of(provider, SEED, (first, second))
    ]
    return Random(SEED).sample(every, PAIRS)


def agrees_with_the_month(found: Reconciliation) -> None:
    """
    Check that exact claims about missing calls and about days are not each other's opposite on adjacent days: tokens of
    the other sign, and at least half as many.
    """
    tokens = Counter[int]()
    for claim in found.claims:
        if claim.sure == EXACT and claim.cause in {*MISSING, *ONE_SIDED}:
            for (_, cell, _), portion in claim.parts.items():
                tokens[cell.day] += portion.tokens
    pairs = [(count, tokens[day + DAY_S]) for day, count in tokens.items() if day + DAY_S in tokens]
    assert not [
        pair for pair in pairs if pair[0] * pair[1] < 0 and 2 * min(map(abs, pair)) >= max(map(abs, pair))
    ]


@pytest.mark.parametrize(("name", "provider"), part([*product((*FAILED, *LATE), ALL_PROVIDERS)], every=8))
async def test_alone(name: str, provider: str) -> None:
    """
    The planted cause is claimed exactly. Failed calls without a cost that are not billed make no difference at all.
    """
    plants = plants_of(provider, SEED, [name])
    if not plants:
        pytest.skip("the bill cannot show it")
    found = await planted(provider, SEED, plants)
    verdict = judged_alone(found, plants[0])
    assert verdict.state == RIGHT, verdict.words
    assert not found.hints
    assert {EXACT} >= {claim.sure for claim in found.claims if claim.cause in plants[0].causes}
    assert ("agrees" in {line.state for line in found.days}) and (
        name != "failed" or {"agrees"} == {line.state for line in found.days}
    )


@pytest.mark.parametrize(("provider", "seed", "first", "second"), pairs())
async def test_next_to_another_cause(provider: str, seed: int, first: str, second: str) -> None:
    plants = plants_of(provider, seed, (first, second))
    found = await planted(provider, seed, plants)
    verdict = judged_together(provider, seed, found, plants)
    assert verdict.state not in (WRONG, INVENTED), verdict.words
    agrees_with_the_month(found)


async def test_clean_months_are_silent() -> None:
    """Without a cause, and with failed calls that nobody bills, nothing is claimed or hinted at."""
    for number in range(CLEAN):
        provider = ALL_PROVIDERS[number % len(ALL_PROVIDERS)]
        failed = plants_of(provider, SEED + number, ["failed"]) * (number % 2)
        found = await planted(provider, SEED + number, failed)
        holds(found)
        assert {} == sums_of(found)
        assert not found.hints
        assert {"agrees"} == {line.state for line in found.days}


@pytest.mark.usefixtures("full_days")
@pytest.mark.parametrize("provider", [OPENAI, BEDROCK])
async def test_late_rows_without_proof_are_no_fact(provider: str) -> None:
    """If calls are missing as well, no equation shows that a day's rows are late. Neither day is then a fact."""
    plants = [PLANTS[name](Random(name), provider) for name in ("posted late", "share")]
    plants[1] = Plant(causes=plants[1].causes, lost=lambda call: call.tokens["output"] % 3 == 0)
    found = await planted(provider, SEED, plants)
    holds(found)
    agrees_with_the_month(found)
    assert "no_bill" not in {claim.cause for claim in found.claims}
    assert dollars(sum(abs(claim.amount) for claim in found.claims if claim.sure == EXACT)) == 0
    named = {cause for hint in found.hints for cause in (hint.cause, *hint.beside)}
    assert "posted_late" in named | {claim.cause for claim in found.claims}
