"""Bills as FOCUS rows: each amount of a bill appears in one row, by the rules of the specification."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from exporters.focus import rows as focus
from exporters.focus.charges import VERSIONS
from tests.exporters.focus.columns import PUBLISHED
from tests.exporters.test_focus import ALLOWED

BY = focus.BY
DAY = datetime(2026, 10, 31, tzinfo=UTC)
# Columns: charge, basis, team, billed amount, effective amount. A discount is a separate row with
# a negative amount.
BILL = (
    ("usage", "exact", "search", "4", "4"), ("discount", "shared", "search", "-0.4", "-0.4"),
    ("usage", "unallocated", "", "1", "1"), ("commitment", "exact", "search", "0", "2"),
    ("commitment", "unallocated", "", "3", "0"), ("unused", "unallocated", "", "0", "1"),
    ("tax", "shared", "search", "0.76", "0.76"), ("credit", "unallocated", "", "-2", "-2"),
    ("refund", "value", "ads", "-0.5", "-0.5"), ("correction", "value", "ads", "0.1", "0.1"),
    ("rounding", "unallocated", "", "0.001", "0.001"), ("restated", "exact", "ads", "0.2", "0.2"),
    ("other", "shared", "ads", "0.3", "0.3"), ("support", "unallocated", "", "9", "9"),
)  # fmt: skip


def row(team: str, **values: Any) -> dict[str, Any]:
    known = {**dict.fromkeys(BY), "provider": "openai", "team": team or None, "corrects": None}
    if team:
        known |= {"model": "o3", "user": "ada@example.com"}
    return {**known, **values}


def rows_of(
    state: str = "invoiced", number: str = "A-117", account: str = "acct", metered: Sequence[Any] = ()
) -> list[dict[str, str]]:
    """Return the rows of one day."""
    costs: dict[str, list[dict[str, Any]]] = {"billed": [], "effective": []}
    for charge, basis, team, billed, effective in BILL:
        corrects = "2026-09-03" if charge == "restated" else None
        shown = row(team, charge=charge, basis=basis, corrects=corrects)
        costs["billed"].append({**shown, "cost": billed})
        costs["effective"].append({**shown, "cost": effective})
    counted = row(
        "search",
        cost="3.9",
        estimated="4.5",
        converted="0",
        calls=3,
        input_tokens=900,
        output_tokens=100,
        cache_read_tokens=0,
        cache_write_tokens=0,
        cache_write_1h_tokens=0,
    )
    day = focus.ExportedDay(
        start=DAY,
        by=BY,
        billed=costs["billed"],
        effective=costs["effective"],
        counted=[counted],
        invoice_of=lambda _: number,
        state_of=lambda _: state,
        metered=metered,
    )
    return list(focus.day_rows(day, account=account))


def exported(version: str) -> bytes:
    return focus.csv_header(version) + focus.encode_csv_rows(rows_of(), version=version)


def sums(made: list[dict[str, str]], column: str, name: str) -> dict[str, Decimal]:
    found: dict[str, Decimal] = defaultdict(Decimal)
    for each in made:
        found[each[column]] += Decimal(each[name])
    return dict(found)


@pytest.mark.proves("the rows of an export add up to the invoice")
def test_all_of_a_bill_is_in_its_rows() -> None:
    """
    Rows add up to each invoice exactly. Restated amounts of closed months belong to no invoice and have the day
    that they change. Fees go to the covered usage.
    """
    made = rows_of()
    billed, effective = (sum(Decimal(each[place]) for each in BILL) for place in (3, 4))
    assert {"A-117": billed - Decimal("0.2"), "": Decimal("0.2")} == sums(made, "InvoiceId", "BilledCost")
    assert effective == sum(sums(made, "InvoiceId", "EffectiveCost").values())
    assert {"invoiced", "restated"} == {each["x_State"] for each in made}
    [usage] = [each for each in made if each["x_Charge"] == "usage" and each["SubAccountId"]]
    assert ("3.6", "4.5", "1000", "Tokens", "exact,shared") == tuple(
        usage[name] for name in ("BilledCost", "ListCost", "PricingQuantity", "PricingUnit", "x_Basis")
    )
    periods = {
        (each["x_State"], each["BillingPeriodStart"], each["ChargePeriodStart"], each["ChargePeriodEnd"])
        for each in made
    }
    october, night = "2026-10-01T00:00:00Z", "T00:00:00Z"
    assert {
        ("invoiced", october, f"2026-10-31{night}", f"2026-11-01{night}"),
        ("restated", october, f"2026-09-03{night}", f"2026-09-04{night}"),
    } == periods


def test_what_an_amount_is_for_is_a_category() -> None:
    """
    A fee is a purchase. The usage that it covers, and the part that is unused, are usage rows without
    a billed cost.
    """
    by_charge = {(each["x_Charge"], each["ChargeCategory"]): each["ChargeClass"] for each in rows_of()}
    assert {
        ("usage", "Usage"): "", ("commitment", "Usage"): "", ("commitment", "Purchase"): "", ("unused", "Usage"): "",
        ("tax", "Tax"): "", ("credit", "Credit"): "", ("refund", "Credit"): "", ("other", "Usage"): "",
        ("correction", "Adjustment"): "Correction", ("rounding", "Adjustment"): "", ("support", "Usage"): "",
        ("restated", "Adjustment"): "Correction",
    } == by_charge  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_its_columns(version: str) -> None:
    """Required columns are never null, and usage and purchases have a quantity."""
    made = list(csv.DictReader(io.StringIO(exported(version).decode())))
    filled = {name for name, column in PUBLISHED[version].items() if not column.may_be_null}
    assert {"InvoiceId", "x_Basis", "x_State"} <= set(made[0])
    for each in made:
        assert [] == [name for name in filled & set(each) if not each[name]]
        assert [] == [name for name, allowed in ALLOWED.items() if each[name] not in allowed]
        is_priced = each["ChargeCategory"] in ("Usage", "Purchase")
        assert is_priced == bool(each["PricingQuantity"] and each["PricingUnit"])


def test_row_for_units_other_than_tokens_has_its_quantity() -> None:
    """
    A row for other units than tokens has the counted quantity of all hours. If calls used several meters or
    none, the row only has its charge.
    """
    searches = {"meter": "web_searches", "quantity": 3, "amount": "0.03"}
    tokens = {"meter": "input_tokens", "quantity": 900, "amount": "0.1"}
    one = row("ads", price_lines={"lines": [searches, tokens]})
    two = row("ads", price_lines={"lines": [{**searches, "meter": "output_images"}]})
    wanted = {
        ("3", "Requests", "web_searches"): [one, row("ads", price_lines=None)],
        ("6", "Requests", "web_searches"): [one, one],
        ("1", "Charges", "Requests"): [one, two],
    }
    for expected, metered in wanted.items():
        [other] = [each for each in rows_of(metered=metered) if each["x_Charge"] == "other"]
        assert expected == tuple(other[name] for name in ("PricingQuantity", "PricingUnit", "SkuMeter"))


def test_a_bill_that_is_not_final_is_left_out() -> None:
    """Of a bill that is not final, only restatements of months that were closed before are written."""
    assert {"restated"} == {each["x_Charge"] for each in rows_of(state="")}
