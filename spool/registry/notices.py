"""
Notices for people or programs outside Tollhouse, and a notification for each channel that gets one.

Higher packages define channels and send. A notification is stored before the first attempt. Waiting and
finished notifications are stored separately, so sending never reads the history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from spool.errors import Invalid, NotThere
from spool.printable import replace_unprintable
from spool.registry.texts import web_link_or_empty

# imported only for types, because each command that reads a configuration imports the values
if TYPE_CHECKING:
    from spool.registry.changes import RegistryChangeWriter
    from spool.registry.insights import Insight
    from spool.registry.operators import Actor
    from spool.registry.registry_rows import RegistryRows

INFO, WARNING, CRITICAL = "info", "warning", "critical"
SEVERITIES = (INFO, WARNING, CRITICAL)
TEST = "test"
INSIGHT_OPENED = "insight.opened"
VIEW_ANOMALY = "view.anomaly"
REPORT = "report.view"  # kind of a scheduled cost report
COST_IMPACT = "cost_impact"  # name of the field with the cost impact in dollars, as decimal text
BAR = "\N{FULL BLOCK}"  # character for the bars in a report's text
ALONE = (TEST, REPORT)  # kinds sent immediately, each in its own message

WAITING, SENT, FAILED, DISCARDED = "waiting", "sent", "failed", "discarded"
STATES = (WAITING, SENT, FAILED, DISCARDED)

# Parked: the address or secret was refused. Removed: not configured, but notifications wait.
RUNNING, FAILING, PARKED, REMOVED = "running", "failing", "parked", "removed"
CHANNEL_STATES = (RUNNING, FAILING, PARKED, REMOVED)

FAILING_TOO_LONG_S = 900.0  # after this time, a failing channel counts as down
MAX_WAITING = 1_000  # maximum waiting notifications per channel
# stored finished notifications of all channels
MAX_OVER = 10_000
KEPT_S = 30 * 86400.0  # seconds for which finished notifications are stored
MAX_TITLE = 256
MAX_TEXT = 4096
MAX_FIELDS = 32
MAX_FIELD_NAME = 64
MAX_FIELD = 256
MAX_THREAD = 256
MAX_CSV = 128 * 1024  # bytes; a longer list loses its last rows

NOT_ARRIVING = "delivery"  # category of critical insights
_WARNINGS = frozenset({"budget", "reliability", "spend"})
_DEAR = Decimal(100)  # dollars of cost impact above which an insight is a warning

_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_KIND = re.compile(r"[a-z_]{1,64}(\.[a-z_]{1,64})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """
    A message about one event. The same event always has the same `id`, which receivers also get.

    `kind`: for example `budget.threshold_crossed`. `thread`: e-mail programs group mails with the same text.
    `at`: epoch seconds. `to`: replaces an e-mail channel's recipient. `csv`: a mail's attachment, or a
    webhook's field.
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
    csv: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """
    A notice for one channel. Times are epoch seconds.

    `number`: its order in the channel. `message`: notifications with the same value (the `number` of the
    first of them) are sent together; it is stored before the first attempt, so a retry sends the same
    notices. `failing_since`: when the channel began to fail while this waited. `reached`: recipients that
    have received it.
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
    """Numbers of a channel's notifications: waiting now, sent and failed since the channel first appeared."""

    waiting: int = 0
    sent: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """
    The state of a channel, for operators.

    `reason`: why no message arrives. `oldest`: time of the oldest waiting notice. `failing_since`: when the
    first of the present failures occurred. `critical`: number of waiting critical notices. `insights`: lowest
    severity of insights that it receives. `is_kept`: created in the console, not configured.
    """

    name: str
    type: str
    state: str
    reason: str
    insights: str
    counts: ChannelCounts
    oldest: float | None
    is_kept: bool = False
    failing_since: float | None = None
    critical: int = 0

    def needs_operator(self, now: float) -> bool:
        if self.state == PARKED:
            return True
        if self.critical and self.state in (FAILING, REMOVED):
            return True
        return self.failing_since is not None and now - self.failing_since >= FAILING_TOO_LONG_S


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightSubscription:
    """A channel that receives insights from a severity on, of `categories` (empty: all)."""

    channel: str
    severity: str
    categories: tuple[str, ...] = ()

    def is_subscribed_to(self, notice: Notice, category: str) -> bool:
        is_severe = SEVERITIES.index(notice.severity) >= SEVERITIES.index(self.severity)
        return is_severe and (not self.categories or category in self.categories)


def notification_id(channel: str, notice: str) -> str:
    return f"{channel}:{notice}"


def check_notice(notice: Notice) -> Notice:
    """
    Return the notice with long texts cut, because rejecting it would lose it.

    Raises Invalid for a wrong id, kind or severity.
    """
    if not _ID.fullmatch(notice.id):
        raise Invalid("a notice id must have 1 to 128 letters, digits or any of . _ : -")
    if not _KIND.fullmatch(notice.kind):
        raise Invalid("a notice kind must be one or two words, such as budget.threshold_crossed")
    if notice.severity not in SEVERITIES:
        raise Invalid("severity must be one of " + ", ".join(SEVERITIES))
    return Notice(
        id=notice.id,
        kind=notice.kind,
        title=_single_line(notice.title, MAX_TITLE),
        at=notice.at,
        text="\n".join(_single_line(line, MAX_TEXT) for line in notice.text.splitlines())[:MAX_TEXT],
        fields={
            _single_line(name, MAX_FIELD_NAME): _single_line(value, MAX_FIELD)
            for name, value in list(notice.fields.items())[:MAX_FIELDS]
        },
        severity=notice.severity,
        link=web_link_or_empty(notice.link),
        thread=_single_line(notice.thread, MAX_THREAD),
        to=notice.to,
        csv=_cut_to_whole_rows(notice.csv),
    )


def insight_notice(insight: Insight, csv: str = "") -> Notice:
    """Return the notice that an insight has opened. Its id differs for each opening and stated severity."""
    opened = round(insight.status_at * 1000)
    stated = f"-{insight.severity}" if insight.severity else ""
    return Notice(
        id=f"insight-{insight.id}-{opened}{stated}",
        kind=INSIGHT_OPENED,
        title=insight.title,
        at=insight.status_at,
        text=insight.description,
        fields={"category": insight.category, COST_IMPACT: insight.cost_impact},
        severity=insight_severity(insight),
        link=insight.link,
        thread=f"insight {insight.id}",
        csv=csv,
    )


def insight_severity(insight: Insight) -> str:
    """
    Return the insight's stated severity. Without one: critical if data do not arrive, warning for high costs
    and some categories, else info.
    """
    if insight.severity:
        return insight.severity
    if insight.category == NOT_ARRIVING:
        return CRITICAL
    is_dear = abs(Decimal(insight.cost_impact)) >= _DEAR
    return WARNING if is_dear or insight.category in _WARNINGS else INFO


def _cut_to_whole_rows(csv: str) -> str:
    return csv if len(csv) <= MAX_CSV else csv[: csv.rfind("\n", 0, MAX_CSV) + 1]


def encode_notification(notification: Notification) -> dict[str, Any]:
    return asdict(notification)


def decode_notification(document: Mapping[str, Any]) -> Notification:
    parts = {"notice": Notice(**document["notice"]), "reached": tuple(document["reached"])}
    return Notification(**{**document, **parts})


def _single_line(text: str, max_length: int) -> str:
    """Return a text as one line, because a line break in a name would start a new e-mail header."""
    text = replace_unprintable(text).strip()
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."


_WAITING = "notification"
_OVER = "notification_over"
# one document per channel: next number, number of changes, ChannelCounts
_CHANNEL = "notification_channel"


def add_notices(registry_rows: RegistryRows, notices: Iterable[Notice], channels: Iterable[str]) -> None:
    """
    Store a notification of each notice for each channel, in the transaction of the event.

    A notification that exists already does not change. Beyond MAX_WAITING in a channel, a new one is stored
    as failed.
    """
    checked = [check_notice(notice) for notice in notices]
    for channel in channels:
        books = _ChannelNotifications(registry_rows, channel)
        for notice in checked:
            id = notification_id(channel, notice.id)
            if registry_rows.document(_WAITING, id) is None and registry_rows.document(_OVER, id) is None:
                books.store_notification(
                    books.assign_next_number(Notification(notice=notice, channel=channel, number=0)),
                    now=notice.at,
                )
        books.store_counts()


def add_insight_notices(
    registry_rows: RegistryRows,
    insights: Iterable[Insight],
    subscriptions: Sequence[InsightSubscription],
    csv: Mapping[str, str] = {},
) -> None:
    """
    Add notices to subscribed channels, in the transaction that opens insights or makes them more severe.
    `csv`: the rows to attach, as CSV, by key of the insight's finding.
    """
    notices = [
        (insight_notice(insight, csv.get(insight.finding or "", "")), insight.category)
        for insight in insights
    ]
    for subscription in subscriptions:
        add_notices(
            registry_rows,
            [notice for notice, category in notices if subscription.is_subscribed_to(notice, category)],
            [subscription.channel],
        )


def add_anomaly_notices(
    registry_rows: RegistryRows, opened: Iterable[tuple[Insight, Collection[str]]]
) -> None:
    """
    Add notices to the channels of each insight's view, in the transaction that opens the insights.

    Call this before `add_insight_notices`, so that a channel receives each insight once.
    """
    for insight, channels in opened:
        add_notices(registry_rows, [replace(insight_notice(insight), kind=VIEW_ANOMALY)], channels)


class NoticeTable:
    """The notifications. They are not in memory, because changes of other tables add them."""

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer
        # Channels of the configuration: all of them, and those for insights.
        self.channels: tuple[str, ...] = ()
        self.subscriptions: tuple[InsightSubscription, ...] = ()
        # channels that accept reports, not only alerts
        self.report_channels: frozenset[str] = frozenset()
        # channels of the type webhook, which also get verdicts on budgets
        self.webhook_channels: frozenset[str] = frozenset()
        # channels that can send to a person's address
        self.mail_channels: frozenset[str] = frozenset()

    def check_channels(self, field: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.channels:
                known = ", ".join(self.channels) or "none"
                raise Invalid(f"{field}: {name[:60]!r} is not a channel of [[notify]]. Use one of: {known}")

    def check_report_channels(self, field: str, names: Iterable[str]) -> None:
        """Raise Invalid if a channel is unknown or accepts only alerts."""
        names = tuple(names)
        self.check_channels(field, names)
        for name in names:
            if name not in self.report_channels:
                raise Invalid(
                    f"{field}: {name} accepts only alerts. Use a mail channel, a chat channel or a webhook"
                )

    @property
    def version(self) -> int:
        return self._changes.version

    async def add(self, notices: Sequence[Notice], channels: Sequence[str]) -> None:
        await self._changes.change_rows(lambda rows: add_notices(rows, notices, channels))

    async def add_test_notice(self, notice: Notice, channel: str, *, actor: Actor) -> Notification:
        def add_and_audit_test_notice(registry_rows: RegistryRows) -> Notification:
            add_notices(registry_rows, [notice], [channel])
            registry_rows.add_audit(
                self._changes.now(), actor, "notification.test", channel, after={"notice": notice.id}
            )
            return _find_notification(registry_rows, notification_id(channel, notice.id))

        return await self._changes.change_rows(add_and_audit_test_notice)

    async def waiting_notifications(self) -> list[Notification]:
        """Return the waiting notifications by channel, each channel's in the order of addition."""
        return await self._changes.read(_notification_reader(_WAITING))

    async def wait_until_durable(self) -> None:
        """
        Wait until stored notifications are durable. Call this before sending, because otherwise a
        notification could be lost and sent again under another id.
        """
        await self._changes.wait_until_durable()

    async def notification_change_count(self, channel: str) -> int:
        """
        Return how often a channel's notifications have changed. This is faster to read than the
        notifications.
        """
        body = await self._changes.read(lambda rows: rows.document(_CHANNEL, channel))
        return int((body or {}).get("changes", 0))

    async def finished_notifications(self) -> list[Notification]:
        return await self._changes.read(_notification_reader(_OVER))

    async def find(self, id: str) -> Notification:
        return await self._changes.read(lambda rows: _find_notification(rows, id))

    async def channel_counts(self) -> Mapping[str, ChannelCounts]:
        def read_channel_counts(registry_rows: RegistryRows) -> Mapping[str, ChannelCounts]:
            return {
                channel: _decode_counts(body) for channel, body in registry_rows.documents(_CHANNEL).items()
            }

        return await self._changes.read(read_channel_counts)

    async def store_changed_notifications(self, changed: Sequence[Notification]) -> None:
        """Store changed notifications, except those that no longer wait."""
        now = self._changes.now()

        def store_changed_notifications(registry_rows: RegistryRows) -> None:
            still = [
                notification
                for notification in changed
                if registry_rows.document(_WAITING, notification.id) is not None
            ]
            for channel in {notification.channel for notification in still}:
                books = _ChannelNotifications(registry_rows, channel)
                for notification in still:
                    if notification.channel == channel:
                        books.remove_notification(notification)
                        books.store_notification(notification, now=now)
                books.store_counts()

        await self._changes.change_rows(store_changed_notifications)

    async def retry_notifications(self, ids: Collection[str], *, actor: Actor) -> int:
        """
        Send waiting notifications at once, and failed and discarded ones again after those that wait. Return
        how many changed.
        """

        def retried_notification(
            notification: Notification, books: _ChannelNotifications
        ) -> Notification | None:
            if notification.state == SENT:
                return None
            if notification.state == WAITING:
                return replace(notification, not_before=0.0)
            resent = Notification(notice=notification.notice, channel=notification.channel, number=0)
            return books.assign_next_number(replace(resent, reached=notification.reached))

        return await self._change_notifications("notification.retry", ids, retried_notification, actor)

    async def discard_notifications(self, ids: Collection[str], *, actor: Actor) -> int:
        """
        Mark waiting notifications as discarded. Return how many changed. Raises NotThere for an unknown id.
        """

        def discarded_notification(
            notification: Notification, books: _ChannelNotifications
        ) -> Notification | None:
            is_open = notification.state in (WAITING, FAILED)
            return replace(notification, state=DISCARDED) if is_open else None

        return await self._change_notifications("notification.discard", ids, discarded_notification, actor)

    async def delete_old(self) -> None:
        """
        Delete notifications that were finished more than KEPT_S seconds ago, then the oldest finished ones
        beyond MAX_OVER.
        """
        ends = self._changes.now() - KEPT_S
        over = sorted(
            await self.finished_notifications(),
            key=lambda finished: (finished.settled or 0.0, finished.id),
            reverse=True,
        )
        old = [notification for notification in over[:MAX_OVER] if (notification.settled or 0.0) <= ends]
        expired = [*old, *over[MAX_OVER:]]

        def delete_expired_notifications(registry_rows: RegistryRows) -> None:
            for notification in expired:
                registry_rows.delete_document(_OVER, notification.id)

        if expired:
            await self._changes.change_rows(delete_expired_notifications)

    async def _change_notifications(
        self,
        action: str,
        ids: Collection[str],
        changed: Callable[[Notification, _ChannelNotifications], Notification | None],
        actor: Actor,
    ) -> int:
        now = self._changes.now()

        def change_and_audit_notifications(registry_rows: RegistryRows) -> int:
            count = 0
            notifications = _sort_notifications(_find_notification(registry_rows, id) for id in set(ids))
            for channel in sorted({notification.channel for notification in notifications}):
                books = _ChannelNotifications(registry_rows, channel)
                notice_ids = []
                for notification in notifications:
                    after = changed(notification, books) if notification.channel == channel else None
                    if after is not None:
                        books.remove_notification(notification)
                        books.store_notification(after, now=now)
                        notice_ids.append(notification.notice.id)
                books.store_counts()
                if notice_ids:
                    shown = {"count": len(notice_ids), "notices": notice_ids[:100]}
                    registry_rows.add_audit(now, actor, action, channel, after=shown)
                count += len(notice_ids)
            return count

        return await self._changes.change_rows(change_and_audit_notifications)


class _ChannelNotifications:
    """
    The counts of one channel's notifications, and the number of the next one, within a transaction.
    `store_counts` stores them.
    """

    def __init__(self, registry_rows: RegistryRows, channel: str) -> None:
        self._rows = registry_rows
        self._channel = channel
        body = registry_rows.document(_CHANNEL, channel) or {}
        self._next: int = body.get("next", 1)
        self._changes: int = body.get("changes", 0)
        self._counts = _decode_counts(body)

    def assign_next_number(self, notification: Notification) -> Notification:
        self._next += 1
        return replace(notification, number=self._next - 1)

    def store_notification(self, notification: Notification, *, now: float) -> None:
        counts = self._counts
        if notification.state == WAITING and counts.waiting >= MAX_WAITING:
            error = f"{MAX_WAITING} notifications already wait for this channel"
            notification = replace(notification, state=FAILED, error=error)
        if notification.state == WAITING:
            self._counts = replace(counts, waiting=counts.waiting + 1)
            self._rows.put_document(_WAITING, notification.id, encode_notification(notification))
            return
        if notification.state == SENT:
            self._counts = replace(counts, sent=counts.sent + 1)
        elif notification.state == FAILED:
            self._counts = replace(counts, failed=counts.failed + 1)
        self._rows.put_document(
            _OVER, notification.id, encode_notification(replace(notification, settled=now))
        )

    def remove_notification(self, notification: Notification) -> None:
        if self._rows.document(_WAITING, notification.id) is not None:
            self._counts = replace(self._counts, waiting=self._counts.waiting - 1)
            self._rows.delete_document(_WAITING, notification.id)
        self._rows.delete_document(_OVER, notification.id)

    def store_counts(self) -> None:
        counts = self._counts
        channel_counts = {"waiting": counts.waiting, "sent": counts.sent, "failed": counts.failed}
        own = {"next": self._next, "changes": self._changes + 1}
        self._rows.put_document(_CHANNEL, self._channel, own | channel_counts)


def _decode_counts(body: Mapping[str, int]) -> ChannelCounts:
    return ChannelCounts(
        waiting=body.get("waiting", 0), sent=body.get("sent", 0), failed=body.get("failed", 0)
    )


def _find_notification(registry_rows: RegistryRows, id: str) -> Notification:
    document = registry_rows.document(_WAITING, id) or registry_rows.document(_OVER, id)
    if document is None:
        raise NotThere("no notification has this id")
    return decode_notification(document)


def _notification_reader(kind: str) -> Callable[[RegistryRows], list[Notification]]:
    return lambda rows: _sort_notifications(map(decode_notification, rows.documents(kind).values()))


def _sort_notifications(notifications: Iterable[Notification]) -> list[Notification]:
    return sorted(notifications, key=lambda notification: (notification.channel, notification.number))
