"""
Two causes in one month each get their own amount, no other cause is claimed, and inseparable causes are named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product

import msgspec
import pytest

from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.sides import PARTS
from spool import money
from spool.statements import StatementRow
from tests.gateway.bills.reconciliation.simulator import (
    ANTHROPIC,
    BEDROCK,
    DAYS,
    KEYS,
    OPENAI,
    Call,
    book,
    count,
    month,
    reconcile,
    record,
    statements,
)
from tests.rounds import part

CALLS = month()


@dataclass(frozen=True, kw_only=True)
class Plant:
    """
    A planted change: of the calls at the provider, of their report (None means no report), or of a bill row.
    """

    cause: str
    done: Callable[[Call], Call] = lambda call: call
    told: Callable[[Call], Call | None] = lambda call: call
    factor: Callable[[StatementRow], str] = lambda row: "1"


PLANTS = {
    "a day": Plant(cause="no_telemetry", told=lambda call: None if call.day == DAYS[9] else call),
    "batch": Plant(
        cause="tier_unknown", told=lambda call: replace(call, batch=False) if call.key == KEYS[2] else call
    ),
    "region": Plant(
        cause="region", done=lambda call: replace(call, region="us") if call.key == KEYS[1] else call
    ),
    "price": Plant(cause="price_change", factor=lambda row: "1.2" if row.start >= DAYS[14] else "1"),
    "days": Plant(cause="price_on_days", factor=lambda row: "2" if row.start in DAYS[3:7] else "1"),
}


KNOWN: dict[tuple[str, ...], Reconciliation] = {}


async def found(provider: str, *names: str) -> Reconciliation:
    """Reconcile a month with these plants, once for all tests."""
    if (provider, *names) not in KNOWN:
        KNOWN[provider, *names] = await _reconciled(provider, *names)
    return KNOWN[provider, *names]


async def _reconciled(provider: str, *names: str) -> Reconciliation:
    bill = [call for call in CALLS if call.provider == provider]
    for name in names:
        bill = [PLANTS[name].done(call) for call in bill]
    reported_calls: list[Call] = bill
    for name in names:
        reported_calls = [
            reported for call in reported_calls if (reported := PLANTS[name].told(call)) is not None
        ]
    rows = statements(bill)
    for name in names:
        factor = PLANTS[name].factor
        rows = [
            msgspec.structs.replace(row, amount=row.amount * Decimal(factor(row)))
            if row.unit == "usd"
            else row
            for row in rows
        ]
    return reconcile(provider, rows, await count([record(call) for call in reported_calls], book()))


def claimed(of: Reconciliation) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for claim in of.claims:
        if claim.cause != "rounding":
            sums[claim.cause] += Decimal(money.units_to_text(claim.amount))
    return dict(sums)


PAIRS = [
    (ANTHROPIC, "a day", "price"),
    (ANTHROPIC, "a day", "days"),
    (ANTHROPIC, "price", "days"),
    (ANTHROPIC, "batch", "price"),
    (ANTHROPIC, "region", "price"),
    (BEDROCK, "region", "days"),
    (BEDROCK, "batch", "price"),
    (BEDROCK, "batch", "days"),
    (BEDROCK, "price", "days"),
    (OPENAI, "batch", "region"),
    (OPENAI, "batch", "price"),
]


@pytest.mark.proves("two causes on one day")
@pytest.mark.parametrize(("provider", "first", "second"), part(PAIRS, every=12))
async def test_two_causes(provider: str, first: str, second: str) -> None:
    """
    Each claim is within 2 % of its cause, measured without or with the other cause. For example, a price
    change also raises the cost of a region.
    """
    both = await found(provider, first, second)
    sums, difference = claimed(both), Decimal(money.units_to_text(both.total.difference))
    assert {PLANTS[first].cause, PLANTS[second].cause} == set(sums)
    alone = {
        name: Decimal(money.units_to_text((await found(provider, name)).total.difference))
        for name in (first, second)
    }
    for name, other_name in ((first, second), (second, first)):
        share = (alone[name], difference - alone[other_name])
        near = max(map(abs, share)) / 50
        assert min(share) - near <= sums[PLANTS[name].cause] <= max(share) + near, (name, share, sums)
    total = both.total
    assert total.billed == total.counted + sum(total.parts[name] for name in PARTS)
    assert total.difference == sum(claim.amount for claim in both.claims) + total.unexplained


@pytest.mark.parametrize(
    ("name", "provider"), part([*product(PLANTS, (ANTHROPIC, BEDROCK, OPENAI))], every=4)
)
async def test_one_cause(name: str, provider: str) -> None:
    """
    The claim of the single cause covers the whole difference. Large inputs of another tier cost what
    the ledger says.
    """
    alone = await found(provider, name)
    sums, difference = claimed(alone), Decimal(money.units_to_text(alone.total.difference))
    assert [PLANTS[name].cause] == list(sums)
    assert abs(sums[PLANTS[name].cause] - difference) <= abs(difference) / 50


async def of_a_lost_key(lost: str, regional: str) -> Reconciliation:
    """Reconcile a month with an unreported key, and a reported key in an expensive region."""
    bill = [
        replace(call, region="us") if call.key == regional else call
        for call in CALLS
        if call.provider == BEDROCK
    ]
    return reconcile(
        BEDROCK, statements(bill), await count([record(c) for c in bill if c.key != lost], book())
    )


async def test_unreported_calls_inseparable_from_another_price_claim_nothing() -> None:
    """Unreported calls in an unreported region have a higher price that cannot be separated from them."""
    result = await of_a_lost_key(KEYS[1], KEYS[1])
    assert {} == claimed(result)
    [hint] = [hint for hint in result.hints if hint.cause == "unreported_calls"]
    assert ("another_price",) == hint.beside
    assert hint.evidence.endswith("unreported calls and another price cannot be distinguished here")


async def test_a_price_of_others_is_none_of_the_missing_calls() -> None:
    """
    The calls of the expensive region are in the ledger, so its price is not applied to the missing calls.
    """
    sums = claimed(await of_a_lost_key(KEYS[0], KEYS[1]))
    lost = sum(
        (call.cost() for call in CALLS if call.provider == BEDROCK and call.key == KEYS[0]), Decimal(0)
    )
    dearer = (
        sum((call.cost() for call in CALLS if call.provider == BEDROCK and call.key == KEYS[1]), Decimal(0))
        / 10
    )
    assert {"unreported_calls", "region"} == set(sums)
    assert abs(sums["unreported_calls"] - lost) <= lost / 50
    assert abs(sums["region"] - dearer) <= dearer / 50
