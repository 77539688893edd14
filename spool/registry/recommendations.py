"""
Recommendations: what the same work could have cost less, and what people decided about it. Values and
rules; no file.

Statuses and efforts are those of insights. Money is decimal text in dollars, times are epoch seconds, days
are texts such as 2026-11-20.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from spool.errors import Invalid
from spool.registry.insights import ADDRESSED

EXACT, STRONG, WEAK = "exact", "strong", "weak"
CONFIDENCES = (EXACT, STRONG, WEAK)

MAX_RECOMMENDATIONS = 1_000
MAX_COMMENTS = 200  # on one recommendation
MAX_ASSIGNEE = 256
MAX_AT_ONCE = 500  # recommendations that one request changes
_MAX_AMOUNT = Decimal(10) ** 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Processing:
    """A model, who serves it, and how it processes a call ("" is the standard way); None is unknown, or any."""

    model: str | None = None
    provider: str | None = None
    mode: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """
    What a look found. `key` is the same whenever it finds the same thing again, and begins with "type:".

    `spent` is what the tokens concerned cost, `gross_savings` what of it this alone would save,
    `monthly_savings` what is left of that after larger recommendations on the same tokens. `measured_by` are
    the values of dimensions under which the work goes on once this is done: the realised savings are measured
    there. `concerns` are values of dimensions that all calls have of which anything is said, empty if it
    speaks of others too: who may see some calls alone sees it if these are among them.
    """

    key: str
    type: str
    title: str
    description: str
    formula: str
    effort: str
    confidence: str
    assumptions: Sequence[str]
    spent: str
    gross_savings: str
    monthly_savings: str
    price_book: str
    current: Processing
    recommended: Processing
    dimensions: Mapping[str, Sequence[str]]
    measured_by: Mapping[str, str]
    first_day: str
    last_day: str
    concerns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Realized:
    """What was saved on the days from `since` until before `until`, after a recommendation was addressed."""

    amount: str
    since: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """
    As it is kept.

    `is_open`: the last look found it, and its type is switched on. `promised` are the monthly savings at the
    time it was addressed. One that nobody `touched` goes some time after it is closed.
    """

    id: str
    saving: Saving
    status: str
    status_at: float
    assignee: str = ""
    is_open: bool = True
    touched: bool = False
    promised: str | None = None
    realized: Realized | None = None
    created: float
    last_updated: float
    found_at: float

    @property
    def addressed_at(self) -> float | None:
        return self.status_at if self.status == ADDRESSED else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSettings:
    """
    Whether a type of recommendations is looked for, and the least that is told: dollars a month, and percent
    of everything that was spent.
    """

    enabled: bool = True
    least_savings: str = "5"
    least_share: str = "1"
    last_updated: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationComment:
    id: int
    text: str
    author: str
    created: float
    last_updated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentThread:
    """The comments on one recommendation, oldest first. `last` is the highest id that one of them ever had."""

    last: int = 0
    comments: Sequence[RecommendationComment] = field(default_factory=tuple)


def check_assignee(assignee: str) -> str:
    assignee = assignee.strip()
    if len(assignee) > MAX_ASSIGNEE or not assignee.isprintable():
        raise Invalid(f"assignee is a name of at most {MAX_ASSIGNEE} printable characters")
    return assignee


def check_least_savings(amount: str) -> str:
    return _number("least_savings", amount, _MAX_AMOUNT, "dollars a month")


def check_least_share(share: str) -> str:
    return _number("least_share", share, Decimal(100), "percent, up to 100")


def _number(name: str, text: str, most: Decimal, what: str) -> str:
    try:
        found = Decimal(text) if len(text) <= 32 else Decimal("NaN")
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite() or not 0 <= found <= most or (found and found.adjusted() < -9):
        raise Invalid(f"{name} must be a decimal number of {what}, not below 0")
    return f"{found:f}"
