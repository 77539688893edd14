"""Bills for plans: they replace the computed sums of a plan, and each difference has a cause."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from gateway.configuration.sections import CurrencyRate, CurrencySettings
from gateway.service.assembly.storage import ledger_rates
from tests.integration.operations.bills.plans.test_plans import (
    COPILOT,
    a_call,
    costs_of,
    is_near,
    made,
    server,
)
from tests.integration.operations.server import OperatorServer
from tests.spool.contract.examples import add

__all__ = ["server"]
SEATS = {"product": "Copilot", "sku": "Copilot Business", "unitType": "user-months", "quantity": 2.5,
         "grossAmount": 47.5, "netAmount": 47.5}  # fmt: skip
CREDITS = {"product": "Copilot", "sku": "Copilot AI Credits", "model": "GPT-5", "unitType": "ai-credits",
           "grossQuantity": 4000, "grossAmount": 40.0, "netAmount": 12.5}  # fmt: skip


async def bill(server: OperatorServer, file: Path, *items: dict[str, Any], **period: int) -> None:
    """Import a GitHub bill, for August by default."""
    page = {"timePeriod": {"year": 2026, "month": 8, **period}, "organization": "acme", "usageItems": items}
    file.write_text(json.dumps(page))
    answer = await server.ask("POST", "/statements", {"files": [str(file)], "source": "github_copilot"})
    assert 200 == answer.status, answer.payload


async def use(server: OperatorServer) -> None:
    """Add two seats with a pool of 38 dollars; 45 dollars are used. One seat has 22 days."""
    await made(server, "/plans", **COPILOT | {"billed_by": "GitHub"})
    spent = (("ann", "30"), ("dan", "15"))
    calls = [
        a_call(number, "2026-08-20T09:00", user, "copilot_cli", estimated_cost=amount)
        for number, (user, amount) in enumerate(spent)
    ]
    await add(server.services.spool.log, *calls)


async def test_a_settled_bill_of_the_month_replaces_the_sums_of_the_plan(
    server: OperatorServer, tmp_path: Path
) -> None:
    """
    A settled bill of the month replaces the computed sums of the plan: fees and extra usage are those of the bill,
    spread over the seats. Nothing is added.
    """
    await use(server)
    by_plan = await costs_of(server)
    # The amount is 700 credits at $0.02 each.
    assert by_plan["total"]["overage"] == "14"
    assert by_plan["plans"][0]["source"] == "plan"
    held = Fraction(1) + Fraction(22, 31)
    assert is_near(19 * held, by_plan["total"]["fees"], parts=2)
    await bill(server, tmp_path / "month.json", SEATS, CREDITS)
    found = await costs_of(server)
    total = found["total"]
    assert ("47.5", "12.5", "60") == tuple(total[name] for name in ("fees", "overage", "paid"))
    assert is_near(Fraction(38), total["included_value"], parts=2)
    assert "statement" == found["plans"][0]["source"]
    for name in ("fees", "overage", "paid"):
        assert Fraction(total[name]) == sum(Fraction(row[name]) for row in found["rows"])
    shares = [Fraction(row["overage"]) for row in found["rows"]]
    # Extra usage is divided in proportion to the usage of each seat.
    assert abs(shares[0] - 2 * shares[1]) < Fraction(1, 10**20)
    apart = {each["cause"]: each for each in found["differences"]}
    assert {"seat_count", "included_differs", "overage_differs"} == set(apart)
    count = apart["seat_count"]
    assert count["billed_seats"] == "2.5"
    assert count["counted_seats"] == "1.7097"
    assert count["billed"] == "47.5"
    included = apart["included_differs"]
    assert "27.5" == included["billed"] and is_near(Fraction(38), included["counted"], parts=2)
    assert is_near(Fraction("-10.5"), included["difference"], parts=2)
    assert ("12.5", "14", "-1.5") == tuple(
        apart["overage_differs"][name] for name in ("billed", "counted", "difference")
    )


async def test_a_bill_that_is_not_whole_replaces_nothing(server: OperatorServer, tmp_path: Path) -> None:
    """A bill that covers only some days, or is not final, does not replace the computed sums of a plan."""
    await use(server)
    before = await costs_of(server)
    await bill(server, tmp_path / "day.json", CREDITS, day=3)
    assert before == await costs_of(server)
    await bill(server, tmp_path / "september.json", SEATS, month=9)
    assert [] == (await costs_of(server, "2026-09"))["differences"]


async def test_a_bill_without_seats_leaves_the_fees(server: OperatorServer, tmp_path: Path) -> None:
    """Amounts that agree to the cent have no cause."""
    await use(server)
    agreeing = {**CREDITS, "grossAmount": 52.004, "netAmount": 14.004}
    await bill(server, tmp_path / "month.json", agreeing)
    found = await costs_of(server)
    assert is_near(19 * (1 + Fraction(22, 31)), found["total"]["fees"], parts=2)
    assert found["total"]["overage"] == "14.004"
    assert found["differences"] == []


async def test_a_fee_without_a_rate_is_named_and_in_no_sum(server: OperatorServer) -> None:
    """A fee without a rate is in no sum until the rate is known. Such a seat is not listed as idle."""
    seats = [{"user": "ann", "since": "2026-07-01"}]
    await made(server, "/plans", name="Euro", view="claude", fee="31", currency="EUR", seats=seats)
    await add(server.services.spool.log, a_call(1, "2026-08-09T09:00", None, "otel"))
    found = await costs_of(server)
    assert (found["total"]["paid"], found["total"]["fees"]) == ("1", "0")
    assert found["total"]["unconverted"] == {"EUR": "31"}
    assert [] == found["idle_seats"]
    rate = CurrencyRate(currency="EUR", usd=Decimal("1.5"))
    server.services.money.ledger.rates = ledger_rates(CurrencySettings(rate=(rate,)))
    found = await costs_of(server)
    assert (found["total"]["paid"], found["total"]["fees"]) == ("47.5", "46.5")
    assert found["total"]["unconverted"] == {}
    assert ["46.5"] == [each["fee"] for each in found["idle_seats"]]
    answer = await server.ask("GET", "/plan-costs?month=2026-08&currency=EUR")
    total = answer.payload["total"]
    assert total["fees"] == "31"
    assert total["metered"] == "0.666666666667"
    refused = await server.ask("GET", "/plan-costs?currency=ACU")
    assert 400 == refused.status and "currency" in refused.error[2]
    for wrong, words in (
        ({"currency": "credits"}, "currency must be one of"),
        ({"billed_by": "x" * 101}, "billed_by"),
    ):
        answer = await server.ask("POST", "/plans", {"name": "W", "view": "claude", **wrong})
        assert 400 == answer.status and words in answer.error[2]
