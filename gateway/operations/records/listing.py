"""
The operator API handler for lists of records: the newest records, the records of days and months, or the
records with the highest cost, tokens or duration.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any

from gateway.http.lists import Filter, ListDefinition, MemoryRows, PageQuery, Sort, passes_filters
from gateway.http.requests import Result
from gateway.operations.answers import StoredRecord
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.money.costs.questions import ONE_SPAN, read_time_range
from gateway.operations.records import filters, newest
from gateway.operations.records import published as records
from gateway.operations.records.choices import filter_choices
from gateway.operations.records.filters import AMOUNTS, DATE
from gateway.operations.records.lake_records import dates_in_range, days_between, past_records
from gateway.operations.records.newest import RECORDS
from gateway.operations.records.published import KeptRecord
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.deliveries.protocols import PastDates
from spool.ledger.own_records import STEP as RANKED_STEP
from spool.ledger.own_records import first_number_after
from spool.ledger.sums import AHEAD_S, start_hour_or_arrival_hour
from spool.listing import DESCENDING, ListPage, SortValue, sort_rank
from spool.record import AI_TELEMETRY, TOPICS
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_RECORDS
from spool.turns.fair_turns import pause_for_others

STEP = 1024  # records read before the event loop runs other tasks
OWN_DATES_S = 48 * 3600.0  # seconds of a day and the next day, in which most of the day's late reports arrive
MOST_RANKED = 1000  # maximum number of records in a ranked list
# Seconds after a call's day in which reports are always searched. Later reports are searched only if there
# are not too many records.
REPORTED_WITHIN_S = 86_400.0
# Seconds of the log that are searched for people with restricted access. The time is fixed, so that the
# search does not reveal the number of other people's calls.
OWN_SPAN_S = 48 * 3600.0


def _amount_sort(name: str) -> Sort[KeptRecord]:
    return Sort(value=lambda stored: AMOUNTS[name](stored.record))


LISTED: ListDefinition[KeptRecord] = replace(
    RECORDS,
    sorts={**RECORDS.sorts, **{name: _amount_sort(name) for name in AMOUNTS}},
    filters={**RECORDS.filters, **{name: Filter(holds=lambda *_: True, is_single=True) for name in ONE_SPAN}},
)


class RecordItem(StoredRecord, kw_only=True):
    topic: Annotated[str, words("The topic of the records."), example("ai-telemetry")]
    number: Annotated[
        int | None, words("The record number; null for people with restricted access."), example(62580)
    ]
    committed_at: Annotated[
        str, words("When the record was flushed to disk."), example("2026-11-27T01:44:40.952Z")
    ]
    state: Annotated[str, words("The state of the record: `open` or `closed`."), example("closed")]


@operator_call(
    "GET",
    "/records",
    VIEW_RECORDS,
    "List the newest records, those of dates, or the most expensive of a time range, including open ones",
    lists=LISTED,
    shows=SLICED,
    in_turn=True,
    item=RecordItem,
)
async def list_records(request: OperatorRequest[SpoolServices, None]) -> Result:
    """
    List the matching records, including open ones: the newest records, the records of dates, or the highest
    of a time range by an amount. `looked_through` states how far the search went.
    """
    now = request.now()
    read_time_range({name: request.http.query[name] for name in ONE_SPAN if name in request.http.query}, now)
    rows = RecordRows(request)
    return {
        **await request.list_page(await newest.record_list_with_current_filters(request, LISTED), rows),
        **rows.beside,
    }


class RecordRows:
    """
    Records that a person may see, as rows of a list. If dates are filtered, only the part of the log that
    arrived since the first date is searched.
    """

    def __init__(self, request: OperatorRequest[SpoolServices, None]) -> None:
        self._request = request
        self._log = request.services.log
        self.beside: Mapping[str, object] = {}  # added to the response: how far the search for the page went

    async def page(
        self, list_definition: ListDefinition[KeptRecord], page_query: PageQuery
    ) -> ListPage[KeptRecord]:
        if needs_search_by_time_or_amount(page_query) and DATE not in page_query.filters:
            of_span = RankedRows(self._request)
            page = await of_span.page(list_definition, page_query)
            self.beside = of_span.beside
            return page
        dates = page_query.filters.get(DATE)
        if dates:
            start = min(map(filters.period_start, dates)) - AHEAD_S
            topics = page_query.filters.get("topic", TOPICS)
            look = (
                self._search_calls_visible_to_person_since
                if self._request.has_limited_data_access
                else self.search_records_since
            )
            newest_records = await look(
                start,
                topics,
                lambda stored: passes_filters(list_definition, page_query.filters, stored),
                days_between(dates),
            )
        else:
            newest_records = list(await newest.newest_visible_records(self._request, self._request.services))
            self.beside = records.describe_searched_records(newest_records)
        sources = {each.name: each.sources for each in self._request.definitions.derived_dimensions()}
        known = await asyncio.to_thread(filter_choices, list_definition, newest_records, sources)
        return await MemoryRows(newest_records, known=known).page(list_definition, page_query)

    async def _search_calls_visible_to_person_since(
        self, start: float, topics: Sequence[str], is_wanted: Callable[[KeptRecord], bool], days: PastDates
    ) -> list[KeptRecord]:
        """
        Return the person's own closed calls that were committed after `start`. The search ends at a fixed
        time or number of calls.

        Its extent must not reveal how many calls other people have.
        """
        end = start + OWN_DATES_S
        until = end if self._request.now() > end else None
        is_own = newest.call_visibility_test(self._request)
        count = 0
        passing: list[KeptRecord] = []

        def take_own_records(batch: Iterable[KeptRecord]) -> None:
            nonlocal count, until
            for stored in batch:
                if count < records.LOOKED_THROUGH and is_own(stored.record):
                    count += 1
                    if count == records.LOOKED_THROUGH:
                        until = stored.committed_at
                    passing.extend(filter(is_wanted, [replace(stored, is_number_shown=False)]))

        if AI_TELEMETRY in topics:
            async with aclosing(past_records(self._request, days, oldest_first=True)) as past_batches:
                async for batch in past_batches:
                    take_own_records(stored for stored in batch if start < stored.committed_at <= end)
                    if count >= records.LOOKED_THROUGH:
                        break
        below = self._log.lowest_open_number(AI_TELEMETRY) if AI_TELEMETRY in topics else 1
        number = await first_number_after(self._log, AI_TELEMETRY, start, below)
        below = await first_number_after(self._log, AI_TELEMETRY, end, below)
        while number < below and count < records.LOOKED_THROUGH:
            following = min(number + STEP, below)
            entries = await self._log.read(AI_TELEMETRY, number, following - 1)
            take_own_records(records.kept_records(self._log, entries))
            number = following
            await pause_for_others()
        self.beside = records.describe_search(
            records=count, max_records=records.LOOKED_THROUGH, since=start, until=until
        )
        return passing

    async def search_records_since(
        self, start: float, topics: Sequence[str], is_wanted: Callable[[KeptRecord], bool], days: PastDates
    ) -> list[KeptRecord]:
        """
        Search all records that were committed since a moment, because a call may be reported long after its day.
        """
        passing: list[KeptRecord] = []
        read = seen = 0
        limit = self._request.services.max_listed_records()
        since: float | None = None
        until: float | None = None  # end of the time range; None means now
        if AI_TELEMETRY in topics:
            async with aclosing(past_records(self._request, days, oldest_first=True)) as past_batches:
                async for batch in past_batches:
                    read += len(batch)
                    passing += filter(is_wanted, batch)
                    if batch and since is None:
                        since = batch[0].committed_at
                    if batch and (read >= limit or len(passing) >= records.LOOKED_THROUGH):
                        until = batch[-1].committed_at
                        break
            seen = read
        for topic in topics:
            below = self._log.next_number(topic)
            number = await first_number_after(self._log, topic, start, below)
            while number < below and until is None:
                following = min(number + STEP, below)
                for entry in await self._log.read(topic, number, following - 1, includes_open_records=True):
                    read += len(entry.records)
                    read_records = list(records.kept_records(self._log, [entry]))
                    seen += len(read_records)
                    if read_records:
                        since = entry.committed_at if since is None else min(since, entry.committed_at)
                    passing += filter(is_wanted, read_records)
                    is_enough = read >= limit or len(passing) >= records.LOOKED_THROUGH
                    if is_enough and (entry.last + 1 < below or topic != topics[-1]):
                        until = entry.committed_at
                        break
                number = following
                await pause_for_others()
        self.beside = records.describe_search(records=seen, max_records=limit, since=since, until=until)
        return passing


def needs_search_by_time_or_amount(page_query: PageQuery) -> bool:
    """Return whether a query requests a time range or amounts, instead of the newest records."""
    return page_query.sort_key in AMOUNTS or any(name in page_query.filters for name in (*ONE_SPAN, *AMOUNTS))


class RankedRows:
    """Rows of a list of records within a time range: the first rows in the requested order."""

    def __init__(self, request: OperatorRequest[SpoolServices, Any]) -> None:
        self._request = request
        self._log = request.services.log
        self._most = request.services.max_listed_records()
        self.beside: Mapping[str, object] = {}

    async def page(
        self, list_definition: ListDefinition[KeptRecord], page_query: PageQuery
    ) -> ListPage[KeptRecord]:
        best = _BestRankedRows(list_definition, page_query)
        span_filters = {name: values[0] for name, values in page_query.filters.items() if name in ONE_SPAN}
        since, until, _ = read_time_range(span_filters, self._request.now(), default="last_30d")
        is_by_amount = page_query.sort_key in AMOUNTS or not page_query.filters.keys().isdisjoint(AMOUNTS)
        topics = (AI_TELEMETRY,) if is_by_amount else page_query.filters.get("topic", TOPICS)
        await self.search(since.timestamp(), until.timestamp(), topics, best.add_if_better)
        return await MemoryRows(best.rows()).page(list_definition, page_query)

    async def search(
        self, start: float, end: float, topics: Sequence[str], add_record: Callable[[KeptRecord], None]
    ) -> None:
        """Add the records of a time range that the person may see, the newest first. `beside` states how far it got."""
        now = self._request.now()

        def add_record_if_in_range(stored_record: KeptRecord) -> None:
            if (
                start
                <= start_hour_or_arrival_hour(stored_record.record.start_time, stored_record.committed_at)
                < end
            ):
                add_record(stored_record)

        days = dates_in_range(start, end)
        if self._request.has_limited_data_access:
            await self._search_calls_visible_to_person(
                start, min(now, end + REPORTED_WITHIN_S), now, days, add_record_if_in_range
            )
        else:
            await self._search_topics(
                topics, start - AHEAD_S, end + REPORTED_WITHIN_S, days, add_record_if_in_range
            )

    async def _search_topics(
        self,
        topics: Sequence[str],
        start: float,
        end: float,
        days: PastDates,
        add_record: Callable[[KeptRecord], None],
    ) -> None:
        remaining = self._most
        since = None
        until = None
        for topic in topics:
            below = self._log.next_number(topic)
            first = await first_number_after(self._log, topic, start, below)
            # Too many records arrived since the start of the time range, so search only the records that
            # arrived within the range.
            if below - first > remaining:
                last = await first_number_after(self._log, topic, end, below)
                until = end if last < below else until
                below = last
            while below > first and remaining > 0:
                begin = max(first, below - min(RANKED_STEP, remaining))
                for entry in reversed(
                    await self._log.read(topic, begin, below - 1, includes_open_records=True)
                ):
                    since = entry.committed_at if since is None else min(since, entry.committed_at)
                    for stored in records.kept_records(self._log, [entry]):
                        add_record(stored)
                remaining -= below - begin
                below = begin
                await pause_for_others()
        if AI_TELEMETRY in topics:
            async for batch in past_records(self._request, days, max_records=remaining):
                for stored in batch:
                    since = stored.committed_at if since is None else min(since, stored.committed_at)
                    add_record(stored)
                remaining -= len(batch)
        self.beside = records.describe_search(
            records=self._most - remaining, max_records=self._most, since=since, until=until
        )

    async def _search_calls_visible_to_person(
        self, start: float, end: float, now: float, days: PastDates, add_record: Callable[[KeptRecord], None]
    ) -> None:
        is_own = newest.call_visibility_test(self._request)
        count = 0
        since = max(start - AHEAD_S, end - OWN_SPAN_S)
        closed = self._log.lowest_open_number(AI_TELEMETRY)
        first = await first_number_after(self._log, AI_TELEMETRY, since, closed)
        below = await first_number_after(self._log, AI_TELEMETRY, end, closed)
        while below > first and count < records.LOOKED_THROUGH:
            begin = max(first, below - RANKED_STEP)
            entries = await self._log.read(AI_TELEMETRY, begin, below - 1)
            for stored in reversed(list(records.kept_records(self._log, entries))):
                if count < records.LOOKED_THROUGH and is_own(stored.record):
                    count += 1
                    since = stored.committed_at if count == records.LOOKED_THROUGH else since
                    add_record(replace(stored, is_number_shown=False))
            below = begin
            await pause_for_others()
        if count < records.LOOKED_THROUGH:
            async for batch in past_records(self._request, days):
                own_records = [
                    stored for stored in batch if since < stored.committed_at <= end and is_own(stored.record)
                ]
                count += len(own_records)
                for stored in own_records:
                    add_record(stored)
        self.beside = records.describe_search(
            records=count, max_records=records.LOOKED_THROUGH, since=since, until=end if end < now else None
        )


class _BestRankedRows:
    """The first MOST_RANKED matching records in the list's order."""

    def __init__(self, list_definition: ListDefinition[KeptRecord], page_query: PageQuery) -> None:
        self._listed, self._filters = list_definition, page_query.filters
        value = list_definition.sorts[page_query.sort_key].value
        assert value is not None
        self._value = value
        self._falls = page_query.sort_order == DESCENDING
        self._heap: list[_DescendingSortKey] = []

    def add_if_better(self, stored_record: KeptRecord) -> None:
        ranked = _DescendingSortKey(self._value(stored_record), self._falls, stored_record)
        is_full = len(self._heap) >= MOST_RANKED
        if (is_full and not self._heap[0] < ranked) or not passes_filters(
            self._listed, self._filters, stored_record
        ):
            return
        (heapq.heappushpop if is_full else heapq.heappush)(self._heap, ranked)

    def rows(self) -> list[KeptRecord]:
        return [ranked.stored for ranked in self._heap]


@dataclass(slots=True)
class _DescendingSortKey:
    """
    A sort key that is smaller if the record comes later in the list. Unknown values sort as the smallest, as
    in every list.
    """

    value: SortValue
    falls: bool
    stored: KeptRecord

    def __lt__(self, other: _DescendingSortKey) -> bool:
        own_rank = sort_rank(self.value)
        other_rank = sort_rank(other.value)
        if own_rank == other_rank:
            own_rank = (self.stored.commit_order_key,)
            other_rank = (other.stored.commit_order_key,)
        return bool(own_rank < other_rank if self.falls else own_rank > other_rank)
