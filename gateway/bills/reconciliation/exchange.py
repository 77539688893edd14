"""Billed money in other currencies, in dollars by the rate of its day. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from msgspec.structs import replace

from gateway.bills.reconciliation.matching import day_of
from gateway.bills.reconciliation.sides import DAY_S
from spool.currencies.exchange import Rates, rounded
from spool.ledger import money
from spool.record import CURRENCY
from spool.statements.rules import RowAmounts
from spool.statements.values import USD, StatementRow


def in_dollars(rows: Sequence[StatementRow], rates: Rates) -> list[StatementRow]:
    """
    Return the rows with their money in dollars, each by the rate of its day and rounded once, to 27 decimals; a row
    of several days by that of the first. What no rate is known for stays in its currency.
    """
    return [_converted(row, rates) if is_foreign(row) else row for row in rows]


def is_foreign(row: StatementRow) -> bool:
    """True if it is money in another currency than dollars."""
    return row.currency not in (None, CURRENCY)


def currencies_of(rows: Sequence[StatementRow]) -> set[str]:
    """Return the other currencies that rows are in."""
    return {str(row.currency) for row in rows if is_foreign(row)}


def _converted(row: StatementRow, rates: Rates) -> StatementRow:
    is_long = row.end - row.start > DAY_S + DAY_S // 2  # others may be a day of another zone
    day = row.start // DAY_S * DAY_S if is_long else day_of(row)
    rate = rates(str(row.currency), CURRENCY, day)
    if rate is None:
        return row

    def in_dollars_at(amount: Decimal | None) -> Decimal | None:
        if amount is None:
            return None
        return Decimal(money.text(rounded(money.units(f"{amount:f}") * rate)))

    amounts = RowAmounts.of(row).each(in_dollars_at)
    return replace(row, unit=USD, currency=CURRENCY, **amounts._asdict())
