"""Questions to the ledger as tools ask them: a span, filters whose values exist, and a view."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import msgspec

from gateway.api.costs import Wanted
from gateway.api.views import usable_view
from gateway.mcp.periods import Days, RangeWord, bounds
from gateway.mcp.tool import Asking
from gateway.mcp.writing import clean, suggestion
from spool.errors import Invalid
from spool.ledger.queries import TOTAL, CostQuery, within

Filters = Annotated[
    dict[str, list[str | None]],
    msgspec.Meta(
        description='Values by dimension, such as {"team": ["search"], "!model": ["gpt-4o"]}; ! before a name '
        "excludes, null is the unknown value"
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """
    `notes` say what the reader of the answer has to know. `include` and `exclude` are what was asked beside the view,
    `view` is its id, empty if there is none.
    """

    query: CostQuery
    notes: tuple[str, ...] = ()
    include: Wanted = field(default_factory=dict)
    exclude: Wanted = field(default_factory=dict)
    view: str = ""


async def question(
    asking: Asking,
    date_range: RangeWord | Days,
    *,
    filters: Mapping[str, Sequence[str | None]],
    view: str | None = None,
    group_by: Sequence[str] = (),
    granularity: str = TOTAL,
) -> Question:
    """Invalid, or a Refusal, for a dimension, a value or a view that does not exist: it names the nearest."""
    services = asking.services
    since, until = bounds(date_range, services.clock.now())
    known = services.ledger.dimensions()
    for name in (*group_by, *(each.removeprefix("!") for each in filters)):
        if name not in known:
            raise Invalid(f"there is no dimension {clean(name)}{suggestion(name, known)}: {', '.join(known)}")
    everything = CostQuery(since=since, until=until, granularity=TOTAL, measures=("calls",))
    include: Wanted = {}
    exclude: Wanted = {}
    notes: list[str] = []
    for name, values in filters.items():
        dimension = name.removeprefix("!")
        found, told = await _values(asking, replace(everything, group_by=[dimension]), values)
        (exclude if name != dimension else include)[dimension] = found
        notes += told
    query = replace(
        everything, granularity=granularity, group_by=tuple(group_by), include=include, exclude=exclude, measures=()
    )
    found_view = None if view is None else usable_view(services, view)
    if found_view is not None:
        query = within(query, include=found_view.include, exclude=found_view.exclude)
    return Question(
        query=query,
        notes=tuple(notes),
        include=include,
        exclude=exclude,
        view="" if found_view is None else found_view.id,
    )


async def _values(
    asking: Asking, query: CostQuery, asked: Sequence[str | None]
) -> tuple[tuple[str, ...], Sequence[str]]:
    """The values of a dimension as the ledger has them, and notes. Invalid for one that it never saw."""
    ledger, (dimension,) = asking.services.ledger, query.group_by
    here = {row.group[0] for row in await ledger.costs(query)}
    by_name: dict[str, list[str]] = {}
    for value in here:
        by_name.setdefault(clean(value or ""), []).append(value or "")
    ever = await ledger.values(dimension)
    found: list[str] = []
    notes = []
    for each in asked:
        value = each or ""
        if value in here or not value:
            found.append(value)
        elif value in by_name:
            found += by_name[value]
        elif value in ever:
            found.append(value)
            notes.append(f"no call of this time has the {dimension} {clean(value)}")
        else:
            nearest = await asyncio.to_thread(suggestion, value, [*by_name, *ever])
            raise Invalid(f"there is no {dimension} {clean(value)}{nearest}")
    return tuple(dict.fromkeys(found)), notes
