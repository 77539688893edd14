"""Viewings in a registry: one row for each day, deleted after their time, on each engine."""

from __future__ import annotations

from dataclasses import replace

from spool.listing import ListQuery, SortField
from spool.registry.registry import Registry
from spool.registry.viewings import Viewing
from spool.statements import DAY_S, day_text
from spool.viewed_people import SEVERAL
from tests.spool.contract.conftest import RegistryOpener

AT = 1_790_000_000.0
ROW = Viewing(
    day=day_text(int(AT)), viewer="max@example.com", person="ada", face="api", page="/report", reason="why"
)
ALL = ListQuery(sort=SortField("id"), order="asc", identity="id", limit=100)


async def rows(registry: Registry) -> list[Viewing]:
    return [replace(row, id=0) for row in (await registry.viewings.page(ALL)).rows]


async def test_the_same_row_is_written_once(open_registry: RegistryOpener) -> None:
    """
    The row of a viewer, person and day is written once, also after a restart, and without a transaction while it is
    remembered.
    """
    registry = await open_registry()
    other = replace(ROW, person="bob")
    await registry.viewings.add([ROW], AT)
    version = registry.version
    await registry.viewings.add([ROW], AT)
    assert version == registry.version
    await registry.viewings.add([ROW, other], AT)
    await registry.close()
    registry = await open_registry()
    await registry.viewings.add([ROW, other], AT)
    assert [ROW, other] == await rows(registry)
    assert [other] == [replace(row, id=0) for row in await registry.viewings.viewings_naming(["bob"])]


async def test_old_rows_are_deleted(registry: Registry) -> None:
    registry.viewings.set_limits(kept_s=2 * DAY_S, max_people_per_day=10)
    days = [replace(ROW, day=day_text(int(AT + number * DAY_S))) for number in range(4)]
    for number, row in enumerate(days):
        await registry.viewings.add([row], AT + number * DAY_S)
    assert days[1:] == await rows(registry)


async def test_people_beyond_the_limit_share_a_row(registry: Registry) -> None:
    registry.viewings.set_limits(kept_s=DAY_S, max_people_per_day=2)
    people = [replace(ROW, person=name) for name in "abcd"]
    await registry.viewings.add(people[:3], AT)
    await registry.viewings.add([people[3], people[0]], AT)
    assert {"a", "b", SEVERAL} == {row.person for row in await rows(registry)}
    assert 3 == len(await rows(registry))
