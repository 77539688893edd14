"""
Simulated months of five providers with zero to three planted causes.

Each claim is within 2 % or half a cent of the planted amount, no other cause is claimed, and everything adds
up. If causes cannot be separated, the claim names them, and their sum is within 2 %. A full run
(`make proofs`) uses other seeds and many pairs and triples.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations, product
from random import Random, SystemRandom

import msgspec
import pytest

from tests.gateway.bills.reconciliation.judging import (
    HINTED,
    INVENTED,
    RIGHT,
    UNEXPLAINED,
    WRONG,
    Verdict,
    holds,
    judged_alone,
    judged_together,
    sums_of,
)
from tests.gateway.bills.reconciliation.plants import PLANTS, Plant, Rows, planted
from tests.gateway.bills.reconciliation.plants import full_days as full_days
from tests.gateway.bills.reconciliation.simulator import (
    ALL_PROVIDERS,
    ANTHROPIC,
    AZURE,
    BEDROCK,
    DAYS,
    GOOGLE,
    OPENAI,
)
from tests.rounds import IS_LONG, part

SEEDS = 5
SEED = os.environ.get("TOLLHOUSE_SEED")
LONG = {2: 40, 3: 20}  # number of pairs and of triples of causes, for each provider and seed
SHORT = {2: 1, 3: 1}  # a short run also has only a part of the single causes for each provider
ONCE_WRONG = (
    # One day still had a rate from other calls, and this rate was mistaken for a price.
    (ANTHROPIC, 18001, ("batch key", "pacific")),
    # A key got the rates of other keys.
    (ANTHROPIC, 12001, ("key", "local hours", "unsized")),
    # hours without calls were not named if each day also lacked some calls
    (GOOGLE, 22001, ("key", "half a day")),
    # half a day was missing in the ledger, which was mistaken for a double bill
    (AZURE, 23001, ("half a day", "local hours")),
    (GOOGLE, 23001, ("half a day", "price")),  # a day's price was applied to the calls that the day lacked
    # a discount on all days was mistaken for a price of some days
    (AZURE, 16001, ("input price", "discount", "dear days")),
    (OPENAI, 23001, ("key", "four days", "region")),  # a price was claimed for days without calls
    (ANTHROPIC, 23002, ("batch share", "region")),  # a separate price was claimed for single days
    # a model with all its calls was mistaken for one without reports
    (GOOGLE, 23001, ("half a day", "pacific", "unsized")),
    # The day's average rates over all keys were applied to hours without calls.
    (GOOGLE, 23001, ("key", "half a day", "twice")),
    # a day with hours without calls was mistaken for a double bill
    (GOOGLE, 23002, ("half a day", "twice", "searches")),
    # One day was billed twice, and less than half of the other days lacked calls.
    (GOOGLE, 23002, ("share", "four days", "twice")),
    # Reports without tokens, at other hours than the calls, were mistaken for unreported calls.
    (BEDROCK, 23003, ("twice", "local hours", "unsized")),
    # missing calls hid a changed price, and this price was applied to the missing calls
    (GOOGLE, 31007, ("key", "input price")),
    # a model without counted calls got the price of another model
    (ANTHROPIC, 23001, ("model", "batch key", "pacific")),
)


def seeds() -> list[int]:
    if SEED:
        return [int(SEED)]
    return [SystemRandom().randrange(2**32) for _ in range(SEEDS)] if IS_LONG else [1]


def plants_of(seed: int, provider: str) -> dict[str, Plant]:
    """Create random plants that the provider's bill can show."""
    all_plants = {
        name: plant(Random(f"{seed} {name} {provider}"), provider) for name, plant in PLANTS.items()
    }
    return {name: plant for name, plant in all_plants.items() if provider in plant.providers}


def together(seed: int, provider: str, plants: dict[str, Plant], number: int) -> list[tuple[str, ...]]:
    """Return random pairs or triples of distinguishable causes, different for each provider and seed."""
    every = [names for names in combinations(plants, number) if _are_apart([plants[name] for name in names])]
    size = (LONG if IS_LONG else SHORT)[number]
    return Random(f"{seed} {provider} {number}").sample(every, min(len(every), size))


def _are_apart(plants: Sequence[Plant]) -> bool:
    causes = [cause for plant in plants for cause in plant.causes]
    return len(set(causes)) == len(causes)


@pytest.mark.parametrize("provider", part(ALL_PROVIDERS, every=3))
async def test_nothing_is_planted(provider: str) -> None:
    """A simulated month without a planted cause has no claim, and each day agrees."""
    for seed in seeds():
        result = await planted(provider, seed, [])
        holds(result)
        assert {} == sums_of(result)
        assert {"agrees"} == {line.state for line in result.days}


@pytest.mark.parametrize("provider", part(ALL_PROVIDERS, every=3))
async def test_nothing_is_made_of_two_sources_or_of_euros(provider: str) -> None:
    """
    Days that a second source also reports are not counted twice, and amounts in other currencies are not compared.
    """

    def told_again(rows: Rows) -> Rows:
        return [
            *rows,
            *(msgspec.structs.replace(row, source="focus") for row in rows if row.start in DAYS[4:8]),
        ]

    def in_euros(rows: Rows) -> Rows:
        return [msgspec.structs.replace(row, currency="EUR") if row.unit == "usd" else row for row in rows]

    result = await planted(provider, 1, [Plant(causes=(), rows=told_again)])
    holds(result)
    assert sums_of(result) == {}
    assert {line.state for line in result.days} == {"agrees"}
    result = await planted(provider, 1, [Plant(causes=(), rows=in_euros)])
    holds(result)
    assert sums_of(result) == {}
    assert list(result.foreign) == ["EUR"]
    assert result.has_money is False


@pytest.mark.parametrize("provider", ALL_PROVIDERS)
async def test_one_cause(provider: str) -> None:
    """With one planted cause, only this cause is claimed, for the whole amount."""
    verdicts: dict[str, Verdict] = {}
    for seed in seeds():
        plants = plants_of(seed, provider)
        for name in [*plants] if IS_LONG else [*plants][ALL_PROVIDERS.index(provider) :: len(ALL_PROVIDERS)]:
            plant = plants[name]
            verdicts[f"{name} {seed}"] = judged_alone(await planted(provider, seed, [plant]), plant)
    _tell(provider, verdicts)
    assert {} == {name: verdict.words for name, verdict in verdicts.items() if verdict.state != RIGHT}


@pytest.mark.parametrize(("number", "provider"), part([*product((2, 3), ALL_PROVIDERS)], every=12))
async def test_causes_together(number: int, provider: str) -> None:
    """
    Each cause is claimed with its amount, or named as inseparable from others. The remaining
    difference is unexplained.
    """
    verdicts: dict[str, Verdict] = {}
    for seed in seeds():
        plants = plants_of(seed, provider)
        for names in together(seed, provider, plants, number):
            chosen = [plants[name] for name in names]
            result = await planted(provider, seed, chosen)
            verdicts[f"{', '.join(names)} {seed}"] = judged_together(provider, seed, result, chosen)
    _tell(f"{provider}, {number} causes", verdicts)
    assert {} == {
        name: verdict.words for name, verdict in verdicts.items() if verdict.state in (WRONG, INVENTED)
    }


@pytest.mark.usefixtures("full_days")
@pytest.mark.parametrize(("provider", "seed", "names"), part(ONCE_WRONG, every=15))
async def test_combinations_of_causes_that_failed_before_pass(
    provider: str, seed: int, names: tuple[str, ...]
) -> None:
    """Combinations of causes that failed in earlier full runs."""
    plants = [plants_of(seed, provider)[name] for name in names]
    verdict = judged_together(provider, seed, await planted(provider, seed, plants), plants)
    assert verdict.state not in (WRONG, INVENTED), verdict.words


def _tell(title: str, verdicts: dict[str, Verdict]) -> None:
    """Print a summary for full runs."""
    counts = Counter(verdict.state for verdict in verdicts.values())
    worst = max(
        (verdict.error for verdict in verdicts.values() if verdict.state == RIGHT), default=Decimal(0)
    )
    states = ", ".join(f"{counts[state]} {state}" for state in (RIGHT, HINTED, UNEXPLAINED, WRONG, INVENTED))
    print(f"{title}: {len(verdicts)} months, {states}; worst error {worst:.4%}")
    for name, verdict in sorted(verdicts.items()):
        if verdict.state != RIGHT:
            print(f"    {verdict.state}: {name}: {verdict.words}")
