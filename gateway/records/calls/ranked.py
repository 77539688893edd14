"""
The kept calls of a span of time that cost most or took most: looked for from the newest back, up to a bound,
with as many in memory as a list can show.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.http.holders.spool import SpoolServices
from gateway.http.lists import List, MemoryRows, PageQuery, passes
from gateway.http.operator.requests import OperatorRequest
from gateway.money.calls.costs.questions import ONE_SPAN, times
from gateway.records.calls import newest
from gateway.records.calls import published as records
from gateway.records.calls.filters import AMOUNTS
from gateway.records.calls.past import dates_of, past_records
from gateway.records.calls.published import KeptRecord
from spool.deliveries.protocols import PastDates
from spool.ledger.own_records import STEP, first_after
from spool.ledger.sums import AHEAD_S, hour_of
from spool.listing import DESCENDING, ListPage, SortValue, rank_of
from spool.record import AI_TELEMETRY, TOPICS
from spool.turns.fair_turns import pause

MOST_RANKED = 1000  # that a list goes on to
REPORTED_WITHIN_S = 86_400.0  # of a call's day; later ones are looked at where that is not too many
OWN_SPAN_S = 48 * 3600.0  # for who may see some calls alone: never by how many came of others


def is_asked(wanted: PageQuery) -> bool:
    """True if a question is about a span, or about amounts, instead of the newest."""
    return wanted.sort_key in AMOUNTS or any(name in wanted.filters for name in (*ONE_SPAN, *AMOUNTS))


class RankedRows:
    """Rows of a list of records, the first of the span by the list's own order."""

    def __init__(self, request: OperatorRequest[SpoolServices, Any]) -> None:
        self._request = request
        self._log = request.services.log
        self._most = request.services.max_listed_records()
        self.beside: Mapping[str, object] = {}

    async def page(self, listed: List[KeptRecord], wanted: PageQuery) -> ListPage[KeptRecord]:
        best = _Best(listed, wanted)
        span_filters = {name: values[0] for name, values in wanted.filters.items() if name in ONE_SPAN}
        now = self._request.now()
        since, until, _ = times(span_filters, now, default="last_30d")
        start = since.timestamp()
        end = until.timestamp()

        def take(kept: KeptRecord) -> None:
            if start <= hour_of(kept.record.start_time, kept.committed_at) < end:
                best.take(kept)

        days = dates_of(start, end)
        if self._request.is_limited:
            await self._look_at_own(start, min(now, end + REPORTED_WITHIN_S), now, days, take)
        else:
            is_by_amount = wanted.sort_key in AMOUNTS or not wanted.filters.keys().isdisjoint(AMOUNTS)
            topics = (AI_TELEMETRY,) if is_by_amount else wanted.filters.get("topic", TOPICS)
            await self._look(topics, start - AHEAD_S, end + REPORTED_WITHIN_S, days, take)
        return await MemoryRows(best.rows()).page(listed, wanted)

    async def _look(
        self,
        topics: Sequence[str],
        start: float,
        end: float,
        days: PastDates,
        take: Callable[[KeptRecord], None],
    ) -> None:
        """Everybody's, the newest first, topic by topic, up to the setting's number of records."""
        left = self._most
        since = None
        until = None
        for topic in topics:
            below = self._log.next_number(topic)
            first = await first_after(self._log, topic, start, below)
            if below - first > left:  # not all since then: so those that came with the span
                last = await first_after(self._log, topic, end, below)
                until = end if last < below else until
                below = last
            while below > first and left > 0:
                begin = max(first, below - min(STEP, left))
                for entry in reversed(await self._log.read(topic, begin, below - 1, with_open=True)):
                    since = entry.committed_at if since is None else min(since, entry.committed_at)
                    for stored in records.kept_records(self._log, [entry]):
                        take(stored)
                left -= below - begin
                below = begin
                await pause()
        if AI_TELEMETRY in topics:
            async for found in past_records(self._request, days, most=left):
                for stored in found:
                    since = stored.committed_at if since is None else min(since, stored.committed_at)
                    take(stored)
                left -= len(found)
        self.beside = records.how_far(records=self._most - left, most=self._most, since=since, until=until)

    async def _look_at_own(
        self, start: float, end: float, now: float, days: PastDates, take: Callable[[KeptRecord], None]
    ) -> None:
        """The own closed calls of a fixed time, up to a fixed number of own ones, the newest first."""
        is_own = newest.own_to(self._request)
        count = 0
        since = max(start - AHEAD_S, end - OWN_SPAN_S)
        closed = self._log.closed_below(AI_TELEMETRY)
        first = await first_after(self._log, AI_TELEMETRY, since, closed)
        below = await first_after(self._log, AI_TELEMETRY, end, closed)
        while below > first and count < records.LOOKED_THROUGH:
            begin = max(first, below - STEP)
            entries = await self._log.read(AI_TELEMETRY, begin, below - 1)
            for stored in reversed(list(records.kept_records(self._log, entries))):
                if count < records.LOOKED_THROUGH and is_own(stored.record):
                    count += 1
                    since = stored.committed_at if count == records.LOOKED_THROUGH else since
                    take(replace(stored, is_number_shown=False))
            below = begin
            await pause()
        if count < records.LOOKED_THROUGH:
            async for found in past_records(self._request, days):
                own = [each for each in found if since < each.committed_at <= end and is_own(each.record)]
                count += len(own)
                for stored in own:
                    take(stored)
        self.beside = records.how_far(
            records=count, most=records.LOOKED_THROUGH, since=since, until=end if end < now else None
        )


class _Best:
    """The first MOST_RANKED of a list's order, of those that pass its filters."""

    def __init__(self, listed: List[KeptRecord], wanted: PageQuery) -> None:
        self._listed, self._filters = listed, wanted.filters
        value = listed.sorts[wanted.sort_key].value
        assert value is not None
        self._value = value
        self._falls = wanted.sort_order == DESCENDING
        self._heap: list[_Ranked] = []

    def take(self, kept: KeptRecord) -> None:
        ranked = _Ranked(self._value(kept), self._falls, kept)
        is_full = len(self._heap) >= MOST_RANKED
        if (is_full and not self._heap[0] < ranked) or not passes(self._listed, self._filters, kept):
            return
        (heapq.heappushpop if is_full else heapq.heappush)(self._heap, ranked)

    def rows(self) -> list[KeptRecord]:
        return [ranked.kept for ranked in self._heap]


@dataclass(slots=True)
class _Ranked:
    """Less than another if it comes later in the list: unknown values are the smallest, as in every list."""

    value: SortValue
    falls: bool
    kept: KeptRecord

    def __lt__(self, other: _Ranked) -> bool:
        mine = rank_of(self.value)
        others = rank_of(other.value)
        if mine == others:
            mine = (self.kept.place,)
            others = (other.kept.place,)
        return bool(mine < others if self.falls else mine > others)
