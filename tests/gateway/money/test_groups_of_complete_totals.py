"""Groups of people are stored only from complete totals, and an operator's command divides one part again."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from gateway.money.costs.groups import divide_part_again, store_finished_divisions
from spool.errors import Invalid, NotThere, TotalsIncomplete
from tests.gateway.money.budgets.house import ADA, House
from tests.spool.kept import audit_rows
from tests.spool.ledger.rebuilding import rebuild_without_end

NOW = datetime(2026, 9, 20, tzinfo=UTC)
DAY = date(2026, 9, 1)


async def house_with_calls() -> House:
    house = await House(at=datetime(2026, 9, 3, tzinfo=UTC).timestamp()).start()
    house.registry.set_min_group_size(2)
    for number in range(12):
        house.spend("0.5", user=f"person-{number % 6}", team="ads" if number % 2 else "search")
    await house.ledger.catch_up(house.log)
    return house


def cost_of_groups(house: House) -> Decimal:
    [body] = house.registry.group_costs.all().values()
    return sum((Decimal(cell["cost"]) for cell in body["cells"]), Decimal(0))


async def test_no_group_is_stored_during_a_rebuild() -> None:
    house = await house_with_calls()
    async with rebuild_without_end(house.ledger):
        with pytest.raises(TotalsIncomplete):
            await store_finished_divisions(house.ledger, house.registry, NOW)
    assert {} == house.registry.group_costs.all()
    await store_finished_divisions(house.ledger, house.registry, NOW)
    assert Decimal(6) == cost_of_groups(house)


async def test_one_part_is_divided_again_with_an_audit_row() -> None:
    """The part gets the groups of the present totals. A part without enough people keeps its groups."""
    house = await house_with_calls()
    await store_finished_divisions(house.ledger, house.registry, NOW)
    house.spend("4", user="person-1", team="ads")
    await house.ledger.catch_up(house.log)
    await store_finished_divisions(house.ledger, house.registry, NOW)
    assert Decimal(6) == cost_of_groups(house)
    with pytest.raises(NotThere, match="2026-09-08"):
        await divide_part_again(house.ledger, house.registry, date(2026, 9, 8), ADA)
    [id] = house.registry.group_costs.all()
    [part] = await store_finished_divisions(house.ledger, house.registry, NOW)
    async with rebuild_without_end(house.ledger):
        with pytest.raises(TotalsIncomplete):
            await divide_part_again(house.ledger, house.registry, part.since.date(), ADA)
    await divide_part_again(house.ledger, house.registry, part.since.date(), ADA)
    assert Decimal(10) == cost_of_groups(house)
    [row] = [row for row in await audit_rows(house.registry) if row.action == "group_costs.divide"]
    assert (ADA.name, id) == (row.actor, row.target)
    house.registry.set_min_group_size(100)
    with pytest.raises(Invalid, match="fewer than 101 people"):
        await divide_part_again(house.ledger, house.registry, part.since.date(), ADA)
    assert Decimal(10) == cost_of_groups(house)
