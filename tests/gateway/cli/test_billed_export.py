"""`tollhouse export focus --billed`: its requests to the operator API, and the days that it writes."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from gateway.cli.operator.client import OperatorClient
from gateway.cli.operator.export import of_bills

FIRST, LAST = date(2026, 10, 30), date(2026, 11, 1)
NO_MORE = {"pagination": {"cursor": {"next_cursor": None}}}
# Billed amounts per day and provider. On the last day, not every provider's amount is final.
BILLED = {"2026-10-30": {"openai": "4"}, "2026-10-31": {}, "2026-11-01": {"openai": "2", "anthropic": "1"}}
FINAL = {"2026-10-30": ("openai",), "2026-10-31": (), "2026-11-01": ("anthropic",)}


class Answers(OperatorClient):
    """Canned answers of the operator API. `asked` records the cost types of the reports."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def request(
        self, method: str, path: str, *, body: object = None, query: Sequence[tuple[str, str]] = ()
    ) -> dict[str, Any]:
        if path == "/billed-invoices":
            if ("cursor", "2") in query:
                return {
                    "billed_invoices": [{"provider": "openai", "month": "2026-10", "number": "A-1"}],
                    **NO_MORE,
                }
            return {"billed_invoices": [], "pagination": {"cursor": {"next_cursor": "2"}}}
        if path == "/closed-months":
            return {"closed_months": [{"provider": "openai", "month": "2026-10"}], **NO_MORE}
        asked = dict(query)
        day, cost_type = asked["from"], asked["cost_type"]
        self.asked.append((day, cost_type))
        assert day == asked["to"]
        named = [value for name, value in query if name == "by"]
        rows = [
            {**dict.fromkeys(named), "provider": each, "cost": cost} for each, cost in BILLED[day].items()
        ]
        if cost_type == "invoiced_amortized_cost":
            rows = [row for row in rows if row["provider"] in FINAL[day]]
        elif cost_type == "real_cost":
            rows = []
        else:
            rows = [{**row, "charge": "usage", "basis": "exact"} for row in rows]
        return {"rows": rows, "report": {"truncated": False}}


def test_days_whose_bills_are_final_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Each row has the state of its day and the month's invoice number. A warning names the days that are not final.
    """
    client = Answers()
    text = b"".join(of_bills(client, (FIRST, LAST), ("tag:service",), account="acct", version="1.4"))
    made = list(csv.DictReader(io.StringIO(text.decode())))
    assert [("OpenAI", "4", "invoiced", "A-1"), ("Anthropic", "1", "closed", "")] == [
        tuple(row[name] for name in ("ServiceProviderName", "BilledCost", "x_State", "InvoiceId"))
        for row in made
    ]
    assert Decimal("5") == sum(Decimal(row["EffectiveCost"]) for row in made)
    assert "2026-11-01 is not final and was left out for: openai" in capsys.readouterr().err
    assert ("2026-10-31", "real_cost") not in client.asked
