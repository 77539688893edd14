"""A plan of an assistant: what a seat costs, what it includes, and who has one since when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Literal

import msgspec

from gateway.http.resources.declaration import KEPT, Option, changes_of, item_of, one_of, words
from spool import providers
from spool.errors import Invalid, NotAllowed
from spool.people import People
from spool.record import CURRENCY
from spool.registry.changes import Changes
from spool.registry.document_table import ManagedTable, NamedTable, Sees, check_name
from spool.registry.documents import DocumentKind, version_of
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import check_one_of, check_text, optional_text, optional_unsigned
from spool.registry.views import NO_VIEW, VIEWS

MAX_NAME, MAX_USER, MAX_SEATS = 100, 256, 2000
MAX_CYCLE_DAY = 31
USD, CALLS, CREDITS = UNITS = ("usd", "calls", "credits")  # what a plan can include


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Who has a seat from the day `since` until before the day `until`; "" while it is held. `team` pays for it."""

    user: str
    since: str
    until: str = ""
    team: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDraft:
    """
    What people state. Amounts are decimal text: `fee` for a seat and a billing cycle, `included` in its
    unit, "" without a bound. A cycle begins on the `cycle_day` of each month, of a month without it on
    the last day. `overage_price` is for each unit beyond; both are in `currency`. `credit_value` is
    what a credit is worth at list prices, in dollars. `billed_by` is the provider whose statements tell
    fees and what was beyond.
    """

    name: str
    view_id: str
    fee: str = "0"
    included: str = ""
    unit: str = USD
    is_pooled: bool = False
    cycle_day: int = 1
    overage_price: str = "0"
    credit_value: str = ""
    currency: str = CURRENCY
    billed_by: str = ""
    seats: tuple[Seat, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantPlan(PlanDraft):
    """As it is kept. Times are epoch seconds."""

    id: str
    created: float
    last_updated: float

    @property
    def version(self) -> str:
        return version_of(self)


PLANS = DocumentKind("plan", AssistantPlan, "plan")


def check_plan(draft: PlanDraft, people: People) -> PlanDraft:
    """The draft in its stored form; Invalid names the field and the rule. Which views exist is asked elsewhere."""
    from spool.currencies import DECIMALS  # only where a plan is checked

    check_one_of("unit", draft.unit, UNITS)
    check_one_of("currency", draft.currency, DECIMALS)
    if (draft.unit == CREDITS) != bool(draft.credit_value):
        raise Invalid("credit_value is required with the unit credits, and of no other one")
    credit_value = optional_unsigned("credit_value", draft.credit_value)
    if credit_value and not float(credit_value):
        raise Invalid("credit_value must be more than 0")
    if not 1 <= draft.cycle_day <= MAX_CYCLE_DAY:
        raise Invalid(f"cycle_day is the day of a month on which a cycle begins: 1 to {MAX_CYCLE_DAY}")
    if len(draft.seats) > MAX_SEATS:
        raise Invalid(f"seats has at most {MAX_SEATS} entries")
    return replace(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        fee=optional_unsigned("fee", draft.fee),
        included=optional_unsigned("included", draft.included),
        overage_price=optional_unsigned("overage_price", draft.overage_price),
        credit_value=credit_value,
        billed_by=_provider(draft.billed_by),
        seats=_seats(draft.seats, people),
    )


def _seats(seats: tuple[Seat, ...], people: People) -> tuple[Seat, ...]:
    """Return the seats by user and first day. Invalid if somebody had two at once."""
    found = sorted(map(_seat, seats), key=lambda seat: (seat.user.casefold(), seat.since))
    by_user: dict[str, list[Seat]] = defaultdict(list)
    for seat in sorted(found, key=lambda seat: seat.since):
        held = by_user[people.identity(seat.user)]
        if held and (not held[-1].until or held[-1].until > seat.since):
            raise Invalid(f"seats: {seat.user} has two seats on {seat.since}")
        held.append(seat)
    return tuple(found)


def _seat(seat: Seat) -> Seat:
    since = _day("seats.since", seat.since)
    until = _day("seats.until", seat.until) if seat.until else ""
    if until and until <= since:
        raise Invalid("seats.until is the first day without the seat: after since")
    user = check_text("seats.user", seat.user, MAX_USER)
    return Seat(user=user, since=since, until=until, team=optional_text("seats.team", seat.team, MAX_USER))


def _provider(text: str) -> str:
    """Return the name under which statements are kept."""
    stated = optional_text("billed_by", text, MAX_NAME)
    return providers.canonical(stated) if stated else ""


def _day(field: str, text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise Invalid(f"{field} is a day such as 2026-11-20") from None


class PlanTable(ManagedTable[AssistantPlan], NamedTable[AssistantPlan]):
    """Create, change and delete them. One that raises (Invalid, NotAllowed, NotThere) changes nothing."""

    kind = PLANS
    draft = PlanDraft
    limit = "plans.max"
    action = "plan"

    def __init__(self, changes: Changes) -> None:
        super().__init__(changes)
        self.people = changes.people
        self._as_recorded: dict[str, tuple[AssistantPlan, AssistantPlan]] = {}  # with what each was made of

    def in_order(self) -> list[AssistantPlan]:
        """All of them; of two that cover a call, the first does."""
        return sorted(self.all(), key=lambda plan: (plan.created, plan.id))

    def as_recorded(self, plan: AssistantPlan) -> AssistantPlan:
        """Return a plan whose seats, in the same order, name people by the hash of their address."""
        kept = self._as_recorded.get(plan.id)
        if kept is None or kept[0] is not plan:
            hashed = self.people.hashed
            seats = tuple(replace(seat, user=hashed(seat.user)) for seat in plan.seats)
            kept = self._as_recorded[plan.id] = plan, replace(plan, seats=seats)
        return kept[1]

    def checked(self, draft: PlanDraft) -> PlanDraft:
        return check_plan(draft, self.people)

    def check_place(
        self,
        rows: RegistryRows,
        stored: Mapping[str, AssistantPlan],
        row: AssistantPlan,
        sees: Sees[AssistantPlan],
    ) -> None:
        check_name(stored.values(), row, noun="plan", sees=sees)
        if VIEWS.find(rows, row.view_id) is None:
            raise NotAllowed(NO_VIEW)


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
