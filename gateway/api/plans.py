"""Plans of assistants as people manage them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from gateway.api.managed import Answer, Asker, ManagedResource
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.resources.declaration import answer, stated
from gateway.resources.plans import NewPlan, OnePlan, PlanChanges, PlanItem
from spool.errors import Invalid, NotThere
from spool.record import moment
from spool.registry.registry import Registry
from spool.registry.tables.plans import NO_VIEW, AssistantPlan, PlanDraft, Seat

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


async def _rows(asking: Asker) -> MemoryRows[Row]:
    registry = asking.registry
    return MemoryRows([_row(registry, each) for each in registry.plans.all()])


def _row(registry: Registry, plan: AssistantPlan) -> Row:
    view = registry.views.find(plan.view_id)
    return plan, None if view is None else view.name


async def _create(asking: Asker, given: NewPlan) -> Answer:
    draft = PlanDraft(**_fields(asking, given))
    table = asking.registry.plans
    most = asking.shared.most(table.limit)
    return _one(asking, await table.create(draft, most=most, actor=asking.actor))


async def _show(asking: Asker, word: str) -> Answer:
    return _one(asking, asking.registry.plans.find_any(word))


async def _change(asking: Asker, word: str, given: Any) -> Answer:
    table = asking.registry.plans
    fields = _fields(asking, given)
    id = table.find_any(word).id
    return _one(asking, await table.change(id, fields, version=given.version, actor=asking.actor))


async def _delete(asking: Asker, word: str) -> str:
    id = asking.registry.plans.find_any(word).id
    await asking.registry.plans.delete(id, actor=asking.actor)
    return id


def _one(asking: Asker, plan: AssistantPlan) -> Answer:
    return {"plan": _item(_row(asking.registry, plan))}


def _fields(asking: Asker, given: Any) -> dict[str, Any]:
    """Return the stated fields by the names of a draft."""
    found = stated(given, seats=_seats)
    asking.shared.people.check(seat.user for seat in found.get("seats", ()))
    word = found.pop("view", UNSET)
    if word is not UNSET:
        try:
            found["view_id"] = asking.registry.views.find_any(word).id
        except NotThere:
            raise Invalid(NO_VIEW) from None
    return found


def _seats(value: Any) -> Any:
    return value if value is UNSET else msgspec.convert(msgspec.to_builtins(value), tuple[Seat, ...])


PLAN = ManagedResource(
    noun="plan",
    root="plan",
    lists=PLANS,
    new=NewPlan,
    changes=PlanChanges,
    item=PlanItem,
    one=OnePlan,
    rows=_rows,
    create=_create,
    show=_show,
    change=_change,
    delete=_delete,
)
