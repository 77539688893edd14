"""Lines of final bills replace the amounts that contracts state, so that nothing counts twice."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.bills.contracts.bills import replace_estimates_by_billed_amounts
from gateway.bills.contracts.declared import Contract, ContractTerm
from spool.currencies import CurrencyConverter, find_no_rate
from spool.money import UNIT
from spool.record import CURRENCY
from spool.statements import ACCRUED, USD, StatementRow
from tests.gateway.bills.contracts.test_capacity import MARCH

CAPACITY = {"unit": "ptu", "number": "3", "price": "0.07", "per": "month"}
PRIORITY = {"tier": "priority", "amount": "5", "per": "month"}
AMOUNT = {"amount": "5", "per": "month"}
TERMS: dict[str, dict[str, Any]] = {
    "capacity": CAPACITY,
    "priority": PRIORITY,
    "minimum": AMOUNT,
    "fee": AMOUNT,
    "credit": AMOUNT,
}
CHARGES = {"capacity": "commitment", "priority": "commitment"}


def contract(kind: str, **term: str) -> Contract:
    terms = (ContractTerm(kind=kind, **{**TERMS[kind], **term}),)  # type: ignore[arg-type]
    return Contract(
        id=kind, name=kind, provider="openai", since="2026-01-01", terms=terms, created=1.0, last_updated=1.0
    )


def line(kind: str, amount: str, unit: str = USD) -> StatementRow:
    return StatementRow(
        source="openai_costs", provider="openai", account=None, key=None, model=None, start=MARCH.start,
        end=MARCH.start + 86_400, unit=unit, kind=kind, amount=Decimal(amount), currency=CURRENCY, tier=None,
        region=None, batch=None, settled=True,
    )  # fmt: skip


def replaced_total(contracts: list[Contract], *lines: StatementRow) -> tuple[int, set[str]]:
    """Return the sum of the amounts of $4 and $1 after the bill, and the contracts whose amounts it replaced."""
    parts = {
        (each.name, CHARGES.get(each.name, each.name), team): amount * UNIT
        for each in contracts
        for team, amount in (("search", 4), ("", 1))
    }
    converter = CurrencyConverter(find_no_rate, CURRENCY)
    charged = replace_estimates_by_billed_amounts(parts, contracts, {"openai": lines}, converter)
    return sum(parts.values()), {name for name, _ in charged}


@pytest.mark.parametrize(
    ("term", "kind", "amount"),
    [
        ("capacity", "throughput", "7"),
        ("capacity", "scale_tier_units", "7"),
        ("priority", "priority", "7"),
        ("priority", "priority_processing_fee", "7"),
        ("minimum", "minimum_commitment_true_up", "7"),
        ("minimum", "commitment_shortfall", "7"),
        ("fee", "support", "7"),
        ("fee", "enterprise_support_plan", "7"),
        ("fee", "platform_fee", "7"),
        ("credit", "credit", "-7"),
        ("credit", "promotional_credits", "-7"),
    ],
)
def test_a_line_counts_in_place_of_its_term(term: str, kind: str, amount: str) -> None:
    """A line of a final bill replaces the whole amount that the contract states."""
    assert (int(amount) * UNIT, {term}) == replaced_total([contract(term)], line(kind, amount))


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize(
    ("kind", "amount"),
    [
        ("token_fee", "7"),
        ("tax", "7"),
        ("discount", "-7"),
        ("refund", "-7"),
        ("input", "7"),
        ("storage", "7"),
        ("credits_purchase", "7"),
    ],
)
def test_other_lines_leave_the_terms_as_computed(term: str, kind: str, amount: str) -> None:
    """Lines of usage, taxes, discounts and refunds do not replace an amount of a contract."""
    assert (5 * UNIT, set()) == replaced_total([contract(term)], line(kind, amount))


@pytest.mark.parametrize("kind", ["fee", "priority"])
def test_a_fee_by_the_term_stays_as_computed(kind: str) -> None:
    """
    A fee for a whole term stays as computed. The bill may state it once, while its days are in all months, so its
    line would count again later.
    """
    lines = line("support", "60"), line("priority", "60")
    assert (5 * UNIT, set()) == replaced_total([contract(kind, per="term")], *lines)


def test_accrued_amounts_are_no_lines() -> None:
    """Lines that move an amount are ignored, because another line states the amount."""
    lines = line("throughput", "7"), line("throughput", "3", ACCRUED)
    assert (7 * UNIT, {"capacity"}) == replaced_total([contract("capacity")], *lines)


def test_a_line_is_divided_among_contracts_of_the_provider() -> None:
    """Two contracts of a provider, with capacity and with a minimum, divide one bill line, which counts once."""
    both = [contract("capacity"), contract("minimum")]
    assert (7 * UNIT, {"capacity", "minimum"}) == replaced_total(both, line("throughput", "7"))
