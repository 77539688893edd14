"""
The times at which a channel may send its notifications, from its settings and its waiting notifications. Pure.

Times of day are wall-clock times in the channel's time zone, so quiet hours may be an hour shorter or longer
when the clocks change. Critical notifications, reports and tests do not wait for the end of quiet hours or
for the digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from exporters.settings import NotifySettings
from spool.registry.notices import ALONE, CRITICAL, INFO, Notification

MAX_GROUP = 20  # maximum number of notifications per message
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """
    The times at which a channel may send. `quiet`: start and end of quiet hours. Without `group_wait_s`, each
    notification is sent by itself.
    """

    zone: tzinfo = UTC
    quiet: tuple[time, time] | None = None
    digest: time | None = None
    group_wait_s: float | None = None

    def held_until(self, notification: Notification, now: float) -> float:
        """
        Return until when the schedule delays a notification (epoch seconds), 0 if it may be sent at once.
        """
        notice = notification.notice
        if notice.severity == CRITICAL or notice.kind in ALONE:
            return 0.0
        digest = 0.0
        if self.digest is not None and notice.severity == INFO:
            digest = self._next_moment(self.digest, min(notice.at, now))
        if digest > now:
            return digest
        return self._end_of_quiet_hours(now)

    def _end_of_quiet_hours(self, now: float) -> float:
        if self.quiet is None:
            return 0.0
        begins, ends = self.quiet
        local = datetime.fromtimestamp(now, self.zone).time()
        is_quiet = begins <= local < ends if begins < ends else local >= begins or local < ends
        return self._next_moment(ends, now) if is_quiet else 0.0

    def _next_moment(self, at: time, after: float) -> float:
        local = datetime.fromtimestamp(after, self.zone)
        on_that_day = datetime.combine(local.date(), at, self.zone)
        if on_that_day.timestamp() <= after:
            on_that_day = datetime.combine(local.date() + timedelta(days=1), at, self.zone)
        return on_that_day.timestamp()


def build_schedule(settings: NotifySettings, *, groups: bool) -> Schedule:
    """Return the schedule of a channel. Raises ValueError for times or a time zone that do not exist."""
    begins, _, ends = settings.quiet_hours.partition("-")
    return Schedule(
        zone=UTC if settings.time_zone == "UTC" else ZoneInfo(settings.time_zone),
        quiet=(_parse_time(begins), _parse_time(ends)) if settings.quiet_hours else None,
        digest=_parse_time(settings.digest) if settings.digest else None,
        group_wait_s=settings.group_wait if groups else None,
    )


def schedule_problems(shown_name: str, settings: NotifySettings) -> Iterator[str]:
    begins, _, ends = settings.quiet_hours.partition("-")
    if settings.quiet_hours and not (_TIME.fullmatch(begins) and _TIME.fullmatch(ends) and begins != ends):
        yield f'{shown_name}.quiet_hours must be two different times such as "22:00-07:00"'
    if settings.digest and not _TIME.fullmatch(settings.digest):
        yield f'{shown_name}.digest must be a time such as "08:00"'
    try:
        build_schedule(replace(settings, quiet_hours="", digest=""), groups=False)
    except (ValueError, KeyError, OSError):
        # the name of the time zone is unknown, is an impossible path, or names a directory
        yield (
            f"{shown_name}.time_zone: {settings.time_zone!r} is not a time zone; use a name such as Europe/Berlin"
        )


def next_notifications_and_send_time(
    waiting: Sequence[Notification], schedule: Schedule, *, now: float
) -> tuple[Sequence[Notification], float]:
    """
    Return the notifications that a channel sends next as one message, and the time to send them. `waiting`
    is in order.

    A message that was already tried is first, so that the order is preserved, and no other notification is
    added to it. If nothing waits, return no notifications and infinity.
    """
    begun = [notification for notification in waiting if notification.message is not None]
    if begun:
        first = min(notification.message or 0 for notification in begun)
        message = [notification for notification in begun if notification.message == first]
        held = min(schedule.held_until(notification, now) for notification in message)
        return message, max(held, message[0].not_before)
    free = [notification for notification in waiting if schedule.held_until(notification, now) <= now]
    if not free:
        return (), min(
            (schedule.held_until(notification, now) for notification in waiting), default=float("inf")
        )
    first_free = free[0]
    if schedule.group_wait_s is None or first_free.notice.kind in ALONE:
        return [first_free], 0.0
    at = first_free.notice.at
    # A time in the future means that the clock was set back. In that case, the message leaves without waiting
    # for other notifications.
    leaves = at + schedule.group_wait_s if at <= now else 0.0
    similar = [
        notification
        for notification in free
        if notification.notice.kind not in ALONE and notification.reached == first_free.reached
    ]
    return similar[:MAX_GROUP], leaves


def _parse_time(text: str) -> time:
    return time.fromisoformat(text)
