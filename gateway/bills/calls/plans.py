"""Plans of assistants as people manage them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from gateway.bills.plans.declared import (
    AssistantPlan,
    NewPlan,
    OnePlan,
    PlanChanges,
    PlanItem,
    PlanTable,
    Seat,
)
from gateway.http.lists import Filter, List, Sort
from gateway.http.managed import SHOW, Answer, Asker, ByPeople, ManagedResource
from gateway.http.resources.declaration import answer, stated
from spool.record import moment
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS

Row = tuple[AssistantPlan, str | None]  # with the name of its view


def _item(row: Row) -> Answer:
    plan, view = row
    return answer(
        PlanItem,
        plan,
        view=plan.view_id,
        view_name=view,
        seats=[msgspec.to_builtins(seat) for seat in plan.seats],
        created=moment(plan.created),
        last_updated=moment(plan.last_updated),
    )


PLANS: List[Row] = List(
    root="plans",
    show=_item,
    identity=Sort(value=lambda row: row[0].id),
    sorts={
        "name": Sort(value=lambda row: row[0].name),
        "created": Sort(value=lambda row: row[0].created),
    },
    default_sort=("created", "asc"),
    filters={
        "name": Filter(values=lambda row: (row[0].name,)),
        "view": Filter(values=lambda row: (row[0].view_id,)),
    },
)


class PlanResource(ManagedResource[AssistantPlan]):
    noun = "plan"
    table = PlanTable
    lists = PLANS
    new = NewPlan
    changes = PlanChanges
    item = PlanItem
    one = OnePlan
    people = ByPeople(
        path="/plans",
        reads=VIEW_COSTS,
        changes=MODIFY_VIEWS_AND_BUDGETS,
        words={SHOW: "Show a plan, by its id or its name"},
    )

    async def shown(self, asking: Asker[Any], row: AssistantPlan) -> Row:
        view = asking.registry.views.find(row.view_id)
        return row, None if view is None else view.name

    async def fields(self, asking: Asker[Any], given: Any) -> dict[str, Any]:
        found = stated(given, seats=_seats)
        asking.shared.people.check(seat.user for seat in found.get("seats", ()))
        word = found.pop("view", UNSET)
        return found if word is UNSET else {**found, "view_id": (await asking.view_named(word)).id}


def _seats(value: Any) -> Any:
    return value if value is UNSET else msgspec.convert(msgspec.to_builtins(value), tuple[Seat, ...])


PLAN = PlanResource()
