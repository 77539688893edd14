"""Only the provider's rounding is claimed as rounding, for any number of bill lines."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import msgspec
import pytest
import pytest_asyncio

from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.lines import AGREES, EXPLAINED
from spool import money
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
from tests.rounds import as_proof

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
    """Split each amount of the bill into `lines` rows, as cloud exports do by resource and hour."""
    exported_rows = []
    for row in ROWS:
        amount = change(row)
        if row.unit != "usd":
            exported_rows.append(msgspec.structs.replace(row, amount=amount))
            continue
        line_amount = (amount / lines).quantize(Decimal(digits))
        exported_rows += [msgspec.structs.replace(row, amount=line_amount)] * (lines - 1)
        exported_rows.append(
            msgspec.structs.replace(
                row, amount=(amount - line_amount * (lines - 1)).quantize(Decimal(digits))
            )
        )
    return exported_rows


def amounts(found: Reconciliation) -> dict[str, Decimal]:
    return {claim.cause: Decimal(money.units_to_text(claim.amount)) for claim in found.claims}


def states(found: Reconciliation) -> list[str]:
    return [line.state for line in found.days]


def twice(row: StatementRow) -> Decimal:
    """Double the rows of one day."""
    return row.amount * 2 if row.start == DAYS[4] else row.amount


def discounted(row: StatementRow) -> Decimal:
    """Reduce batch prices by 5 %, which is less than a hundredth of the bill."""
    return row.amount * Decimal("0.95") if row.unit == "usd" and row.tier == "batch" else row.amount


@pytest.mark.proves("money shown as rounding")
@pytest.mark.parametrize("lines", [as_proof(1), 100])
@pytest.mark.parametrize("change", [twice, discounted])
async def test_real_money_is_no_rounding(counts: Counts, lines: int, change: Change) -> None:
    """For any number of lines, the difference keeps its size and is not claimed as rounding."""
    result = reconcile(BEDROCK, exported(lines, change), counts)
    planted = sum((change(row) - row.amount for row in ROWS if row.unit == "usd"), Decimal(0))
    assert abs(amounts(result).get("rounding", Decimal(0))) < Decimal("0.00001")
    assert abs(Decimal(money.units_to_text(result.total.difference)) - planted) < Decimal("0.00001")
    assert all("Nothing is wrong" not in claim.advice for claim in result.claims if claim.tokens)
    if change is twice:
        assert [EXPLAINED] == [state for state in states(result) if state != AGREES]


@pytest.mark.parametrize("lines", [1, 3])
async def test_amounts_of_two_digits(counts: Counts, lines: int) -> None:
    """A bill in cents rounds at most half a cent per line. The claim is rounding, and its days agree."""
    result = reconcile(BEDROCK, exported(lines, digits="0.01"), counts)
    assert {"rounding"} == set(amounts(result))
    assert 0 == result.total.unexplained
    assert {AGREES} == set(states(result))


@pytest.mark.proves("an expensive day that agrees")
@pytest.mark.parametrize("factor", [as_proof("1.3"), "1.02"])
async def test_days_at_a_higher_price(counts: Counts, factor: str) -> None:
    """A day with a claimed cause counts as different, however small the amount."""

    def dearer(row: StatementRow) -> Decimal:
        return row.amount * Decimal(factor) if row.unit == "usd" and row.start >= DAYS[-7] else row.amount

    result = reconcile(BEDROCK, exported(100, dearer), counts)
    assert "price_change" in amounts(result)
    assert [AGREES] * (len(DAYS) - 7) + [EXPLAINED] * 7 == states(result)
