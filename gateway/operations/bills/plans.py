"""Handlers for plans of assistants, and their costs in a month."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from gateway.bills.plans.costs import (
    IdleSeatItem,
    PlanCostsOfPlan,
    PlanCostsQuery,
    PlanCostsTotal,
    PlanQuestion,
    SeatCosts,
    parse_month,
    read_plan_costs,
)
from gateway.bills.plans.declared import AssistantPlan, NewPlan, OnePlan, PlanChanges, PlanItem, PlanTable
from gateway.core.fields import build_answer, given_fields
from gateway.http.lists import Filter, ListDefinition, Sort
from gateway.http.requests import Result
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.managed import SHOW, ByPeople, JsonAnswer, ManagedResource, OperationCaller
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.currencies import DECIMALS
from spool.record import CURRENCY, utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS
from spool.registry.texts import check_one_of

Row = tuple[AssistantPlan, str | None]  # row of the list: a plan, and the name of its view
ONCE = ("month", "currency")


def _describe_plan(row: Row) -> JsonAnswer:
    plan, view = row
    return build_answer(
        PlanItem,
        plan,
        view_name=view,
        seats=[msgspec.to_builtins(seat) for seat in plan.seats],
        created=utc_iso(plan.created),
        last_updated=utc_iso(plan.last_updated),
    )


PLANS: ListDefinition[Row] = ListDefinition(
    root="plans",
    show=_describe_plan,
    identity=Sort(value=lambda row: row[0].id),
    sorts={"name": Sort(value=lambda row: row[0].name), "created": Sort(value=lambda row: row[0].created)},
    default_sort=("created", "asc"),
    filters={
        "name": Filter(values=lambda row: (row[0].name,)),
        "view": Filter(values=lambda row: (row[0].view_id,)),
    },
)


class PlanResource(ManagedResource[AssistantPlan, object]):
    noun = "plan"
    table = PlanTable
    lists = PLANS
    new = NewPlan
    changes = PlanChanges
    item = PlanItem
    one = OnePlan
    files = ResourceFiles(name="plans", refers={"view": "views"}, keeps_order=True, unordered=("seats",))
    searched = ("name",)
    people = ByPeople(
        path="/plans",
        reads=VIEW_COSTS,
        changes=MODIFY_VIEWS_AND_BUDGETS,
        words={SHOW: "Show a plan, by id or name"},
    )

    async def convert_row_for_lists(self, caller: OperationCaller[object], row: AssistantPlan) -> Row:
        view = caller.registry.views.find(row.view_id)
        return row, None if view is None else view.name

    async def draft_fields(self, caller: OperationCaller[object], new_values: Any) -> dict[str, Any]:
        stated_fields = given_fields(new_values)
        caller.shared.people.reject_dropped_names(seat.user for seat in stated_fields.get("seats", ()))
        if "view" in stated_fields:
            stated_fields["view"] = (await caller.find_view(new_values.view)).id
        return stated_fields


PLAN = PlanResource()


class PlanCostsAnswer(msgspec.Struct, kw_only=True):
    plan_costs: Annotated[PlanCostsQuery, words("The costs of the plans in the month.")]
    total: Annotated[PlanCostsTotal, words("The sums of all plans.")]
    plans: Annotated[list[PlanCostsOfPlan], words("The plans, each with the fields below.")]
    idle_seats: Annotated[list[IdleSeatItem], words("The idle seats, each with the fields below.")]
    differences: Annotated[
        list[dict[str, Any]], words("The differences between plans and bills."), example([])
    ]
    rows: Annotated[list[SeatCosts], words("The seats.")]


@operator_call(
    "GET",
    "/plan-costs",
    VIEW_COSTS,
    "Show the costs of plans in a month",
    optional=ONCE,
    shows=SLICED,
    in_turn=True,
    answers=PlanCostsAnswer,
)
async def plan_costs(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Return the costs of plans in a calendar month (UTC), up to the last closed record. Fees of the current
    month are those of its days until today.

    People with restricted access get only the seats and calls that their filters match.
    """
    query = request.http.query
    now = request.now()
    currency = query.get("currency", CURRENCY)
    check_one_of("currency", currency, DECIMALS)
    await request.ledger.require_complete_totals(request.services.log)
    asking = PlanQuestion(
        ledger=request.ledger,
        # whole: a seat's fee is divided by all use of the seat; the answer has visible seats and calls
        whole=request.whole_ledger,
        registry=request.registry,
        month=parse_month(query.get("month"), now),
        currency=currency,
        now=now,
        limit=request.shared.answers().max_rows,
        prices=request.services.prices,
    )
    answer = await read_plan_costs(asking)
    costs: Mapping[str, Any] = msgspec.to_builtins(answer)
    return costs
