"""
Recommendations: how the same work could have cost less, and people's decisions about them. Values and rules.

Statuses and efforts are those of insights. Money is decimal text in dollars, times are epoch seconds, and
days are texts such as 2026-11-20.
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
MAX_COMMENTS = 200  # maximum comments per recommendation
MAX_ASSIGNEE = 256
MAX_AT_ONCE = 500  # maximum recommendations that one request may change
_MAX_AMOUNT = Decimal(10) ** 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Processing:
    """
    How calls are processed. `mode`: "" is standard. In any field, None means unknown, or any in a condition.
    """

    model: str | None = None
    provider: str | None = None
    mode: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """
    A possible saving. `key` ("type:...") is equal for the same saving in every run.

    `spent`: cost of the tokens. `gross_savings`: the savings if this were the only recommendation.
    `monthly_savings`: the rest after larger savings for the same tokens.

    `measured_by`: dimension values of the same work after the change, to measure realized savings.
    `concerns`: values that all its calls share, which a restricted person must be allowed to see.
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
    """The amount saved in [since, until), after the recommendation was addressed."""

    amount: str
    since: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """
    A recommendation as stored. `is_open`: the last run found it, and its type is enabled. `promised`: monthly
    savings when it was addressed. `touched`: a person edited it; other recommendations are deleted some time
    after they close.
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
    The settings of a type of recommendations. `least_savings`: dollars per month. `least_share`: percent of
    all costs.
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
    """The comments on a recommendation, oldest first. `last`: the highest comment id that was ever used."""

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
