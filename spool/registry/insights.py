"""
Insights about AI costs, found by detectors or written by people. Values and rules.

Part 2.2 of the published interface defines statuses, efforts and field names. Lists sort these values in the
order here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from spool.errors import Invalid, RegistryDamaged
from spool.registry.texts import check_amount, check_one_of, storable_text, web_link_or_empty
from spool.turns.threads import prepare_types_for_msgspec

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
MAX_COMMENTS = 1_000  # maximum comments per insight
_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightDraft:
    """The fields of an insight that a person sets. `cost_impact` is decimal text in dollars."""

    title: str
    description: str = ""
    category: str = ""
    link: str = ""
    effort: str = NOT_SET
    cost_impact: str = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    """A filter for the calls that an insight concerns, as in views. "" means unknown."""

    include: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclude: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


prepare_types_for_msgspec(CallFilter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    A detector's finding. `key` stays the same as long as the detector finds the same thing.

    `newest`: time of the newest evidence, None if the finding describes a present state. Later evidence, or a
    state that ended and began again, reopens an addressed insight. `channels`: notified in addition to
    subscribed channels. `concerns`: selects the calls, all of which a restricted person must be allowed to
    see; None without calls. `severity`: overrides the severity by category and cost impact. `csv`: a list for
    the notice, such as of the calls.
    """

    key: str
    draft: InsightDraft
    newest: float | None = None
    channels: tuple[str, ...] = ()
    concerns: CallFilter | None = None
    severity: str = ""
    csv: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    """An insight as stored. Times are epoch seconds."""

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
    concerns: str = ""  # filter of the calls as JSON, "" for None
    severity: str = ""

    @property
    def decoded_concerns(self) -> CallFilter | None:
        """Return the filter of the calls that the insight concerns. Raises RegistryDamaged."""
        try:
            return msgspec.json.decode(self.concerns, type=CallFilter) if self.concerns else None
        except msgspec.DecodeError as error:
            raise RegistryDamaged(f"the stored filter of an insight cannot be read: {error}") from error

    @property
    def is_no_longer_found(self) -> bool:
        return self.finding is not None and not self.present

    def is_reopened_by(self, newest_evidence_at: float | None) -> bool:
        """
        Return whether evidence from the time `newest_evidence_at` reopens the insight. Only an addressed
        insight reopens.
        """
        if self.status != ADDRESSED:
            return False
        return not self.present or (newest_evidence_at is not None and newest_evidence_at > self.status_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    id: int
    insight: str
    text: str
    author: str
    created: float
    last_updated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingMergeCounts:
    """How many insights one run of detectors changed. `left_out`: findings beyond MAX_INSIGHTS."""

    new: int
    again: int
    reopened: int
    gone: int
    left_out: int


def check_insight_draft(draft: InsightDraft) -> InsightDraft:
    title = draft.title.strip()
    if not title:
        raise Invalid("an insight needs a title")
    return InsightDraft(
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
    """
    Return a checked link. It must be a web address, because other schemes could harm readers who open it.
    """
    link = _check_text("link", link.strip(), MAX_LINK)
    if link != web_link_or_empty(link):
        raise Invalid("link must be an address that begins with http:// or https://")
    return link


def check_comment(text: str) -> str:
    if not text.strip():
        raise Invalid("a comment must not be empty")
    return _check_text("text", text.strip(), MAX_TEXT)


def encode_concerned_calls(concerns: CallFilter | None) -> str:
    return "" if concerns is None else msgspec.json.encode(concerns).decode()


def dollar_text(amount: Decimal) -> str:
    """Format an amount in whole cents, as findings show it."""
    return f"{amount.quantize(_CENT):f}"


def _check_text(name: str, text: str, max_length: int) -> str:
    if len(text) > max_length:
        raise Invalid(f"{name} must have at most {max_length} characters")
    return storable_text(text)
