"""
Insights about AI costs, found by detectors or written by people. Values and rules.

Part 2.2 of the published interface defines the statuses, efforts and field names. Lists are sorted in the
order in which the values appear here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from spool.errors import Invalid, RegistryDamaged
from spool.registry.texts import check_amount, check_one_of, storable_text, web_link
from spool.turns.threads import prepare_types

NEW, IN_PROGRESS, ON_HOLD, ADDRESSED, IGNORED = "new", "in_progress", "on_hold", "addressed", "ignored"
STATUSES = (NEW, IN_PROGRESS, ON_HOLD, ADDRESSED, IGNORED)
OPEN = (NEW, IN_PROGRESS, ON_HOLD)
NOT_SET, LOW, MEDIUM, HIGH = "not_set", "low", "medium", "high"
EFFORTS = (NOT_SET, LOW, MEDIUM, HIGH)

MAX_TITLE = 256
MAX_CATEGORY = 64
MAX_LINK = 2048
MAX_TEXT = 4096
MAX_INSIGHTS = 10_000
MAX_COMMENTS = 1_000  # maximum number of comments per insight
_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An insight as a person or a detector writes it. `cost_impact` is decimal text in dollars."""

    title: str
    description: str = ""
    category: str = ""
    link: str = ""
    effort: str = NOT_SET
    cost_impact: str = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Concerned:
    """A filter for calls, as in views: values by dimension. "" stands for an unknown value."""

    include: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclude: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


prepare_types(Concerned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    A detector's finding. `key` is the same each time the same thing is found.

    `newest` is the time of the newest evidence, or None if the finding describes a present state. An
    addressed insight becomes new again if there is later evidence, or if the state ended and began again.
    `channels` are notified when the insight opens, in addition to subscribed channels. `concerns` is a filter
    for the calls that the finding is about, or None if it is not about calls. A person with restricted access
    sees the finding only if that access includes these calls. `severity` is stated if it does not follow from the
    category and the cost impact. `csv` is a list of what the finding is about, for the notice.
    """

    key: str
    draft: Draft
    newest: float | None = None
    channels: tuple[str, ...] = ()
    concerns: Concerned | None = None
    severity: str = ""
    csv: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    """A stored insight. Times are epoch seconds."""

    id: str
    finding: str | None
    title: str
    description: str
    category: str
    link: str
    status: str
    status_at: float
    effort: str
    cost_impact: str
    created: float
    last_updated: float
    found_at: float | None
    present: bool
    touched: bool
    concerns: str = ""  # Finding.concerns as JSON, or "" if it is None
    severity: str = ""  # Finding.severity

    @property
    def decoded_concerns(self) -> Concerned | None:
        """Return the decoded `concerns`. Raises RegistryDamaged if they cannot be read."""
        try:
            return msgspec.json.decode(self.concerns, type=Concerned) if self.concerns else None
        except msgspec.DecodeError as error:
            raise RegistryDamaged(f"the stored filter of an insight cannot be read: {error}") from error

    @property
    def is_gone(self) -> bool:
        """Return True if a detector found the insight before and no longer finds it."""
        return self.finding is not None and not self.present

    def is_reopened_by(self, newest: float | None) -> bool:
        """Return True if the insight reopens when it is found again with evidence up to `newest`."""
        if self.status != ADDRESSED:
            return False
        return not self.present or (newest is not None and newest > self.status_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    id: int
    insight: str
    text: str
    author: str
    created: float
    last_updated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """
    The number of insights that one run of the detectors changed.

    There are counts of insights that are new, found again, reopened, or no longer found. `left_out` counts
    findings that were not stored because MAX_INSIGHTS is reached.
    """

    new: int
    again: int
    reopened: int
    gone: int
    left_out: int


def check_draft(draft: Draft) -> Draft:
    """Return the draft in its stored form. Raises Invalid with the field and the rule that is broken."""
    title = draft.title.strip()
    if not title:
        raise Invalid("an insight needs a title")
    return Draft(
        title=_check_text("title", title, MAX_TITLE),
        description=_check_text("description", draft.description, MAX_TEXT),
        category=_check_text("category", draft.category.strip(), MAX_CATEGORY),
        link=check_link(draft.link),
        effort=check_effort(draft.effort),
        cost_impact=check_amount("cost_impact", draft.cost_impact),
    )


def check_status(status: str) -> str:
    check_one_of("status", status, STATUSES)
    return status


def check_effort(effort: str) -> str:
    check_one_of("effort", effort, EFFORTS)
    return effort


def check_link(link: str) -> str:
    """Return the link, which must be empty or a web address. Other schemes could harm readers who open it."""
    link = _check_text("link", link.strip(), MAX_LINK)
    if link != web_link(link):
        raise Invalid("link must be an address that begins with http:// or https://")
    return link


def check_comment(text: str) -> str:
    if not text.strip():
        raise Invalid("a comment must not be empty")
    return _check_text("text", text.strip(), MAX_TEXT)


def stored_concern(concerns: Concerned | None) -> str:
    """Encode the filter of an insight for storage. Return "" if there is none."""
    return "" if concerns is None else msgspec.json.encode(concerns).decode()


def dollar_text(amount: Decimal) -> str:
    """Format an amount in the form that findings use, rounded to whole cents."""
    return f"{amount.quantize(_CENT):f}"


def _check_text(name: str, text: str, max_length: int) -> str:
    if len(text) > max_length:
        raise Invalid(f"{name} must have at most {max_length} characters")
    return storable_text(text)
