"""Formats of numbers and names in the sentences of a report."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from spool.ledger import money

MILLION = 10**6


def dollars(units: int) -> str:
    """Format money to the cent. Smaller amounts get enough digits to show."""
    amount = Decimal(money.text(units))
    size = abs(amount)
    digits = max(6, -size.adjusted())
    shown = f"{size:,.2f}" if size >= Decimal("0.01") or not size else f"{size:.{digits}f}".rstrip("0")
    return f"-${shown}" if amount < 0 else f"${shown}"


def per_million(units: int, tokens: int) -> str:
    """Return the cost per million tokens as `[[prices.override]]` expects it, or "" without tokens."""
    if not tokens:
        return ""
    price = (Decimal(units) * MILLION / tokens).scaleb(-money.DECIMALS)
    return f"{price.quantize(Decimal('0.000001')).normalize():f}"


def percent(part: int, whole: int) -> str:
    return f"{Decimal(part) / Decimal(whole):.1%}" if whole else "0%"


def day_text(day: int) -> str:
    return datetime.fromtimestamp(day, UTC).strftime("%Y-%m-%d")


def named(names: list[str], most: int = 5) -> str:
    """Join names, shortened to the first `most`."""
    shown = ", ".join(name if len(name) <= 60 else f"{name[:57]}..." for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def spaced(name: str) -> str:
    return name.replace("_", " ")
