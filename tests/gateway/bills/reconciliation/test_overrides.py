"""Suggested prices: pasting them makes the month agree, or there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from tomllib import loads
from typing import Any

import msgspec
import pytest

from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.configuration.prices import PriceOverride
from spool.statements import StatementRow
from tests.gateway.bills.reconciliation.judging import sums_of
from tests.gateway.bills.reconciliation.plants import Plant, Rows, both_sides
from tests.gateway.bills.reconciliation.simulator import (
    ANTHROPIC,
    AZURE,
    BEDROCK,
    DAYS,
    GOOGLE,
    KEYS,
    MODELS,
    OPENAI,
    Call,
    book,
    count,
    month,
    reconcile,
)
from tests.rounds import as_proof, part


def billed_at(factor: Callable[[StatementRow], str]) -> Plant:
    def rows(given: Rows) -> Rows:
        return [
            msgspec.structs.replace(row, amount=row.amount * Decimal(factor(row)))
            if row.unit == "usd"
            else row
            for row in given
        ]

    return Plant(causes=(), rows=rows)


async def pasted(provider: str, plant: Plant) -> tuple[Reconciliation, Reconciliation, list[PriceOverride]]:
    """Return the month before and after its suggestions are pasted, and the suggestions."""
    rows, reports = both_sides(month(seed=3, a_day=20, providers=(provider,)), [plant])
    prices = book()
    before = reconcile(provider, rows, await count(reports, prices))
    entries = []
    for suggested in before.overrides:
        [table] = loads(suggested.toml)["prices"]["override"]
        fields: dict[str, Any] = {
            name: value if name in ("provider", "model", "since", "tier") else Decimal(value)
            for name, value in table.items()
        }
        entries.append(PriceOverride(**fields))
        prices = prices.with_override(entries[-1])
    assert not [problem for entry in entries for problem in entry.problems("prices.override")]
    return before, reconcile(provider, rows, await count(reports, prices)), entries


MODEL = min(MODELS[ANTHROPIC])  # the test uses a model that has no price for large inputs


@pytest.mark.parametrize(
    ("provider", "factor", "tiers"),
    part(
        [
            (ANTHROPIC, lambda row: "0.7" if row.tier == "batch" and row.model == MODEL else "1", {"batch"}),
            (AZURE, lambda row: "1.25" if row.tier == "standard" and row.start >= DAYS[9] else "1", {""}),
            (ANTHROPIC, lambda row: "0.9" if row.model == MODEL else "1", {"", "batch"}),
            (OPENAI, lambda row: "1.2" if row.model == min(MODELS[OPENAI]) else "1", {"", "batch"}),
        ],
        every=4,
    ),
)
async def test_pasting_makes_the_month_agree(
    provider: str, factor: Callable[[StatementRow], str], tiers: set[str]
) -> None:
    """If only a tier differs, the suggestion has this tier, and the calls of other tiers keep their price."""
    before, after, entries = await pasted(provider, billed_at(factor))
    assert tiers == {entry.tier for entry in entries}
    assert abs(before.total.difference) > 10**25
    assert {} == sums_of(after)
    assert {"agrees"} == {line.state for line in after.days}
    assert not after.overrides


async def test_an_unlisted_tier() -> None:
    """A tier that the list lacks gets its own price."""

    def done(calls: list[Call]) -> list[Call]:
        return [replace(call, tier="flex", batch=False) if call.key == KEYS[0] else call for call in calls]

    _, after, entries = await pasted(AZURE, Plant(causes=(), done=done))  # type: ignore[arg-type]
    assert {"flex"} == {entry.tier for entry in entries}
    assert {} == sums_of(after)


@pytest.mark.parametrize(
    ("provider", "plant"),
    [
        (GOOGLE, billed_at(lambda row: "1.2" if row.model == max(MODELS[GOOGLE]) else "1")),
        (
            BEDROCK,
            Plant(
                causes=(),
                done=lambda calls: [
                    replace(call, uplift=Decimal("1.3")) if call.key == KEYS[0] else call for call in calls
                ],
            ),
        ),
        as_proof((BEDROCK, billed_at(lambda row: "1"))),
    ],
)
async def test_no_suggestion_that_spoils_other_calls(provider: str, plant: Plant) -> None:
    """
    A suggested override has one price for inputs of any size and for all keys. If no such price agrees with the
    bill, nothing is suggested.
    """
    before, _, _ = await pasted(provider, plant)
    assert not before.overrides
