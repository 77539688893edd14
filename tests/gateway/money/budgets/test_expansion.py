"""Optional parts of a budget's answer, including months for which the ledger has days but no hours."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.money.budgets.declared import EXPANSIONS, SpendBudget
from gateway.money.budgets.expansion import read_requested_sections
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.registry.documents import replace_fields
from tests.gateway.money.budgets.house import House, monthly
from tests.spool.ledger_log import HOUR

DAY = 24 * HOUR
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()


def on(day: str) -> float:
    return datetime.fromisoformat(f"{day}T12:00Z").timestamp()


async def shown(house: House, budget: SpendBudget) -> dict[str, Any]:
    books = house.evaluator.budget_ledger()
    figures = await books.read_figures(budget, house.registry.views.find(budget.view_id))
    return await read_requested_sections(books, figures, frozenset(EXPANSIONS))


async def opened() -> tuple[House, Any]:
    """Start an installation with spend in four months. Its ledger has hours only for the last two."""
    house = await House(at=NOW).start()
    view = await house.view()
    for day, dollars in (("2026-07-10", "1"), ("2026-08-10", "2"), ("2026-10-25", "4"), ("2026-11-02", "8")):
        house.spend(dollars, at=on(day))
    await house.ledger.catch_up(house.log)
    await house.ledger.sum_up_and_delete_hours()
    return house, view


async def test_months_add_up_to_quarters() -> None:
    """A quarter is the sum of its months, for spend and plan. A quarter without a plan has none."""
    house, view = await opened()
    budget = await house.budget(
        view,
        default_amount="",
        planned_limits=monthly({f"2026-{month:02}-01": "10" for month in range(7, 13)}),
    )
    history = (await shown(house, budget))["history"]
    assert {"actual": "4", "planned": "10"} == history["monthly"]["2026-10-01"]
    assert {"actual": "3", "planned": "30"} == history["quarterly"]["2026-07-01"]
    assert {"actual": "12", "planned": "30"} == history["quarterly"]["2026-10-01"]
    assert {"actual": "0", "planned": None} == history["quarterly"]["2026-04-01"]
    assert list(history["monthly"]) == sorted(history["monthly"])


async def test_zone_months_without_hours_are_null() -> None:
    """
    If a time zone's month begins inside a UTC day, and the ledger has only days for it, its value is null
    instead of wrong. Newer months are exact.
    """
    house, view = await opened()
    budget = await house.budget(view, time_zone="Europe/Berlin")
    history = (await shown(house, budget))["history"]
    assert [None, "4", "8"] == [
        history["monthly"][month]["actual"] for month in ("2026-08-01", "2026-10-01", "2026-11-01")
    ]
    assert [None, "12"] == [history["quarterly"][month]["actual"] for month in ("2026-07-01", "2026-10-01")]


async def test_the_way_through_a_month_ends_today() -> None:
    """
    Running sums per day end today. Next to them is an even share of the amount. A budget per owner has no
    common amount, so it has no such share.
    """
    house, view = await opened()
    burnup = (await shown(house, await house.budget(view, default_amount="30")))["burnup"]["daily"]
    assert ["0", "8", "8"] == [burnup[f"2026-11-{day}"]["actual"] for day in ("01", "02", "21")]
    assert ["1", "2", "21"] == [burnup[f"2026-11-{day}"]["planned"] for day in ("01", "02", "21")]
    assert "2026-11-22" not in burnup
    of_owners = await shown(house, await house.budget(view, name="each", per="team"))
    assert of_owners["current"]["planned"] is None
    assert of_owners["burnup"]["daily"]["2026-11-21"]["planned"] is None


async def test_past_errors_come_with_a_forecast() -> None:
    """
    A forecast comes with its errors in earlier months. For steady spend, these were small and are expected
    to stay small.
    """
    house = await House(at=NOW).start()
    for back in range(130):
        house.spend("2", at=NOW - back * DAY)
    await house.ledger.catch_up(house.log)
    expanded = (await shown(house, await house.budget(await house.view())))["forecast"]
    assert {"2026-10-01": "0.0", "2026-09-01": "0.0", "2026-08-01": "0.0"} == expanded["past_errors"]
    assert 58 <= float(expanded["low"]) <= float(expanded["total"]) <= float(expanded["high"]) <= 63


async def test_a_broken_budget_shows_nothing_rather_than_nought() -> None:
    """While the view of a budget is broken, every part is null instead of zero."""
    house = await House(at=NOW).start()
    budget = await house.budget(await house.view({"tag:service": ("search",)}))
    house.known = ()
    await house.restart()
    assert dict.fromkeys(EXPANSIONS) == await shown(house, budget)


async def test_hours_of_one_view_are_read_once_for_its_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A forecast mostly costs the reading of hours, so budgets of one view read them once. If the view changes,
    they are read again.
    """
    house, view = await opened()
    house.spend("1", at=on("2026-11-18"))
    await house.ledger.catch_up(house.log)
    budgets = [await house.budget(view, name=name) for name in ("one", "two")]
    granularities: list[str] = []
    costs = Ledger.costs

    async def counted(ledger: Ledger, query: CostQuery) -> Any:
        granularities.append(query.granularity)
        return await costs(ledger, query)

    monkeypatch.setattr(Ledger, "costs", counted)
    books = house.evaluator.budget_ledger()
    for budget in budgets:
        await read_requested_sections(books, await books.read_figures(budget, view), frozenset(EXPANSIONS))
    assert granularities.count("hourly") == 1
    narrowed = replace_fields(view, filter={"team": ("nobody",)})
    assert not any(await books.spend_by_hour(budgets[0], narrowed)) and any(
        await books.spend_by_hour(budgets[0], view)
    )
