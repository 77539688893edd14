"""The resource of assistants' plans: fee, included usage, and seats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from gateway.core.fields import KEPT, changes_struct, item_struct, one_item_answer_struct
from spool import providers
from spool.errors import Invalid, NotAllowed
from spool.people import People
from spool.registry.changes import RegistryChangeWriter
from spool.registry.document_table import ManagedTable, NamedTable, Sees, check_name_free
from spool.registry.documents import DocumentCollection, replace_fields, row_version
from spool.registry.field_notes import Option, example, example_id, words
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import (
    check_day,
    check_one_of,
    check_optional_text,
    check_optional_unsigned_amount,
    check_text,
)
from spool.registry.views import NO_VIEW, STORED_VIEW, VIEWS

MAX_NAME, MAX_USER = 100, 256
MAX_SEATS = 2000  # a change of a plan states all seats in one request of at most 256 KiB
MAX_CYCLE_DAY = 31
USD, CALLS, CREDITS = UNITS = ("usd", "calls", "credits")  # units of included usage
if TYPE_CHECKING:
    Unit: TypeAlias = str
else:
    Unit = Literal[UNITS]


class SeatHeld(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person's seat in a plan, for a number of days."""

    user: Annotated[str, words("The person who has the seat.")]
    since: Annotated[str, words("The first day of the seat (UTC).")]
    until: Annotated[str, words("The first day without the seat (UTC); empty for a current seat.")] = ""
    team: Annotated[str, words("The team of the person.")] = ""


class Seat(SeatHeld, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A stored seat, which may have fields of a newer release."""


class NewPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[
        str,
        words(f"A name that no other plan has, regardless of case: 1 to {MAX_NAME} printable characters."),
        example("Assistants"),
    ]
    view: Annotated[
        str,
        words(
            "The view that matches the assistant's calls, by id or name. Calls of people with a seat "
            "are covered."
        ),
        STORED_VIEW,
        example(example_id("view")),
    ]
    fee: Annotated[
        str,
        words(
            "Fee per seat and billing cycle; charged by the day for a seat that is held for part of a cycle."
        ),
        Option(metavar="AMOUNT"),
        example("25", changed="30"),
    ] = "0"
    included: Annotated[
        str,
        words("Usage that a seat includes per billing cycle, in the unit; empty for unlimited."),
        Option(metavar="QUANTITY"),
        example("40"),
    ] = ""
    unit: Annotated[
        Unit,
        words("Unit of the included usage: usd at list prices, successful calls, or credits; default: usd."),
    ] = "usd"
    is_pooled: Annotated[bool, words("Share the included usage among all seats."), Option("--pooled")] = False
    cycle_day: Annotated[
        int,
        words(
            "Day of the month (1 to 31, UTC) on which billing cycles begin, or the last day of "
            "shorter months; default: 1."
        ),
        Option(metavar="DAY"),
    ] = 1
    overage_price: Annotated[
        str, words("Price of each unit above the included usage."), Option(metavar="AMOUNT"), example("1")
    ] = "0"
    currency: Annotated[
        str, words("ISO 4217 code of the fee and the overage price; default: USD."), Option(metavar="CODE")
    ] = "USD"
    credit_value: Annotated[str, words("List price of a credit, in dollars."), Option(metavar="USD")] = ""
    billed_by: Annotated[
        str,
        words(
            "Provider whose [bills](../bills/statements.md) state what was paid, such as github. A bill "
            "for a whole month replaces the calculated costs."
        ),
        Option(metavar="PROVIDER"),
    ] = ""
    seats: Annotated[
        tuple[SeatHeld, ...],
        words(
            "Seats: user, first day, first day without the seat, and the team that pays; at most "
            f"{MAX_SEATS}."
        ),
        Option(is_by_hand=True),
        example([{"user": "ada@example.com", "since": "2026-10-01", "until": "", "team": "search"}]),
    ] = ()


class AssistantPlan(NewPlan, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A stored plan. Times are epoch seconds."""

    unit: str = USD  # the unit may also be one of a newer release
    seats: tuple[Seat, ...] = ()
    id: str
    created: float
    last_updated: float

    @property
    def version(self) -> str:
        return row_version(self)

    @property
    def view_id(self) -> str:
        return self.view


PLANS = DocumentCollection("plan", AssistantPlan, "plan")


def check_plan(draft: NewPlan, people: People) -> NewPlan:
    """Validate a draft and return its stored form. Raises Invalid. The view is checked elsewhere."""
    # imported here, because the import is slow and only this function needs it
    from spool.currencies import DECIMALS

    check_one_of("unit", draft.unit, UNITS)
    check_one_of("currency", draft.currency, DECIMALS)
    if (draft.unit == CREDITS) != bool(draft.credit_value):
        raise Invalid("credit_value is required with the unit credits, and is not allowed with another unit")
    credit_value = check_optional_unsigned_amount("credit_value", draft.credit_value)
    if credit_value and not float(credit_value):
        raise Invalid("credit_value must be more than 0")
    if not 1 <= draft.cycle_day <= MAX_CYCLE_DAY:
        raise Invalid(
            f"cycle_day must be the day of the month on which a billing cycle begins: 1 to {MAX_CYCLE_DAY}"
        )
    if len(draft.seats) > MAX_SEATS:
        raise Invalid(f"seats must have at most {MAX_SEATS} entries; divide the plan, such as by team")
    return replace_fields(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        fee=check_optional_unsigned_amount("fee", draft.fee),
        included=check_optional_unsigned_amount("included", draft.included),
        overage_price=check_optional_unsigned_amount("overage_price", draft.overage_price),
        credit_value=credit_value,
        billed_by=_check_provider(draft.billed_by),
        seats=_check_seats(draft.seats, people),
    )


def _check_seats(seats: tuple[SeatHeld, ...], people: People) -> tuple[Seat, ...]:
    """Return seats sorted by user and first day. Raises Invalid if two seats of a user overlap."""
    sorted_seats = sorted(map(_check_seat, seats), key=lambda seat: (seat.user.casefold(), seat.since))
    by_user: dict[str, list[Seat]] = defaultdict(list)
    for seat in sorted(sorted_seats, key=lambda seat: seat.since):
        held = by_user[people.person_identity(seat.user)]
        if held and (not held[-1].until or held[-1].until > seat.since):
            raise Invalid(f"seats: {seat.user} has two seats on {seat.since}")
        held.append(seat)
    return tuple(sorted_seats)


def _check_seat(seat: SeatHeld) -> Seat:
    since = check_day("seats.since", seat.since).isoformat()
    until = check_day("seats.until", seat.until).isoformat() if seat.until else ""
    if until and until <= since:
        raise Invalid("seats.until must be after since; it is the first day without the seat")
    user = check_text("seats.user", seat.user, MAX_USER)
    return Seat(
        user=user, since=since, until=until, team=check_optional_text("seats.team", seat.team, MAX_USER)
    )


def _check_provider(text: str) -> str:
    stated = check_optional_text("billed_by", text, MAX_NAME)
    return providers.canonical_provider_name(stated) if stated else ""


class PlanTable(ManagedTable[AssistantPlan], NamedTable[AssistantPlan]):
    """The stored plans. A method that raises changes nothing."""

    kind = PLANS
    draft = NewPlan
    limit = "plans.max"
    action = "plan"

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        super().__init__(change_writer)
        self.people = change_writer.people
        # plan id -> the plan, and a copy of it in which people's addresses are hashed
        self._as_recorded: dict[str, tuple[AssistantPlan, AssistantPlan]] = {}

    def in_order(self) -> list[AssistantPlan]:
        """Return all plans in order of precedence: if two plans cover a call, the first one applies."""
        return sorted(self.all(), key=lambda plan: (plan.created, plan.id))

    def with_hashed_users(self, plan: AssistantPlan) -> AssistantPlan:
        """
        Return the plan with its people named by the hash of their address, as in records. The order of seats stays.
        """
        cached = self._as_recorded.get(plan.id)
        if cached is None or cached[0] is not plan:
            hashed = self.people.hash_address
            seats = tuple(replace_fields(seat, user=hashed(seat.user)) for seat in plan.seats)
            cached = self._as_recorded[plan.id] = plan, replace_fields(plan, seats=seats)
        return cached[1]

    def check_draft(self, draft: NewPlan) -> NewPlan:
        return check_plan(draft, self.people)

    def check_conflicts(
        self,
        registry_rows: RegistryRows,
        stored: Mapping[str, AssistantPlan],
        row: AssistantPlan,
        can_see_row: Sees[AssistantPlan],
    ) -> None:
        check_name_free(stored.values(), row, noun="plan", can_see_row=can_see_row)
        view = VIEWS.find(registry_rows, row.view_id)
        if view is None:
            raise NotAllowed(NO_VIEW)
        if view.unit_of_work is not None:
            raise NotAllowed(f"view: a plan cannot use this view, because it filters by {view.unit_of_work}")


PlanChanges = changes_struct(NewPlan)
PlanItem = item_struct(
    NewPlan,
    "A stored plan. Times are RFC 3339.",
    answer_only_fields={
        "view_name": Annotated[
            str | None, words("Name of the view; null if the view was deleted."), example("Search")
        ],
        **KEPT,
    },
)
OnePlan = one_item_answer_struct(NewPlan, PlanItem)
