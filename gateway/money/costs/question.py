"""A question about costs, in words of its own: whoever asks translates names to these, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property

from gateway.money.costs.measures import REAL_COST
from gateway.service.errors import Refusal
from spool.ledger.periods import preceding
from spool.ledger.queries import BILLED_TYPES, PLAN_TYPES, TOTAL, CostQuery, Wanted, within
from spool.record import CURRENCY
from spool.registry.views import View

MAX_PERIODS = 10_000
_PERIODS = {"hourly": timedelta(hours=1), "daily": timedelta(days=1)}  # any other is a week or more


@dataclass(frozen=True, kw_only=True)
class CostQuestion:
    """
    Costs of calls from `since` until before `until`, in periods and by groups.

    `view` is one whose filter holds beside `include` and `exclude`; in these "" stands for the unknown value. `tells`
    are the cost types of other money that the answer has beside `cost`.
    """

    since: datetime
    until: datetime
    zone: tzinfo = UTC
    per: str = TOTAL  # or one of GRANULARITIES
    by: Sequence[str] = ()  # dimensions
    include: Wanted = field(default_factory=dict)
    exclude: Wanted = field(default_factory=dict)
    view: View | None = None
    cost_type: str = REAL_COST  # which money `cost` is
    fills: bool = False  # bills that are missing, with what was counted
    measures: Sequence[str] = ()  # the fields of CostRow that are needed; empty: all
    meter: str = ""  # whose quantity rows have
    currency: str = CURRENCY
    top: int | None = None  # so many groups, the largest by `top_by`; the others as one
    top_by: str = "cost"
    compares: bool = False  # with the period before
    tells: Sequence[str] = ()

    @property
    def arranged(self) -> int:
        """Which arrangement of bills the money is; 0 for what was counted."""
        return BILLED_TYPES.get(self.cost_type, 0)

    @property
    def cost_types(self) -> Sequence[str]:
        """All money that the answer tells: who asks must see every one of these."""
        own = REAL_COST if self.cost_type in PLAN_TYPES else self.cost_type
        filled = (REAL_COST,) if self.fills else ()
        first = () if own in self.tells else (own,)
        return tuple(dict.fromkeys((*first, *filled, *self.tells)))

    @cached_property
    def query(self) -> CostQuery:
        """The question to the ledger; `top` is left to who asks it."""
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
            arranged=self.arranged,
        )
        view = self.view
        return plain if view is None else within(plain, include=view.include, exclude=view.exclude)

    @cached_property
    def previous(self) -> CostQuery | None:
        return preceding(self.query) if self.compares else None

    def check_span(self, *, most: int = MAX_PERIODS) -> None:
        """Refusal 400 for a span that ends before it begins, or that would be cut in too many periods."""
        check_span(self.query, most=most)


def check_span(query: CostQuery, *, most: int = MAX_PERIODS) -> None:
    if query.since >= query.until:
        raise _wrong("the start must be earlier than the end")
    length = _PERIODS.get(query.granularity, timedelta(days=7))
    if (query.until - query.since) / length > most:
        raise _wrong(f"this is more than {most} periods; take a shorter span or a coarser granularity")


def _wrong(message: str) -> Refusal:
    return Refusal(400, "invalid_parameter", message)
