"""Counts of reports from the last days that arrived too late for their calls, by source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gateway.core.kept_counts import DAY_S, DailyCountSaver
from spool.clock import Clock
from spool.log.accounting import AMENDED_LATE, UNCOMPARED
from spool.log.values import Commit
from spool.registry.tables.late_reports import MAX_SOURCES, OTHER, Counts, LateReportTable

DAYS = 7


class LateReports(NamedTuple):
    """
    Numbers of late reports by one source. `late` reports would have changed a call that was already closed.
    `uncompared` reports repeat a call whose record is no longer available.
    """

    source: str
    late: int
    uncompared: int


class LateReportCounter:
    """
    Counts of late reports in this process since the last `take_counts`. Implements
    spool.log.protocols.CommitObserver; every method returns at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._days: dict[int, Counter[tuple[str, str]]] = {}

    def note_commit(self, commit: Commit) -> None:
        for (_, term, source), n in commit.terms.items():
            if n and term in (AMENDED_LATE, UNCOMPARED):
                today = self._days.setdefault(self.today, Counter())
                is_known = (term, source) in today
                today[term, source if is_known or len(today) < MAX_SOURCES else OTHER] += n

    @property
    def today(self) -> int:
        return int(self._clock.now() // DAY_S)

    def take_counts(self) -> Mapping[int, Counts]:
        counts_by_day, self._days = self._days, {}
        return counts_by_day

    def put_back(self, counts_by_day: Mapping[int, Counts]) -> None:
        for day, counts in counts_by_day.items():
            self._days.setdefault(day, Counter()).update(counts)


class LateReportSaver(DailyCountSaver[Counts]):
    name = "late reports"
    action = "late_reports_not_kept"

    def __init__(self, counter: LateReportCounter, table: LateReportTable) -> None:
        super().__init__(counter)
        self._table = table

    async def store_and_sum_recent_late_reports(self) -> Sequence[LateReports]:
        """Return the counts of the last seven days from all processes."""
        await self.store_pending()
        sums = Counter(await self._table.sums_since(self._oldest_day))
        sources = sorted({source for _, source in sums})
        return [
            LateReports(source, sums[AMENDED_LATE, source], sums[UNCOMPARED, source]) for source in sources
        ]

    async def store_days(self, counts_by_day: Mapping[int, Counts]) -> None:
        await self._table.add(counts_by_day, oldest=self._oldest_day)

    @property
    def _oldest_day(self) -> int:
        return self.counter.today - DAYS + 1
