"""The channels of a configuration, each with the task that sends its notifications."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from exporters.notifications.catalogue import TYPES, build
from exporters.notifications.channel import KeptSettings
from exporters.notifications.channel_sender import ChannelSender
from exporters.notifications.schedule import schedule_of
from exporters.settings import NotifySettings
from spool.clock import Clock
from spool.errors import SpoolError
from spool.registry.notices import REMOVED, ChannelCounts, ChannelState, InsightSubscription
from spool.registry.tables.notices import NoticeTable

TRIM_EVERY_S = 3600.0
NO_INSIGHTS = "none"

_log = logging.getLogger(__name__)


class Notifier:
    """Tells the table which channels there are. They send only while `run` does."""

    def __init__(self, table: NoticeTable, settings: Sequence[NotifySettings], clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._senders: list[ChannelSender] = []
        self._changed = asyncio.Event()
        self._settings: Sequence[NotifySettings] = ()
        self._stated: Sequence[NotifySettings] = settings
        self._kept: Sequence[KeptSettings] = ()
        self._configure(settings)

    def configure(self, settings: Sequence[NotifySettings]) -> None:
        """Take other channels over: what is being sent is sent again under the same id."""
        self._stated = settings
        self._take_over()

    def keep(self, channels: Sequence[KeptSettings]) -> None:
        """Take over those that people made. One of the configuration has its name for itself."""
        self._kept = channels
        self._take_over()

    def _take_over(self) -> None:
        stated = {each.name for each in self._stated}
        settings = [*self._stated, *(each for each in self._kept if each.name not in stated)]
        if settings != list(self._settings):
            self._configure(settings)
            self._changed.set()

    async def run(self) -> None:
        """Send for ever, on every channel beside the others."""
        while True:
            self._changed.clear()
            senders = self._senders
            tasks = [
                asyncio.create_task(run) for run in (self._trim(), *(sender.run() for sender in senders))
            ]
            try:
                await self._changed.wait()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for sender in senders:
                    await sender.close()

    async def send_due(self) -> None:
        """Send everything that is due now, once."""
        await asyncio.gather(*(sender.send_due() for sender in self._senders))

    async def states(self) -> Sequence[ChannelState]:
        """
        Return the states of the configured channels in their order, then of channels that left and
        have waiting notifications.
        """
        counts = await self._table.counts()
        oldest: dict[str, float] = {}
        for each in await self._table.waiting():
            oldest[each.channel] = min(each.notice.at, oldest.get(each.channel, each.notice.at))
        states = [
            ChannelState(
                name=sender.name,
                type=settings.type,
                state=sender.state,
                reason=sender.reason,
                insights=settings.insights,
                counts=counts.get(sender.name, ChannelCounts()),
                oldest=oldest.get(sender.name),
                is_kept=isinstance(settings, KeptSettings),
            )
            for sender, settings in zip(self._senders, self._settings, strict=True)
        ]
        known = {state.name for state in states}
        removed = [
            ChannelState(
                name=name,
                type="",
                state=REMOVED,
                reason="there is no such channel any more: discard what waits, or add it again",
                insights=NO_INSIGHTS,
                counts=each,
                oldest=oldest.get(name),
            )
            for name, each in counts.items()
            if each.waiting and name not in known
        ]
        return [*states, *removed]

    async def close(self) -> None:
        for sender in self._senders:
            await sender.close()

    def _configure(self, settings: Sequence[NotifySettings]) -> None:
        self._settings = settings
        self._senders = [
            ChannelSender(
                each.name,
                build(each, self._clock),
                schedule_of(each, groups=TYPES[each.type].groups),
                self._table,
                self._clock,
            )
            for each in settings
        ]
        self._table.channels = tuple(each.name for each in settings)
        self._table.report_channels = frozenset(
            each.name for each in settings if TYPES[each.type].takes_reports
        )
        self._table.mail_channels = frozenset(each.name for each in settings if each.type == "email")
        self._table.subscriptions = tuple(
            InsightSubscription(channel=each.name, severity=each.insights, categories=each.categories)
            for each in settings
            if each.insights != NO_INSIGHTS
        )

    async def _trim(self) -> None:
        while True:
            try:
                await self._table.trim()
            except SpoolError as error:
                extra = {"action": "notifications_not_trimmed"}
                _log.warning("old notifications were not removed: %s", error, extra=extra)
            await asyncio.sleep(TRIM_EVERY_S)
