"""
The notifications of a registry: each notice is stored for each of its channels before anybody tries to send it.

Those that wait and those that are over are apart, so that the sending task reads no history.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from spool.errors import Invalid, NotThere
from spool.registry.changes import Changes
from spool.registry.insights import Insight
from spool.registry.notices import (
    DISCARDED,
    FAILED,
    KEPT_S,
    MAX_OVER,
    MAX_WAITING,
    SENT,
    VIEW_ANOMALY,
    WAITING,
    ChannelCounts,
    InsightSubscription,
    Notice,
    Notification,
    check_notice,
    document_of,
    insight_notice,
    notification_id,
    read_notification,
)
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows

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
