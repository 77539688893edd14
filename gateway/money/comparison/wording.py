"""Amounts of money in sentences about a change."""

from __future__ import annotations

from decimal import Decimal

from spool import money

MILLION = 10**6


def format_dollars(units: int) -> str:
    amount = Decimal(money.units_to_text(units))
    return f"${amount:,.2f}" if amount >= Decimal("0.1") or not amount else f"${amount:,.4f}"
