"""
Causes that are identities: exchanged keys, a fixed rate of exchange, another model, context windows, missing output,
discounts that are not given, and taxes. Each amount is exact next to every other cause; test_simulated_months has each
of them alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from itertools import combinations
from random import Random

import msgspec
import pytest

from gateway.bills.reconciliation.causes.contexts import claim_context_window_moves
from gateway.bills.reconciliation.cells import ComparableDimensions, split_difference
from gateway.bills.reconciliation.claims import BillComparison, UnexplainedDifference
from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.gathering import convert_to_dollars
from gateway.bills.reconciliation.matching import token_meter
from gateway.bills.reconciliation.sides import INPUT, OUTPUT, BilledTokens, CountedUse
from tests.gateway.bills.reconciliation.judging import INVENTED, WRONG, dollars, judged_together, sums_of
from tests.gateway.bills.reconciliation.plants import FAILED, LATE, NEW_PLANTS, PLANTS, Plant, planted
from tests.gateway.bills.reconciliation.simulator import ALL_PROVIDERS, ANTHROPIC, DAY_S, DAYS, GOOGLE, OPENAI
from tests.rounds import part, some

SEED = 2
CASES = [
    (provider, first, second)
    for provider in ALL_PROVIDERS
    for first, second in combinations([name for name in PLANTS if name not in {**FAILED, **LATE}], 2)
    if first in NEW_PLANTS
]


def plant(name: str, provider: str, seed: int = SEED) -> Plant:
    return PLANTS[name](Random(f"{seed} {name} {provider}"), provider)


async def found(name: str, provider: str) -> Reconciliation:
    return await planted(provider, SEED, [plant(name, provider)])


@pytest.mark.parametrize(("provider", "first", "second"), part(CASES, every=1245))
async def test_next_to_another_cause(provider: str, first: str, second: str) -> None:
    """Each cause has its amount within 0.1 %, or some of its amount is unexplained. Nothing else is claimed."""
    chosen = [plant(name, provider) for name in (first, second)]
    causes = [cause for each in chosen for cause in each.causes]
    if len(set(causes)) < len(causes) or any(provider not in each.providers for each in chosen):
        pytest.skip("the bill cannot show both")
    verdict = judged_together(provider, SEED, await planted(provider, SEED, chosen), chosen)
    assert verdict.state not in (WRONG, INVENTED), verdict.words


async def test_a_day_with_exchanged_keys_does_not_agree() -> None:
    """
    If two keys are exchanged, they differ by opposite amounts, and the claim says so by key. Without keys, all days
    agree.
    """
    result = await found("swapped keys", OPENAI)
    [claim] = [claim for claim in result.claims if claim.cause == "keys_exchanged"]
    assert (claim.amount, claim.tokens) == (0, 0)
    assert claim.moved > 0
    first, second = (line for line in result.keys if line.name in claim.keys)
    assert first.difference == -second.difference != 0
    assert {line.unexplained for line in result.keys} == {0}
    # on a day, two keys may have the same number of tokens within the tolerance
    assert sum(line.state == "explained" for line in result.days) >= len(DAYS) - 2


async def test_the_missing_output_is_named_as_reasoning() -> None:
    """Google's bill states thinking by itself, so the evidence can say that the missing output is thinking."""
    result = await found("no thinking", GOOGLE)
    assert all("reasoning" in claim.evidence for claim in result.claims if claim.cause == "output_missing")
    assert {claim.sure for claim in result.claims if claim.cause == "output_missing"} == {"exact"}


async def test_a_bill_at_the_rates_of_the_days_has_no_other_rate() -> None:
    """Amounts that the provider converted at the rate of each day are no difference."""
    conversion = plant("euros", OPENAI).conversion
    assert conversion is not None

    def rate(_from: str, _to: str, day: int) -> int | None:
        return conversion.rates.get(day)

    def rows(given: object) -> object:
        in_euros = [
            msgspec.structs.replace(
                row,
                unit="eur",
                currency="EUR",
                amount=(row.amount / (Decimal(conversion.rates[row.start]) / 10**12)).quantize(
                    Decimal("1e-9")
                ),
            )
            if row.unit == "usd"
            else row
            for row in given  # type: ignore[attr-defined]
        ]
        return convert_to_dollars(in_euros, rate)

    daily = Plant(causes=(), rows=rows, conversion=conversion)  # type: ignore[arg-type]
    result = await planted(OPENAI, SEED, [daily])
    assert {} == sums_of(result)
    assert [] == list(result.hints)
    discount = await planted(OPENAI, SEED, [plant("discount", OPENAI), daily])
    assert {"discount"} == {hint.cause for hint in discount.hints} | set(sums_of(discount))


async def test_a_hint_has_no_amount() -> None:
    """Calls without tokens and missing calls cannot be distinguished on a bill without calls. All is unexplained."""
    chosen = [plant("unsized", ANTHROPIC), plant("share", ANTHROPIC)]
    result = await planted(ANTHROPIC, SEED, chosen)
    assert {"usage_missing", "unreported_calls"} <= {
        cause for hint in result.hints for cause in (hint.cause, *hint.beside)
    }
    assert {"usage_missing", "unreported_calls"}.isdisjoint(sums_of(result))
    assert dollars(result.total.unexplained) > 0


def test_tokens_of_counters_in_another_context_window() -> None:
    """
    Counters state no sizes, so their tokens are in the smallest window. Tokens that the bill has in the window of large
    inputs are worth its list prices.
    """

    def listed(model: str, tier: str, day: int, context: int) -> Mapping[str, int]:
        return {INPUT: 6, OUTPUT: 30} if context else {INPUT: 3, OUTPUT: 20}

    day = DAYS[0]
    counted = CountedUse(
        day=day, source="claude-code", key="", team="", model="sonnet", tier="", calls=2, errors=0, unsized=0,
        tokens={INPUT: 400_000, OUTPUT: 2_000}, values={INPUT: 1_200_000, OUTPUT: 40_000}, cost=1_240_000, context=-1,
    )  # fmt: skip
    rows = [
        BilledTokens(source="usage", day=day, account="", key="", model="sonnet", tier=None, meter=meter,
                     quantity=quantity, context=context)
        for meter, context, quantity in (
            (INPUT, 0, 100_000), (INPUT, 200_000, 300_000), (OUTPUT, 0, 500), (OUTPUT, 200_000, 1_500),
        )
    ]  # fmt: skip
    parts = split_difference(
        rows,
        [],
        [counted],
        prices=listed,
        comparable_dimensions=ComparableDimensions(contexts=(200_000,)),
        lacks_billed_money=True,
    )
    case = BillComparison(split=parts, remainder=UnexplainedDifference(parts), days=(day,))
    [claim] = claim_context_window_moves(case)
    assert claim.amount == 300_000 * (6 - 3) + 1_500 * (30 - 20)
    assert claim.sure == "exact"
    assert 0 == sum(case.remainder.amounts.values())


@pytest.mark.parametrize("kind", ["vat", "VAT 19%", "gst", "sales_tax", "Mehrwertsteuer MwSt", "tva", "tax"])
def test_a_tax_has_many_names(kind: str) -> None:
    assert token_meter(kind) == "tax"


@pytest.mark.parametrize("kind", ["input", "web_search", "vatican", "storage"])
def test_other_lines_are_no_tax(kind: str) -> None:
    assert token_meter(kind) != "tax"


async def test_what_is_owed_adds_up() -> None:
    """The lines of a claim for a discount add up to the amount of the cause."""
    for name, provider in some(
        [("batch at full price", OPENAI), ("batch without discount", ANTHROPIC)], every=2
    ):
        result = await found(name, provider)
        claimed = sum(claim.amount for claim in result.claims if claim.cause == "tier_not_given")
        assert claimed == sum(line.owed_amount for line in result.owed) > 0
        assert all(line.tokens > 0 and line.owed_amount > 0 for line in result.owed)
        assert {line.reported for line in result.owed} == {"batch"}
        assert {line.day for line in result.owed} <= set(range(DAYS[0], DAYS[-1] + DAY_S, DAY_S))
