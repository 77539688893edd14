"""
Recommendations: how the same work could have cost less, and people's decisions about it. Values and rules.

Statuses and efforts are the same as for insights. Money is decimal text in dollars. Times are epoch seconds.
Days are texts such as 2026-11-20.
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
MAX_COMMENTS = 200  # maximum number of comments per recommendation
MAX_ASSIGNEE = 256
MAX_AT_ONCE = 500  # maximum number of recommendations that one request may change
_MAX_AMOUNT = Decimal(10) ** 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Processing:
    """
    A model, its provider and its processing mode ("" is standard). None means unknown or any, depending
    on the use.
    """

    model: str | None = None
    provider: str | None = None
    mode: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """
    A possible saving that a run found. `key` is the same each time the same saving is found. It
    begins with "type:".

    `spent` is the cost of the tokens concerned. `gross_savings` is the amount that this recommendation would
    save if it were the only one. `monthly_savings` is the amount that remains after larger recommendations
    for the same tokens.

    `measured_by` has the dimension values of the same work after the change. Realized savings are measured
    for these values. `concerns` has dimension values that all the calls concerned share. It is empty if they
    share none. A person with restricted access sees the saving only if these values are within that access.
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
    """
    The amount that was saved after a recommendation was addressed, from day `since` until before day `until`.
    """

    amount: str
    since: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """
    A stored recommendation.

    `is_open` means that the last run found it and its type is enabled. `promised` is the monthly savings at
    the time when it was addressed. `touched` means that a person edited it. A recommendation that no person
    edited is deleted some time after it is closed.
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
    Settings of a recommendation type: whether it is enabled, and the smallest saving to report.

    `least_savings` is in dollars per month. `least_share` is in percent of all costs.
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
    """
    The comments on one recommendation, oldest first. `last` is the highest id that was ever used,
    including deleted comments.
    """

    last: int = 0
    comments: Sequence[RecommendationComment] = field(default_factory=tuple)


def check_assignee(assignee: str) -> str:
    assignee = assignee.strip()
    if len(assignee) > MAX_ASSIGNEE or not assignee.isprintable():
        raise Invalid(f"assignee must be a name of at most {MAX_ASSIGNEE} printable characters")
    return assignee


def check_least_savings(amount: str) -> str:
    return _check_number("least_savings", amount, _MAX_AMOUNT, "dollars a month")


def check_least_share(share: str) -> str:
    return _check_number("least_share", share, Decimal(100), "percent, up to 100")


def _check_number(name: str, text: str, maximum: Decimal, what: str) -> str:
    try:
        number = Decimal(text) if len(text) <= 32 else Decimal("NaN")
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or not 0 <= number <= maximum or (number and number.adjusted() < -9):
        raise Invalid(f"{name} must be a decimal number of {what}, and at least 0")
    return f"{number:f}"
