"""The call of the operator API for a list of records: the newest, or those of days and months."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from gateway.http.lists import List, MemoryRows, PageQuery, passes
from gateway.http.requests import Result
from gateway.operator.log import dates, newest
from gateway.operator.log.newest import KeptRecord
from gateway.operator.requests import OperatorRequest
from spool.ledger.sums import AHEAD_S, HOUR_S
from spool.listing import ListPage
from spool.log.protocols import Log
from spool.record import TOPICS

STEP = 1024  # records that are read between two turns of the event loop


async def list_records(request: OperatorRequest[None]) -> Result:
    """The records that pass, open ones too. `looked_through` says how far was looked."""
    rows = RecordRows(request)
    return {**await request.list(await newest.records_in_views(request), rows), **rows.beside}


class RecordRows:
    """
    Records that a person may see as rows of a list. Those of dates are looked for where the log has what came then.
    """

    def __init__(self, request: OperatorRequest[None]) -> None:
        self._request = request
        self._log = request.services.log
        self.beside: Mapping[str, object] = {}  # how far was looked, once a page was given

    async def page(self, listed: List[KeptRecord], wanted: PageQuery) -> ListPage[KeptRecord]:
        if asked := wanted.filters.get(dates.FIELD):
            topics = wanted.filters.get("topic", TOPICS)
            found = await self._of_dates(asked, topics, lambda kept: passes(listed, wanted.filters, kept))
        else:
            found = list(await newest.newest(self._request))
            self.beside = newest.looked_through(found)
        return await MemoryRows(found).page(listed, wanted)

    async def _of_dates(
        self, asked: Sequence[str], topics: Sequence[str], is_wanted: Callable[[KeptRecord], bool]
    ) -> list[KeptRecord]:
        """What was committed from the first of the dates on: a call may be reported long after its day."""
        start = min(map(dates.start_of, asked)) - AHEAD_S
        found: list[KeptRecord] = []
        read = seen = 0
        most = self._request.services.max_listed_records()
        since: float | None = None
        until: float | None = None  # None: up to now
        for topic in topics:
            below = self._log.next_number(topic)
            number = await first_after(self._log, topic, start, below)
            while number < below and until is None:
                following = min(number + STEP, below)
                for entry in await self._log.read(topic, number, following - 1, with_open=True):
                    read += len(entry.records)
                    kept = list(newest.seen(self._request, newest.kept_records(self._log, [entry])))
                    seen += len(kept)
                    if kept:
                        since = entry.committed_at if since is None else min(since, entry.committed_at)
                    found += filter(is_wanted, kept)
                    is_enough = read >= most or len(found) >= newest.LOOKED_THROUGH
                    if is_enough and (entry.last + 1 < below or topic != topics[-1]):
                        until = entry.committed_at
                        break
                number = following
                await asyncio.sleep(0)
        if until is not None and self._request.is_limited:  # to the second it would tell how much others do
            until = until // HOUR_S * HOUR_S
        self.beside = newest.how_far(records=seen, most=most, since=since, until=until)
        return found


async def first_after(log: Log, topic: str, moment: float, below: int) -> int:
    """The first number that was committed after a moment, `below` if none was: both rise together."""
    low, high = 1, below
    while low < high:
        middle = (low + high) // 2
        entries = await log.read(topic, middle, middle, with_open=True)
        if entries and entries[0].committed_at > moment:
            high = middle
        else:  # before the moment, or gone, which is older than everything that is kept
            low = middle + 1
    return low
