"""
Notices: what is told to people or programs outside of Tollhouse, and the notification that each channel
makes of one.

Values and rules; no file, no protocol. What a channel is, and how it sends, is known above.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from spool.errors import Invalid
from spool.printable import printable
from spool.registry.insights import Insight, web_link

INFO, WARNING, CRITICAL = "info", "warning", "critical"
SEVERITIES = (INFO, WARNING, CRITICAL)
TEST = "test"  # the kind of a notice that only shows that a channel works
INSIGHT_OPENED = "insight.opened"
VIEW_ANOMALY = "view.anomaly"
REPORT = "report.view"  # of costs, on a schedule of its own
ALONE = (TEST, REPORT)  # kinds that leave at once, and with no other notice

WAITING, SENT, FAILED, DISCARDED = "waiting", "sent", "failed", "discarded"
STATES = (WAITING, SENT, FAILED, DISCARDED)

# Of a channel: parked, its address or secret is wrong; removed, it left the configuration and notifications
# wait.
RUNNING, FAILING, PARKED, REMOVED = "running", "failing", "parked", "removed"
CHANNEL_STATES = (RUNNING, FAILING, PARKED, REMOVED)

MAX_WAITING = 1_000  # of one channel
MAX_OVER = 10_000  # sent, failed and discarded ones, of all channels
KEPT_S = 30 * 86400.0  # how long they are kept
MAX_TITLE = 256
MAX_TEXT = 4096
MAX_FIELDS = 32
MAX_FIELD_NAME = 64
MAX_FIELD = 256
MAX_THREAD = 256

_NOT_ARRIVING = "delivery"
_WARNINGS = frozenset({"budget", "reliability", "spend"})
_DEAR = Decimal(100)  # dollars

_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_KIND = re.compile(r"[a-z_]{1,64}(\.[a-z_]{1,64})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """
    One thing to tell. `id` is the same whenever the same thing is told again, and reaches the receiver.

    `kind` is such as `budget.threshold_crossed`. Notices with one `thread` belong together: an e-mail program
    shows them as one conversation. `at` is epoch seconds. `to` is a person: a channel of e-mail writes to this
    address in place of its own.
    """

    id: str
    kind: str
    title: str
    at: float
    text: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    severity: str = WARNING
    link: str = ""
    thread: str = ""
    to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """
    A notice on its way through one channel. Times are epoch seconds.

    `number` orders those of a channel. Those with one `message` leave together: it is the `number` of the
    first of them, and is stored before the first try, so that a repeat is the same message. `failing_since`
    is when the channel began to fail while this one waited. `reached` are the recipients that have it
    already, where there are several.
    """

    notice: Notice
    channel: str
    number: int
    state: str = WAITING
    message: int | None = None
    attempts: int = 0
    failing_since: float | None = None
    not_before: float = 0.0
    settled: float | None = None
    error: str = ""
    reached: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return notification_id(self.channel, self.notice.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelCounts:
    """How many notifications of a channel wait, and how many were sent or have failed since it is known."""

    waiting: int = 0
    sent: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """
    A channel as operators see it. `reason` is why nothing arrives, `oldest` the time of the oldest notice
    that waits, `insights` the least severity of those that it is told of.
    `is_kept`: it was made in the console, and stands in no configuration.
    """

    name: str
    type: str
    state: str
    reason: str
    insights: str
    counts: ChannelCounts
    oldest: float | None
    is_kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightSubscription:
    """A channel that is told of insights of at least a severity; of all categories if none is named."""

    channel: str
    severity: str
    categories: tuple[str, ...] = ()

    def takes(self, notice: Notice, category: str) -> bool:
        is_severe = SEVERITIES.index(notice.severity) >= SEVERITIES.index(self.severity)
        return is_severe and (not self.categories or category in self.categories)


def notification_id(channel: str, notice: str) -> str:
    return f"{channel}:{notice}"


def check_notice(notice: Notice) -> Notice:
    """
    The notice in its stored form. Words that others chose are cut to their bounds, as a refusal would lose
    the notice; Invalid is for a wrong id, kind or severity.
    """
    if not _ID.fullmatch(notice.id):
        raise Invalid("a notice's id has 1 to 128 letters, digits and any of . _ : -")
    if not _KIND.fullmatch(notice.kind):
        raise Invalid("a notice's kind is one or two words such as budget.threshold_crossed")
    if notice.severity not in SEVERITIES:
        raise Invalid("severity must be one of " + ", ".join(SEVERITIES))
    return Notice(
        id=notice.id,
        kind=notice.kind,
        title=_line(notice.title, MAX_TITLE),
        at=notice.at,
        text="\n".join(_line(line, MAX_TEXT) for line in notice.text.splitlines())[:MAX_TEXT],
        fields={
            _line(name, MAX_FIELD_NAME): _line(value, MAX_FIELD)
            for name, value in list(notice.fields.items())[:MAX_FIELDS]
        },
        severity=notice.severity,
        link=web_link(notice.link),
        thread=_line(notice.thread, MAX_THREAD),
        to=notice.to,
    )


def insight_notice(insight: Insight) -> Notice:
    """Make the notice of an insight that a detector opened, or opened again after it was addressed."""
    opened = round(insight.status_at * 1000)
    return Notice(
        id=f"insight-{insight.id}-{opened}",
        kind=INSIGHT_OPENED,
        title=insight.title,
        at=insight.status_at,
        text=insight.description,
        fields={"category": insight.category, "cost_impact": insight.cost_impact},
        severity=insight_severity(insight),
        link=insight.link,
        thread=f"insight {insight.id}",
    )


def insight_severity(insight: Insight) -> str:
    """Data that does not arrive is critical; a warning is what costs money or works badly."""
    if insight.category == _NOT_ARRIVING:
        return CRITICAL
    is_dear = abs(Decimal(insight.cost_impact)) >= _DEAR
    return WARNING if is_dear or insight.category in _WARNINGS else INFO


def document_of(notification: Notification) -> dict[str, Any]:
    return asdict(notification)


def read_notification(document: Mapping[str, Any]) -> Notification:
    parts = {"notice": Notice(**document["notice"]), "reached": tuple(document["reached"])}
    return Notification(**{**document, **parts})


def _line(text: str, most: int) -> str:
    """Make one printable line of a text: a line break in a name would begin a new header of an e-mail."""
    text = printable(text).strip()
    return text if len(text) <= most else f"{text[: most - 3]}..."
