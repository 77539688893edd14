"""Amounts and counts in the words of a recommendation."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from spool.ledger import money
from spool.registry.insights import dollars


def format_dollars(units: int) -> str:
    """Dollars to the cent, for sentences; what is answered beside them is exact."""
    return f"${Decimal(dollars(Decimal(money.text(units)))):,}"


def exact(units: int) -> str:
    """Dollars with every digit, for formulas."""
    return f"${money.text(units)}"


def tokens(counts: Iterable[int]) -> str:
    return f"{sum(counts):,} tokens"
