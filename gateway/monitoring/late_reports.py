"""Reports of the last days that came too late for their calls, by source: this process's own count."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from spool.clock import Clock
from spool.log.books import AMENDED_LATE, UNCOMPARED
from spool.log.values import Commit

DAYS = 7
DAY_S = 86_400.0
MAX_SOURCES = 500  # of a day: another Tollhouse's sender may name any source
OTHER = "other"


class LateReports(NamedTuple):
    """`late` would have added to a closed call; `uncompared` repeat calls whose record is out of reach."""

    source: str
    late: int
    uncompared: int


class LateReportCounter:
    """Implements spool.log.protocols.Observer; every method returns at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._days: deque[tuple[int, Counter[tuple[str, str]]]] = deque(maxlen=DAYS)

    def committed(self, commit: Commit) -> None:
        for (_, term, source), n in commit.terms.items():
            if n and term in (AMENDED_LATE, UNCOMPARED):
                today = self._today()
                is_known = (AMENDED_LATE, source) in today or (UNCOMPARED, source) in today
                today[term, source if is_known or len(today) < MAX_SOURCES else OTHER] += n

    def _today(self) -> Counter[tuple[str, str]]:
        day = int(self._clock.now() // DAY_S)
        if not self._days or self._days[-1][0] != day:
            self._days.append((day, Counter()))
        return self._days[-1][1]

    def recent(self) -> Sequence[LateReports]:
        """Return the counts of the last seven days."""
        since = int(self._clock.now() // DAY_S) - DAYS
        sums: Counter[tuple[str, str]] = Counter()
        for day, counts in self._days:
            if day > since:
                sums.update(counts)
        sources = sorted({source for _, source in sums})
        return [LateReports(each, sums[AMENDED_LATE, each], sums[UNCOMPARED, each]) for each in sources]
