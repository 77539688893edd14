"""The call of the operator API for a list of records: the newest, or those of days and months."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from gateway.http.holders.spool import SpoolServices
from gateway.http.lists import Filter, List, MemoryRows, PageQuery, Sort, passes
from gateway.http.operator.address import SLICED, call
from gateway.http.operator.requests import OperatorRequest
from gateway.http.requests import Result
from gateway.money.calls.costs.questions import ONE_SPAN, times
from gateway.records.calls import filters, newest, ranked
from gateway.records.calls import published as records
from gateway.records.calls.filters import AMOUNTS, DATE
from gateway.records.calls.newest import RECORDS
from gateway.records.calls.past import days_of, past_records
from gateway.records.calls.published import KeptRecord
from spool.deliveries.protocols import PastDates
from spool.ledger.own_records import first_after
from spool.ledger.sums import AHEAD_S
from spool.listing import ListPage
from spool.record import AI_TELEMETRY, TOPICS
from spool.registry.permission_sets import VIEW_RECORDS
from spool.turns.fair_turns import pause

STEP = 1024  # records that are read between two turns of the event loop
OWN_DATES_S = 48 * 3600.0  # a day, and what of it is reported within the next one


def _by(name: str) -> Sort[KeptRecord]:
    return Sort(value=lambda kept: AMOUNTS[name](kept.record))


LISTED: List[KeptRecord] = replace(
    RECORDS,
    sorts={**RECORDS.sorts, **{name: _by(name) for name in AMOUNTS}},
    filters={**RECORDS.filters, **{name: Filter(holds=lambda *_: True) for name in ONE_SPAN}},
)


@call(
    "GET",
    "/records",
    VIEW_RECORDS,
    "List the newest records, those of dates, or the dearest of a span, open ones too",
    lists=LISTED,
    shows=SLICED,
    in_turn=True,
)
async def list_records(request: OperatorRequest[SpoolServices, None]) -> Result:
    """
    The records that pass, open ones too: the newest, those of dates, or the first of a span by an amount.
    `looked_through` says how far was looked.
    """
    now = request.now()
    times({name: request.http.query[name] for name in ONE_SPAN if name in request.http.query}, now)
    rows = RecordRows(request)
    return {**await request.list(await newest.records_in_views(request, LISTED), rows), **rows.beside}


class RecordRows:
    """
    Records that a person may see as rows of a list. Those of dates are looked for where the log has what came then.
    """

    def __init__(self, request: OperatorRequest[SpoolServices, None]) -> None:
        self._request = request
        self._log = request.services.log
        self.beside: Mapping[str, object] = {}  # how far was looked, once a page was given

    async def page(self, listed: List[KeptRecord], wanted: PageQuery) -> ListPage[KeptRecord]:
        if ranked.is_asked(wanted) and DATE not in wanted.filters:
            of_span = ranked.RankedRows(self._request)
            page = await of_span.page(listed, wanted)
            self.beside = of_span.beside
            return page
        asked = wanted.filters.get(DATE)
        if asked:
            start = min(map(filters.start_of, asked)) - AHEAD_S
            topics = wanted.filters.get("topic", TOPICS)
            look = self._own_from if self._request.is_limited else self.look_from
            found = await look(
                start, topics, lambda kept: passes(listed, wanted.filters, kept), days_of(asked)
            )
        else:
            found = list(await newest.newest(self._request, self._request.services))
            self.beside = records.looked_through(found)
        return await MemoryRows(found).page(listed, wanted)

    async def _own_from(
        self, start: float, topics: Sequence[str], is_wanted: Callable[[KeptRecord], bool], days: PastDates
    ) -> list[KeptRecord]:
        """
        The own closed calls that were committed from a moment on, up to a fixed time or number of own ones.

        How far was looked must not tell how much of others there is.
        """
        end = start + OWN_DATES_S
        until = end if self._request.now() > end else None
        is_own = newest.own_to(self._request)
        count = 0
        passing: list[KeptRecord] = []

        def take(found: Iterable[KeptRecord]) -> None:
            nonlocal count, until
            for stored in found:
                if count < records.LOOKED_THROUGH and is_own(stored.record):
                    count += 1
                    if count == records.LOOKED_THROUGH:
                        until = stored.committed_at
                    passing.extend(filter(is_wanted, [replace(stored, is_number_shown=False)]))

        if AI_TELEMETRY in topics:
            async with aclosing(past_records(self._request, days, oldest_first=True)) as past:
                async for found in past:
                    take(each for each in found if start < each.committed_at <= end)
                    if count >= records.LOOKED_THROUGH:
                        break
        below = self._log.closed_below(AI_TELEMETRY) if AI_TELEMETRY in topics else 1
        number = await first_after(self._log, AI_TELEMETRY, start, below)
        below = await first_after(self._log, AI_TELEMETRY, end, below)
        while number < below and count < records.LOOKED_THROUGH:
            following = min(number + STEP, below)
            entries = await self._log.read(AI_TELEMETRY, number, following - 1)
            take(records.kept_records(self._log, entries))
            number = following
            await pause()
        self.beside = records.how_far(records=count, most=records.LOOKED_THROUGH, since=start, until=until)
        return passing

    async def look_from(
        self, start: float, topics: Sequence[str], is_wanted: Callable[[KeptRecord], bool], days: PastDates
    ) -> list[KeptRecord]:
        """Search the records that were committed since a moment: a call may be reported long after its day."""
        passing: list[KeptRecord] = []
        read = seen = 0
        most = self._request.services.max_listed_records()
        since: float | None = None
        until: float | None = None  # None: up to now
        if AI_TELEMETRY in topics:
            async with aclosing(past_records(self._request, days, oldest_first=True)) as past:
                async for found in past:
                    read += len(found)
                    passing += filter(is_wanted, found)
                    if found and since is None:
                        since = found[0].committed_at
                    if found and (read >= most or len(passing) >= records.LOOKED_THROUGH):
                        until = found[-1].committed_at
                        break
            seen = read
        for topic in topics:
            below = self._log.next_number(topic)
            number = await first_after(self._log, topic, start, below)
            while number < below and until is None:
                following = min(number + STEP, below)
                for entry in await self._log.read(topic, number, following - 1, with_open=True):
                    read += len(entry.records)
                    read_records = list(records.kept_records(self._log, [entry]))
                    seen += len(read_records)
                    if read_records:
                        since = entry.committed_at if since is None else min(since, entry.committed_at)
                    passing += filter(is_wanted, read_records)
                    is_enough = read >= most or len(passing) >= records.LOOKED_THROUGH
                    if is_enough and (entry.last + 1 < below or topic != topics[-1]):
                        until = entry.committed_at
                        break
                number = following
                await pause()
        self.beside = records.how_far(records=seen, most=most, since=since, until=until)
        return passing
