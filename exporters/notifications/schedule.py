"""
When a channel may send which notices: pure, from its settings and what waits.

Times of day are wall-clock times of the channel's zone, so a quiet night is an hour shorter or longer when
clocks are changed. Critical notices, reports and tests wait for neither quiet hours nor the digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from exporters.settings import NotifySettings
from spool.registry.notices import ALONE, CRITICAL, INFO, Notification

MAX_GROUP = 20  # notices of one message
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`quiet` are the wall-clock times of its beginning and end; `group_wait_s` None: each notice leaves alone."""

    zone: tzinfo = UTC
    quiet: tuple[time, time] | None = None
    digest: time | None = None
    group_wait_s: float | None = None

    def held_until(self, notification: Notification, now: float) -> float:
        """When it may leave for all that these settings say; 0 for at once."""
        notice = notification.notice
        if notice.severity == CRITICAL or notice.kind in ALONE:
            return 0.0
        digest = 0.0
        if self.digest is not None and notice.severity == INFO:
            digest = self._next(self.digest, min(notice.at, now))
        if digest > now:
            return digest
        return self._quiet_until(now)

    def _quiet_until(self, now: float) -> float:
        if self.quiet is None:
            return 0.0
        begins, ends = self.quiet
        local = datetime.fromtimestamp(now, self.zone).time()
        is_quiet = begins <= local < ends if begins < ends else local >= begins or local < ends
        return self._next(ends, now) if is_quiet else 0.0

    def _next(self, at: time, after: float) -> float:
        """The first moment after a time at which clocks of the zone show `at`."""
        local = datetime.fromtimestamp(after, self.zone)
        on_that_day = datetime.combine(local.date(), at, self.zone)
        if on_that_day.timestamp() <= after:
            on_that_day = datetime.combine(local.date() + timedelta(days=1), at, self.zone)
        return on_that_day.timestamp()


def schedule_of(settings: NotifySettings, *, groups: bool) -> Schedule:
    """ValueError for times or a zone that do not exist."""
    begins, _, ends = settings.quiet_hours.partition("-")
    return Schedule(
        zone=UTC if settings.time_zone == "UTC" else ZoneInfo(settings.time_zone),
        quiet=(_time(begins), _time(ends)) if settings.quiet_hours else None,
        digest=_time(settings.digest) if settings.digest else None,
        group_wait_s=settings.group_wait if groups else None,
    )


def problems(shown: str, settings: NotifySettings) -> Iterator[str]:
    """Yield the problems of a channel's times."""
    begins, _, ends = settings.quiet_hours.partition("-")
    if settings.quiet_hours and not (_TIME.fullmatch(begins) and _TIME.fullmatch(ends) and begins != ends):
        yield f'{shown}.quiet_hours must be two different times such as "22:00-07:00"'
    if settings.digest and not _TIME.fullmatch(settings.digest):
        yield f'{shown}.digest must be a time such as "08:00"'
    try:
        schedule_of(replace(settings, quiet_hours="", digest=""), groups=False)
    except (ValueError, KeyError, OSError):  # an unknown name, an impossible path, or a directory of zones
        yield f"{shown}.time_zone: {settings.time_zone!r} is not a time zone such as Europe/Berlin"


def next_message(
    waiting: Sequence[Notification], schedule: Schedule, *, now: float
) -> tuple[Sequence[Notification], float]:
    """
    The notifications of a channel, which are in their order, that leave next as one message, and when.

    A message that was tried comes first, so that the order is kept; it is never joined by others. Nothing and
    infinity when nothing waits.
    """
    begun = [each for each in waiting if each.message is not None]
    if begun:
        first = min(each.message or 0 for each in begun)
        message = [each for each in begun if each.message == first]
        held = min(schedule.held_until(each, now) for each in message)
        return message, max(held, message[0].not_before)
    free = [each for each in waiting if schedule.held_until(each, now) <= now]
    if not free:
        return (), min((schedule.held_until(each, now) for each in waiting), default=float("inf"))
    first_free = free[0]
    if schedule.group_wait_s is None or first_free.notice.kind in ALONE:
        return [first_free], 0.0
    at = first_free.notice.at
    # One from the future comes of a clock that was set back: it waits for no company.
    leaves = at + schedule.group_wait_s if at <= now else 0.0
    alike = [each for each in free if each.notice.kind not in ALONE and each.reached == first_free.reached]
    return alike[:MAX_GROUP], leaves


def _time(text: str) -> time:
    return time.fromisoformat(text)
