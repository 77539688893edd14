"""
A cost query that is independent of the interface. Each interface only translates its parameter names
into these fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property

from gateway.core.errors import Refusal
from gateway.money.costs.measures import REAL_COST
from spool.errors import AskedTooMuch
from spool.ledger.dimensions import BILLED_TYPES, PLAN_TYPES, TOTAL, WantedValues
from spool.ledger.periods import ComparedSpans
from spool.ledger.queries import CostQuery, narrow_query
from spool.ledger.work import TREES, UNITS
from spool.record import CURRENCY
from spool.registry.views import SavedView

MAX_PERIODS = 10_000
MAX_UNIT_DAYS = 92  # maximum days of a query by a unit of work
SCOPES = OWN, AGGREGATED = ("own", "aggregated")
UNIT_GROUPS = 100  # number of units that stay separate if a query states no number
MAX_CSV_UNITS = 100_000  # number of units that stay separate in a CSV of all
# lengths of the shortest periods; all other periods last a week or more
_PERIODS = {"hourly": timedelta(hours=1), "daily": timedelta(days=1)}


@dataclass(frozen=True, kw_only=True)
class CostQuestion:
    """
    A query of the costs of calls from `since` until before `until`, by period and group.

    The filter of `view` applies in addition to `include` and `exclude`. In these, "" is the unknown value.
    `tells` are cost types that the result contains in addition to the cost type of `cost`.
    """

    since: datetime
    until: datetime
    zone: tzinfo = UTC
    per: str = TOTAL  # granularity of the periods: TOTAL, or one of GRANULARITIES
    by: Sequence[str] = ()  # dimensions by which the costs are grouped
    include: WantedValues = field(default_factory=dict)
    exclude: WantedValues = field(default_factory=dict)
    view: SavedView | None = None
    cost_type: str = REAL_COST
    fills: bool = False  # whether counted costs fill in for missing bills
    measures: Sequence[str] = ()  # fields of CostRow that the caller needs; empty means all
    meter: str = ""  # meter whose usage counts; "" means all meters
    currency: str = CURRENCY
    # number of groups that stay separate, by `top_by`; None joins no groups
    top: int | None = None
    top_by: str = "cost"
    # function that returns the spans of a comparison, whose earlier costs the answer includes as well
    earlier: Callable[[CostQuery], ComparedSpans] | None = None
    tells: Sequence[str] = ()
    scope: str = OWN  # AGGREGATED adds the runs that a run or session started

    @property
    def cost_type_mask(self) -> int:
        """Return the number of the query's cost type in BILLED_TYPES, or 0 for counted costs."""
        return BILLED_TYPES.get(self.cost_type, 0)

    @property
    def cost_types(self) -> Sequence[str]:
        """Return all cost types that the answer needs. The requester must be allowed to see each of them."""
        base_type = REAL_COST if self.cost_type in PLAN_TYPES else self.cost_type
        filled = (REAL_COST,) if self.fills else ()
        first = () if base_type in self.tells else (base_type,)
        return tuple(dict.fromkeys((*first, *filled, *self.tells)))

    @cached_property
    def query(self) -> CostQuery:
        plain = CostQuery(
            since=self.since,
            until=self.until,
            granularity=self.per,
            group_by=self.by,
            include=self.include,
            exclude=self.exclude,
            zone=self.zone,
            measures=self.measures,
            meter=self.meter,
            currency=self.currency,
            arranged=self.cost_type_mask,
            aggregated=self.scope == AGGREGATED,
        )
        view = self.view
        return plain if view is None else narrow_query(plain, include=view.include, exclude=view.exclude)

    @cached_property
    def compared_spans(self) -> ComparedSpans | None:
        return self.earlier(self.query) if self.earlier else None

    @property
    def is_grouped_by_units(self) -> bool:
        """Return whether groups are units of work, of which there may be very many."""
        return not UNITS.keys().isdisjoint(self.by)

    def check_span(self, *, max_periods: int = MAX_PERIODS) -> None:
        """
        Check the time range and the units of work. Raises Refusal 400 for an empty range or too many periods,
        and AskedTooMuch if the stored totals of units of work cannot answer the query.
        """
        check_span(self.query, max_periods=max_periods)
        check_units(self.query, self.cost_type)
        if self.scope == AGGREGATED and self.query.unit_of_work not in TREES:
            raise AskedTooMuch(
                f"scope=aggregated needs by={' or by='.join(TREES)}, or a filter by one of them"
            )


def check_span(query: CostQuery, *, max_periods: int = MAX_PERIODS) -> None:
    """
    Check the time range of a query. Raises Refusal 400 if it is empty or has more than `max_periods` periods. Raises
    AskedTooMuch if a query by a unit of work covers too many days.
    """
    if query.since >= query.until:
        raise _invalid_parameter("the start must be earlier than the end")
    length = _PERIODS.get(query.granularity, timedelta(days=7))
    if (query.until - query.since) / length > max_periods:
        raise _invalid_parameter(
            f"the time range has more than {max_periods} periods; use a shorter range or longer periods"
        )
    unit = next((name for name in query.used_dimensions if name in UNITS), None)
    if unit is not None and query.until - query.since > timedelta(days=MAX_UNIT_DAYS):
        raise AskedTooMuch(f"costs by {unit} cover at most {MAX_UNIT_DAYS} days; use a shorter time range")


def check_units(query: CostQuery, cost_type: str = REAL_COST) -> None:
    """
    Check that the totals of units of work can answer the query. Raises AskedTooMuch, whose message suggests
    another query.
    """
    try:
        unit = query.unit_of_work
    except ValueError as error:
        raise AskedTooMuch(
            f"{error}. Group by one of them, and filter by its values in a second query"
        ) from None
    if unit is None:
        return
    if cost_type in BILLED_TYPES:
        raise billed_unit_refusal(unit)
    if query.meter:
        raise AskedTooMuch(f"quantities of meters are not summed by {unit}; leave the meter or {unit} out")


def billed_unit_refusal(unit: str) -> AskedTooMuch:
    return AskedTooMuch(f"billed costs are divided by day and do not reach a {unit}; use a counted cost_type")


def _invalid_parameter(message: str) -> Refusal:
    return Refusal(400, "invalid_parameter", message)
