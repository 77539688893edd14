"""
The billed cost is the sum of five parts, for any bill and ledger, in total and in each cell: counted, volume,
rate, other and own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.bills.reconciliation.cells import BilledCountedDifference, ComparableDimensions, split_difference
from gateway.bills.reconciliation.sides import (
    METERS,
    OTHER,
    OWN,
    POOLED,
    RATE,
    VOLUME,
    WHOLE,
    BilledMoney,
    BilledTokens,
    CountedUse,
)
from spool.money import UNIT

DAY = 20_000 * 86400
PLACES: dict[str, Any] = {
    "day": st.sampled_from([DAY, DAY + 86400]),
    "key": st.sampled_from(["", "a", "b"]),
    "model": st.sampled_from(["", "gpt-4o", "o3"]),
}
TOKENS = st.integers(0, 10**12)
MONEY = st.integers(-(10**6) * UNIT, 10**6 * UNIT)
KINDS = (*METERS, *POOLED)
BILLED_TOKENS = st.builds(
    BilledTokens,
    source=st.just("usage"),
    account=st.just(""),
    tier=st.sampled_from([None, "batch", "standard"]),
    meter=st.sampled_from([None, *KINDS]),
    quantity=TOKENS,
    **PLACES,
)
BILLED_MONEY = st.builds(
    BilledMoney,
    source=st.just("costs"),
    account=st.just(""),
    tier=st.sampled_from([None, "batch"]),
    meter=st.sampled_from([*KINDS, WHOLE, "web_search", "credit"]),
    amount=MONEY,
    **PLACES,
)
COUNTED = st.builds(
    CountedUse,
    source=st.sampled_from(["litellm", "otel"]),
    team=st.just(""),
    tier=st.sampled_from(["", "batch"]),
    calls=st.integers(0, 9),
    errors=st.integers(0, 9),
    unsized=st.integers(0, 9),
    tokens=st.dictionaries(st.sampled_from(METERS), TOKENS),
    values=st.dictionaries(st.sampled_from(METERS), st.integers(0, 10**6 * UNIT)),
    cost=MONEY,
    **PLACES,
)
LEVELS = st.builds(
    ComparableDimensions,
    key=st.booleans(),
    model=st.booleans(),
    tier=st.booleans(),
    money_key=st.booleans(),
    money_model=st.booleans(),
    money_tier=st.booleans(),
)


def sum_of_part(result: BilledCountedDifference, name: str) -> int:
    return sum(amount for (part, _, _), amount in result.parts.items() if part == name)


def listed(model: str, tier: str, day: int, context: int) -> Mapping[str, int]:
    """Return list prices that cover only one model, and not all of its meters."""
    return {"input": 7 * UNIT // 10**6 + 1, "output": UNIT // 10**5} if model == "gpt-4o" else {}


@given(
    st.lists(BILLED_TOKENS, max_size=6),
    st.lists(BILLED_MONEY, max_size=6),
    st.lists(COUNTED, max_size=6),
    LEVELS,
    st.booleans(),
)
def test_identity(
    tokens: list[BilledTokens],
    money: list[BilledMoney],
    counted: list[CountedUse],
    levels: ComparableDimensions,
    imputed: bool,
) -> None:
    """In the reconciliation of any two sides nothing is lost or rounded, whatever fields they state."""
    result = split_difference(
        tokens,
        [] if imputed else money,
        counted,
        prices=listed,
        comparable_dimensions=levels,
        lacks_billed_money=imputed,
    )
    counted_total = sum(sums.cost for sums in result.counted.values())
    assert sum(row.cost for row in counted) == counted_total
    if not imputed:
        assert sum(row.amount for row in money) == result.billed_total
    parts = [sum_of_part(result, name) for name in (VOLUME, RATE, OTHER, OWN)]
    assert result.billed_total == counted_total + sum(parts)
    by_cell = {levels.money_cell(cell): 0 for cell in result.counted} | dict.fromkeys(result.billed_money, 0)
    for (_, cell, _), amount in result.parts.items():
        by_cell[levels.money_cell(cell)] = by_cell.get(levels.money_cell(cell), 0) + amount
    for cell, sums in result.counted.items():
        by_cell[levels.money_cell(cell)] += sums.cost
    assert {cell: amount for cell, amount in result.billed_money.items() if amount} == {
        cell: amount for cell, amount in by_cell.items() if amount
    }


@given(st.lists(COUNTED, min_size=1, max_size=6))
def test_the_same_on_both_sides(counted: list[CountedUse]) -> None:
    """
    If the bill has the counted tokens at the same prices, only the ledger's own difference ("own") remains.
    """
    tokens = [
        BilledTokens(
            source="usage",
            day=row.day,
            account="",
            key=row.key,
            model=row.model,
            tier=row.tier,
            meter=meter,
            quantity=quantity,
        )
        for row in counted
        for meter, quantity in row.tokens.items()
    ]
    result = split_difference(
        tokens,
        [],
        counted,
        prices=listed,
        comparable_dimensions=ComparableDimensions(key=True, tier=True),
        lacks_billed_money=True,
    )
    assert {} == result.extra
    assert [0, 0, 0] == [sum_of_part(result, name) for name in (VOLUME, RATE, OTHER)]
