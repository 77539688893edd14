"""Makes a list of a vendor the seats of a plan, when it is pulled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from gateway.plans.seat_lists import SeatChanges, chosen, merged, of_pages, read_bounded, read_names
from spool.errors import Invalid
from spool.people import People
from spool.registry.operators import Actor
from spool.registry.tables.plans import AssistantPlan, PlanTable

PULLER: Final = Actor("seat pull", "")


class SeatPull(Protocol):
    """The part of the settings of a pull that is asked for."""

    @property
    def name(self) -> str: ...

    @property
    def plan(self) -> str: ...

    @property
    def tier(self) -> str: ...

    @property
    def names_file(self) -> Path | None: ...


async def keep_seats(plans: PlanTable, pull: SeatPull, pages: Sequence[Any], *, now: float) -> str:
    """
    Change the seats of a plan to those of a list. Returns what it changed, for people. Invalid or
    NotThere if the list or the plan cannot be used, which changes nothing.
    """
    plan = plans.find_any(pull.plan)
    changes = await asyncio.to_thread(_read, pull, plan, pages, now, plans.people)
    if _in_order(changes.seats) == _in_order(plan.seats):
        return ""
    await plans.change(plan.id, {"seats": changes.seats}, version=plan.version, actor=PULLER)
    told = f"{len(changes.added)} seats are new, {len(changes.ended)} have ended"
    return f"{told}; {changes.repeats}" if changes.repeats else told


def _read(
    pull: SeatPull, plan: AssistantPlan, pages: Sequence[Any], now: float, people: People
) -> SeatChanges:
    today = datetime.fromtimestamp(now, UTC).date().isoformat()
    listed = of_pages(f"pull {pull.name}", pages)
    names = None
    if pull.names_file is not None:
        try:
            with pull.names_file.open("rb") as file:
                content = read_bounded(file, f"names_file {pull.names_file}")
        except OSError as error:
            raise Invalid(f"names_file {pull.names_file}: {error.strerror}") from error
        names = read_names(str(pull.names_file), content)
    seats = chosen(listed, tier=pull.tier, names=names)
    people.check(each.user for each in seats)
    return merged(plan.seats, seats, today, people.identity)


def _in_order(seats: Sequence[Any]) -> list[Any]:
    return sorted(seats, key=lambda seat: (seat.user.casefold(), seat.since))
