"""What a bill rounds away is rounding, and nothing else: whatever the number of its lines."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import msgspec
import pytest
import pytest_asyncio

from gateway.bills.reconciliation.comparing import AGREES, DIFFERS, Reconciliation
from spool.ledger import money
from spool.statements import StatementRow
from tests.gateway.bills.reconciliation.simulator import (
    BEDROCK,
    DAYS,
    Counts,
    book,
    count,
    month,
    reconcile,
    record,
    statements,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLS = [call for call in month() if call.provider == BEDROCK]
ROWS = statements(CALLS)
Change = Callable[[StatementRow], Decimal]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counts() -> Counts:
    return await count([record(call) for call in CALLS], book())


def exported(
    lines: int, change: Change = lambda row: row.amount, digits: str = "1E-10"
) -> list[StatementRow]:
    """The bill with each amount in so many lines, as clouds export resources and hours apart."""
    found = []
    for row in ROWS:
        amount = change(row)
        if row.unit != "usd":
            found.append(msgspec.structs.replace(row, amount=amount))
            continue
        each = (amount / lines).quantize(Decimal(digits))
        found += [msgspec.structs.replace(row, amount=each)] * (lines - 1)
        found.append(
            msgspec.structs.replace(row, amount=(amount - each * (lines - 1)).quantize(Decimal(digits)))
        )
    return found


def amounts(found: Reconciliation) -> dict[str, Decimal]:
    return {claim.cause: Decimal(money.text(claim.amount)) for claim in found.claims}


def states(found: Reconciliation) -> list[str]:
    return [line.state for line in found.days]


def twice(row: StatementRow) -> Decimal:
    """Rows of one day stand twice."""
    return row.amount * 2 if row.start == DAYS[4] else row.amount


def discounted(row: StatementRow) -> Decimal:
    """Batches are 5 % cheaper: less than a hundredth of the bill."""
    return row.amount * Decimal("0.95") if row.unit == "usd" and row.tier == "batch" else row.amount


@pytest.mark.parametrize("lines", [1, 100])
@pytest.mark.parametrize("change", [twice, discounted])
async def test_real_money_is_no_rounding(counts: Counts, lines: int, change: Change) -> None:
    """However many lines the export has, what is apart is as large as it is and is not called rounding."""
    found = reconcile(BEDROCK, exported(lines, change), counts)
    planted = sum((change(row) - row.amount for row in ROWS if row.unit == "usd"), Decimal(0))
    assert abs(amounts(found).get("rounding", Decimal(0))) < Decimal("0.00001")
    assert abs(Decimal(money.text(found.total.difference)) - planted) < Decimal("0.00001")
    assert all("Nothing is wrong" not in claim.advice for claim in found.claims if claim.tokens)
    if change is twice:
        assert [DIFFERS] == [state for state in states(found) if state != AGREES]


@pytest.mark.parametrize("lines", [1, 3])
async def test_amounts_of_two_digits(counts: Counts, lines: int) -> None:
    """The cents that such a bill rounds away are rounding, of at most half a cent a line, and its days agree."""
    found = reconcile(BEDROCK, exported(lines, digits="0.01"), counts)
    assert {"rounding"} == set(amounts(found))
    assert 0 == found.total.unexplained
    assert {AGREES} == set(states(found))


@pytest.mark.parametrize("factor", ["1.3", "1.02"])
async def test_days_at_a_higher_price(counts: Counts, factor: str) -> None:
    """A day of an hourly export does not agree while a cause is claimed of it, however little it came to."""

    def dearer(row: StatementRow) -> Decimal:
        return row.amount * Decimal(factor) if row.unit == "usd" and row.start >= DAYS[-7] else row.amount

    found = reconcile(BEDROCK, exported(100, dearer), counts)
    assert "price_change" in amounts(found)
    assert [AGREES] * (len(DAYS) - 7) + [DIFFERS] * 7 == states(found)
