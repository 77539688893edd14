"""Billed costs in comparisons, budgets, scheduled reports and commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest_asyncio

from spool.ledger.billed import EVERY
from spool.ledger.dimensions import BILLED_TYPES
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.roles import COUNTED_TYPES, FULL, LIMITED, NewRole, RoleFilter, RoleLimits
from tests.integration.operations.money.costs.test_report import NOW
from tests.integration.operations.people.test_limited_person import EVA, ROOT
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.integration.statements.test_billed_report import begin_bills, billed_sum, keep_bill
from tests.moved_clock import MovedClock

THIS_WEEK = {"from": "2026-09-15", "to": "2026-09-21"}


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    """Start a server with the same bill two days ago and a week earlier, where a credit lowered it."""
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await begin_bills(server)
        await keep_bill(server, days_ago=2)
        await keep_bill(server, billed_sum("", "credit", EVERY, -3), days_ago=9)
        yield server


async def compared(server: OperatorServer, status: int = 200, **asked: str) -> Any:
    answer = await server.ask("GET", f"/comparison?{urlencode({**THIS_WEEK, **asked})}")
    assert status == answer.status, answer.payload
    return answer.payload


async def test_a_change_of_bills_is_split_like_one_of_counted_costs(server: OperatorServer) -> None:
    """
    In a comparison of billed costs, amounts without calls are only in the part called rest. In each cost type, rows
    add up to the total.
    """
    for cost_type in BILLED_TYPES:
        found = await compared(server, cost_type=cost_type, by="team")
        total = found["total"]
        # With amortized costs, the discount is on another date.
        whole = ("8", "5") if "amortized" not in cost_type else ("9", "6")
        assert (*whole, "3") == (total["cost"], total["against"]["cost"], total["change"])
        assert Decimal(3) == sum(Decimal(row["change"]) for row in found["rows"])
        credit = next(row for row in found["rows"] if row["team"] is None)
        assert credit["change"] == "3"
        assert credit["unit_cost"] == "3"
        assert credit["calls"] == 0
        assert "more was billed without known calls" in found["comparison"]["sentence"]
        assert found["comparison"]["cost_type"] == cost_type
        assert found["billed"]["days"]["closed"] == 1
    by_charge = await compared(server, cost_type="billed_cost", by="charge")
    assert {"credit": "3"} == {
        row["charge"]: row["change"] for row in by_charge["rows"] if row["change"] != "0"
    }
    counted = await compared(server, by="team")
    assert counted["total"]["cost"] == "9"
    assert counted["billed"] is None
    assert counted["comparison"]["cost_type"] == "real_cost"


async def test_what_cannot_be_compared_is_refused_in_words(server: OperatorServer) -> None:
    """An unknown cost type, an unfinished day, and a bill filter on counted costs are refused."""
    refused = await compared(server, status=400, cost_type="metered_cost")
    assert "cost_type must be one of real_cost, billed_cost" in refused["error"]["message"]
    today = {"from": "2026-09-21", "to": "2026-09-21", "cost_type": "billed_cost"}
    assert "finished days" in (await compared(server, status=400, **today))["error"]["message"]
    assert "unknown dimension" in (await compared(server, status=400, by="charge"))["error"]["message"]


async def budget(server: OperatorServer, status: int = 201, **given: Any) -> Any:
    view = await server.ask(
        "POST", "/views", {"name": str(given), "filter": {}, "principal_dimension": "team"}
    )
    asked = {"name": "b", "view": {"id": view.payload["view"]["id"]}, "default_amount": "10", **given}
    answer = await server.ask("POST", "/budgets", asked)
    assert status == answer.status, answer.payload
    return answer.payload


async def test_a_budget_of_billed_money(server: OperatorServer) -> None:
    """
    The budget covers days with a bill, states the last billed day, and reports thresholds that are already passed.
    """
    for cost_type, spent in (("real_cost", "9"), ("billed_cost", "13"), ("discounted_amortized_cost", "15")):
        made = await budget(server, cost_type=cost_type, alerts={"80": "Y", "100": "Y"})
        assert ([80] if cost_type == "real_cost" else [80, 100]) == made["already_past"]
        id = made["budget"]["id"]
        asked = "?expand=current&expand=history&expand=burnup&expand=forecast"
        found = (await server.ask("GET", f"/budgets/{id}{asked}")).payload["budget"]
        assert spent == found["current"]["actual"]
        assert (None if cost_type == "real_cost" else "2026-09-19") == found["billed_through"]
        assert spent == found["history"]["monthly"]["2026-09-01"]["actual"]
        assert spent == list(found["burnup"]["daily"].values())[-1]["actual"]


NOT_DAYS: Sequence[dict[str, str]] = [{"measure": "calls"}, {"time_zone": "Europe/Berlin"}]


async def test_bill_has_utc_days_and_no_call_counts(server: OperatorServer) -> None:
    """
    Bills have UTC days and no call counts. A budget of billed costs with another time zone or measure is refused.
    """
    for given in NOT_DAYS:
        refused = await budget(server, status=400, cost_type="billed_cost", **given)
        assert "measure cost and the time_zone UTC" in refused["error"]["message"], given


async def previewed(server: OperatorServer, **given: Any) -> Any:
    view = {
        "name": f"billed {given}",
        "filter": {},
        "principal_dimension": "team",
        "cost_type": "billed_cost",
    }
    made = await server.ask("POST", "/views", view)
    report = {"name": view["name"], "view": made.payload["view"]["id"], "channels": ["ops"], **given}
    notices = server.registry.notices
    notices.channels, notices.report_channels = ("ops",), frozenset(("ops",))
    answer = await server.ask("POST", "/scheduled-reports", report)
    assert 201 == answer.status, answer.payload
    id = answer.payload["scheduled_report"]["id"]
    return await server.ask("GET", f"/scheduled-reports/{id}/preview")


async def test_a_scheduled_report_of_a_view_of_billed_money(server: OperatorServer) -> None:
    """
    A scheduled report of a view of billed costs has the bills of its period, their finality, and a link to the same
    costs. Another time zone is refused.
    """
    found = (await previewed(server)).payload["preview"]
    assert (
        "Billed AI costs (billed_cost) of billed {}, 14 to 20 September 2026: $8.00 (+60 %)" == found["title"]
    )
    assert "Days with bills: 1 closed, 0 provisional, 6 open" in found["text"]
    assert "search: $4.00" in found["text"]
    refused = await previewed(server, time_zone="Europe/Berlin")
    assert 409 == refused.status
    assert "per whole day in UTC" in refused.payload["error"]["message"]


async def test_limited_people_see_no_budget_of_billed_money(server: OperatorServer) -> None:
    """
    A budget of billed costs includes amounts without calls. So a limited person can neither list, find
    nor create one.
    """
    made = await budget(server, cost_type="billed_cost")
    plain = await budget(server, name="plain")
    drafts = (
        NewRole(
            name="Part", data_access=LIMITED, filters=(RoleFilter(dimension="team", values=("search",)),),
            permission_sets=(VIEW_COSTS,), members=(EVA,),
        ),
        NewRole(
            name="Counted", data_access=FULL, cost_types=COUNTED_TYPES, permission_sets=(VIEW_COSTS,),
            members=("bob@example.com",),
        ),
    )  # fmt: skip
    known = server.services.money.ledger.dimensions()
    for draft, seen in zip(drafts, ([], [plain["budget"]["id"]]), strict=True):
        await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
        who = await signed_in(server, "none", draft.members[0])
        listed = await server.over_http("GET", "/budgets", headers=who)
        assert seen == [each["id"] for each in listed.payload["budgets"]]
        found = await server.over_http("GET", f"/budgets/{made['budget']['id']}", headers=who)
        assert 404 == found.status
