"""Handlers for plans of assistants, and their costs in a month."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from gateway.bills.plans.costs import PlanQuestion, parse_month, read_plan_costs
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


class PlanCostsQuery(msgspec.Struct, kw_only=True):
    month: Annotated[str, words("The month, such as `2026-11`."), example("2026-11")]
    start: Annotated[str, words("The start of the month."), example("2026-11-01T00:00:00.000Z")]
    end: Annotated[str, words("The end of the month."), example("2026-12-01T00:00:00.000Z")]
    currency: Annotated[str, words("The currency of the amounts."), example("USD")]
    row_count: Annotated[int, words("The number of all seats."), example(3)]
    truncated: Annotated[bool, words("Whether rows are missing because there are too many."), example(False)]


class PlanCostsTotal(msgspec.Struct, kw_only=True):
    paid: Annotated[
        str,
        words("The fees, the charges for extra usage, the metered cost and the amounts of contracts."),
        example("783.570585512634408602150537634"),
    ]
    fees: Annotated[str, words("The fees of the seats."), example("70.602150537634408602150537634")]
    overage: Annotated[str, words("The charges for extra usage."), example("0")]
    metered: Annotated[str, words("The cost of calls that no plan covers."), example("712.968434975")]
    contracts: Annotated[str, words("The amounts of contracts."), example("0")]
    included_value: Annotated[
        str, words("The value of the included usage at list prices."), example("5.4374607")
    ]
    unconverted: Annotated[
        dict[str, str], words("Amounts in currencies without a rate, by currency."), example({})
    ]
    included_unconverted: Annotated[
        dict[str, str], words("The value in currencies without a rate, by currency."), example({})
    ]


class PlanCostsOfPlan(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the plan."), example("362e68d5e2a5ddc76e06b68b917371ba")]
    name: Annotated[str, words("The name of the plan."), example("Claude Team")]
    seats: Annotated[int, words("The number of seats."), example(2)]
    paid: Annotated[
        str, words("The fees plus the charges for extra usage."), example("43.602150537634408602150537634")
    ]
    fees: Annotated[str, words("The fees of the seats."), example("43.602150537634408602150537634")]
    overage: Annotated[str, words("The charges for extra usage."), example("0")]
    included_value: Annotated[
        str, words("The value of the included usage at list prices."), example("5.3954607")
    ]
    unit: Annotated[str, words("The unit of the included usage."), example("usd")]
    used: Annotated[str, words("The quantity of usage."), example("5.3954607")]
    included: Annotated[
        str | None,
        words(
            "The usage that the seats of the plan include together per billing cycle, in `unit`, or null "
            "if unlimited."
        ),
        example("80"),
    ]
    beyond: Annotated[str, words("The quantity of extra usage."), example("0")]
    source: Annotated[
        str, words("The origin of `paid`: `plan`, or `statement` for a provider's bill."), example("plan")
    ]
    unmet: Annotated[
        str | None,
        words(
            "A sentence if nobody with a seat made a call, but calls of the view have no "
            "seat. Null otherwise."
        ),
        example(None),
    ]


class IdleSeatItem(msgspec.Struct, kw_only=True):
    plan: Annotated[str, words("The name of the plan."), example("Claude Team")]
    user: Annotated[str, words("The person who has the seat."), example("mara")]
    team: Annotated[str | None, words("The team that pays for the seat, or null."), example("engineering")]
    fee: Annotated[str, words("The fee of the seat from `first_day` to `last_day`."), example("25")]
    first_day: Annotated[str, words("The first day of the billing cycle without use."), example("2026-10-27")]
    last_day: Annotated[str, words("The last day of the billing cycle without use."), example("2026-11-26")]


class SeatCosts(msgspec.Struct, kw_only=True):
    plan: Annotated[str, words("The name of the plan."), example("Claude Team")]
    user: Annotated[str, words("The person who has the seat."), example("ada")]
    team: Annotated[str | None, words("The team that pays for the seat, or null."), example("engineering")]
    since: Annotated[str, words("The first day of the seat."), example("2026-09-28")]
    until: Annotated[str | None, words("The first day without the seat, or null."), example(None)]
    paid: Annotated[
        str, words("The fees plus the charges for extra usage."), example("21.801075268817204301075268817")
    ]
    fees: Annotated[str, words("The fees of the seats."), example("21.801075268817204301075268817")]
    overage: Annotated[str, words("The charges for extra usage."), example("0")]
    included_value: Annotated[
        str, words("The value of the included usage at list prices."), example("5.3954607")
    ]
    unit: Annotated[str, words("The unit of the quantity."), example("usd")]
    used: Annotated[str, words("The quantity of usage."), example("5.3954607")]
    beyond: Annotated[str, words("The quantity of extra usage."), example("0")]
    calls: Annotated[int, words("The number of calls."), example(412)]
    unpriced_calls: Annotated[int, words("Calls that used something without a known price."), example(7)]
    also_in: Annotated[
        list[str], words("Other plans in which the person has a seat in the month."), example([])
    ]


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
