"""
Search for seats without a call since the start of the newest finished billing cycle, with their fees in dollars.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gateway.bills.months import CalendarMonth
from gateway.bills.plans.costs import IdleSeatItem, PlanCosts, PlanQuestion, SeatCosts, read_plan_costs
from gateway.bills.plans.declared import AssistantPlan, PlanTable
from gateway.bills.plans.sums import billing_cycles
from gateway.money.recommendations.facts import UnusedSeat
from spool import money
from spool.ledger.ledger import Ledger
from spool.ledger.slices import SlicedLedger
from spool.people import People
from spool.record import CURRENCY
from spool.registry.registry import Registry
from spool.registry.roles import LedgerSlice
from spool.statements import day_text, parse_day

_EVERY_CALL = LedgerSlice(parts=((),))
_Key = tuple[str, str]  # key of a seat: name of the plan, and name of the user


async def unused_seats(ledger: Ledger, registry: Registry, now: float) -> tuple[Sequence[UnusedSeat], int]:
    """
    Return the current seats without a call since the start of the newest finished cycle, and the cost of all
    seats in the last month.
    """
    month = CalendarMonth.at(now)
    last = await _read_plan_costs(ledger, registry, month.previous, now)
    running = await _read_plan_costs(ledger, registry, month, now)
    held = _seats_assigned_today(running, day_text(int(now)))
    newest = {
        plan.name: day_text(_newest_cycle_start(plan, month, now))
        for plan in registry.declared_table(PlanTable).all()
    }
    busy_now = _seats_with_calls(running)
    unused = []
    for costs, busy in ((last, busy_now | _seats_with_calls(last)), (running, busy_now)):
        for idle_seat in costs.idle_seats:
            key = (idle_seat.plan, idle_seat.user.casefold())
            is_newest = idle_seat.first_day == newest.get(idle_seat.plan)
            if is_newest and key in held and key not in busy:
                unused.append(_unused_seat(idle_seat, registry.people))
    cost = money.text_to_units(last.total.fees) + money.text_to_units(last.total.overage)
    return unused, cost


def _newest_cycle_start(plan: AssistantPlan, month: CalendarMonth, now: float) -> int:
    """
    Return the first day of the newest finished cycle. The cycle ended in this month or in the previous month.
    """
    ended_cycles = [
        cycle for cycle in billing_cycles(plan.cycle_day, month.previous.start, month.end) if cycle.end <= now
    ]
    return ended_cycles[-1].start


async def _read_plan_costs(ledger: Ledger, registry: Registry, month: CalendarMonth, now: float) -> PlanCosts:
    asking = PlanQuestion(
        ledger=SlicedLedger(ledger, _EVERY_CALL),
        whole=ledger,
        registry=registry,
        month=month,
        currency=CURRENCY,
        now=now,
        limit=sys.maxsize,
    )
    return await read_plan_costs(asking)


def _seats_assigned_today(costs: PlanCosts, today: str) -> set[_Key]:
    rows = (row for row in costs.rows if row.since <= today)
    return {_seat_key(row) for row in rows if row.until is None or today < row.until}


def _seats_with_calls(costs: PlanCosts) -> set[_Key]:
    return {_seat_key(row) for row in costs.rows if row.calls or row.unpriced_calls}


def _seat_key(row: SeatCosts) -> _Key:
    return row.plan, row.user.casefold()


def _unused_seat(seat: IdleSeatItem, people: People) -> UnusedSeat:
    return UnusedSeat(
        plan=seat.plan,
        user=seat.user,
        person=people.hash_address(seat.user),
        team=seat.team or "",
        fee=money.text_to_units(seat.fee),
        first_day=parse_day(seat.first_day),
        last_day=parse_day(seat.last_day),
    )
