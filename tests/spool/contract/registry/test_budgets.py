"""Budgets in a registry: rules, unique names per view, audit rows, and evaluations stored as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pytest

from gateway.money.budgets.declared import (
    ACTUAL,
    FIRED,
    KEPT_S,
    MAX_PLANNED,
    Alert,
    BudgetDocuments,
    BudgetTable,
    JudgedBudgets,
    NewBudget,
    PeriodAlerts,
    Silence,
    SpendBudget,
    ViewName,
)
from spool.errors import AlreadyThere, Invalid, NotAllowed, NotThere
from spool.listing import ListQuery, SortField
from spool.registry.audit import AuditRow
from spool.registry.documents import replace_fields
from spool.registry.insights import Finding, InsightDraft
from spool.registry.notices import Notice
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.views import NewView
from tests.gateway.money.budgets.house import monthly
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import RegistryOpener

ADA = Actor("ada@example.com", "local")
KNOWN = ("model", "team")


DRAFT = NewBudget(
    name="Search",
    view=ViewName(id=""),
    planned_limits=monthly({"2026-12-01": "900.50", "2026-11-01": "1000"}),
    default_amount="1200",
    time_zone="Europe/Berlin",
    per="team",
    alerts={"100": "Y", "80": "N"},
    forecast_alerts={"110": "Y"},
    channels=["oncall", "costs"],
    silence=Silence(until="2026-12-01", reason="migration"),
)

pytestmark = pytest.mark.rule


async def view(registry: Registry, name: str = "search") -> str:
    draft = NewView(name=name, filter={}, principal_dimension="model")
    return (await registry.views.create(draft, known_dimensions=KNOWN, max_rows=10, actor=ADA)).id


async def create(registry: Registry, view_id: str, *, max_rows: int = 10, **fields: Any) -> SpendBudget:
    draft = replace_fields(DRAFT, view=ViewName(id=view_id), **fields)
    return await registry.declared_table(BudgetTable).create(
        draft, known_dimensions=KNOWN, max_rows=max_rows, actor=ADA
    )


async def change(registry: Registry, id: str, **changes: Any) -> SpendBudget:
    return await registry.declared_table(BudgetTable).change(id, changes, known_dimensions=KNOWN, actor=ADA)


async def audited(registry: Registry) -> Sequence[AuditRow]:
    query = ListQuery(sort=SortField("id"), order="asc", identity="id", limit=50)
    return [row for row in (await registry.audit_page(query)).rows if row.action.startswith("budget.")]


@pytest.mark.every_engine
async def test_a_budget_is_there_after_a_restart(open_registry: RegistryOpener) -> None:
    """After a restart every field of a budget is there. Planned periods and percentages are sorted."""
    registry = await open_registry()
    made = await create(registry, await view(registry))
    await registry.close()
    again = (await open_registry()).declared_table(BudgetTable)
    assert made == again.get(made.id)
    assert ["2026-11-01", "2026-12-01"] == list(made.planned)
    assert ["80", "100"] == list(made.alerts)
    assert ("1000", "900.50", "1200") == tuple(
        made.amount_for_period(f"{month}-01") for month in ("2026-11", "2026-12", "2027-01")
    )


async def test_names_are_unique_within_a_view(registry: Registry) -> None:
    """Budget names are compared without case. Another view may use the same name."""
    first, second = await view(registry), await view(registry, "other")
    await create(registry, first)
    with pytest.raises(AlreadyThere, match="this view has a budget"):
        await create(registry, first, name="sEARCH")
    other = await create(registry, second)
    with pytest.raises(AlreadyThere):
        await change(registry, other.id, view=ViewName(id=first))
    assert second == registry.declared_table(BudgetTable).get(other.id).view_id


async def test_a_view_with_a_budget_stays(registry: Registry) -> None:
    """
    Deleting a view with budgets is refused, and the error names them. A budget requires an existing view.
    """
    first = await view(registry)
    made = await create(registry, first)
    with pytest.raises(NotAllowed, match="Search"):
        await registry.views.delete(first, actor=ADA)
    await registry.declared_table(BudgetTable).delete(made.id, actor=ADA)
    await registry.views.delete(first, actor=ADA)
    with pytest.raises(Invalid, match=r"view\.id"):
        await create(registry, first)
    with pytest.raises(NotThere):
        await registry.declared_table(BudgetTable).delete(made.id, actor=ADA)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": " "}, "name"),
        ({"granularity": "hourly"}, "granularity must be one of daily"),
        ({"measure": "euros"}, "measure must be one of"),
        ({"per": "shoe_size"}, "unknown dimension in per"),
        ({"planned_limits": monthly({"2026-11-02": "1"})}, "no monthly period begins on 2026-11-02"),
        ({"planned_limits": monthly({"soon": "1"})}, "needs days such as"),
        ({"planned_limits": monthly({"2026-11-01T01:00:00+00:00": "1"})}, "needs days such as"),
        ({"planned_limits": monthly({"2026-11-01": "1", "2026-11-01T00:00:00+00:00": "2"})}, "twice"),
        ({"planned_limits": monthly({"2026-11-01": "-1"})}, "must not be negative"),
        (
            {"planned_limits": monthly({"2026-11-01": "much"})},
            r"planned_limits\.monthly\.2026-11-01\.amount must be a decimal",
        ),
        (
            {
                "planned_limits": monthly(
                    {f"{2000 + n // 12}-{n % 12 + 1:02}-01": "1" for n in range(MAX_PLANNED + 1)}
                )
            },
            "at most",
        ),
        ({"planned_limits": {}, "default_amount": None}, "needs an amount"),
        ({"alerts": {"0": "Y"}}, "whole percentages from 1 to 1000"),
        ({"alerts": {"1001": "Y"}}, "whole percentages"),
        ({"alerts": {"80": "yes"}}, "whole percentages"),
        ({"forecast_alerts": {str(n): "Y" for n in range(1, 22)}}, "at most 20"),
        ({"time_zone": "Mars/Base"}, "time_zone must be the name"),
        ({"time_zone": "Asia/Kolkata"}, "whole hours"),
        ({"granularity": "quarterly", "planned_limits": {}}, "needs the time_zone UTC"),
        ({"channels": [f"c{n}" for n in range(21)]}, "channels accepts at most 20"),
    ],
)
async def test_bad_fields_are_named(registry: Registry, fields: dict[str, Any], message: str) -> None:
    """A draft or change that breaks a rule changes nothing. The message names the field and the rule."""
    first = await view(registry)
    with pytest.raises(Invalid, match=message):
        await create(registry, first, **fields)
    made = await create(registry, first)
    with pytest.raises(Invalid, match=message):
        await change(registry, made.id, **fields)
    assert [made] == registry.declared_table(BudgetTable).all()


async def test_a_change_of_the_rules_has_its_time(registry: Registry, clock: MovedClock) -> None:
    """A new name keeps the time from which the rules apply. A new amount resets that time."""
    made = await create(registry, await view(registry))
    clock.move(60)
    renamed = await change(registry, made.id, name="Find")
    assert made.rules_since == renamed.rules_since
    assert made.created + 60 == renamed.last_updated
    assert made.rules_since + 60 == (await change(registry, made.id, default_amount="7")).rules_since


def judged(budget: SpendBudget, *, end: float) -> JudgedBudgets:
    alert = Alert(
        kind=ACTUAL, percent=80, state=FIRED, since=1.0, value="8", limit="10", fired_at=1.0, told=True
    )
    period = PeriodAlerts(
        budget_id=budget.id, first_day="2026-11-01", end=end, rules="r", owners={"a": (alert,)}
    )
    notice = Notice(id="bgt_1", kind="budget.threshold_crossed", title="Budget", at=1.0)
    finding = Finding(key="budget:1", draft=InsightDraft(title="Budget"))
    return JudgedBudgets(alerts=[period], notices=[(notice, ["costs", "oncall"])], findings=[finding])


async def test_evaluation_is_stored_as_a_whole(open_registry: RegistryOpener, clock: MovedClock) -> None:
    """States, notices and insights of one evaluation are stored together or not at all."""
    registry = await open_registry()
    made = await create(registry, await view(registry))
    found = judged(made, end=clock.now())
    broken = replace(
        found, notices=[(Notice(id="?", kind="budget.threshold_crossed", title="x", at=1.0), ["costs"])]
    )
    with pytest.raises(Invalid):
        await registry.declared_table(BudgetTable).judge_and_store_alerts(lambda _: broken)
    assert await registry.declared_table(BudgetTable).alerts_of_budget(made.id) == []
    assert await registry.notices.waiting_notifications() == []
    await registry.declared_table(BudgetTable).judge_and_store_alerts(lambda _: found)
    await registry.declared_table(BudgetTable).judge_and_store_alerts(
        lambda kept: found if asdict(found.alerts[0]) in map(asdict, kept.alerts.values()) else broken
    )
    await registry.close()
    registry = await open_registry()
    assert [found.alerts[0]] == await registry.declared_table(BudgetTable).alerts_of_budget(made.id)
    assert ["costs", "oncall"] == [each.channel for each in await registry.notices.waiting_notifications()]
    query = ListQuery(sort=SortField("title"), order="asc", identity="id", limit=5)
    assert ["Budget"] == [each.title for each in (await registry.insights.page(query)).rows]


def _as_found(found: JudgedBudgets, _: BudgetDocuments) -> JudgedBudgets:
    return found


async def test_old_alerts_go(registry: Registry, clock: MovedClock) -> None:
    """Alerts are deleted some months after their period, or with their budget."""
    first = await view(registry)
    made, other = await create(registry, first), await create(registry, first, name="other")
    nothing = JudgedBudgets(alerts=[], notices=[], findings=None)
    for budget in (made, other):
        found = judged(budget, end=clock.now())
        await registry.declared_table(BudgetTable).judge_and_store_alerts(partial(_as_found, found))
    clock.move(KEPT_S)
    await registry.declared_table(BudgetTable).judge_and_store_alerts(lambda _: nothing)
    assert 1 == len(await registry.declared_table(BudgetTable).alerts_of_budget(made.id))
    await registry.declared_table(BudgetTable).delete(other.id, actor=ADA)
    assert [] == await registry.declared_table(BudgetTable).alerts_of_budget(other.id)
    clock.move(1)
    await registry.declared_table(BudgetTable).judge_and_store_alerts(lambda _: nothing)
    assert [] == await registry.declared_table(BudgetTable).alerts_of_budget(made.id)
