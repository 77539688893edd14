"""How accurate the counted cost of a month is: its error, the coverage, and the calls in doubt. Pure."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.sides import DOUBTS
from gateway.bills.reconciliation.wording import format_dollars
from spool import money


def month_accuracy(month: str, result: Reconciliation | None) -> dict[str, Any]:
    """Return the figures of a month. They are None unless a bill that states money was compared."""
    names = ("counted", "error", "error_percent", "token_coverage", "money_coverage", "sentence")
    if result is None or not result.has_final_day or not result.has_money:
        return dict.fromkeys((*names, *(f"{name}_calls" for name in DOUBTS)))
    total = result.total
    begin = f"{date.fromisoformat(f'{month}-01'):%B %Y}, {result.provider}"
    counted = f"{format_dollars(total.counted)} ± {format_dollars(result.error)} counted"
    return {
        "counted": money.units_to_text(total.counted),
        "error": money.units_to_text(result.error),
        "error_percent": _format_percent(result.error, total.billed),
        "token_coverage": _format_percent(total.captured_tokens, total.billed_tokens),
        "money_coverage": _format_percent(total.captured_money, total.billed),
        "sentence": f"{begin}: {format_dollars(total.billed)} billed, {counted}",
        **{f"{name}_calls": count for name, count in result.doubtful_calls.items()},
    }


def _format_percent(part: int, total: int) -> str | None:
    return None if total <= 0 else f"{Decimal(100 * part) / total:.2f}"
