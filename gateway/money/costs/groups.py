"""
Costs by groups of people for `privacy.min_group`. Each finished part of a month is divided into groups
("cut") once, when somebody first requests it, and the result is stored.

A stored cut changes only by an operator's command, because the difference of two cuts of the same calls could be
the figures of one person. So late calls, new prices and new links of names do not appear in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from spool import money
from spool.errors import AlreadyThere, Invalid, NotThere
from spool.ledger.dimensions import SPLIT_BY, TOTAL
from spool.ledger.groups import (
    COUNTS,
    GroupCell,
    finished_month_quarter_ends,
    month_quarter_start,
    split_into_cells_of_people,
    too_few_people_label,
)
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.ledger.sums import OTHER
from spool.people import USER
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.roles import LedgerSlice, Rights, RoleFilter
from spool.turns.question_limit import apply_limit
from spool.viewed_people import collect_viewed_people

USUAL = ("team",)  # dimensions used if a request names none
# maximum age of the calls in the first division of costs into groups of people
FIRST_CUT = timedelta(days=400)
_CUTTER = Actor("tollhouse", "privacy.min_group")


class GroupCostFigures(NamedTuple):
    """
    Summed figures of groups of people. `cost` is in units of money, and `counts` has a number for each of
    COUNTS.
    """

    cost: int = 0
    counts: tuple[int, ...] = (0,) * len(COUNTS)

    def plus(self, cost: int, counts: Sequence[int]) -> GroupCostFigures:
        return GroupCostFigures(self.cost + cost, tuple(map(sum, zip(self.counts, counts, strict=True))))

    @property
    def to_fields(self) -> dict[str, Any]:
        return {"cost": money.units_to_text(self.cost), **dict(zip(COUNTS, self.counts, strict=True))}


class GroupDivision(NamedTuple):
    """A part of a month, divided into cells. A cell is a group of at least `people` people."""

    since: datetime
    until: datetime
    people: int
    cells: Sequence[GroupCell]


class Groups(NamedTuple):
    """The sums with enough people (cells) that a person's roles show, for each part of a month."""

    parts: Sequence[tuple[GroupDivision, Sequence[GroupCell]]]

    def sums_by_dimensions(
        self, dimensions: Sequence[str], chosen: Mapping[str, Collection[str]]
    ) -> Iterator[tuple[GroupDivision, tuple[str | None, ...], GroupCostFigures]]:
        """
        Sum the visible cells (the smallest sums with enough people) by `dimensions`. `chosen` lists the
        wanted values of dimensions. "" is the unknown value.
        """
        places = [SPLIT_BY.index(name) for name in dimensions]
        for cut, visible in self.parts:
            sums: dict[tuple[str | None, ...], GroupCostFigures] = {}
            for cell in visible:
                if _is_chosen(cell, chosen):
                    names = tuple(cell.names[place] for place in places)
                    sums[names] = sums.get(names, GroupCostFigures()).plus(
                        money.text_to_units(cell.cost), cell.counts
                    )
            yield from ((cut, names, figures) for names, figures in sums.items())


def _is_chosen(cell: GroupCell, chosen: Mapping[str, Collection[str]]) -> bool:
    return all(
        (name or "") in chosen.get(dimension, (name or "",))
        for dimension, name in zip(SPLIT_BY, cell.names, strict=True)
    )


def sum_figures(figures: Iterable[GroupCostFigures]) -> GroupCostFigures:
    total = GroupCostFigures()
    for each in figures:
        total = total.plus(*each)
    return total


async def visible_groups(ledger: Ledger, registry: Registry, rights: Rights, now: float) -> Groups:
    """
    Return the costs by groups of people that a person with these rights may see. Divide finished parts of
    months if necessary. Return none unless `privacy.min_group` is set.
    """
    if not registry.people.min_group:
        return Groups(())
    found = await store_finished_divisions(ledger, registry, datetime.fromtimestamp(now, UTC))
    return Groups([(cut, list(visible_cells(cut, rights.visible_slice))) for cut in found])


def least_people_of_group(min_group: int) -> int:
    """
    Return the minimum number of people in a group. It is one more than the setting, because a reader in the
    group can subtract their own figures.
    """
    return min_group + 1


async def store_finished_divisions(
    ledger: Ledger, registry: Registry, now: datetime
) -> Sequence[GroupDivision]:
    """
    Divide the costs of all finished parts of months among groups of people, and store the new divisions.
    Return the divisions with enough people for the present `privacy.min_group`.
    """
    people = least_people_of_group(registry.people.min_group)
    stored = _stored_divisions(registry)
    start = stored[-1].until if stored else month_quarter_start(now - FIRST_CUT)
    number = len(stored)
    for end in finished_month_quarter_ends(start, now):
        found = await _fetch_group_cells(ledger, start, end, people, registry.people.group_order)
        if not found:  # this part has too few people, so the groups of the next part include it
            continue
        body = _division_document(GroupDivision(start, end, people, found))
        try:
            await registry.group_costs.add(f"{number:06}", body, actor=_CUTTER, action="group_costs.cut")
        except AlreadyThere:  # another request or gateway stored this part first, and its division counts
            break
        start, number = end, number + 1
    return [cut for cut in _stored_divisions(registry) if cut.people >= people]


async def divide_part_again(ledger: Ledger, registry: Registry, day: date, actor: Actor) -> GroupDivision:
    """
    Divide the stored part of a month that begins on `day` again. Raises NotThere without such a part, and Invalid
    if it has too few people now.
    """
    parts = {
        division.since.date(): (id, division)
        for id, body in registry.group_costs.all().items()
        if (division := _parse_division(body))
    }
    if day not in parts:
        raise NotThere(
            f"no part of a month with groups begins on {day}; GET /group-costs lists them as `from`"
        )
    id, before = parts[day]
    people = least_people_of_group(registry.people.min_group)
    found = await _fetch_group_cells(ledger, before.since, before.until, people, registry.people.group_order)
    if not found:
        raise Invalid(f"the part from {day} has fewer than {people} people now, so its groups stay")
    divided = GroupDivision(before.since, before.until, people, found)
    await registry.group_costs.replace(
        id, _division_document(divided), actor=actor, action="group_costs.divide"
    )
    return divided


async def _fetch_group_cells(
    ledger: Ledger, since: datetime, until: datetime, min_people: int, dimension_order: Sequence[str]
) -> Sequence[GroupCell]:
    query = CostQuery(
        since=since, until=until, granularity=TOTAL, group_by=(*SPLIT_BY, USER), measures=COUNTS
    )
    # read without a limit and without a note who looked, because these groups are for all readers and nobody
    # sees the rows
    with collect_viewed_people(None), apply_limit(None):
        rows = await ledger.costs(query)
    return await asyncio.to_thread(
        split_into_cells_of_people, rows, min_people, too_few_people_label(min_people - 1), dimension_order
    )


def visible_cells(division: GroupDivision, slice: LedgerSlice) -> Iterator[GroupCell]:
    """Yield the cells whose calls certainly all match the filters of a person's roles."""
    unknowable = (too_few_people_label(division.people - 1), OTHER)

    def is_filter_certainly_met(condition: RoleFilter, cell: GroupCell) -> bool:
        if condition.dimension not in SPLIT_BY:
            return False
        value = cell.names[SPLIT_BY.index(condition.dimension)] or ""
        return value not in unknowable and condition.is_met_by(value)

    for cell in division.cells:
        if any(all(is_filter_certainly_met(condition, cell) for condition in part) for part in slice.parts):
            yield cell


def _stored_divisions(registry: Registry) -> Sequence[GroupDivision]:
    return [_parse_division(body) for _, body in sorted(registry.group_costs.all().items())]


def _division_document(division: GroupDivision) -> Mapping[str, Any]:
    """
    Return a part of a month with its cells (groups of people) in its stored form. An erasure searches their
    `names`, because a team may have a person's name.
    """
    return {
        "since": division.since.isoformat(),
        "until": division.until.isoformat(),
        "people": division.people,
        "cells": [
            {"names": list(cell.names), "cost": cell.cost, "counts": list(cell.counts)}
            for cell in division.cells
        ],
    }


def _parse_division(body: Mapping[str, Any]) -> GroupDivision:
    return GroupDivision(
        since=datetime.fromisoformat(body["since"]).astimezone(UTC),
        until=datetime.fromisoformat(body["until"]).astimezone(UTC),
        people=body["people"],
        cells=[
            GroupCell(names=tuple(each["names"]), cost=each["cost"], counts=tuple(each["counts"]))
            for each in body["cells"]
        ],
    )
