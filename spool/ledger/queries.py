"""What can be asked of the ledger, and its answer: costs in periods and by dimensions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from spool.errors import AskedTooMuch
from spool.ledger.sums import COUNTS, LATENCY, MONEY, OTHER
from spool.record import CURRENCY

# -- dimensions that are functions of the ledger's own -------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """
    `value` takes the values of the `sources` in their order and gives the dimension's; "" is unknown on both sides.

    A source is `OTHER` where a sum no longer keeps many values apart. A built-in dimension returns `OTHER` if that
    source decides its value. Definitions of an organization treat the word as any other value.

    It is pure, may be called by any thread and raises nothing.
    """

    name: str
    label: str  # how it is shown
    sources: tuple[str, ...]
    value: Callable[[tuple[str, ...]], str]


DerivedDimensions: TypeAlias = Mapping[str, Derived]  # by name

# -- questions -----------------------------------------------------------------------------------------------


# What costs are grouped and filtered by, each with what it means.
DIMENSIONS: Mapping[str, str] = {
    "model": "the model that answered",
    "request_model": "the model that was asked for",
    "provider": "who runs the model",
    "team": "the team that a call is attributed to",
    "user": "who made the call",
    "device": "the machine that reported it",
    "source": "the product or gateway that reported it",
    "api_key": "the provider's key, as its gateway names it",
    "status": "ok, error, or cached: answered by a gateway's cache at no cost",
    "cost_source": "reported by the source, estimated from list prices, or none: unknown",
    "region": "where the provider processed it, in the provider's word, as far as sources tell",
    "sender": "the name of the Tollhouse key that brought it, unknown for calls of before names were kept",
}
MODEL_FAMILY = "model_family"
PROVIDER_FAMILY = "provider_family"


class BuiltIn(NamedTuple):
    """A dimension of every installation that is made of others."""

    meaning: str
    label: str
    sources: tuple[str, ...]
    title: str  # of its column in tables of commands, unless a dimension of this name is in the next column


# Their values are functions in gateway/intake/rate_cards/names.py. People with limited roles may group by every one of
# these, but by dimensions of the organization only if a role or a view names them (CostReader.derived). So a value must
# not reveal more than its sources do.
BUILT_IN_DIMENSIONS: Mapping[str, BuiltIn] = {
    MODEL_FAMILY: BuiltIn(
        "the model without a prefix of a region or a seller, and without a date",
        label="Model, all spellings",
        sources=("model",),
        title="model",
    ),
    PROVIDER_FAMILY: BuiltIn(
        "who runs the model, one name for all spellings and services, such as Google",
        label="Provider, all spellings",
        sources=("provider",),
        title="provider",
    ),
}
# What decides about prices beside provider and models: no question of anybody names them.
PRICED_BY = ("mode", "size")
BILLED = (
    "billed"  # kind of the dimensions that stand for no calls: what a bill tells of money that nobody has
)
# Of billed money.
OF_BILLS: Mapping[str, str] = {
    "charge": "what billed money is for: usage, discount, tax, credit, commitment, ...",
    "basis": "how it was placed: exact, value, pooled, shared, or unallocated",
    "corrects": "the day of a closed month that an entry corrects",
}
# Of rows of billing connections: their own columns.
ROW_DIMENSIONS: Mapping[str, str] = {
    "origin": "calls, billing: rows of a billing connection, or containers: usage of a cluster at its price",
    "connection": "the billing connection of a row",
    "service": "the service that a row is about",
    "account": "its account",
    "resource": "its resource",
    "usage_family": "its family of usage",
    "line_item": "its kind: Usage, Tax, Support, Purchase, CommittedUsePurchase, Discount",
    "cluster": "its Kubernetes cluster",
    "namespace": "its namespace there",
    "workload": "its deployment there",
}
ORIGINS = ("calls", "billing", "containers")  # values of `origin`
ROW_TAG = "row:"  # before their names among the tags of such a row
BILLED_DIMENSIONS = {**OF_BILLS, **ROW_DIMENSIONS}
TAG = "tag:"  # before the name of a chosen tag
GRANULARITIES = ("hourly", "daily", "weekly", "monthly", "quarterly", "yearly")
TOTAL = "total"  # everything in one period


class CostType(NamedTuple):
    """
    Which money is meant. `meaning` is for assistants, who do not name a cost type without one.

    Counted money is the `field` of a CostRow. Billed money is an arrangement of a bill, a bit of `CostQuery.arranged`.
    The others are real_cost of the calls that no plan of an assistant covers, and of those that one does.
    """

    meaning: str = ""
    field: str = ""
    arranged: int = 0


# What counts is reported, else estimated; an estimate is at list prices.
_COST_TYPES = {
    "real_cost": CostType(
        "what counts: reported where a source reports it, else estimated at list prices", field="cost"
    ),
    "reported_cost": CostType("what sources report", field="reported"),
    "estimated_cost": CostType("at list prices, of every call whose model has a price", field="estimated"),
    "on_demand_cost": CostType(field="estimated"),
    "metered_cost": CostType(),
    "covered_cost": CostType(),
    "billed_cost": CostType(
        "what providers billed, divided over the calls; discounts and taxes in rows of their own", arranged=1
    ),
    "discounted_cost": CostType(
        "what providers billed, discounts and taxes on the usage that they are for", arranged=2
    ),
    "amortized_cost": CostType(
        "billed_cost, fees of commitments on what they cover and not on the day of the purchase", arranged=4
    ),
    "discounted_amortized_cost": CostType(
        "discounted_cost, fees of commitments on what they cover", arranged=8
    ),
    "invoiced_amortized_cost": CostType(
        "discounted_amortized_cost of days that the provider tells no more anew", arranged=16
    ),
    "saved_cost": CostType("what calls would have cost that a gateway's cache answered", field="saved"),
}
COST_TYPES: Mapping[str, str] = {name: each.field for name, each in _COST_TYPES.items() if each.field}
BILLED_TYPES: Mapping[str, int] = {name: each.arranged for name, each in _COST_TYPES.items() if each.arranged}
METERED_COST, COVERED_COST = PLAN_TYPES = tuple(
    name for name in _COST_TYPES if name not in COST_TYPES and name not in BILLED_TYPES
)
EXPLAINED_TYPES = {name: each.meaning for name, each in _COST_TYPES.items() if each.meaning}
MISSING_IS_OF_BILLS = f"missing is of bills: ask for it with cost_type={', '.join(BILLED_TYPES)}"

Group = tuple[str | None, ...]  # a value for each dimension that is grouped by, None: unknown
Wanted = Mapping[str, tuple[str, ...]]  # values by dimension


@dataclass(frozen=True, kw_only=True)
class CostQuery:
    """
    Costs of calls from `since` until before `until`, in periods of `zone`.

    `include` and `exclude` are by dimension; "" stands for unknown. A period that `since` cuts begins at `since`.
    No period may begin or end within an hour or a day of which only the whole sum is kept (see `costs`).

    `measures` are the fields of CostRow that are wanted, empty: all. Money and calls always come; what was
    not asked for may be 0, and saves its part of the work.

    `derived` are dimensions that this question knows beside those of the ledger. With `only`, which is not empty,
    other groups are left out. With `kept`, all other groups are one: OTHER in each place. With `top`, the largest
    over all periods by `top_by` are kept, and the unknown one.
    """

    since: datetime
    until: datetime
    granularity: str = "daily"
    group_by: Sequence[str] = ()
    include: Wanted = field(default_factory=dict)
    exclude: Wanted = field(default_factory=dict)
    zone: tzinfo = UTC
    measures: Sequence[str] = ()
    meter: str = ""  # of spool.meters: CostRow.metered is its quantity; EVERY_METER: CostRow.meters has all
    currency: str = CURRENCY  # in which money is answered; each day's is converted at the rate of that day
    derived: DerivedDimensions = field(default_factory=dict)
    only: frozenset[Group] | None = None
    kept: frozenset[Group] | None = None
    top: int | None = None
    top_by: str = "cost"  # a field of CostRow
    arranged: int = (
        0  # of spool.ledger.billed: `cost` is billed money of this arrangement; 0: what was counted
    )

    def shown(self, group: Group) -> Group:
        """Return the group to which the sums of a group are added."""
        return group if self.kept is None or group in self.kept else (OTHER,) * len(group)

    @property
    def named(self) -> Sequence[str]:
        """Every dimension that the question names."""
        return tuple(dict.fromkeys((*self.group_by, *self.include, *self.exclude)))


EVERY_METER = "*"


class AnswersCosts(Protocol):
    """The ledger, or what somebody may see of it."""

    async def costs(self, query: CostQuery) -> Sequence[CostRow]: ...


class CostRow(msgspec.Struct, frozen=True, kw_only=True):
    """
    One period and one set of dimensions. Money is decimal text: `cost` is what counts (reported, else estimated),
    `reported` and `estimated` are both sums of the same calls, `saved` is the estimate of cached calls.
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
    unpriced: int  # calls of unknown cost
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cache_write_1h_tokens: int  # of cache_write_tokens, those kept for an hour, as far as sources tell
    # of the calls that the gateway's cache answered: in the sums above, on no provider's bill
    cached_input_tokens: int
    cached_output_tokens: int
    latency_ms: int
    latency: tuple[int, ...]  # calls by LATENCY_EDGES_MS, the last are beyond
    metered: int = (
        0  # of the meter that was asked for, in millionths; not of calls that a gateway's cache answered
    )
    # Amounts in other currencies than dollars, as they were charged, and those among all amounts that could not be
    # converted: they are not in `cost` and `reported`. Decimal text by currency.
    charges: Mapping[str, str] = msgspec.field(default_factory=dict)
    meters: Mapping[str, int] = msgspec.field(
        default_factory=dict
    )  # in millionths, if EVERY_METER was asked for
    converted: str = "0"  # the part of `cost` that was converted from these
    unconverted: Mapping[str, str] = msgspec.field(default_factory=dict)


def within(query: CostQuery, *, include: Wanted, exclude: Wanted) -> CostQuery:
    """
    The question about what passes another filter as well. Where two lists have nothing in common, nothing passes.
    """
    both = {name: tuple(values) for name, values in query.include.items()}
    for name, values in include.items():
        both[name] = tuple(value for value in both.get(name, values) if value in values)
    none = {name: tuple(values) for name, values in query.exclude.items()}
    for name, values in exclude.items():
        none[name] = tuple(dict.fromkeys((*none.get(name, ()), *values)))
    return replace(query, include=both, exclude=none)


def end_of_hour(now: float) -> datetime:
    """Return the end of the running hour: a question up to now includes it whole, because hours are not divided."""
    return datetime.fromtimestamp(now, UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


def needed_sums(measures: Sequence[str]) -> frozenset[str]:
    """Return the stored sums (COUNTS, MONEY, LATENCY) that a question for these measures needs."""
    if not measures:
        return frozenset((*COUNTS, *MONEY, *LATENCY))
    needed = {COUNTS[0], *MONEY, *(name.removeprefix("cached_") for name in measures)}
    if not needed.isdisjoint(("latency", LATENCY[0])):
        needed.update(LATENCY)
    return frozenset(needed)


def check_dimension(name: str) -> None:
    """ValueError if costs cannot be grouped and filtered by it."""
    known = (*DIMENSIONS, *BILLED_DIMENSIONS)
    is_tag = name.startswith(TAG) and name != TAG
    if name not in known and not is_tag:
        raise ValueError(f"{name} is not a dimension")


# -- how much one question may take of the ledger ------------------------------------------------------------


CHECK_EVERY = 1000  # sums between two looks at the clock

_INSTEAD = "ask for a shorter time, longer periods, fewer dimensions to group by, or filter by one of them"


@dataclass(frozen=True, kw_only=True)
class QuestionLimit:
    """`until` is a time of `time.monotonic`, whose seconds `max_time_s` names in words."""

    max_rows: int
    until: float
    max_time_s: float

    def check_rows(self, rows: int) -> None:
        """AskedTooMuch beyond the rows of an answer."""
        if rows > self.max_rows:
            raise AskedTooMuch(
                f"this question has more than {self.max_rows} rows (answers.max_summed_rows); {_INSTEAD}"
            )

    def check_time(self) -> None:
        """AskedTooMuch when the time is over."""
        if time.monotonic() > self.until:
            raise took_too_long(self.max_time_s)


def took_too_long(max_time_s: float) -> AskedTooMuch:
    return AskedTooMuch(f"this question took longer than {max_time_s:g} s (answers.max_time); {_INSTEAD}")


_limit: ContextVar[QuestionLimit | None] = ContextVar("question_limit", default=None)


def limit_of_question() -> QuestionLimit | None:
    """The limit of the question that is worked on here; None for work of Tollhouse itself."""
    return _limit.get()


@contextmanager
def limited(limit: QuestionLimit) -> Iterator[None]:
    """Bound all questions to the ledger within the block."""
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)
