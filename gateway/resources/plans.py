"""A plan of an assistant: what a seat costs and includes, and who has one."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gateway.resources.declaration import KEPT, Option, changes_of, item_of, one_of, words
from spool.registry.tables.plans import MAX_NAME, MAX_SEATS

Unit = Literal["usd", "calls", "credits"]


class SeatHeld(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Days are such as 2026-11-20, in UTC; `until` is the first day without the seat, empty while it is held."""

    user: str
    since: str
    until: str = ""
    team: str = ""


class NewPlan(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[
        str, words(f"Unique among plans, whatever the case: 1 to {MAX_NAME} printable characters.")
    ]
    view: Annotated[
        str,
        words(
            "The view that holds the calls of the assistant, by its id or its name. Those of who has a seat are "
            "covered."
        ),
    ]
    fee: Annotated[
        str,
        words("What a seat costs in a billing cycle; a seat of some days pays for these."),
        Option(metavar="AMOUNT"),
    ] = "0"
    included: Annotated[
        str,
        words("What a seat includes in a billing cycle, in the unit; empty: everything."),
        Option(metavar="QUANTITY"),
    ] = ""
    unit: Annotated[
        Unit,
        words("What is included: usd at list prices, calls that did not fail, or credits. usd by default."),
    ] = "usd"
    is_pooled: Annotated[
        bool, words("Whether all seats of a cycle share what they include."), Option("--pooled")
    ] = False
    cycle_day: Annotated[
        int,
        words(
            "The day of the month (1 to 31, UTC) on which a billing cycle begins, by default 1; of a month without "
            "it, the last one."
        ),
        Option(metavar="DAY"),
    ] = 1
    overage_price: Annotated[
        str, words("The price of each unit beyond what is included."), Option(metavar="AMOUNT")
    ] = "0"
    currency: Annotated[
        str,
        words("Of the fee and of the price beyond: a code of ISO 4217, USD by default."),
        Option(metavar="CODE"),
    ] = "USD"
    credit_value: Annotated[
        str, words("What a credit is worth at list prices, in dollars."), Option(metavar="USD")
    ] = ""
    billed_by: Annotated[
        str,
        words(
            "The provider whose [statements](../statements.md) tell what was paid, such as github: those of a whole "
            "month replace what Tollhouse calculates."
        ),
        Option(metavar="PROVIDER"),
    ] = ""
    seats: Annotated[
        list[SeatHeld],
        words(f"Who has a seat, since and until when, and the team that pays for it; at most {MAX_SEATS}."),
        Option(is_by_hand=True),
    ] = []


PlanChanges = changes_of(NewPlan)
PlanItem = item_of(
    NewPlan,
    "A plan as it is answered; times are RFC 3339.",
    answered={
        "view_name": Annotated[str | None, words("The name of the view; null if it is gone.")],
        **KEPT,
    },
)
OnePlan = one_of(NewPlan, PlanItem)


class PlanMonth(msgspec.Struct, kw_only=True):
    month: str
    start: Annotated[str, words("The first moment of the month, in UTC.")]
    end: str
    currency: str
    row_count: int
    truncated: bool


class PlanTotal(msgspec.Struct, kw_only=True):
    """
    Money in the currency that was asked for. `paid` is fees, overage and metered; `included_value` is no part of it.
    What no rate is known for is in no sum: it is named by its currency.
    """

    paid: str
    fees: str
    overage: str
    metered: Annotated[str, words("What calls cost that no plan covers.")]
    included_value: Annotated[str, words("What covered calls are worth at list prices, less those beyond.")]
    unconverted: Annotated[dict[str, str], words("What `paid` lacks.")]
    included_unconverted: Annotated[dict[str, str], words("What `included_value` lacks.")]


class PlanOfMonth(msgspec.Struct, kw_only=True):
    """A plan in a month, or the part of it that the person sees; quantities are in its unit."""

    id: str
    name: str
    seats: int
    paid: str
    fees: str
    overage: str
    included_value: str
    unit: str
    used: str
    included: Annotated[str | None, words("Null: everything.")]
    beyond: str
    source: Annotated[str, words("What `paid` is by: `plan`, or a `statement` of the whole month.")]


class SeatOfMonth(msgspec.Struct, kw_only=True):
    plan: str
    user: str
    team: str | None
    since: str
    until: str | None
    paid: str
    fees: str
    overage: str
    included_value: str
    unit: str
    used: str
    beyond: str
    calls: int
    unpriced_calls: int
    also_in: Annotated[list[str], words("The other plans in which the user has a seat in the month.")]


class IdleSeat(msgspec.Struct, kw_only=True):
    """A seat that was held on all days of a billing cycle that ended in the month, and had no call that worked."""

    plan: str
    user: str
    team: str | None
    fee: Annotated[str, words("The fee of the cycle, which giving the seat back would save.")]
    first_day: str
    last_day: str


class PlanDifference(msgspec.Struct, kw_only=True):
    """
    What a statement of a whole month tells beside what plans come to by themselves: `seat_count`, `fee_differs`,
    `included_differs` or `overage_differs`. Money but for `seats`, which are those of a whole month.
    """

    provider: str
    cause: str
    billed: str
    counted: str
    difference: str
    billed_seats: str | None
    counted_seats: str | None


class PlanCosts(msgspec.Struct, kw_only=True):
    plan_costs: PlanMonth
    total: PlanTotal
    plans: list[PlanOfMonth]
    idle_seats: Annotated[
        list[IdleSeat], words("Those of the cycles that end in the month, once they are over.")
    ]
    differences: Annotated[list[PlanDifference], words("None for who may see some calls alone.")]
    rows: list[SeatOfMonth]
