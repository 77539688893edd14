"""
Bills that no provider is known to write: other shapes, clean months of them, and rows that were changed at random.

Whatever a bill says, everything adds up, no exact claim contradicts the month, and no cause that was not planted is
stated as a fact.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from decimal import Decimal
from itertools import product
from random import Random, SystemRandom

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.bills.reconciliation.causes.month import MISSING
from gateway.bills.reconciliation.claims import EXACT
from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.gathering import convert_to_dollars
from gateway.bills.reconciliation.lines import ComparisonLine
from gateway.bills.reconciliation.restating import BillConversion
from spool.currencies import SCALE
from spool.statements import StatementRow
from tests.gateway.bills.reconciliation.faults import FAULTS
from tests.gateway.bills.reconciliation.judging import INVENTED, WRONG, holds, judged_together
from tests.gateway.bills.reconciliation.plants import (
    PLANTS,
    SOURCES_OF_MONEY,
    Calls,
    Plant,
    Planting,
    Rows,
    planted,
)
from tests.gateway.bills.reconciliation.shapes import SHAPES, UNUSUAL
from tests.gateway.bills.reconciliation.simulator import ALL_PROVIDERS, DAY_S, DAYS, KEYS
from tests.gateway.bills.reconciliation.test_failed_and_late import agrees_with_the_month
from tests.gateway.bills.reconciliation.test_faults import CLEAN, is_silent
from tests.rounds import IS_LONG, examples, part

replaced = msgspec.structs.replace
SEED = int(os.environ.get("TOLLHOUSE_SEED", SystemRandom().randrange(2**32) if IS_LONG else 9090))
MONTHS = 200 if IS_LONG else 2
ALL = {**PLANTS, **FAULTS, **UNUSUAL, **SHAPES}


def plants_of(names: tuple[str, ...], provider: str, seed: int) -> list[Plant]:
    """
    Return plants, shapes last, or nothing if the provider's bill cannot show them or cannot tell them apart.
    """
    ordered = sorted(names, key=lambda name: name in SHAPES)
    plants = [ALL[name](Random(f"{seed} {name} {provider}"), provider) for name in ordered]
    causes = [cause for plant in plants for cause in plant.causes]
    is_possible = all(provider in plant.providers for plant in plants)
    return plants if is_possible and len(set(causes)) == len(causes) else []


def drawn() -> list[tuple[int, int, str, tuple[str, ...]]]:
    """Draw unusual faults and shapes alone and with one or two other faults, in small and larger months."""
    random = Random(SEED)
    months: list[tuple[int, int, str, tuple[str, ...]]] = []
    while len(months) < MONTHS:
        others = random.sample(sorted(ALL), random.choice((0, 1, 1, 2)))
        names = (random.choice([*UNUSUAL, *SHAPES]), *others)
        provider = random.choice(ALL_PROVIDERS)
        if len({*names}) == len(names) and plants_of(names, provider, SEED):
            months.append((SEED, random.choice((10, 30)), provider, names))
    return months


ONCE_WRONG: list[tuple[int, int, str, tuple[str, ...]]] = [
    # a tax within the only amount of the last day was mistaken for a price
    (9090, 10, "azure.ai.openai", ("one amount a day", "tax")),
    # a failed call without its output count was claimed twice
    (720001, 30, "openai", ("no output count", "failed and billed", "weekend posted late")),
    # batches that are missing with other calls
    (730001, 12, "anthropic", ("begun", "sampled")),
    # the morning before telemetry began
    (730001, 12, "gcp.vertex_ai", ("begun",)),
    # two keys under one name
    (790001, 12, "openai", ("merged keys",)),
    # a key under a new name, with more tokens of each call
    (780012, 14, "anthropic", ("rotated key", "rounded calls", "pooled writes")),
    # tokens that are repeated without their money
    (790001, 12, "openai", ("tokens twice",)),
    # half the price with a fee
    (710002, 12, "azure.ai.openai", ("fee", "half")),
    # another snapshot, on a bill without tokens
    (9090, 30, "azure.ai.openai", ("only money", "snapshot")),
    # missing output, on a bill without tokens
    (750001, 10, "azure.ai.openai", ("only money", "no thinking")),
    # repeated rows, on a bill without tokens
    (770031, 10, "azure.ai.openai", ("twice", "only money")),
    # amounts as small as their rounding
    (817, 8, "azure.ai.openai", ("begun", "flex", "rounded up")),
    # a fee on every line, of which one kind of token showed a price
    (833, 24, "gcp.vertex_ai", ("free tokens", "alias", "fee")),
    # silent hours of a day to which late rows were added
    (833, 24, "gcp.vertex_ai", ("late batches", "half a day")),
    # a snapshot that is left on days without telemetry
    (843, 24, "azure.ai.openai", ("three days", "some snapshot")),
    # silent hours of few days
    (760001, 10, "anthropic", ("few days", "outages", "refund")),
    # a day without calls by chance
    (760011, 10, "gcp.vertex_ai", ("few days", "sampled")),
    # late tokens of one day, within a shift of hours
    (760021, 14, "gcp.vertex_ai", ("local hours", "tokens late")),
    # another price in addition to a price of 0
    (760021, 14, "anthropic", ("dear days", "free since")),
]


@pytest.mark.parametrize(("seed", "a_day", "provider", "names"), [*part(ONCE_WRONG, every=10), *drawn()])
async def test_unusual_months(
    seed: int, a_day: int, provider: str, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In unusual bills, no cause that was not planted is a fact, and no cause has more than its amount."""
    monkeypatch.setattr("tests.gateway.bills.reconciliation.plants.A_DAY", a_day)
    plants = plants_of(names, provider, seed)
    found = await planted(provider, seed, plants)
    verdict = judged_together(provider, seed, found, plants)
    assert verdict.state not in (WRONG, INVENTED), verdict.words
    agrees_with_the_month(found)
    agrees_in_total(found)


def agrees_in_total(found: Reconciliation) -> None:
    """Check that models and keys of exact claims about missing tokens have more billed tokens than counted ones."""
    for claim in found.claims:
        if claim.sure == EXACT and claim.cause in MISSING and claim.tokens:
            for names, lines in ((claim.models, found.models), (claim.keys, found.keys)):
                lacking = [_lacking(line) for line in lines if line.name in names]
                assert not lacking or max(lacking) > 0, claim


def _lacking(line: ComparisonLine) -> int:
    return line.billed_tokens - line.counted_tokens


def _daily_euros(random: Random, provider: str) -> Plant:
    """Bill in euros, at the rate of each day."""
    rates = {day: round(random.uniform(1.05, 1.12), 4) for day in range(DAYS[0], DAYS[-1] + DAY_S, DAY_S)}
    units = {day: int(Decimal(str(rate)) * SCALE) for day, rate in rates.items()}
    conversion = BillConversion(currency="EUR", sources=frozenset(SOURCES_OF_MONEY), rates=units)

    def billed(row: StatementRow) -> StatementRow:
        amount = (row.amount / Decimal(str(rates[row.start]))).quantize(Decimal("1e-9"))
        return replaced(row, unit="eur", currency="EUR", amount=amount) if row.unit == "usd" else row

    return Plant(
        causes=(),
        conversion=conversion,
        rows=lambda rows: convert_to_dollars([*map(billed, rows)], lambda _from, _to, day: units.get(day)),
    )


def _pacific_office(random: Random, provider: str) -> Plant:
    """State days in Pacific time. All calls are made at hours that are on the same day in UTC."""
    begin = 8 * 3600

    def moved(row: StatementRow) -> StatementRow:
        return replaced(row, start=row.start + begin, end=row.end + begin)

    return Plant(
        causes=(),
        done=lambda calls: [call for call in calls if call.time % DAY_S >= begin],
        rows=lambda rows: [*map(moved, rows)],
    )


def _six_decimals(random: Random, provider: str) -> Plant:
    def rounded(row: StatementRow) -> StatementRow:
        return replaced(row, amount=row.amount.quantize(Decimal("0.000001"))) if row.unit == "usd" else row

    return Plant(causes=(), rows=lambda rows: [*map(rounded, rows)])


def _calls(done: Callable[[Calls], Calls]) -> Planting:
    return lambda random, provider: Plant(causes=(), done=done)


CLEAN_MONTHS: dict[str, Planting] = {
    **{name: _calls(done) for name, done in CLEAN.items()},
    **{name: planting for name, planting in SHAPES.items() if name not in ("cents", "only money")},
    "daily euros": _daily_euros,
    "pacific office": _pacific_office,
    "six decimals": _six_decimals,
}


CONTRACTS: dict[str, Planting] = {
    "no contract": _calls(lambda calls: calls),
    **{name: FAULTS[name] for name in ("contract met", "contract of batches met")},
}


def clean_months() -> list[tuple[str, str, str]]:
    every = [
        (name, provider, contract)
        for name, provider, contract in product(CLEAN_MONTHS, ALL_PROVIDERS, CONTRACTS)
        if provider in CONTRACTS[contract](Random(0), provider).providers
    ]
    return every if IS_LONG else Random(SEED).sample(every, 20)


@pytest.mark.parametrize(("name", "provider", "contract"), part(clean_months(), every=10))
async def test_twenty_clean_months(name: str, provider: str, contract: str) -> None:
    """
    A month in which both sides agree has no cause above rounding and no hint, in any shape of the bill and under
    contracts that it follows.
    """
    plants = [
        planting(Random(f"{SEED} {name}"), provider) for planting in (CONTRACTS[contract], CLEAN_MONTHS[name])
    ]
    is_silent(await planted(provider, SEED, plants))


Change = Callable[[StatementRow, Random], list[StatementRow]]
CHANGES: dict[str, Change] = {
    "left out": lambda row, random: [],
    "again": lambda row, random: [row, row],
    "other amount": lambda row, random: [replaced(row, amount=round(row.amount * random.randint(0, 3), 9))],
    "another day": lambda row, random: [_on_day(row, random.choice(DAYS))],
    "another key": lambda row, random: [replaced(row, key=random.choice((*KEYS, "key_x", None)))],
    "another model": lambda row, random: [replaced(row, model=random.choice(("new-1", row.model, None)))],
    "another tier": lambda row, random: [replaced(row, tier=random.choice(("batch", "flex", None)))],
    "another kind": lambda row, random: [replaced(row, kind=random.choice(("output", "cost", "vat")))],
    "given back": lambda row, random: [row, replaced(row, amount=-row.amount)],
}


def _on_day(row: StatementRow, day: int) -> StatementRow:
    return replaced(row, start=day, end=day + DAY_S)


def _at_random(seed: int, names: list[str], share: float) -> Plant:
    def rows(given: Rows) -> Rows:
        random = Random(seed)
        result: list[StatementRow] = []
        for row in given:
            is_changed = random.random() < share
            result += CHANGES[random.choice(names)](row, random) if is_changed else [row]
        return result

    return Plant(causes=(), rows=rows)


@settings(max_examples=examples(60), deadline=None)
@given(
    provider=st.sampled_from(ALL_PROVIDERS),
    seed=st.integers(0, 2**32),
    names=st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=4, unique=True),
    share=st.sampled_from((0.002, 0.02, 0.2, 0.9)),
    others=st.lists(st.sampled_from(sorted(ALL)), max_size=2, unique=True),
)
async def test_any_bill_adds_up(
    provider: str, seed: int, names: list[str], share: float, others: list[str]
) -> None:
    """
    Causes and the unexplained amount are the difference in every row, and exact claims agree with the month, whatever
    the rows of the bill are.
    """
    plants = plants_of((*others,), provider, seed) if others else []
    fewer = Plant(causes=(), done=lambda calls: [*calls][::3])
    found = await planted(provider, seed % 5, [fewer, *plants, _at_random(seed, names, share)])
    holds(found)
    agrees_with_the_month(found)
    agrees_in_total(found)
