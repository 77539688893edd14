"""
Which counters repeat what events already said: a usage metric is a shadow when an inference record
of the same source, service and session (or user) came in the hour before. A metric that names neither session nor
user (Codex's) is held against its source and service alone: counted beside the events it would count twice.

Memory only, and rebuilt from the newest entries at start: what it forgets would make a shadow count, so it forgets by
age and, far beyond any real fleet, by number.
"""

from __future__ import annotations

from spool.clock import Clock
from spool.log import Log
from spool.record import AI_TELEMETRY, Inference, UsageMetric

WINDOW_S = 3600.0
MAX_REPORTERS = 200_000
REMEMBERED = 200_000  # newest records looked at after a start
STEP = 1024  # of them at a time: unpacked they take some 2 KiB each

Reporter = tuple[str, str | None, str, str]


class Shadows:
    """The reporters of inference records and when each was last heard."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: dict[Reporter, float] = {}
        self._known = 0  # the highest number that was looked at after the start

    def note(self, record: Inference, at: float | None = None) -> None:
        """An inference record came in (at: epoch seconds, default now)."""
        service = record.tags.get("service")
        when = self._clock.now() if at is None else at
        self._hear((record.source, service, "", ""), when)
        if record.session:
            self._hear((record.source, service, "session", record.session), when)
        if record.user:
            self._hear((record.source, service, "user", record.user), when)

    def shade(self, metric: UsageMetric) -> None:
        """Mark a metric whose tokens the events of the last hour already hold."""
        service = metric.tags.get("service")
        if metric.session:
            reporter = (metric.source, service, "session", metric.session)
        elif metric.user:
            reporter = (metric.source, service, "user", metric.user)
        else:
            reporter = (metric.source, service, "", "")
        heard = self._heard.get(reporter)
        if heard is not None and self._clock.now() - heard <= WINDOW_S:
            metric.shadow = True

    async def remember(self, log: Log) -> None:
        """Learn from the newest closed entries what was heard before a restart; what is open is for `follow`."""
        since = self._clock.now() - WINDOW_S
        last = log.closed_below(AI_TELEMETRY) - 1
        for first in range(max(1, self._known + 1, last - REMEMBERED), last + 1, STEP):
            for entry in await log.read(AI_TELEMETRY, first, min(first + STEP - 1, last)):
                if entry.committed_at >= since:
                    for record in entry.records:
                        if isinstance(record, Inference):
                            self.note(record, at=entry.committed_at)
        self._known = last

    async def follow(self, log: Log, *, hold_s: float) -> None:
        """As a task of the house: learn what was open at the start, which is closed `hold_s` later; then rest."""
        until = self._clock.now() + hold_s
        knows_all = False
        async for _ in log.changes(AI_TELEMETRY):
            if not knows_all:
                knows_all = self._clock.now() > until
                await self.remember(log)

    def _hear(self, reporter: Reporter, when: float) -> None:
        # Taking it out first keeps the dict in the order of last hearing: the oldest is always at the front.
        before = self._heard.pop(reporter, when)
        self._heard[reporter] = max(when, before)
        if len(self._heard) > MAX_REPORTERS:
            del self._heard[next(iter(self._heard))]
