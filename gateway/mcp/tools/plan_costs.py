"""
The tool get_plan_costs: costs of assistants' plans in a month. Paid and included amounts are never summed.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from gateway.bills.plans.costs import (
    IdleSeatItem,
    PlanCosts,
    PlanQuestion,
    SeatCosts,
    parse_month,
    read_plan_costs,
)
from gateway.core.visibility import SLICED
from gateway.mcp.cost_queries import ZONE
from gateway.mcp.tool import McpTool, ToolAnswer, ToolCallContext, ToolInput, ToolOutput, answer_within_limit
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    console_page_link,
    format_cell,
    format_dollars,
    markdown_table,
    remove_hidden_characters,
)
from gateway.operations.holders.operators import MoneyServices
from spool.currencies import DECIMALS
from spool.record import CURRENCY
from spool.registry.texts import check_one_of
from spool.turns.threads import sort_in_short_steps

MOST = 100


class PlanCostsQuestion(ToolInput):
    month: Annotated[str | None, msgspec.Meta(description="Month, YYYY-MM (UTC); default: this month")] = None
    currency: Annotated[str, msgspec.Meta(description="ISO 4217 currency code")] = CURRENCY
    limit: Annotated[
        int, msgspec.Meta(ge=1, le=MOST, description="Maximum number of plans, of seats and of idle seats")
    ] = 20


class PlanSums(ToolOutput):
    """
    Amounts. `paid` is fees, overage, metered cost and contracts. `included_value` is at list prices and not part
    of `paid`.
    """

    paid: str
    fees: str
    overage: str
    metered: str
    contracts: str
    included_value: str
    unconverted: dict[str, str]


class PlanLine(ToolOutput):
    """
    A plan. `used` and `included` are in the plan's unit; `included` null is unlimited. `source` is
    plan or statement. `unmet` says so if calls have no seat, and nobody with a seat made a call.
    """

    name: str
    seats: int
    paid: str
    fees: str
    overage: str
    included_value: str
    unit: str
    used: str
    included: str | None
    source: str
    unmet: str | None


class SeatLine(ToolOutput):
    plan: str
    user: str
    team: str | None
    paid: str
    included_value: str
    calls: int


class IdleSeatLine(ToolOutput):
    """A seat without calls in a billing cycle that ended in the month. `fee` is for this cycle."""

    plan: str
    user: str
    fee: str
    first_day: str
    last_day: str


class PlanCostsOfMonth(ToolOutput):
    """
    The result of the tool. Totals include all seats. If seats are left out, the most expensive ones are shown.
    """

    month: str
    zone: str
    currency: str
    total: PlanSums
    plans: list[PlanLine]
    seats: list[SeatLine]
    seat_count: int
    idle_seats: list[IdleSeatLine]
    idle_seat_count: int
    truncated: bool


async def answer_plan_costs(
    arguments: PlanCostsQuestion, call_context: ToolCallContext[MoneyServices]
) -> ToolAnswer:
    check_one_of("currency", arguments.currency, DECIMALS)
    now = call_context.shared.clock.now()
    question = PlanQuestion(
        ledger=call_context.visible_ledger,
        # whole: a seat's fee is divided by all use of the seat; the answer has visible seats and calls
        whole=call_context.whole_ledger,
        registry=call_context.shared.require_registry(),
        month=parse_month(arguments.month, now),
        currency=arguments.currency,
        now=now,
        limit=call_context.shared.answers().max_rows,
        prices=call_context.services.prices,
    )
    plan_costs = await read_plan_costs(question)
    link = console_page_link(call_context, "/plans", {"month": [question.month.name]})

    def answer_with_rows(count: int) -> ToolAnswer:
        content = _build_plan_costs(plan_costs, count)
        return ToolAnswer(text=_format_plan_costs(content), content=content, link=link)

    def sort_rows_and_build_answer() -> ToolAnswer:
        plan_costs.rows = sort_in_short_steps(plan_costs.rows, key=lambda row: -float(row.paid))
        return answer_within_limit(answer_with_rows, arguments.limit)

    return await asyncio.to_thread(sort_rows_and_build_answer)


def _build_plan_costs(plan_costs: PlanCosts, count: int) -> PlanCostsOfMonth:
    plans = [
        PlanLine(
            name=remove_hidden_characters(plan.name),
            seats=plan.seats,
            paid=plan.paid,
            fees=plan.fees,
            overage=plan.overage,
            included_value=plan.included_value,
            unit=plan.unit,
            used=plan.used,
            included=plan.included,
            source=plan.source,
            unmet=None if plan.unmet is None else remove_hidden_characters(plan.unmet),
        )
        for plan in plan_costs.plans[:count]
    ]
    lists = (plan_costs.plans, plan_costs.rows, plan_costs.idle_seats)
    return PlanCostsOfMonth(
        month=plan_costs.plan_costs.month,
        zone=ZONE,
        currency=plan_costs.plan_costs.currency,
        total=msgspec.convert(plan_costs.total, PlanSums, from_attributes=True),
        plans=plans,
        seats=list(map(_seat_line, plan_costs.rows[:count])),
        seat_count=plan_costs.plan_costs.row_count,
        idle_seats=list(map(_idle_seat_line, plan_costs.idle_seats[:count])),
        idle_seat_count=len(plan_costs.idle_seats),
        truncated=plan_costs.plan_costs.truncated or any(len(rows) > count for rows in lists),
    )


def _seat_line(row: SeatCosts) -> SeatLine:
    return SeatLine(
        plan=remove_hidden_characters(row.plan),
        user=remove_hidden_characters(row.user),
        team=None if row.team is None else remove_hidden_characters(row.team),
        paid=row.paid,
        included_value=row.included_value,
        calls=row.calls,
    )


def _idle_seat_line(seat: IdleSeatItem) -> IdleSeatLine:
    return IdleSeatLine(
        plan=remove_hidden_characters(seat.plan),
        user=remove_hidden_characters(seat.user),
        fee=seat.fee,
        first_day=seat.first_day,
        last_day=seat.last_day,
    )


def _format_plan_costs(content: PlanCostsOfMonth) -> str:
    total = content.total
    parts = [
        f"{content.month} ({content.zone}), in {content.currency}: paid {format_dollars(total.paid)}, "
        f"which is {format_dollars(total.fees)} for fees, {format_dollars(total.overage)} for extra usage, "
        f"{format_dollars(total.metered)} for calls outside of plans, and {format_dollars(total.contracts)} for "
        "contracts. The usage included in plans is "
        f"worth {format_dollars(total.included_value)} at list prices; this is not a payment and not part "
        "of any other sum."
    ]
    if not content.plans:
        parts.append("No plan has a seat in this month.")
    else:
        rows = [
            [
                format_cell(plan.name),
                str(plan.seats),
                *map(format_dollars, (plan.paid, plan.overage, plan.included_value)),
            ]
            for plan in content.plans[:MAX_TABLE_ROWS]
        ]
        parts.append(markdown_table(["plan", "seats", "paid", "beyond", "value included"], rows))
    parts += [f"{format_cell(plan.name)}: {format_cell(plan.unmet)}" for plan in content.plans if plan.unmet]
    if content.idle_seats:
        idle = [
            [
                format_cell(seat.user),
                format_cell(seat.plan),
                format_dollars(seat.fee),
                seat.first_day,
                seat.last_day,
            ]
            for seat in content.idle_seats[:MAX_TABLE_ROWS]
        ]
        parts.append("Seats without calls in a billing cycle that ended in the month:")
        parts.append(markdown_table(["user", "plan", "fee", "from", "to"], idle))
    if content.truncated:
        parts.append(f"There are {content.seat_count} seats; raise limit to see more.")
    return "\n\n".join(parts)


TOOL = McpTool(
    name="get_plan_costs",
    title="Plans of assistants",
    description=(
        "Costs of assistants' seats in a month. Shows what was paid (fees, extra usage, calls "
        "outside of plans, contracts), and separately the value of the included usage. Also lists the seats, "
        "and the seats without calls."
    ),
    takes=PlanCostsQuestion,
    gives=PlanCostsOfMonth,
    run=answer_plan_costs,
    shows=SLICED,
)
