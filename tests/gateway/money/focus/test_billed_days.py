"""FOCUS rows of bills: the reports from which they are made, and the days that are exported."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.money.focus.billed import FocusRowsOfBills
from gateway.money.focus.reports import FocusReports, FocusSpan

SPAN = FocusSpan(
    first=date(2026, 10, 30), last=date(2026, 11, 1), tags=("tag:service",), account="acct", version="1.4"
)
# Billed amounts per day and provider. On the last day, not every provider's amount is final.
BILLED = {"2026-10-30": {"openai": "4"}, "2026-10-31": {}, "2026-11-01": {"openai": "2", "anthropic": "1"}}
FINAL = {"2026-10-30": ("openai",), "2026-10-31": (), "2026-11-01": ("anthropic",)}
INVOICE = {"provider": "openai", "month": "2026-10", "number": "A-1"}


class Answers:
    """Canned reports. `asked` records the days and the cost types."""

    def __init__(self, *, is_limited: bool = False) -> None:
        self.asked: list[tuple[str, str]] = []
        documents = {"billed_invoices": {"1": INVOICE}, "closed_months": {"1": INVOICE}}
        registry = SimpleNamespace(
            **{name: SimpleNamespace(all=lambda found=found: found) for name, found in documents.items()}
        )
        self.reader = SimpleNamespace(has_limited_data_access=is_limited, require_registry=lambda: registry)

    async def read_report_rows(
        self,
        since: datetime,
        until: datetime,
        dimensions: Sequence[str],
        *,
        per: str = "total",
        cost_type: str = "real_cost",
    ) -> list[dict[str, Any]]:
        days = [day for day in BILLED if since.date() <= date.fromisoformat(day) < until.date()]
        assert (per == "daily") == (until - since > timedelta(days=1))
        self.asked += [(day, cost_type) for day in days if per == "total"]
        rows: list[dict[str, Any]] = [
            {**dict.fromkeys(dimensions), "provider": provider, "cost": cost, "period": day}
            for day in days
            for provider, cost in BILLED[day].items()
        ]
        if cost_type == "invoiced_amortized_cost":
            rows = [row for row in rows if row["provider"] in FINAL[row["period"]]]
        elif cost_type == "real_cost":
            return []
        return [{**row, "charge": "usage", "basis": "exact"} for row in rows]


@pytest.mark.parametrize(("is_limited", "number"), [(False, "A-1"), (True, "")])
async def test_days_whose_bills_are_final_are_written(is_limited: bool, number: str) -> None:
    """
    A bill row has the state of its day and the month's invoice number, if the person may see invoices. A warning
    names the days that are not final.
    """
    answers = Answers(is_limited=is_limited)
    export = await FocusRowsOfBills.prepare(cast("FocusReports", answers), SPAN)
    text = b"".join([piece async for piece in export.csv_pieces()])
    made = list(csv.DictReader(io.StringIO(text.decode())))
    assert [("OpenAI", "4", "invoiced", number), ("Anthropic", "1", "closed", "")] == [
        tuple(row[name] for name in ("ServiceProviderName", "BilledCost", "x_State", "InvoiceId"))
        for row in made
    ]
    assert Decimal("5") == sum(Decimal(row["EffectiveCost"]) for row in made)
    assert ["2026-11-01 is not final and was left out for: openai"] == export.warnings
    assert ("2026-10-31", "real_cost") not in answers.asked


async def test_a_warning_names_the_days_of_a_bill_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Days that wait for the same bills share one sentence, so that a year needs only a few."""
    monkeypatch.setitem(FINAL, "2026-11-01", ())
    monkeypatch.setitem(BILLED, "2026-11-01", {"openai": "2"})
    monkeypatch.setitem(BILLED, "2026-11-02", {"openai": "2"})
    monkeypatch.setitem(FINAL, "2026-11-02", ())
    span = FocusSpan(first=SPAN.first, last=date(2026, 11, 2), tags=(), account="acct", version="1.4")
    export = await FocusRowsOfBills.prepare(cast("FocusReports", Answers()), span)
    assert [
        "2 days from 2026-11-01 to 2026-11-02 are not final and were left out for: openai"
    ] == export.warnings
