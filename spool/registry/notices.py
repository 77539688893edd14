"""
Notices: what is told to people or programs outside of Tollhouse, and the notification that each channel
makes of one.

Values and rules; no file, no protocol. What a channel is, and how it sends, is known above.

Each notice is stored for each of its channels before anybody tries to send it. Those that wait and those that are over
are apart, so that the sending task reads no history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Any

from spool.errors import Invalid, NotThere
from spool.printable import printable
from spool.registry.changes import Changes
from spool.registry.insights import Insight
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import web_link

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


_WAITING = "notification"
_OVER = "notification_over"
# per channel: the next number, how often it was changed, and its ChannelCounts
_CHANNEL = "notification_channel"


def add_notices(rows: RegistryRows, notices: Iterable[Notice], channels: Iterable[str]) -> None:
    """
    Store a notification for each notice and channel, within the transaction of what the notices are about.

    One that is known already, waiting or over, stays as it is. Where MAX_WAITING wait already, it has
    failed at once.
    """
    checked = [check_notice(notice) for notice in notices]
    for channel in channels:
        books = _ChannelBooks(rows, channel)
        for notice in checked:
            id = notification_id(channel, notice.id)
            if rows.document(_WAITING, id) is None and rows.document(_OVER, id) is None:
                books.put(
                    books.numbered(Notification(notice=notice, channel=channel, number=0)), now=notice.at
                )
        books.close()


def add_insight_notices(
    rows: RegistryRows, insights: Iterable[Insight], subscriptions: Sequence[InsightSubscription]
) -> None:
    """Tell of insights that were opened, within the transaction that opens them."""
    told = [(insight_notice(insight), insight.category) for insight in insights]
    for each in subscriptions:
        add_notices(
            rows, [notice for notice, category in told if each.takes(notice, category)], [each.channel]
        )


def add_anomaly_notices(rows: RegistryRows, opened: Iterable[tuple[Insight, Collection[str]]]) -> None:
    """
    Tell the channels that views name of their anomalies, within the transaction that opens the insights.
    Before `add_insight_notices`: a channel is told of an insight once.
    """
    for insight, channels in opened:
        add_notices(rows, [replace(insight_notice(insight), kind=VIEW_ANOMALY)], channels)


class NoticeTable:
    """What waits and what is over. No row is kept in memory: notices are added within other tables' changes."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        # Set by whoever read the configuration: the names of its channels, and which are told of insights.
        self.channels: tuple[str, ...] = ()
        self.subscriptions: tuple[InsightSubscription, ...] = ()
        self.report_channels: frozenset[str] = frozenset()  # those that take more than alerts
        self.mail_channels: frozenset[str] = frozenset()  # those that write to a person's address

    def check_channels(self, field: str, names: Iterable[str]) -> None:
        """Invalid for a name that no channel of the configuration has."""
        for name in names:
            if name not in self.channels:
                known = ", ".join(self.channels) or "none"
                raise Invalid(f"{field}: {name[:60]!r} is not a channel of [[notify]]; there are: {known}")

    def check_report_channels(self, field: str, names: Iterable[str]) -> None:
        """Invalid for a name that no channel has, or one that takes alerts alone."""
        names = tuple(names)
        self.check_channels(field, names)
        for name in names:
            if name not in self.report_channels:
                raise Invalid(
                    f"{field}: {name} takes alerts alone; name a channel of mail or chat, or a webhook"
                )

    @property
    def version(self) -> int:
        """Grows with every change of the registry, of whatever is in it."""
        return self._changes.version

    async def add(self, notices: Sequence[Notice], channels: Sequence[str]) -> None:
        await self._changes.change(lambda rows: add_notices(rows, notices, channels))

    async def test(self, notice: Notice, channel: str, *, actor: Actor) -> Notification:
        """Add a notice that shows whether a channel works."""

        def work(rows: RegistryRows) -> Notification:
            add_notices(rows, [notice], [channel])
            rows.add_audit(
                self._changes.now(), actor, "notification.test", channel, after={"notice": notice.id}
            )
            return _find(rows, notification_id(channel, notice.id))

        return await self._changes.change(work)

    async def waiting(self) -> list[Notification]:
        """Return the waiting notices of each channel, in the order in which they were added."""
        return await self._changes.read(_reader(_WAITING))

    async def confirm(self) -> None:
        """Asked before what waits is sent: it is kept for good, so that it never leaves again under another id."""
        await self._changes.confirm()

    async def changes(self, channel: str) -> int:
        """Grows with every change of what waits for a channel: cheaper to ask for than what waits."""
        body = await self._changes.read(lambda rows: rows.document(_CHANNEL, channel))
        return int((body or {}).get("changes", 0))

    async def over(self) -> list[Notification]:
        """Sent, failed and discarded ones."""
        return await self._changes.read(_reader(_OVER))

    async def find(self, id: str) -> Notification:
        return await self._changes.read(lambda rows: _find(rows, id))

    async def counts(self) -> Mapping[str, ChannelCounts]:
        """Return the counts of each channel, also of channels that left the configuration."""

        def read(rows: RegistryRows) -> Mapping[str, ChannelCounts]:
            return {channel: _counts(body) for channel, body in rows.documents(_CHANNEL).items()}

        return await self._changes.read(read)

    async def update(self, changed: Sequence[Notification]) -> None:
        """Keep what became of notifications; one that does not wait any more stays as it is."""
        now = self._changes.now()

        def work(rows: RegistryRows) -> None:
            still = [each for each in changed if rows.document(_WAITING, each.id) is not None]
            for channel in {each.channel for each in still}:
                books = _ChannelBooks(rows, channel)
                for notification in still:
                    if notification.channel == channel:
                        books.remove(notification)
                        books.put(notification, now=now)
                books.close()

        await self._changes.change(work)

    async def retry(self, ids: Collection[str], *, actor: Actor) -> int:
        """Send those that failed or were discarded again, after those that wait, which are tried at once."""

        def changed(notification: Notification, books: _ChannelBooks) -> Notification | None:
            if notification.state == SENT:
                return None
            if notification.state == WAITING:
                return replace(notification, not_before=0.0)
            again = Notification(notice=notification.notice, channel=notification.channel, number=0)
            return books.numbered(replace(again, reached=notification.reached))

        return await self._change_by_hand("notification.retry", ids, changed, actor)

    async def discard(self, ids: Collection[str], *, actor: Actor) -> int:
        """Give up those that wait or failed."""

        def changed(notification: Notification, books: _ChannelBooks) -> Notification | None:
            is_open = notification.state in (WAITING, FAILED)
            return replace(notification, state=DISCARDED) if is_open else None

        return await self._change_by_hand("notification.discard", ids, changed, actor)

    async def trim(self) -> None:
        """Forget those that are over for KEPT_S, and the oldest beyond MAX_OVER."""
        ends = self._changes.now() - KEPT_S
        over = sorted(await self.over(), key=lambda each: (each.settled or 0.0, each.id), reverse=True)
        old = [each for each in over[:MAX_OVER] if (each.settled or 0.0) <= ends]
        gone = [*old, *over[MAX_OVER:]]

        def work(rows: RegistryRows) -> None:
            for each in gone:
                rows.delete_document(_OVER, each.id)

        if gone:
            await self._changes.change(work)

    async def _change_by_hand(
        self,
        action: str,
        ids: Collection[str],
        changed: Callable[[Notification, _ChannelBooks], Notification | None],
        actor: Actor,
    ) -> int:
        """Change notices by hand and return how many changed. NotThere if an id is unknown: then none changed."""
        now = self._changes.now()

        def work(rows: RegistryRows) -> int:
            count = 0
            notifications = _in_order(_find(rows, id) for id in set(ids))
            for channel in sorted({each.channel for each in notifications}):
                books = _ChannelBooks(rows, channel)
                done = []
                for notification in notifications:
                    after = changed(notification, books) if notification.channel == channel else None
                    if after is not None:
                        books.remove(notification)
                        books.put(after, now=now)
                        done.append(notification.notice.id)
                books.close()
                if done:
                    shown = {"count": len(done), "notices": done[:100]}
                    rows.add_audit(now, actor, action, channel, after=shown)
                count += len(done)
            return count

        return await self._changes.change(work)


class _ChannelBooks:
    """The counts of one channel within a transaction; `close` keeps them."""

    def __init__(self, rows: RegistryRows, channel: str) -> None:
        self._rows = rows
        self._channel = channel
        body = rows.document(_CHANNEL, channel) or {}
        self._next: int = body.get("next", 1)
        self._changes: int = body.get("changes", 0)
        self._counts = _counts(body)

    def numbered(self, notification: Notification) -> Notification:
        """The last in the order of the channel."""
        self._next += 1
        return replace(notification, number=self._next - 1)

    def put(self, notification: Notification, *, now: float) -> None:
        """Add it to those that wait, or to those that are over."""
        counts = self._counts
        if notification.state == WAITING and counts.waiting >= MAX_WAITING:
            error = f"{MAX_WAITING} notifications wait for this channel already"
            notification = replace(notification, state=FAILED, error=error)
        if notification.state == WAITING:
            self._counts = replace(counts, waiting=counts.waiting + 1)
            self._rows.put_document(_WAITING, notification.id, document_of(notification))
            return
        if notification.state == SENT:
            self._counts = replace(counts, sent=counts.sent + 1)
        elif notification.state == FAILED:
            self._counts = replace(counts, failed=counts.failed + 1)
        self._rows.put_document(_OVER, notification.id, document_of(replace(notification, settled=now)))

    def remove(self, notification: Notification) -> None:
        """Take it from wherever it is, to be put again."""
        if self._rows.document(_WAITING, notification.id) is not None:
            self._counts = replace(self._counts, waiting=self._counts.waiting - 1)
            self._rows.delete_document(_WAITING, notification.id)
        self._rows.delete_document(_OVER, notification.id)

    def close(self) -> None:
        counts = self._counts
        kept = {"waiting": counts.waiting, "sent": counts.sent, "failed": counts.failed}
        own = {"next": self._next, "changes": self._changes + 1}
        self._rows.put_document(_CHANNEL, self._channel, own | kept)


def _counts(body: Mapping[str, int]) -> ChannelCounts:
    return ChannelCounts(
        waiting=body.get("waiting", 0), sent=body.get("sent", 0), failed=body.get("failed", 0)
    )


def _find(rows: RegistryRows, id: str) -> Notification:
    document = rows.document(_WAITING, id) or rows.document(_OVER, id)
    if document is None:
        raise NotThere("there is no notification with this id")
    return read_notification(document)


def _reader(kind: str) -> Callable[[RegistryRows], list[Notification]]:
    return lambda rows: _in_order(map(read_notification, rows.documents(kind).values()))


def _in_order(notifications: Iterable[Notification]) -> list[Notification]:
    return sorted(notifications, key=lambda each: (each.channel, each.number))
