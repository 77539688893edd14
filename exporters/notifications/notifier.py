"""The channels of a configuration, each with a task that sends its notifications."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from exporters.errors import Misconfigured, Retryable, SendError
from exporters.notifications.catalogue import TYPES, build_channel
from exporters.notifications.channel import (
    Channel,
    NotificationMessage,
    PartlyDelivered,
    StoredChannelSettings,
)
from exporters.notifications.schedule import Schedule, build_schedule, next_notifications_and_send_time
from exporters.pace import Backoff
from exporters.settings import NotifySettings
from spool.clock import Clock
from spool.errors import SpoolUnavailable
from spool.loops import repeat
from spool.registry.notices import (
    CRITICAL,
    FAILED,
    FAILING,
    PARKED,
    REMOVED,
    RUNNING,
    SENT,
    ChannelCounts,
    ChannelState,
    InsightSubscription,
    NoticeTable,
    Notification,
)

LOOK_EVERY_S = 1.0
LOOK_AGAIN_S = 60.0  # maximum seconds between two checks for notifications that are due
PARKED_S = 60.0
# seconds to wait after the storage was unavailable, or could not confirm that a message is stored
SPOOL_AGAIN_S = 5.0
FAULT = "fault:"  # prefix of the channel's reason if Tollhouse itself has an internal error
GIVE_UP_S = 86_400.0
BACKOFF = Backoff(first_s=10.0, most_s=3600.0)
TRIM_EVERY_S = 3600.0
NO_INSIGHTS = "none"

_log = logging.getLogger(__name__)


class ChannelSender:
    """
    Sends the notifications of one channel in order, one message at a time.

    After a failure it waits from 10 s to an hour, and gives up after GIVE_UP_S. A channel with a wrong
    address or secret is paused. It is then tried every PARKED_S, and at once when its files change, without
    ever giving up.
    """

    def __init__(
        self, name: str, channel: Channel, schedule: Schedule, table: NoticeTable, clock: Clock
    ) -> None:
        self.name = name
        self.state = RUNNING
        self._reason = ""
        self._wait_reason = ""  # reason why the sender waits for the storage
        self._channel = channel
        self._schedule = schedule
        self._table = table
        self._clock = clock
        self._stamp = channel.secret_file_state()
        self._wake_at = 0.0  # a monotonic time, so that a change of the wall clock delays nothing
        # The newest versions that this sender has seen: of the registry, and of this
        # channel's waiting notifications.
        self._seen = 0
        self._changes = -1
        # After a start or a new setup of the channel, notifications that wait for a later attempt are
        # tried at once.
        self._is_eager = True

    @property
    def state_reason(self) -> str:
        return f"waits: {self._wait_reason}" if self._wait_reason else self._reason

    async def run(self) -> None:
        """
        Send due notifications until cancelled.

        A cancelled message stays unsent in the storage and is sent again under the same id.
        """
        await repeat(
            self._send_if_due,
            every_s=LOOK_EVERY_S,
            failed="notifications wait",
            action="notifications_put_off",
        )

    async def _send_if_due(self) -> None:
        try:
            if await self._check_if_due_to_send(self._wake_at):
                rest_s = await self.send_due_and_return_next_time() - self._clock.now()
                self._wake_at = self._clock.monotonic() + min(rest_s, LOOK_AGAIN_S)
                self._wait_reason = ""
                if self._reason.startswith(FAULT):
                    self.state, self._reason = RUNNING, ""
        except SpoolUnavailable as error:  # either nothing was sent, or the outcome was not stored
            self._set_wait_reason(str(error))
            self._wake_at = self._clock.monotonic() + SPOOL_AGAIN_S
        except Exception as error:  # noqa: BLE001 - the state must name the defect
            _log.exception(
                "notifications wait", extra={"action": "notifications_put_off", "channel": self.name}
            )
            self.state, self._reason = PARKED, f"{FAULT} {type(error).__name__}"
            self._wake_at = self._clock.monotonic() + PARKED_S

    async def send_due_and_return_next_time(self) -> float:
        """Send every message that is due now. Return the time at which the next message is due."""
        while True:
            now = self._clock.now()
            self._seen = self._table.version
            self._changes = await self._table.notification_change_count(self.name)
            waiting = [
                notification
                for notification in await self._table.waiting_notifications()
                if notification.channel == self.name
            ]
            if self._is_eager or self._has_new_files():
                waiting = [replace(notification, not_before=0.0) for notification in waiting]
            group, at = next_notifications_and_send_time(waiting, self._schedule, now=now)
            if at > now:
                return at
            self._is_eager = False
            await self._send_message(group, waiting)

    async def close(self) -> None:
        await self._channel.close()

    def _set_wait_reason(self, reason: str) -> None:
        if reason != self._wait_reason:
            facts = {"action": "notifications_put_off", "channel": self.name}
            _log.warning("notifications of %s wait: %s", self.name, reason, extra=facts)
        self._wait_reason = reason

    async def _check_if_due_to_send(self, wake_at: float) -> bool:
        if self._clock.monotonic() >= wake_at or self._has_new_files():
            return True
        if self._table.version == self._seen:
            return False
        self._seen = self._table.version
        return await self._table.notification_change_count(self.name) != self._changes

    def _has_new_files(self) -> bool:
        return self.state == PARKED and self._channel.secret_file_state() != self._stamp

    async def _send_message(self, group: Sequence[Notification], waiting: Sequence[Notification]) -> None:
        first = group[0]
        if first.message is None:
            group = [replace(notification, message=first.number) for notification in group]
            await self._table.store_changed_notifications(group)
        await self._table.wait_until_durable()
        self._stamp = self._channel.secret_file_state()
        try:
            details = await self._channel.send(
                NotificationMessage(
                    notices=[notification.notice for notification in group], reached=first.reached
                )
            )
        except Misconfigured as error:
            self._set_state(PARKED, error)
            await self._postpone_message(group, waiting, error, wait_s=PARKED_S)
        except Retryable as error:
            self._set_state(FAILING, error)
            await self._postpone_message(
                group, waiting, error, wait_s=BACKOFF.delay_s(first.attempts + 1, error.retry_after_s)
            )
        except SendError as error:
            await self._handle_rejection(group, error)
        else:
            self.state, self._reason = RUNNING, ""
            sent = [
                replace(
                    notification,
                    state=SENT,
                    attempts=notification.attempts + 1,
                    error=details,
                    failing_since=None,
                )
                for notification in group
            ]
            in_group = {notification.id for notification in group}
            recovered = [
                replace(notification, failing_since=None)
                for notification in waiting
                if notification.failing_since is not None and notification.id not in in_group
            ]
            await self._table.store_changed_notifications([*sent, *recovered])

    async def _postpone_message(
        self,
        group: Sequence[Notification],
        waiting: Sequence[Notification],
        error: SendError,
        *,
        wait_s: float,
    ) -> None:
        """
        Store the message for a later attempt.

        All notifications that wait after it also count as failing. A notification on a failing channel is
        given up after GIVE_UP_S seconds, without the time for which the channel is paused.
        """
        now = self._clock.now()
        in_group = {notification.id for notification in group}
        reached = error.reached if isinstance(error, PartlyDelivered) else group[0].reached
        changed = []
        for notification in (
            *group,
            *(notification for notification in waiting if notification.id not in in_group),
        ):
            since = None if self.state == PARKED else notification.failing_since or now
            after = replace(notification, failing_since=since)
            if notification.id in in_group:
                after = replace(after, attempts=notification.attempts + 1, error=str(error))
                after = replace(after, not_before=now + wait_s, reached=reached)
            if since is not None and now - since >= GIVE_UP_S:
                after = replace(after, state=FAILED, error=str(error))
            if after != notification:
                changed.append(after)
        await self._table.store_changed_notifications(changed)

    async def _handle_rejection(self, group: Sequence[Notification], error: SendError) -> None:
        """
        Handle a rejected message. One with several notifications is sent again as single messages. One with a
        single notification has failed.
        """
        extra = {"action": "notification_refused", "channel": self.name, "notices": len(group)}
        _log.warning("a notification was rejected: %s", error, extra=extra)
        if len(group) > 1:
            alone = [
                replace(notification, message=notification.number, attempts=notification.attempts + 1)
                for notification in group
            ]
            await self._table.store_changed_notifications(alone)
            return
        [failed] = group
        await self._table.store_changed_notifications(
            [replace(failed, state=FAILED, attempts=failed.attempts + 1, error=str(error))]
        )

    def _set_state(self, state: str, error: SendError) -> None:
        if self.state != state:
            extra = {"action": f"channel_{state}", "channel": self.name}
            _log.warning("notifications cannot be delivered: %s", error, extra=extra)
        self.state, self._reason = state, str(error)


def _state_with_waiting(channel: ChannelState, waiting: Sequence[Notification]) -> ChannelState:
    """
    Return the state, updated from waiting notifications. After a restart, and in other gateways, only these
    show that the channel fails.
    """
    failing = [each for each in waiting if each.failing_since is not None]
    state, reason = channel.state, channel.reason
    if state == RUNNING and failing:
        state = FAILING
        reason = next((each.error for each in failing if each.error), "")
    return replace(
        channel,
        state=state,
        reason=reason,
        oldest=min((each.notice.at for each in waiting), default=None),
        failing_since=min((each.failing_since for each in failing if each.failing_since), default=None),
        critical=sum(each.notice.severity == CRITICAL for each in waiting),
    )


class Notifier:
    """
    All channels. They send only while `run` runs. The notifier also registers in the notification table which
    channels exist.
    """

    def __init__(
        self,
        table: NoticeTable,
        settings: Sequence[NotifySettings],
        clock: Clock,
        build: Callable[[NotifySettings, Clock], Channel] = build_channel,
    ) -> None:
        self._table = table
        self._clock = clock
        self._build = build
        self._senders: list[ChannelSender] = []
        self._changed = asyncio.Event()
        self._settings: Sequence[NotifySettings] = ()
        self._configured: Sequence[NotifySettings] = settings
        self._stored: Sequence[StoredChannelSettings] = ()
        self._build_senders(settings)

    def set_configured_channels(self, settings: Sequence[NotifySettings]) -> None:
        """
        Use these configured channels from now on. A message in progress is sent again under the same id.
        """
        self._configured = settings
        self._apply_channels()

    def set_stored_channels(self, channels: Sequence[StoredChannelSettings]) -> None:
        """
        Use these channels, created by people, from now on. A configured channel with the same name has
        precedence.
        """
        self._stored = channels
        self._apply_channels()

    def _apply_channels(self) -> None:
        stated = {channel.name for channel in self._configured}
        settings = [*self._configured, *(channel for channel in self._stored if channel.name not in stated)]
        if settings != list(self._settings):
            self._build_senders(settings)
            self._changed.set()

    async def run(self) -> None:
        """Send on all channels at once, until cancelled."""

        async def send_until_channels_change() -> None:
            self._changed.clear()
            senders = self._senders
            tasks = [
                asyncio.create_task(run)
                for run in (self._delete_old_periodically(), *(sender.run() for sender in senders))
            ]
            try:
                await self._changed.wait()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for sender in senders:
                    await sender.close()

        await repeat(
            send_until_channels_change,
            every_s=0.0,
            failed="notifications wait",
            action="notifications_put_off",
            retry_s=PARKED_S,
        )

    async def send_due(self) -> None:
        await asyncio.gather(*(sender.send_due_and_return_next_time() for sender in self._senders))

    async def channel_states(self) -> Sequence[ChannelState]:
        """
        Return the states of the current channels in their order, then the states of removed channels
        with waiting notifications.
        """
        counts = await self._table.channel_counts()
        waiting: dict[str, list[Notification]] = defaultdict(list)
        for notification in await self._table.waiting_notifications():
            waiting[notification.channel].append(notification)
        states = [
            _state_with_waiting(
                ChannelState(
                    name=sender.name,
                    type=settings.type,
                    state=sender.state,
                    reason=sender.state_reason,
                    insights=settings.insights,
                    counts=counts.get(sender.name, ChannelCounts()),
                    oldest=None,
                    is_kept=isinstance(settings, StoredChannelSettings),
                ),
                waiting[sender.name],
            )
            for sender, settings in zip(self._senders, self._settings, strict=True)
        ]
        names = {state.name for state in states}
        removed = [
            _state_with_waiting(
                ChannelState(
                    name=name,
                    type="",
                    state=REMOVED,
                    reason="this channel no longer exists: discard its waiting notifications, or add it again",
                    insights=NO_INSIGHTS,
                    counts=channel_counts,
                    oldest=None,
                ),
                waiting[name],
            )
            for name, channel_counts in counts.items()
            if channel_counts.waiting and name not in names
        ]
        return [*states, *removed]

    async def close(self) -> None:
        for sender in self._senders:
            await sender.close()

    def _build_senders(self, settings: Sequence[NotifySettings]) -> None:
        self._settings = settings
        self._senders = [
            ChannelSender(
                channel.name,
                self._build(channel, self._clock),
                build_schedule(channel, groups=TYPES[channel.type].groups),
                self._table,
                self._clock,
            )
            for channel in settings
        ]
        _register_channels(self._table, settings)

    def register_channels(self, table: NoticeTable, kept: Sequence[StoredChannelSettings]) -> None:
        """Register the names of the configured channels and of `kept` in a table. Nothing is sent to them."""
        stated = {channel.name for channel in self._configured}
        _register_channels(
            table, [*self._configured, *(channel for channel in kept if channel.name not in stated)]
        )

    async def _delete_old_periodically(self) -> None:
        await repeat(
            self._table.delete_old,
            every_s=TRIM_EVERY_S,
            failed="old notifications were not deleted",
            action="notifications_not_trimmed",
        )


def _channels_of_type(type: str, settings: Sequence[NotifySettings]) -> frozenset[str]:
    return frozenset(channel.name for channel in settings if channel.type == type)


def _register_channels(table: NoticeTable, settings: Sequence[NotifySettings]) -> None:
    table.channels = tuple(channel.name for channel in settings)
    table.report_channels = frozenset(
        channel.name for channel in settings if TYPES[channel.type].takes_reports
    )
    table.mail_channels = _channels_of_type("email", settings)
    table.webhook_channels = _channels_of_type("webhook", settings)
    table.subscriptions = tuple(
        InsightSubscription(channel=channel.name, severity=channel.insights, categories=channel.categories)
        for channel in settings
        if channel.insights != NO_INSIGHTS
    )
