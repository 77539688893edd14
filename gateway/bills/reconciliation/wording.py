"""Formats of numbers and names in reports. Shown amounts of a row add up, whatever their number of decimals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal

from spool import money

MILLION = 10**6


def format_dollars(units: int) -> str:
    """Format money to the cent. Smaller amounts get enough digits to show."""
    amount = Decimal(money.units_to_text(units))
    size = abs(amount)
    digits = max(6, -size.adjusted())
    shown = f"{size:,.2f}" if size >= Decimal("0.01") or not size else f"{size:.{digits}f}".rstrip("0")
    return f"-${shown}" if amount < 0 else f"${shown}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedComparisonRow:
    """
    Amounts of a row with a fixed number of decimals: billed - counted = difference = causes + unexplained.
    """

    billed: Decimal
    counted: Decimal
    causes: Mapping[str, Decimal]
    unexplained: Decimal

    @property
    def difference(self) -> Decimal:
        return self.billed - self.counted

    @property
    def explained(self) -> Decimal:
        return self.difference - self.unexplained


def build_rounded_comparison_row(
    billed: str, counted: str, causes: Mapping[str, str], unexplained: str, *, places: int
) -> RoundedComparisonRow:
    """
    Round exact amounts (decimal text) so that they still add up. The largest cause takes what is left by rounding.

    Without a cause, the whole difference is unexplained.
    """
    digit = Decimal(1).scaleb(-places)

    def round_amount(text: str) -> Decimal:
        return Decimal(text).quantize(digit, ROUND_HALF_UP)

    shown_billed, shown_counted = round_amount(billed), round_amount(counted)
    difference = shown_billed - shown_counted
    shown = {cause: round_amount(amount) for cause, amount in causes.items()}
    rest = round_amount(unexplained) if shown else difference
    if shown:
        largest = max(shown, key=lambda cause: abs(Decimal(causes[cause])))
        shown[largest] += difference - rest - sum(shown.values())
    return RoundedComparisonRow(billed=shown_billed, counted=shown_counted, causes=shown, unexplained=rest)


def price_per_million_tokens(units: int, tokens: int) -> str:
    """Return the cost per million tokens as `[[prices.override]]` expects it, or "" without tokens."""
    if not tokens:
        return ""
    price = (Decimal(units) * MILLION / tokens).scaleb(-money.DECIMALS)
    return f"{price.quantize(Decimal('0.000001')).normalize():f}"


def format_percent(part: int, total: int) -> str:
    return f"{Decimal(part) / Decimal(total):.1%}" if total else "0%"


def day_text(day: int) -> str:
    return datetime.fromtimestamp(day, UTC).strftime("%Y-%m-%d")


def join_names(names: list[str], max_names: int = 5) -> str:
    shown = ", ".join(name if len(name) <= 60 else f"{name[:57]}..." for name in names[:max_names])
    return f"{shown} and {len(names) - max_names} more" if len(names) > max_names else shown


def underscores_to_spaces(name: str) -> str:
    return name.replace("_", " ")
