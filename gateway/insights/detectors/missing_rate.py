"""Amounts in a currency that no rate is known for: they are in no sum of dollars."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from gateway.insights.facts import Facts
from gateway.insights.findings import finding
from spool.registry.insights import LOW, Finding

NAME = "missing_rate"


def find(facts: Facts) -> Sequence[Finding]:
    """Make one finding for a currency."""
    return [_finding(currency, amount, facts.now) for currency, amount in sorted(facts.unconverted.items())]


def _finding(currency: str, amount: str, now: float) -> Finding:
    return finding(
        NAME,
        (currency,),
        title=f"No rate is known for amounts in {currency}",
        seen=f"{amount} {currency} of the last week are in no sum of dollars: they stand as `unconverted` next to it.",
        advice="Name a file of rates in [currency] rates_file, or a rate of your own in [[currency.rate]].",
        category="prices",
        effort=LOW,
        impact=Decimal(0),
        newest=now,
    )
