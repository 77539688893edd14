"""Amounts of contracts next to bills that follow, misstate or ignore them: credits, fees, minimums and free tokens."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pytest

from gateway.bills.reconciliation.claims import EXACT, CauseClaim
from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.sides import Commitment, ContractSum
from spool import money
from spool.statements import StatementRow
from tests.gateway.bills.reconciliation.faults import FAULTS, replaced, term_of
from tests.gateway.bills.reconciliation.judging import holds
from tests.gateway.bills.reconciliation.plants import Rows
from tests.gateway.bills.reconciliation.simulator import (
    BEDROCK,
    DAYS,
    OPENAI,
    Counts,
    book,
    count,
    month,
    reconcile,
    record,
    statements,
)

CALLS = [call for call in month() if call.provider == BEDROCK]
ROWS = statements(CALLS)
# the kinds of charges of a contract, and the lines of the bill that have them
CHARGES = {"credit": "credit", "fee": "support", "minimum": "throughput"}
COUNTED: list[Counts] = []


async def compared(rows: Rows, *sums: ContractSum, **fields: object) -> Reconciliation:
    if not COUNTED:
        COUNTED.append(await count([*map(record, CALLS)], book()))
    found = reconcile(BEDROCK, rows, COUNTED[0], sums=sums, **fields)
    holds(found)
    return found


def stated(charge: str, amount: str, **fields: object) -> ContractSum:
    return ContractSum(contract="Enterprise", charge=charge, amount=money.text_to_units(amount), **fields)  # type: ignore[arg-type]


def line(kind: str, amount: str) -> StatementRow:
    like = next(row for row in ROWS if row.unit == "usd")
    return replaced(like, kind=kind, amount=Decimal(amount), model=None, tier=None, region=None)


def only_claim(found: Reconciliation) -> CauseClaim:
    [claim] = [each for each in (*found.claims, *found.hints) if each.cause != "rounding"]
    return claim


@pytest.mark.parametrize("charge", CHARGES)
async def test_a_line_names_the_amount_of_the_contract(charge: str) -> None:
    """
    A bill line for a credit, fee or minimum is a fact with its own amount, whether or not the contract states it.
    """
    sign = "-" if charge == "credit" else ""
    rows = [*ROWS, line(CHARGES[charge], f"{sign}500")]
    same = only_claim(await compared(rows, stated(charge, f"{sign}500")))
    other = only_claim(await compared(rows, stated(charge, f"{sign}400")))
    assert [EXACT, EXACT] == [claim.sure for claim in (same, other)]
    assert {money.text_to_units(f"{sign}500")} == {claim.amount for claim in (same, other)}
    assert same.evidence.endswith("as the contract Enterprise states")
    assert f"has {sign}$500.00" in other.evidence
    assert f"Enterprise states {sign}$400.00 for the calls that were counted" in other.evidence


@pytest.mark.parametrize("charge", [*CHARGES, "allowance"])
async def test_a_bill_without_the_line_is_named_with_the_amount(charge: str) -> None:
    """
    If the bill lacks the line for an amount of the contract, the cause is exact but has no amount, because neither
    side of the comparison has it.
    """
    claim = only_claim(await compared(ROWS, stated(charge, "123.45")))
    assert (EXACT, 0, False) == (claim.sure, claim.amount, claim.is_hint)
    assert "the bill has no " in claim.evidence and "Enterprise states $123.45" in claim.evidence
    assert not (await compared(ROWS, stated(charge, "0.005"))).hints


@pytest.mark.parametrize("other", ["another line", "another price"])
async def test_another_amount_of_the_bill_may_be_that_of_the_contract(other: str) -> None:
    rows = [*ROWS, line("session", "100")]
    if other == "another price":
        rows = [replaced(row, amount=row.amount * 2) if row.unit == "usd" else row for row in ROWS]
    found = await compared(rows, stated("fee", "100"))
    assert not [claim for claim in (*found.claims, *found.hints) if "Enterprise" in claim.evidence]


@pytest.mark.parametrize(
    ("charge", "factor", "cause"), [("fee", "1.05", "fee"), ("allowance", "0.8", "free_tokens")]
)
async def test_a_price_that_gives_the_amount_of_a_contract_is_no_fact(
    charge: str, factor: str, cause: str
) -> None:
    """
    If one model costs more or less on some days, by less than the contract states, the difference is no fact about
    the contract.
    """
    model = next(row.model for row in ROWS if row.unit == "usd")

    def dearer(row: StatementRow) -> StatementRow:
        is_other = row.unit == "usd" and row.model == model and row.start >= DAYS[12]
        return replaced(row, amount=row.amount * Decimal(factor)) if is_other else row

    rows = [*map(dearer, ROWS)]
    amount = "9999" if charge == "fee" else "-9999"
    assert ["price_change"] == [
        each.cause for each in (await compared(rows)).claims if each.cause != "rounding"
    ]
    found = await compared(rows, stated(charge, amount))
    assert [] == [each.cause for each in found.claims if each.cause != "rounding"]
    assert any(cause in hint.beside for hint in found.hints)


@pytest.mark.parametrize("share", ["1", "2"])
async def test_a_fee_on_every_line_names_the_contract(share: str) -> None:
    calls = [call for call in month() if call.provider == OPENAI]
    counts = await count([*map(record, calls)], book())
    rows = [
        replaced(row, amount=row.amount * Decimal("1.05")) if row.unit == "usd" else row
        for row in statements(calls)
    ]
    [without] = [claim for claim in reconcile(OPENAI, rows, counts).claims if claim.cause == "fee"]
    amount = Decimal(money.units_to_text(without.amount)) * Decimal(share)
    found = reconcile(OPENAI, rows, counts, sums=[stated("fee", f"{amount:f}")])
    [claim] = [claim for claim in found.claims if claim.cause == "fee"]
    ending = "as the contract Enterprise states" if share == "1" else f"Enterprise states ${amount:,.2f}"
    assert ending in claim.evidence and claim.evidence.startswith(without.evidence)


async def test_a_minimum_is_on_the_lines_of_capacity() -> None:
    paid = Commitment(
        term=term_of(BEDROCK, "capacity", models=("another",)),
        by_day=dict.fromkeys(DAYS, money.text_to_units("10")),
    )
    rows = [*ROWS, line("throughput", "350")]
    claim = only_claim(await compared(rows, stated("minimum", "50"), commitments=[paid]))
    assert "commitment" == claim.cause and claim.evidence.endswith("as the contract Enterprise states")
    claim = only_claim(await compared(ROWS, commitments=[paid]))
    assert claim.evidence == "the bill has no capacity, but the contract Enterprise states $300.00"


async def test_only_a_whole_month_has_the_amounts() -> None:
    found = await compared(ROWS, stated("fee", "100"), open_from=DAYS[-1])
    assert not [claim for claim in (*found.claims, *found.hints) if claim.cause != "rounding"]


async def test_a_bill_without_money_has_no_amounts() -> None:
    found = await compared([row for row in ROWS if row.unit != "usd"], stated("fee", "100"))
    assert not found.claims and not found.hints


async def test_free_tokens_of_a_day_are_named_as_numbers() -> None:
    rows = FAULTS["free tokens"](Random(0), BEDROCK).rows(ROWS)
    [without] = await free_tokens(rows)
    term = term_of(BEDROCK, "allowance")
    [claim] = await free_tokens(rows, stated("allowance", "-1", free_tokens=[(term, 50_000)]))
    assert f"{without.evidence}, as the contract Enterprise states" == claim.evidence
    [claim] = await free_tokens(rows, stated("allowance", "-1", free_tokens=[(term, 20_000)]))
    assert f"{without.evidence}, but the contract Enterprise states 20,000" == claim.evidence


async def free_tokens(rows: Rows, *sums: ContractSum) -> list[CauseClaim]:
    return [claim for claim in (await compared(rows, *sums)).claims if claim.cause == "free_tokens"]
