"""Queries for costs, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Protocol

import msgspec

from spool.ledger import work
from spool.ledger.dimensions import (
    BILLED_DIMENSIONS,
    DIMENSIONS,
    TAG,
    DerivedDimension,
    DerivedDimensions,
    Group,
    WantedValues,
)
from spool.ledger.sums import COUNTS, LATENCY, MONEY, OTHER
from spool.record import CURRENCY

SLICE = "(slice)"  # the calls that a person may see; no list of dimensions has it


@dataclass(frozen=True, kw_only=True)
class CostQuery:
    """
    A query for costs in [since, until), by periods of the time zone `zone`.

    In the filters `include` and `exclude`, "" means unknown. `since` may lie inside a period. No period may
    split an hour or day stored as one sum (see `costs`).

    `measures`: the fields of CostRow to compute, all if empty. Money and calls are always computed; other
    fields may be 0, which saves work.

    `derived`: further dimensions by name. `only`: return only these groups. `kept`: return these groups, and
    all others as one with the value OTHER. `top`: return this number of groups with the largest `top_by` over
    all periods, and the group of unknown values.
    """

    since: datetime
    until: datetime
    granularity: str = "daily"
    group_by: Sequence[str] = ()
    include: WantedValues = field(default_factory=dict)
    exclude: WantedValues = field(default_factory=dict)
    zone: tzinfo = UTC
    measures: Sequence[str] = ()
    # the meter whose quantity CostRow.metered returns; EVERY_METER fills CostRow.meters instead
    meter: str = ""
    currency: str = CURRENCY  # each day is converted at its own rate
    derived: DerivedDimensions = field(default_factory=dict)
    only: frozenset[Group] | None = None
    kept: frozenset[Group] | None = None
    top: int | None = None
    top_by: str = "cost"  # field of CostRow that orders groups
    # type of billed costs, a value of BILLED_TYPES; 0 for counted costs
    arranged: int = 0
    # whether costs of a run or session, which then overlap, include those of the runs that it started
    aggregated: bool = False
    # build trees of runs only from calls with a value of this dimension, around the query's time
    trees_of: DerivedDimension | None = None
    # Group users by their names in records, and not by linked person. Data that leaves the installation must
    # not change with a link.
    stated_names: bool = False

    def shown_group(self, group: Group) -> Group:
        return group if self.kept is None or group in self.kept else (OTHER,) * len(group)

    @cached_property
    def used_dimensions(self) -> Sequence[str]:
        return tuple(dict.fromkeys((*self.group_by, *self.include, *self.exclude)))

    @cached_property
    def unit_of_work(self) -> str | None:
        """Return the unit of work that the query groups or filters by, or None (see `spool.ledger.work`)."""
        return work.queried_unit(self.group_by, self.used_dimensions)

    @cached_property
    def work_unit_group_index(self) -> int | None:
        return next((place for place, name in enumerate(self.group_by) if name in work.UNITS), None)

    @cached_property
    def has_unit_filters(self) -> bool:
        is_filtered = any(values for name, values in self.exclude.items() if name in work.UNITS)
        return is_filtered or not self.include.keys().isdisjoint(work.UNITS)

    @property
    def has_slice_filter(self) -> bool:
        return SLICE in self.include

    def without_units(self) -> CostQuery:
        return replace(
            self,
            aggregated=False,
            group_by=[name for name in self.group_by if name not in work.UNITS],
            include={name: values for name, values in self.include.items() if name not in work.UNITS},
            exclude={name: values for name, values in self.exclude.items() if name not in work.UNITS},
            only=self.only if self.work_unit_group_index is None else None,
        )


EVERY_METER = "*"


class LedgerDefinitions(Protocol):
    """What a ledger defines, without its sums: dimensions, and the digests of sessions and runs."""

    digests: work.WorkUnitHasher

    def derived_dimensions(self) -> Sequence[DerivedDimension]: ...

    def builtin_and_tag_dimensions(self) -> Sequence[str]: ...

    def dimensions(self) -> Sequence[str]: ...


class CostsLedger(Protocol):
    """A source of cost results: the whole ledger, or the slice that a person may see."""

    async def costs(self, query: CostQuery) -> Sequence[CostRow]: ...


class CostRow(msgspec.Struct, frozen=True, kw_only=True):
    """
    The costs of one period and group. Money is decimal text.

    `cost`: for each call the reported cost, or else the estimate. `reported` and `estimated`: sums over the
    same calls. `saved`: the estimate of calls that a gateway's cache answered.
    """

    start: datetime
    group: tuple[str | None, ...]
    cost: str
    reported: str
    estimated: str
    saved: str
    calls: int
    errors: int
    cached: int
    # the counts of each kind of call (spool.cost_kinds), which add up to `calls`
    priced: int
    free: int
    unpriced: int
    without_usage: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    # the part of cache_write_tokens cached for an hour, if reported
    cache_write_1h_tokens: int
    # tokens of calls that a gateway's cache answered, included above but billed by no provider
    cached_input_tokens: int
    cached_output_tokens: int
    latency_ms: int
    # calls per bucket of LATENCY_EDGES_MS, slowest last
    latency: tuple[int, ...]
    # quantity of the queried meter, in millionths, without calls from a gateway's cache
    metered: int = 0
    # Decimal amounts by currency, without dollars: all charged ones, and those that could not be converted
    # and are not in `cost` and `reported`.
    charges: Mapping[str, str] = msgspec.field(default_factory=dict)
    # quantities in millionths, only with EVERY_METER
    meters: Mapping[str, int] = msgspec.field(default_factory=dict)
    converted: str = "0"  # part of `cost` from other currencies
    unconverted: Mapping[str, str] = msgspec.field(default_factory=dict)


def narrow_query(query: CostQuery, *, include: WantedValues, exclude: WantedValues) -> CostQuery:
    """
    Return the query with further filters. If both queries include values of a dimension, only common values
    pass.
    """
    combined = {name: tuple(values) for name, values in query.include.items()}
    for name, values in include.items():
        combined[name] = tuple(value for value in combined.get(name, values) if value in values)
    none = {name: tuple(values) for name, values in query.exclude.items()}
    for name, values in exclude.items():
        none[name] = tuple(dict.fromkeys((*none.get(name, ()), *values)))
    return replace(query, include=combined, exclude=none)


def next_full_hour(now: float) -> datetime:
    """
    Return the end of the running hour. A query until now includes the whole hour, because sums of an hour are
    not split.
    """
    return datetime.fromtimestamp(now, UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


def needed_sums(measures: Sequence[str]) -> frozenset[str]:
    """Return the stored sums (COUNTS, MONEY, LATENCY) that are needed for these measures."""
    if not measures:
        return frozenset((*COUNTS, *MONEY, *LATENCY))
    needed = {COUNTS[0], *MONEY, *(name.removeprefix("cached_") for name in measures)}
    if not needed.isdisjoint(("latency", LATENCY[0])):
        needed.update(LATENCY)
    return frozenset(needed)


def check_dimension(name: str) -> None:
    known = (*DIMENSIONS, *BILLED_DIMENSIONS, *work.UNITS)
    is_tag = name.startswith(TAG) and name != TAG
    if name not in known and not is_tag:
        raise ValueError(f"{name} is not a dimension")


# -- limits per query
# -----------------------------------------------------------------------------------------
