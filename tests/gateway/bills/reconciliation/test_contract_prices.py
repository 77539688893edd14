"""Bills next to contracts: followed, ignored, or billed at another discount, alone and for a part of the month."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from random import Random

import pytest

from tests.gateway.bills.reconciliation.faults import FAULTS, SNAPSHOTS, replaced, term_of
from tests.gateway.bills.reconciliation.judging import HINTED, RIGHT, dollars, judged_alone, judged_together
from tests.gateway.bills.reconciliation.plants import HAVE_MODELS, PLANTS, Plant, planted
from tests.gateway.bills.reconciliation.simulator import BEDROCK, DAYS, MODELS, OPENAI
from tests.gateway.bills.reconciliation.test_failed_and_late import agrees_with_the_month
from tests.gateway.bills.reconciliation.test_faults import SEED, plants_of
from tests.rounds import as_proof, part

CONTRACTS = [name for name in FAULTS if name.startswith("contract")]
OTHER = Plant(
    causes=("contract_price",),
    rows=lambda rows: [
        replaced(row, amount=row.amount * Decimal("0.97")) if row.unit == "usd" else row for row in rows
    ],
)


@pytest.mark.parametrize(
    ("name", "provider"),
    part([(name, HAVE_MODELS[index % len(HAVE_MODELS)]) for index, name in enumerate(CONTRACTS)], every=2),
)
async def test_alone(name: str, provider: str) -> None:
    """A contract that the bill does not follow is the only cause, with its exact amount."""
    [plant] = plants_of(provider, SEED, [name])
    found = await planted(provider, SEED, [plant])
    verdict = judged_alone(found, plant)
    assert RIGHT == verdict.state, verdict.words
    agrees_with_the_month(found)


async def test_another_discount_of_one_model_is_a_hint() -> None:
    """If the price of the model may have changed instead of the contract being ignored, no cause is a fact."""
    plant = replace(OTHER, terms=(term_of(BEDROCK, factor=Decimal("0.9")),))
    found = await planted(BEDROCK, SEED, [plant])
    assert [] == [claim.cause for claim in found.claims if claim.cause != "rounding"]
    assert any("contract_price" in hint.beside for hint in found.hints)


async def test_a_contract_that_begins_within_the_month() -> None:
    """If a contract begins within the month, only calls since its first day are claimed."""
    term = term_of(OPENAI, factor=Decimal("0.8"))
    late = replaced(term, since="2026-03-11")
    found = await planted(OPENAI, SEED, [Plant(causes=("contract_price",), terms=(late,))])
    [claim] = [claim for claim in found.claims if claim.cause == "contract_price"]
    assert claim.amount == found.total.difference and claim.days[0] == DAYS[10]
    assert f"${dollars(found.total.billed):,.2f}" not in claim.evidence
    assert "the contract Enterprise states $" in claim.evidence and not found.hints


async def test_batches_that_a_discount_leaves_out_are_named() -> None:
    """If the contract's discount is missing for one tier, only this tier is claimed."""
    [plant] = plants_of(BEDROCK, SEED, ["contract not in batches"])
    found = await planted(BEDROCK, SEED, [plant])
    [claim] = [claim for claim in found.claims if claim.cause == "contract_price"]
    assert "nova-lite in tier batch at the prices without a contract" in claim.evidence
    assert {"batch"} == {cell.tier for cell in claim.by_cell}


async def test_a_rise_that_gives_the_list_price_is_no_contract() -> None:
    """If, from a day on, 1.25 times the contract's price equals the list price, neither cause is a fact."""
    rise = Plant(
        causes=(),
        rows=lambda rows: [
            replaced(row, amount=row.amount * Decimal("0.8" if row.start < DAYS[12] else "1"))
            if row.unit == "usd"
            else row
            for row in rows
        ],
        terms=(term_of(BEDROCK, factor=Decimal("0.8")),),
    )
    found = await planted(BEDROCK, SEED, [rise])
    assert [] == [claim.cause for claim in found.claims if claim.cause != "rounding"]
    assert {"price_change", "contract_price"} <= {
        name for hint in found.hints for name in (hint.cause, *hint.beside)
    }


@pytest.mark.parametrize("factor", part(["1.02", "1.05", "0.9", "0.95"], every=2))
async def test_a_round_share_of_the_contract_is_no_other_discount(factor: str) -> None:
    """A fee or a further discount on a bill that follows its contract is not a fact about the contract."""
    plants = [*plants_of(OPENAI, SEED, ["contract met"])]
    plants.append(
        replace(
            OTHER,
            rows=lambda rows: [
                replaced(row, amount=row.amount * Decimal(factor)) if row.unit == "usd" else row
                for row in rows
            ],
        )
    )
    found = await planted(OPENAI, SEED, plants)
    assert "contract_price" not in {claim.cause for claim in found.claims}


@pytest.mark.parametrize("factor", part(["0.995", "0.7"], every=2))
async def test_an_ignored_contract_on_a_bill_in_euros(factor: str) -> None:
    """
    On a bill in euros that ignores a contract, the exchange rate is one that the market had. If the market had the
    rates that fit both kinds of prices, neither cause is a fact.
    """
    [euros] = [PLANTS["euros"](Random(f"{SEED}"), OPENAI)]
    ignored = Plant(causes=("contract_price",), terms=(term_of(OPENAI, factor=Decimal(factor)),))
    found = await planted(OPENAI, SEED, [euros, ignored])
    facts = {claim.cause for claim in found.claims if claim.cause != "rounding"}
    assert facts == ({"contract_price", "exchange_rate"} if factor == "0.7" else set())
    assert factor == "0.7" or any(
        hint.cause == "exchange_rate" and "contract_price" in hint.beside for hint in found.hints
    )


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("capacity", "snapshot"),
        as_proof(("discount", "snapshot")),
        as_proof(("capacity", "flex untold")),
        ("discount", "priority untold"),
    ],
)
async def test_tokens_that_leave_a_contract_have_a_part_of_it(kind: str, fault: str) -> None:
    """
    The contract covers standard calls under the names that sources report. The bill has the calls under another
    snapshot or tier without it, so their amount is a fact about neither.
    """
    [plant] = plants_of(OPENAI, SEED, [fault])
    models = tuple(
        model for model in MODELS[OPENAI] if plant.world is None or SNAPSHOTS[model] in plant.world[OPENAI]
    )
    factor = Decimal("0.8") if kind == "discount" else None
    term = term_of(OPENAI, kind, models=models, tier="standard", factor=factor)
    plants = [plant, Plant(causes=("contract_price",), terms=(term,))]
    verdict = judged_together(OPENAI, SEED, await planted(OPENAI, SEED, plants), plants)
    assert HINTED == verdict.state, verdict.words
