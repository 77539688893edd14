"""The log without a disk, for tests and trial runs: the same answers, nothing kept after the process."""

from __future__ import annotations

import secrets
import time
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from spool import streams
from spool.clock import Clock
from spool.errors import SpoolUnavailable, Stale
from spool.identity import RequestNames
from spool.log import books, retention
from spool.log.accepted_twice import TwiceAccepted
from spool.log.amendments import amended
from spool.log.books import Terms
from spool.log.conflicts import Conflicts
from spool.log.counters import SeriesState
from spool.log.duplicates import DuplicateIndex, Whereabouts
from spool.log.event_types import EventType, EventTypes
from spool.log.expectations import version_of
from spool.log.horizon import Horizon, check_closed
from spool.log.observation import notify
from spool.log.planning.plan import Plan
from spool.log.planning.planner import Planner, check
from spool.log.protocols import Observer
from spool.log.receipts import CommitTerms, Sealer, receipt_view
from spool.log.retention import Candidate, DrainRate, Progress, Reader
from spool.log.runs import count_repeats
from spool.log.shapes import Shapes
from spool.log.values import AcceptedTwice, Books, Commit, Entry, LogStats, Receipt, Submission
from spool.memory.partial_reports import MemoryHeard, MemoryPartialReports
from spool.memory.tables import MemoryTables
from spool.packed.native import Native
from spool.record import BILLING_DATA, NS, TOPICS, UNIT_COST, Inference, Record, UnitCostOperation, pack
from spool.settings import SpoolSettings
from spool.sql import billing_drops
from spool.sql.connection import SqlConnection
from spool.sql.streams import SqlStreamRows, SqlStreams, trim


class MemoryRouteNeeds(Protocol):
    """What retention and the books ask of the deliveries."""

    def route_terms(self) -> dict[str, dict[str, int]]: ...

    def needed_from(self, topic: str) -> int | None: ...

    def skip_below(self, topic: str, number: int) -> int: ...


@dataclass(frozen=True, slots=True)
class _MemoryEntry:
    """The records of one topic and commit."""

    first: int
    committed_at: float
    records: list[Record]
    bytes: int

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1


class MemoryLog:
    """
    Every submission is a commit of its own: there is no flush to share.

    `tables` move with it. `routes` is set by who puts the deliveries beside the log. Retention removes
    nothing that one of `readers` needs.
    """

    routes: MemoryRouteNeeds

    def __init__(
        self, tables: MemoryTables, *, settings: SpoolSettings, clock: Clock, observer: Observer | None = None
    ) -> None:
        secret = secrets.token_bytes(32)
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._sealer = Sealer(secret)
        self._index = DuplicateIndex(
            secret, window_s=settings.duplicate_window, max_ids=settings.duplicate_ids
        )
        self._planner = Planner(self._index, hold_s=settings.hold)
        self._horizon = Horizon(hold_s=settings.hold, clock=clock)
        self._drain = DrainRate()
        self._kept: dict[str, list[_MemoryEntry]] = {}
        self._amendments: dict[tuple[str, int], dict[str, Any]] = {}
        self._series: OrderedDict[bytes, tuple[SeriesState, float]] = OrderedDict()
        self._series_known_since = 0.0
        self._series_pushed_out = 0
        self._conflicts = Conflicts()
        self._shapes = Shapes()
        self._event_types = EventTypes()
        self._commits: dict[int, tuple[float, list[Terms]]] = {}
        self._last_commit = 0
        self._counters: Counter[tuple[str, str]] = Counter()
        self._carried: Counter[tuple[str, str]] = Counter()
        self._bytes = 0
        self._closing = False
        self._tables = tables
        self.streams = SqlStreams(tables)
        self.partial_reports = MemoryPartialReports()
        self.heard = MemoryHeard()
        self._streams_since = clock.now()
        self.readers: list[Reader] = []

    # -- appending -------------------------------------------------------------------------------------------

    async def append(self, submission: Submission) -> Receipt:
        check(submission)
        if self._closing:
            raise SpoolUnavailable("the log is closing")
        began = time.perf_counter()
        now = self._clock.now()
        if self._bytes >= self._settings.max_bytes and not self._remove():
            raise self._drain.spool_full()
        self._fold_what_is_due()
        closed_below = self._horizon.freeze()
        try:
            plan = self._planner.plan([submission], self, closed_below, now)
            # What cannot be packed is found here, before anything is changed.
            sizes = {topic: len(pack(records)) for topic, records in plan.records.items()}
            self._keep(plan, sizes)
        except BaseException:
            self._horizon.thaw()
            raise
        self._horizon.thaw(plan.next_numbers())
        if self._observer:
            seconds = time.perf_counter() - began
            notify(self._observer, Commit(seconds=seconds, flush_seconds=0.0, terms=plan.observed))
        [answer] = plan.answers(
            [terms.receipt(self._sealer.seal(self._last_commit, 0)) for terms in plan.submissions]
        )
        if isinstance(answer, Stale):
            raise answer
        return answer

    def _keep(self, plan: Plan, sizes: Mapping[str, int]) -> None:
        if plan.records.get(BILLING_DATA) or plan.records.get(UNIT_COST):
            self._tables.change(lambda connection: self._move(connection, plan))
        for topic, records in plan.records.items():
            if records:
                entry = _MemoryEntry(plan.first[topic], plan.at, records, sizes[topic])
                self._kept.setdefault(topic, []).append(entry)
                self._bytes += sizes[topic]
        for place, fields in plan.amendments.items():
            self._amendments.setdefault(place, {}).update(fields)
        for series, state in plan.series.items():
            self._series[series] = state, plan.at
            self._series.move_to_end(series)
        self._conflicts.merge(plan.conflicts)
        self.partial_reports.follow(plan.partial_reports)
        self.heard.follow(plan.heard, plan.at)
        self._shapes.count(plan.unrecognised, plan.at)
        self._event_types.count(plan.event_types, plan.at)
        self._counters.update(plan.sums())
        self._last_commit += 1
        self._commits[self._last_commit] = plan.at, plan.submissions
        self._planner.apply(plan)

    def _move(self, connection: SqlConnection, plan: Plan) -> None:
        """Apply a commit to the months of billing drops and to the totals."""
        billing_drops.follow(connection, plan)
        operations = [one for one in plan.records.get(UNIT_COST, ()) if isinstance(one, UnitCostOperation)]
        rows = SqlStreamRows(connection)
        streams.apply(rows, operations, now=plan.at, since=self._streams_since)
        rows.flush()

    def _fold_what_is_due(self) -> None:
        now = self._clock.now()
        closed_below = self._closed()
        while self._index.due(now, closed_below):
            self._index.folded(self._index.fold(now))

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(
        self,
        topic: str,
        first: int,
        last: int,
        *,
        with_open: bool = False,
        whole: bool = False,
        packed: Native | None = None,
    ) -> Sequence[Entry]:
        if whole:
            check_closed(last, self.closed_below(topic))
        return self.entries(topic, first, last, with_open=with_open)

    def entries(self, topic: str, first: int, last: int, *, with_open: bool = False) -> Sequence[Entry]:
        """Read entries without waiting; `read` answers the same."""
        last = min(last, (self.next_number(topic) if with_open else self.closed_below(topic)) - 1)
        found = []
        for kept in self._between(topic, first, last):
            begin = max(first, kept.first)
            end = min(last, kept.last)
            records = [self._amended(topic, number, kept) for number in range(begin, end + 1)]
            found.append(Entry(topic=topic, first=begin, committed_at=kept.committed_at, records=records))
        return found

    def record(self, topic: str, number: int) -> Record | None:
        """Return one record with its amendment, closed or open; None if it is gone."""
        for kept in self._between(topic, number, number):
            return self._amended(topic, number, kept)
        return None

    def committed_at(self, topic: str, number: int) -> float | None:
        """Return the time of a record's commit; None if it is gone or not there yet."""
        for kept in self._between(topic, number, number):
            return kept.committed_at
        return None

    def _amended(self, topic: str, number: int, kept: _MemoryEntry) -> Record:
        record = kept.records[number - kept.first]
        fields = self._amendments.get((topic, number))
        return amended(record, fields) if fields and isinstance(record, Inference) else record

    def _between(self, topic: str, first: int, last: int) -> Sequence[_MemoryEntry]:
        if first > last:
            return []
        kept = self._kept.get(topic, [])
        begin = max(0, bisect_right(kept, first, key=lambda one: one.first) - 1)
        end = bisect_right(kept, last, key=lambda one: one.first)
        return [one for one in kept[begin:end] if one.last >= first]

    def series(self, series: bytes) -> SeriesState | None:
        """Return the last state of a counter."""
        found = self._series.get(series)
        return found[0] if found else None

    def series_known_since(self) -> float:
        return self._series_known_since

    def partial_report(self, key: bytes) -> int:
        """The version of what waits under a key."""
        return version_of(self.partial_reports.get(key))

    def accepted(self, topic: str) -> int:
        """The highest number given in a topic; 0 before the first."""
        return self._counters[topic, books.ACCEPTED]

    def oldest(self, topic: str) -> int:
        """The lowest number that is kept, or the next one to be given."""
        kept = self._kept.get(topic)
        return kept[0].first if kept else self.accepted(topic) + 1

    def closed_below(self, topic: str) -> int:
        return self._horizon.closed_below(topic)

    def next_number(self, topic: str) -> int:
        return self._planner.next_numbers.get(topic, 1)

    async def repeated_ids(self) -> int:
        return count_repeats([run.ids for run in self._index.runs()])

    async def newest_number(self, topic: str) -> int:
        return self.next_number(topic)

    def knows_request(self, request: RequestNames) -> bool:
        return self._index.knows_request(request.body, self._clock.now())

    def whereabouts(self, id: bytes) -> Whereabouts | None:
        return self._index.whereabouts(id)

    def changes(self, topic: str) -> AsyncIterator[int]:
        return self._horizon.changes(topic)

    async def receipt(self, receipt_id: str) -> Mapping[str, object]:
        async def find(commit: int) -> CommitTerms | None:
            return self._commits.get(commit)

        async def oldest(topic: str) -> int:
            return self.oldest(topic)

        return await receipt_view(
            receipt_id, self._sealer, find=find, closed_below=self.closed_below, oldest=oldest
        )

    async def unrecognised(self) -> Sequence[Mapping[str, object]]:
        return self._shapes.rows()

    async def event_types(self) -> Sequence[EventType]:
        return self._event_types.rows()

    async def conflicts(self) -> Sequence[Mapping[str, object]]:
        return self._conflicts.rows()

    # -- the books -------------------------------------------------------------------------------------------

    async def books(self) -> Books:
        kept = {(topic, books.KEPT): self.accepted(topic) + 1 - self.oldest(topic) for topic in self._kept}
        return books.books(books.by_topic({**self._counters, **kept}), self.routes.route_terms())

    async def verify(self) -> Books:
        sums = Counter(self._carried)
        for _, submissions in self._commits.values():
            sums.update(books.totals(submissions))
        for topic, kept in self._kept.items():
            sums[topic, books.KEPT] = sum(len(one.records) for one in kept)
        verified = books.verified(self._counters, sums, self.routes.route_terms())
        return replace(verified, accepted_twice=await self._accepted_twice())

    async def _accepted_twice(self) -> Mapping[str, AcceptedTwice]:
        settings = self._settings
        twice = TwiceAccepted(self._index, window_s=settings.duplicate_window, max_ids=settings.duplicate_ids)
        for topic in TOPICS:
            for entry in self.entries(topic, self.oldest(topic), self.accepted(topic), with_open=True):
                twice.note(entry)
                if twice.is_full:
                    twice.compare(is_last=False)
            twice.compare(is_last=True)
        return await twice.judged(partial(self.read, with_open=True))

    async def stats(self) -> LogStats:
        return LogStats(
            entries=sum(map(len, self._kept.values())),
            bytes=self._bytes,
            free_bytes=max(0, self._settings.max_bytes - self._bytes),
            max_bytes=self._settings.max_bytes,
            duplicate_window_s=self._index.covers_s(self._clock.now()),
            duplicate_ids=len(self._index),
            series=len(self._series),
            max_series=self._settings.max_series,
            series_pushed_out=self._series_pushed_out,
            writable=not self._closing and self._bytes < self._settings.max_bytes,
            last_error=None,
            alive=not self._closing,
        )

    # -- upkeep ----------------------------------------------------------------------------------------------

    async def retain(self) -> int:
        removed = self._remove()
        now = self._clock.now()
        while self._series and next(iter(self._series.values()))[1] < now - retention.SERIES_AGE_S:
            self._series.popitem(last=False)
        while len(self._series) > self._settings.max_series:
            _, (_, seen_at) = self._series.popitem(last=False)
            self._series_known_since = max(self._series_known_since, min(seen_at, now))
            self._series_pushed_out += 1
        self._trim_streams(now)
        return removed

    def _trim_streams(self, now: float) -> None:
        kept = self._kept.get(UNIT_COST, [])
        settled = min(now - self._settings.retention_s, kept[0].committed_at if kept else now)
        old = int((now - self._settings.stream_retention) * NS)
        max_bytes = self._settings.max_stream_bytes
        while newest := self._tables.change(
            lambda on: trim(on, settled=settled, old=old, max_bytes=max_bytes)
        ):
            self._streams_since = max(self._streams_since, newest / NS + 1)

    def _remove(self) -> int:
        """Entries that age and space allow, then the commit rows."""
        now = self._clock.now()
        if self._excess or self._index.reaches_back_to(now - self._settings.retention_s):
            self._index.folded(self._index.fold(now, self._closed()))
        removed = sum(self._remove_from(topic, now) for topic in TOPICS)
        for commit in [id for id, (at, _) in self._commits.items() if at < now - self._settings.retention_s]:
            if commit != self._last_commit:
                self._carried.update(books.totals(self._commits.pop(commit)[1]))
        self._drain.note(self._clock.monotonic(), self._progress())
        return removed

    @property
    def _excess(self) -> int:
        """Bytes over what may be in use before entries go before their time."""
        return max(0, self._bytes - int(self._settings.max_bytes * (1 - retention.ROOM)))

    def _remove_from(self, topic: str, now: float) -> int:
        needed = self.routes.needed_from(topic)
        limit = retention.lowest_needed(topic, self.closed_below(topic), self.readers)
        if needed is not None:
            limit = min(limit, needed)
        entries = self._kept.get(topic, [])
        gone = retention.removable(
            [Candidate(one.first, len(one.records), one.committed_at, one.bytes) for one in entries],
            limit=limit,
            before=now - self._settings.retention_s,
            excess=self._excess,
        )
        if not gone:
            return 0
        last = gone[-1].last
        self.routes.skip_below(topic, last + 1)
        del entries[: len(gone)]
        self._bytes -= sum(entry.bytes for entry in gone)
        for place in [place for place in self._amendments if place[0] == topic and place[1] <= last]:
            del self._amendments[place]
        term = books.EXPIRED if needed is None else books.RETIRED
        self._counters[topic, term] += sum(entry.records for entry in gone)
        return len(gone)

    def _progress(self) -> Progress:
        progress = Progress(0, 0)
        for topic in TOPICS:
            needed = self.routes.needed_from(topic)
            progress = progress.plus(last=self.accepted(topic), oldest=self.oldest(topic), needed=needed)
        return progress

    def _closed(self) -> dict[str, int]:
        return {topic: self.closed_below(topic) for topic in TOPICS}

    async def close(self) -> None:
        self._closing = True
