"""Queries for costs, and their results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from spool.errors import AskedTooMuch
from spool.ledger import work
from spool.ledger.sums import COUNTS, LATENCY, MONEY, OTHER
from spool.record import CURRENCY

# -- computed dimensions
# --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedDimension:
    """
    A dimension computed from others. "" means unknown, in the sources and in the result.

    `value` gets the values of `sources` in order. It must be pure, callable from any thread, and must not
    raise.

    A source has the value `OTHER` if a sum does not keep its values apart. A dimension of Tollhouse then
    returns `OTHER` if its value depends on that source. Dimensions defined by the organization treat `OTHER`
    like any value.
    """

    name: str
    label: str  # display name
    sources: tuple[str, ...]
    value: Callable[[tuple[str, ...]], str]


DerivedDimensions: TypeAlias = Mapping[str, DerivedDimension]  # dimensions by name

# -- queries -------------------------------------------------------------------------------------------------


# The dimensions to group and filter by, with their meanings.
DIMENSIONS: Mapping[str, str] = {
    "model": "the model that answered",
    "request_model": "the model that the caller requested",
    "provider": "the provider that runs the model",
    "team": "the team that a call is attributed to",
    "user": "the person or service that made the call",
    "device": "the device that reported the call",
    "source": "the product or gateway that reported the call",
    "api_key": "the key or alias that the AI gateway reported for the call",
    "status": "ok, error, or cached (answered by a gateway cache at no cost)",
    "cost_source": (
        "reported (by the source), estimated (from list prices), none (usage without a known price), free (cached, or "
        "failed without usage), or without_usage (no usage was reported)"
    ),
    "region": "the region that processed the call, in the provider's notation, if the source reports it",
    "sender": (
        "the name of the Tollhouse key that sent the record, unknown for calls from before key names "
        "were stored"
    ),
}
MODEL_FAMILY = "model_family"
PROVIDER_FAMILY = "provider_family"


class BuiltIn(NamedTuple):
    """A derived dimension that every installation has."""

    meaning: str
    label: str
    sources: tuple[str, ...]
    # column title in tables of commands, unless the dimension with this name is in the table as well
    title: str


# gateway/intake/rate_cards/names.py computes these dimensions. Restricted people may group by each of them,
# so a value must not reveal more than its sources. Of the dimensions that an organization defines, restricted
# people may use only those of their role or view (CostReader.derived).
BUILT_IN_DIMENSIONS: Mapping[str, BuiltIn] = {
    MODEL_FAMILY: BuiltIn(
        "the model without region prefix, seller prefix and date",
        label="Model, all variants",
        sources=("model",),
        title="model",
    ),
    PROVIDER_FAMILY: BuiltIn(
        "the provider that runs the model, with one name for all variants and services, such as Google",
        label="Provider, all variants",
        sources=("provider",),
        title="provider",
    ),
}
# Dimensions that decide prices, besides provider and models. No public query uses them.
PRICED_BY = ("mode", "size")
BILLED = "billed"  # kind of the dimensions of billed amounts without a call
OF_BILLS: Mapping[str, str] = {
    "charge": "the purpose of the billed amount: usage, discount, tax, credit, commitment, ...",
    "basis": "how the amount was assigned to calls: exact, value, pooled, shared, or unallocated",
    "corrects": "the day of a closed month that the entry corrects",
}
ROW_DIMENSIONS: Mapping[str, str] = {
    "origin": (
        "the origin of the amount: calls, billing (rows of a billing connection), or containers (usage "
        "of a cluster at its price)"
    ),
    "connection": "the billing connection that supplied the row",
    "service": "the service that the row charges",
    "account": "the account of the row",
    "resource": "the resource of the row",
    "usage_family": "the usage family of the row",
    "line_item": "the kind of the row: Usage, Tax, Support, Purchase, CommittedUsePurchase, Discount",
    "cluster": "the Kubernetes cluster of the row",
    "namespace": "the Kubernetes namespace of the row",
    "workload": "the Kubernetes deployment of the row",
}
ORIGINS = ("calls", "billing", "containers")
ROW_TAG = "row:"
BILLED_DIMENSIONS = {**OF_BILLS, **ROW_DIMENSIONS}
CHARGE, PLAN = PAID_DIMENSIONS = ("charge", "plan")
SEAT_FEE, OVERAGE = "seat_fee", "overage"  # values of CHARGE, besides usage
TAG = "tag:"
GRANULARITIES = ("hourly", "daily", "weekly", "monthly", "quarterly", "yearly")
TOTAL = "total"  # the whole time range as one period


class CostType(NamedTuple):
    """
    A type of cost: which amounts a query adds up. `meaning`: explanation for AI assistants, which need it to
    choose a type.

    Counted costs state a `field` of CostRow, and billed costs a bit of `CostQuery.arranged`. The remaining
    types have neither, because they are computed from plans.
    """

    meaning: str = ""
    field: str = ""
    arranged: int = 0


_COST_TYPES = {
    "real_cost": CostType(
        "the cost that counts: reported if the source states it, else estimated at list prices", field="cost"
    ),
    "reported_cost": CostType("the cost that sources report", field="reported"),
    "estimated_cost": CostType(
        "the estimate at list prices, for every call whose model has a price", field="estimated"
    ),
    "on_demand_cost": CostType(field="estimated"),
    "metered_cost": CostType("the cost that counts, without calls that the seats of a plan cover"),
    "covered_cost": CostType("the cost that counts, only of calls that the seats of a plan cover"),
    "paid_cost": CostType(
        "metered_cost with the fees and extra usage of seats and the amounts of contracts, by day"
    ),
    "billed_cost": CostType(
        "the amounts that providers billed, spread over the calls; discounts and taxes are separate rows",
        arranged=1,
    ),
    "discounted_cost": CostType(
        "billed_cost with discounts and taxes assigned to the usage that they apply to", arranged=2
    ),
    "amortized_cost": CostType(
        "billed_cost with commitment fees assigned to the usage that they cover instead of the day "
        "of purchase",
        arranged=4,
    ),
    "discounted_amortized_cost": CostType(
        "discounted_cost with commitment fees assigned to the usage that they cover", arranged=8
    ),
    "invoiced_amortized_cost": CostType(
        "discounted_amortized_cost, only of days whose bill the provider no longer changes", arranged=16
    ),
    "saved_cost": CostType("the estimated cost of the calls that a gateway cache answered", field="saved"),
}
COST_TYPES: Mapping[str, str] = {name: kind.field for name, kind in _COST_TYPES.items() if kind.field}
BILLED_TYPES: Mapping[str, int] = {name: kind.arranged for name, kind in _COST_TYPES.items() if kind.arranged}
METERED_COST, COVERED_COST, PAID_COST = PLAN_TYPES = tuple(
    name for name in _COST_TYPES if name not in COST_TYPES and name not in BILLED_TYPES
)
EXPLAINED_TYPES = {name: kind.meaning for name, kind in _COST_TYPES.items() if kind.meaning}
MISSING_IS_OF_BILLS = f"missing applies only to billed costs: add cost_type={', '.join(BILLED_TYPES)}"

Group = tuple[str | None, ...]  # values of `group_by` in order, None for unknown
WantedValues = Mapping[str, tuple[str, ...]]  # accepted values by dimension


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
    # the counts of each kind of call (spool.ledger.cost_kinds), which add up to `calls`
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


CHECK_EVERY = 1000  # sums added between two checks of the time

_INSTEAD = (
    "Choose a shorter time range, longer periods or fewer dimensions to group by, or filter by one of them"
)


@dataclass(frozen=True, kw_only=True)
class QuestionLimit:
    """
    The limits of one query: rows and time. `until`: a time of `time.monotonic`. `max_time_s`: for messages.
    """

    max_rows: int
    until: float
    max_time_s: float

    def check_rows(self, rows: int) -> None:
        if rows > self.max_rows:
            raise AskedTooMuch(
                f"this query has more than {self.max_rows} rows (answers.max_summed_rows). {_INSTEAD}"
            )

    def check_time(self) -> None:
        if time.monotonic() > self.until:
            raise too_long_error(self.max_time_s)


def too_long_error(max_time_s: float) -> AskedTooMuch:
    return AskedTooMuch(f"this query took longer than {max_time_s:g} s (answers.max_time). {_INSTEAD}")


_limit: ContextVar[QuestionLimit | None] = ContextVar("question_limit", default=None)


def limit_of_running_query() -> QuestionLimit | None:
    """Return the limit of the running query, or None for Tollhouse's own work."""
    return _limit.get()


@contextmanager
def apply_limit(limit: QuestionLimit | None) -> Iterator[None]:
    """Apply the limit to all queries in the block. None: no limit, for work that no single query causes."""
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)
