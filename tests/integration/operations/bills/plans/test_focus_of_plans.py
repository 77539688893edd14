"""
FOCUS rows of plans: fees are purchases, covered calls are not billed, and billed and effective cost both add
up to the paid sum.
"""

from __future__ import annotations

import csv
import io
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from exporters.focus.rows import FeeShares
from gateway.cli import main
from gateway.normalise.billing import read_billing_file
from spool import money
from tests.integration.operations.bills.plans.test_plans import a_call
from tests.integration.operations.money.costs.test_published_costs import filled, run

AUGUST = ("export", "focus", "--from", "2026-08-01", "--to", "2026-08-31")


def made(directory: Path) -> list[dict[str, str]]:
    """
    Export a month with two seats and a call without a plan. One seat is used in two hours and has extra
    usage, the other is idle.
    """
    calls = [
        a_call(1, "2026-08-03T09:10", "ann", estimated_cost="8"),
        a_call(2, "2026-08-03T09:40", "ann", estimated_cost="4"),
        a_call(3, "2026-08-20T10:00", "ANN", estimated_cost=None, cost="3", cost_source="reported"),
        a_call(4, "2026-08-20T11:00", "bob", estimated_cost="2.5"),
    ]
    filled(directory, *calls)
    view = ("views", "create", "--name", "claude", "--principal", "user", "--where", "source=claude_code")
    run(directory, *view)
    seats = ("--seat", "ann,2026-01-01,,search", "--seat", "idle,2026-08-17")
    plan = ("--view", "claude", "--fee", "31", "--included", "10", "--overage-price", "1.5")
    run(directory, "plans", "create", "--name", "Claude", *plan, *seats)
    return list(csv.DictReader(io.StringIO(run(directory, *AUGUST, "--plans"))))


def summed(rows: list[dict[str, str]], name: str) -> Fraction:
    return sum((Fraction(row[name]) for row in rows), Fraction(0))


def test_purchases_and_covered_calls(tmp_path: Path) -> None:
    """
    In FOCUS rows, fees are purchases and covered calls are not billed. Billed and effective cost both equal the
    paid sum. The list cost of covered calls is their value.
    """
    rows = made(tmp_path)
    assert Fraction("31") + 15 + Fraction("7.5") + Fraction("2.5") == summed(rows, "BilledCost")
    assert summed(rows, "BilledCost") == summed(rows, "EffectiveCost")
    purchases = [row for row in rows if row["ChargeCategory"] == "Purchase"]
    assert [("31", "0", "search"), ("15", "0", "")] == [
        (row["BilledCost"], row["EffectiveCost"], row["SubAccountId"]) for row in purchases
    ]
    assert {"Recurring"} == {row["ChargeFrequency"] for row in purchases}
    assert {("2026-08-01T00:00:00Z", "2026-09-01T00:00:00Z")} == {
        (row["ChargePeriodStart"], row["ChargePeriodEnd"]) for row in purchases
    }
    assert {"", "1"} == {row["ConsumedQuantity"] for row in purchases} | {purchases[0]["PricingQuantity"]}
    covered = [row for row in rows if row["BilledCost"] == "0" and Fraction(row["ListCost"])]
    assert [("12", Fraction("24.8")), ("3", Fraction("6.2"))] == [
        (row["ListCost"], Fraction(row["EffectiveCost"])) for row in covered
    ]
    [unused] = [row for row in rows if "was not used" in row["ChargeDescription"]]
    assert unused["BilledCost"] == "0"
    assert unused["EffectiveCost"] == "15"
    assert json.loads(unused["Tags"]) == {"plan": "Claude", "user": "idle"}
    [beyond] = [row for row in rows if "beyond" in row["ChargeDescription"]]
    assert ("7.5", "7.5", "5", "USD at list prices") == tuple(
        beyond[name] for name in ("BilledCost", "EffectiveCost", "ConsumedQuantity", "ConsumedUnit")
    )
    plain = list(csv.DictReader(io.StringIO(run(tmp_path, *AUGUST))))
    assert Fraction("17.5") == summed(plain, "BilledCost")  # without the option, each call has its own cost
    later = list(csv.DictReader(io.StringIO(run(tmp_path, *AUGUST, "--plans", "--focus-version", "1.4"))))
    assert [row["EffectiveCost"] for row in rows] == [row["EffectiveCost"] for row in later]


def test_fees_as_a_drop(tmp_path: Path) -> None:
    """A billing drop with the fees of plans has exactly the fees of the month, and every connection accepts it."""
    made(tmp_path)
    body = run(tmp_path, "export", "seat-fees", "--month", "2026-08").encode()
    drop = read_billing_file(body)
    assert drop.month == "2026-08"
    assert drop.operation == "replace_drop"
    assert drop.rows == 2
    assert drop.errors == ()
    ann, idle = json.loads(body)["data"]
    assert {
        "lineitem/type": "Purchase", "lineitem/description": "Seat of Claude",
        "time/usage_start": "2026-08-01T00:00:00Z", "time/usage_end": "2026-09-01T00:00:00Z",
        "resource/id": "tollhouse:seat:Claude:ann:2026-01-01", "resource/service": "Claude",
        "resource/usage_family": "seats", "usage/amount": "1", "usage/units": "seats", "cost/cost": "31",
        "resource/tag:plan": "Claude", "resource/tag:user": "ann", "resource/tag:team": "search",
    } == ann  # fmt: skip
    assert idle["cost/cost"] == "15"
    assert "resource/tag:team" not in idle
    asked = ("export", "seat-fees", "--month", "2025-08", "--data", str(tmp_path))
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 1
    assert "no seat has a fee in 2025-08" in done.output


def test_plans_are_of_whole_months(tmp_path: Path) -> None:
    """Fees are monthly, so a part of a month is refused with an explanation."""
    asked = ("export", "focus", "--from", "2026-08-02", "--to", "2026-08-31", "--plans")
    done = CliRunner().invoke(main, [*asked, "--data", str(tmp_path)])
    assert done.exit_code == 2
    assert "plans needs whole months" in done.output


def test_parts_of_a_fee_are_the_fee() -> None:
    """The parts of a fee add up to the fee for any calls in any order, even if an hour has negative usage."""
    chance = random.Random(36)
    for _ in range(100):
        values = [chance.choice((1, 7, 10**27, -3, 0)) * chance.randrange(1, 99) for _ in range(20)]
        whole: list[dict[str, Any]] = [{"user": "Ann", "cost": money.units_to_text(sum(values))}]
        seats = [{"user": "ann", "fees": "19.99"}, {"user": "ANN", "fees": "0.01"}]
        shares = FeeShares.from_seats(seats, whole)
        parts = [shares.allot_fee_share("ann", value) for value in values]
        assert (20 * money.UNIT if sum(values) > 0 else 0) == sum(parts)
        assert shares.has_usage("ann") == (sum(values) > 0)
        assert all(part >= 0 for part in parts)
