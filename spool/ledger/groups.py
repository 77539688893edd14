"""
Costs of groups of a minimum number of people, for readers who may not see individual people
(`privacy.min_group`).

A finished part of a month is divided once into cells with enough people each. Every result is a sum of whole
cells. So no filter, group, time range or difference of results shows the figures of fewer people. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from spool import money
from spool.ledger.dimensions import SPLIT_BY
from spool.ledger.queries import CostRow

FIRST_DAYS = (1, 8, 15, 22)  # days on which the parts of a month begin, in UTC
COUNTS = ("calls", "input_tokens", "output_tokens")
GRACE = timedelta(days=2)  # time for late reports; calls that arrive later are in no cell


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCell:
    """
    The figures of a cell with enough people. `names`: the cell's value of each dimension in SPLIT_BY; None if
    unknown, `too_few_people_label` if values were joined.
    """

    names: tuple[str | None, ...]
    cost: str
    counts: tuple[int, ...]  # in the order of COUNTS


def too_few_people_label(people: int) -> str:
    """Return the name for joined values that have too few people each."""
    return f"(fewer than {people} people)"


def month_quarter_start(moment: datetime) -> datetime:
    day = max(day for day in FIRST_DAYS if day <= moment.day)
    return datetime(moment.year, moment.month, day, tzinfo=UTC)


def finished_month_quarter_ends(start: datetime, now: datetime) -> Iterator[datetime]:
    """
    Yield the ends of parts of months (each begins at a day in FIRST_DAYS) that ended at least GRACE ago.
    """
    end = _next_month_quarter_start(start)
    while end + GRACE <= now:
        yield end
        end = _next_month_quarter_start(end)


def _next_month_quarter_start(start: datetime) -> datetime:
    later = [day for day in FIRST_DAYS if day > start.day]
    if later:
        return start.replace(day=later[0])
    return (start.replace(day=1) + timedelta(days=32)).replace(day=1)


def split_into_cells_of_people(
    rows: Sequence[CostRow], min_people: int, joined_label: str, split_first_by: Sequence[str] = ()
) -> Sequence[GroupCell]:
    """
    Divide rows into cells of at least `min_people` people, or none if all rows together have fewer. They are
    split by the dimensions `split_first_by`, then by the others of SPLIT_BY. An unknown user counts as one person, and
    so does a joint sum of several users.
    """
    if len(_distinct_people(rows)) < min_people:
        return ()
    dimension_indexes = [SPLIT_BY.index(name) for name in dict.fromkeys((*split_first_by, *SPLIT_BY))]
    return tuple(
        _group_cell_of_rows(names, part)
        for names, part in _split_rows_into_cells_of_people(rows, min_people, joined_label, dimension_indexes)
    )


def _split_rows_into_cells_of_people(
    rows: Sequence[CostRow], min_people: int, joined_label: str, dimension_indexes: Sequence[int]
) -> Iterator[tuple[dict[int, str | None], Sequence[CostRow]]]:
    if not dimension_indexes:
        yield {}, rows
        return
    place, *others = dimension_indexes
    values: dict[str | None, list[CostRow]] = {}
    for row in rows:
        values.setdefault(row.group[place], []).append(row)
    for name, part in _join_small_values(values, min_people, joined_label).items():
        for names, cell_rows in _split_rows_into_cells_of_people(part, min_people, joined_label, others):
            yield {place: name, **names}, cell_rows


def _join_small_values(
    values: Mapping[str | None, list[CostRow]], people: int, label: str
) -> Mapping[str | None, list[CostRow]]:
    """
    Join the rows of values with too few people under `label`. If these are still too few, also join the
    smallest other value.
    """
    people_of = {name: _distinct_people(rows) for name, rows in values.items()}
    joined: list[CostRow] = []
    joined_people: set[str | None] = set()
    apart: dict[str | None, list[CostRow]] = {}
    for name in sorted(values, key=lambda name: (len(people_of[name]), name or "")):
        if len(people_of[name]) < people or 0 < len(joined_people) < people:
            joined += values[name]
            joined_people |= people_of[name]
        else:
            apart[name] = values[name]
    return {label: joined, **apart} if joined else apart


def _distinct_people(rows: Sequence[CostRow]) -> set[str | None]:
    return {row.group[-1] for row in rows}


def _group_cell_of_rows(
    value_by_dimension_index: Mapping[int, str | None], rows: Sequence[CostRow]
) -> GroupCell:
    cost = sum(money.text_to_units(row.cost) for row in rows)
    counts = tuple(sum(getattr(row, name) for row in rows) for name in COUNTS)
    return GroupCell(
        names=tuple(value_by_dimension_index[place] for place in sorted(value_by_dimension_index)),
        cost=money.units_to_text(cost),
        counts=counts,
    )
