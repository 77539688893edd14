"""If a bill is missing, a query of billed costs may use counted costs, marked by their basis."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from gateway.bills.billed.details import LedgerWithUnbilledDaysFilled
from spool.ledger.billed import COUNTED
from spool.ledger.queries import CostQuery
from spool.ledger.slices import SlicedLedger
from spool.ledger.sums import OTHER
from spool.money import text_to_units
from spool.record import NS
from spool.registry.roles import LedgerSlice, RoleFilter
from tests.gateway.bills.billed.test_biller import DAY, FIRST, World, line
from tests.spool.ledger_log import HOUR, call

Paid = dict[tuple[str | None, ...], Decimal]


async def billed_world() -> World:
    """Create two days with a bill and a third without. On the second day, another seller has no bill."""
    world = await World().open()
    for day in range(3):
        world.use("search", 60 + day, day=day)
    at = FIRST + DAY + HOUR
    reported_call = call(
        team="ads", provider="anthropic", cost="0.25", cost_source="reported", start_time=at * NS
    )
    world.log.add([reported_call], at=at)
    world.told.kept += [line("input", "1"), line("input", "2", day=1)]
    assert 2 == await world.biller.recalculate_changed_months()
    return world


async def filled(world: World, query: CostQuery) -> tuple[Paid, str]:
    asks = LedgerWithUnbilledDaysFilled(world.ledger, world.ledger)
    rows = await asks.costs(query)
    return {row.group: Decimal(row.cost) for row in rows}, asks.counted


async def test_days_and_sellers_without_a_bill_have_what_was_counted() -> None:
    """
    Days and sellers without a bill have their counted costs. The amounts are exact in every grouping, and
    everything else is as billed.
    """
    world = await billed_world()
    query = world.asked("billed_cost", "team", "basis")
    counted = await world.paid("real_cost", "team")
    paid_costs, added = await filled(world, query)
    [third] = [
        Decimal(row.cost)
        for row in await world.ledger.costs(
            replace(world.asked("real_cost"), since=datetime.fromtimestamp(FIRST + 2 * DAY, UTC))
        )
    ]
    assert {
        ("search", "value"): Decimal(3), ("search", COUNTED): third, ("ads", COUNTED): Decimal("0.25")
    } == paid_costs  # fmt: skip
    assert Decimal("0.25") == counted["ads",]
    assert third + Decimal("0.25") == Decimal(added)
    for dimension in (*world.ledger.dimensions(), "charge"):
        sums, _ = await filled(world, world.asked("discounted_cost", dimension))
        assert Decimal(3) + Decimal(added) == sum(sums.values()), dimension


async def test_filters_periods_and_the_largest_groups_hold_for_both() -> None:
    """
    `basis=counted` returns only the added counted costs. Billed and counted costs share the periods and the
    merged group of small values.
    """
    world = await billed_world()
    query = world.asked("billed_cost", "team")
    asks = LedgerWithUnbilledDaysFilled(world.ledger, world.ledger)
    only = replace(query, include={"basis": (COUNTED,)})
    assert asks.counted == "0"
    assert sum(text_to_units(row.cost) for row in await asks.costs(only)) == text_to_units(asks.counted)
    daily = await asks.costs(replace(query, granularity="daily"))
    starts = [int(row.start.timestamp() - FIRST) // DAY for row in daily]
    assert [(0, "search"), (1, "ads"), (1, "search"), (2, "search")] == [
        (day, row.group[0]) for day, row in zip(starts, daily, strict=True)
    ]
    assert {("search",), (OTHER,)} == {row.group for row in await asks.costs(replace(query, top=1))}
    hours = replace(query, since=datetime.fromtimestamp(FIRST + 2 * DAY + HOUR, UTC), granularity="hourly")
    assert ["search"] == [row.group[0] for row in await asks.costs(hours)]


async def test_who_sees_some_calls_has_what_was_counted_of_them() -> None:
    """
    For a person with restricted access, only the counted costs of visible calls are added. In invoiced costs,
    days that are not final have counted costs instead.
    """
    world = await billed_world()
    ads_slice = LedgerSlice(parts=((RoleFilter(dimension="team", values=("ads",)),),))
    asks = LedgerWithUnbilledDaysFilled(SlicedLedger(world.ledger, ads_slice), world.ledger)
    rows = await asks.costs(world.asked("billed_cost", "team", "basis"))
    assert [("ads", COUNTED)] == [row.group for row in rows]
    world.told.settled = False
    world.told.read_at = 2.0
    await world.biller.recalculate_changed_months()
    of_final, _ = await filled(world, world.asked("invoiced_amortized_cost", "basis"))
    assert {(COUNTED,)} == set(of_final)
