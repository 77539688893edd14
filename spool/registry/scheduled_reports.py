"""
Scheduled reports: a view's costs, told each week or month at a time of day. Values and rules; no file.

A report is cut to what its owner may see when it is sent; the owner "" stands for everything.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from spool.errors import Invalid
from spool.registry.operators import check_email
from spool.registry.shared.documents import DocumentKind
from spool.registry.shared.edits import version_of
from spool.registry.shared.texts import check_one_of, check_text

WEEK, MONTH = "week", "month"
EVERY = (WEEK, MONTH)
MAX_NAME = 200
MAX_CHANNELS = 50
MAX_PEOPLE = 50
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledReportDraft:
    """
    What a person states. `day`: of a week 1 for Monday to 7, of a month 1 to 28. `at` is a time of day in the zone.

    With `people`, channels of e-mail write to each of them, cut to what each may see, and to nobody else.
    """

    name: str
    view_id: str
    every: str = WEEK
    day: int = 1
    at: str = "08:00"
    time_zone: str = "UTC"
    channels: tuple[str, ...]
    people: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledReport(ScheduledReportDraft):
    """As it is kept. Times are epoch seconds. `done` is the newest moment of the schedule that needs nothing more."""

    id: str
    owner: str
    created: float
    last_updated: float
    done: float
    problem: str = ""

    @property
    def version(self) -> str:
        return version_of(replace(self, done=0.0, problem=""))

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)

    def due(self, now: float) -> float:
        """The newest moment of the schedule that is not after `now`."""
        local = datetime.fromtimestamp(now, self.zone)
        day = self._day(local.date())
        moment = self._moment(day)
        return moment if moment <= now else self._moment(self._day(day - timedelta(days=1)))

    def latest(self, now: float) -> float:
        """The moment of the newest day of the schedule, which today may still lie ahead."""
        return self._moment(self._day(datetime.fromtimestamp(now, self.zone).date()))

    def next_due(self, now: float) -> float:
        """The first moment of the schedule after `now`."""
        day = datetime.fromtimestamp(self.due(now), self.zone).date()
        later = day + timedelta(days=7 if self.every == WEEK else monthrange(day.year, day.month)[1])
        return self._moment(later)

    def span(self, due: float) -> tuple[datetime, datetime]:
        """Return the span of the report of a moment: the seven days before its day, or the calendar month before."""
        midnight = datetime.fromtimestamp(due, self.zone).replace(hour=0, minute=0, second=0, microsecond=0)
        if self.every == WEEK:
            return midnight - timedelta(days=7), midnight
        until = midnight.replace(day=1)
        return (until - timedelta(days=1)).replace(day=1), until

    def _day(self, latest: date) -> date:
        """The newest day of the schedule that is not after `latest`."""
        if self.every == WEEK:
            return latest - timedelta(days=(latest.isoweekday() - self.day) % 7)
        this = latest.replace(day=self.day)
        return this if this <= latest else (latest.replace(day=1) - timedelta(days=1)).replace(day=self.day)

    def _moment(self, day: date) -> float:
        return datetime.combine(day, time.fromisoformat(self.at), self.zone).timestamp()


SCHEDULED_REPORTS = DocumentKind("scheduled_report", ScheduledReport, "scheduled report")


def check_scheduled_report(draft: ScheduledReportDraft) -> ScheduledReportDraft:
    """The draft in its stored form; Invalid names the field and the rule. Which channels exist is asked elsewhere."""
    check_one_of("every", draft.every, EVERY)
    last = 7 if draft.every == WEEK else 28
    if not 1 <= draft.day <= last:
        raise Invalid(f"day is 1 to {last} for every {draft.every}{' (1 is Monday)' * (draft.every == WEEK)}")
    if not _TIME.fullmatch(draft.at):
        raise Invalid('at is a time of day such as "08:00"')
    try:
        ZoneInfo(draft.time_zone)
    except (ValueError, OSError, LookupError):  # a bad name, a directory, an unknown zone
        raise Invalid("time_zone is the name of a time zone, such as Europe/Berlin") from None
    if not 1 <= len(draft.channels) <= MAX_CHANNELS:
        raise Invalid(f"channels names 1 to {MAX_CHANNELS} channels")
    if len(draft.people) > MAX_PEOPLE:
        raise Invalid(f"people has at most {MAX_PEOPLE} e-mail addresses")
    return replace(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        channels=tuple(dict.fromkeys(check_text("channels", name, MAX_NAME) for name in draft.channels)),
        people=tuple(dict.fromkeys(map(check_email, draft.people))),
    )
