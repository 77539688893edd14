"""Handlers for plans of assistants, and their costs in a month."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.bills.plans.costs import PlanQuestion, asked_costs, parse_month
from gateway.bills.plans.declared import (
    AssistantPlan,
    NewPlan,
    OnePlan,
    PlanChanges,
    PlanItem,
    PlanTable,
)
from gateway.core.fields import build_answer, given_fields
from gateway.http.lists import Filter, List, Sort
from gateway.http.requests import Result
from gateway.operations.files.declared import InFiles
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.managed import SHOW, Answer, Asker, ByPeople, ManagedResource
from gateway.operations.requests.address import SLICED, call
from gateway.operations.requests.requests import OperatorRequest
from spool.currencies import DECIMALS
from spool.record import CURRENCY, moment
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS
from spool.registry.texts import check_one_of

Row = tuple[AssistantPlan, str | None]  # a plan and the name of its view
ONCE = ("month", "currency")


def _plan_item(row: Row) -> Answer:
    plan, view = row
    return build_answer(
        PlanItem,
        plan,
        view_name=view,
        seats=[msgspec.to_builtins(seat) for seat in plan.seats],
        created=moment(plan.created),
        last_updated=moment(plan.last_updated),
    )


PLANS: List[Row] = List(
    root="plans",
    show=_plan_item,
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
    files = InFiles(name="plans", refers={"view": "views"}, keeps_order=True, unordered=("seats",))
    people = ByPeople(
        path="/plans",
        reads=VIEW_COSTS,
        changes=MODIFY_VIEWS_AND_BUDGETS,
        words={SHOW: "Show a plan, by id or name"},
    )

    async def shown(self, asking: Asker[Any], row: AssistantPlan) -> Row:
        view = asking.registry.views.find(row.view_id)
        return row, None if view is None else view.name

    async def fields(self, asking: Asker[Any], given: Any) -> dict[str, Any]:
        stated_fields = given_fields(given)
        asking.shared.people.check(seat.user for seat in stated_fields.get("seats", ()))
        if "view" in stated_fields:
            stated_fields["view"] = (await asking.find_view(given.view)).id
        return stated_fields


PLAN = PlanResource()


@call(
    "GET",
    "/plan-costs",
    VIEW_COSTS,
    "Show the costs of plans in a month",
    optional=ONCE,
    shows=SLICED,
    in_turn=True,
)
async def plan_costs(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Return the costs of plans in a calendar month (UTC), up to the last closed record. Fees of the current
    month are those of its days until today. `paid` is fees, `overage`, and calls that no plan covers
    (`metered`). `included_value` is the value of covered calls at list prices. It is not part of `paid`.
    `idle_seats` had no call in billing cycles that ended in the month.

    People with restricted access get only the seats and calls that their filters match.
    """
    query = request.http.query
    now = request.now()
    currency = query.get("currency", CURRENCY)
    check_one_of("currency", currency, DECIMALS)
    await request.ledger.catch_up(request.services.log)
    asking = PlanQuestion(
        ledger=request.ledger,
        whole=request.whole_ledger,
        registry=request.registry,
        month=parse_month(query.get("month"), now),
        currency=currency,
        now=now,
        limit=request.shared.answers().max_rows,
    )
    answer = await asked_costs(asking)
    costs: Mapping[str, Any] = msgspec.to_builtins(answer)
    return costs
