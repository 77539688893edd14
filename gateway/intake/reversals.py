"""
Reversal of counters that already count but turn out to repeat calls, because the calls of the same sender arrived
later.

A reversal is a record with the negative value and the same series, time and dimensions. So the sums in the ledger,
in archives and upstream become the same as if the counter had been a shadow. Counters of the last hour are stored
by their ids, in the commit that counted them. The commit of a reversal replaces that entry, so a reversal happens
only once, even after restarts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from gateway.intake.callers import WINDOW_S
from gateway.intake.shadows import CallReporter, CallReporters, ReportedCallers, reporters_of_record
from spool.clock import Clock
from spool.errors import EntryUnreadable, NotThere
from spool.identity import RecordIdentity, dedup_key_of_metric_point, derived_dedup_key
from spool.log.partial_reports import COUNTED, NOTHING, ExpectedVersion, PartialReport, report_version
from spool.log.protocols import RecordLog
from spool.log.values import CounterPoint, LogEntry, Receipt, Submission
from spool.record import AI_TELEMETRY, NS, AiRecord, UsageMetric
from spool.shares import UsedAmountByOwner, entries_to_remove
from spool.turns.fair_turns import pause_for_others

STEP = 1024  # records read at a time
TURN = 64  # groups read between two turns of the event loop
LOOKED_AT = 1024  # reporters checked between two turns of the event loop
MOST_BEHIND = 200_000  # maximum records that are searched for the records of a counter group after a restart
# nanoseconds; the ledger accepts a call's own time only if it is at most this long after the arrival
_BELIEVED_NS = 2 * 3600 * NS

_log = logging.getLogger(__name__)


class CountedCounterGroup(msgspec.Struct, array_like=True):
    """
    Counters of one key that became records together and are included in the sums.

    This is also the stored format, so new fields may only be added at the end.
    """

    after: int  # record number from which the log is searched for this group's records
    reporters: set[CallReporter] = set()
    ids: set[bytes] = set()
    # (series, time) of cumulative counters; the log creates the ids of their records
    points: set[tuple[bytes, int]] = set()
    last: int = 0  # highest possible record number, or 0 if it is unknown
    key: str = ""  # name of the sender's key

    @property
    def count(self) -> int:
        return len(self.ids) + len(self.points)

    def add_counters(
        self, reporters: CallReporters, records: Iterable[AiRecord], points: Iterable[CounterPoint]
    ) -> None:
        """
        Add counters and data points. Spans of agents that sum up other programs are left out, because only
        counters are reversed.
        """
        ids = [record.id for record in records if isinstance(record, UsageMetric)]
        names = [(point.series, point.time) for point in points]
        if ids or names:
            self.reporters.update(reporters)
            self.ids.update(ids)
            self.points.update(names)


class _RecordsOfCountedGroup:
    """
    The records of one `CountedCounterGroup`, found by id. The ids of a counter's data points are computed once per
    time span.
    """

    def __init__(self, counted_group: CountedCounterGroup) -> None:
        self._ids = counted_group.ids
        self._series: dict[int, list[bytes]] = {}
        for series, time in counted_group.points:
            self._series.setdefault(time, []).append(series)
        self._of_span: dict[tuple[int, int], set[bytes]] = {}

    def __contains__(self, record: UsageMetric) -> bool:
        if record.id in self._ids:
            return True
        begin = record.start_time or 0
        end = record.end_time or 0
        span_ids = self._of_span.get((begin, end))
        if span_ids is None:
            span_ids = {dedup_key_of_metric_point(series, begin, end) for series in self._series.get(end, ())}
            self._of_span[begin, end] = span_ids
        return record.id in span_ids


class _StoredGroup(NamedTuple):
    at: float
    counted: CountedCounterGroup
    # version of the stored group when it was read, because other processes may also reverse its counters
    version: int = NOTHING
    receipt: str = ""  # id of the receipt from which the record numbers are read, until they are known


class RetractableCounters:
    """
    The counters of the last hour that are included in the sums, oldest first.

    Above `max_items`, the oldest counters of the key with the most counters are removed and can no
    longer be reversed.
    """

    def __init__(
        self,
        record_log: RecordLog,
        shadows: ReportedCallers,
        clock: Clock,
        *,
        max_items: int,
        one_commit_at_a_time: asyncio.Lock,
    ) -> None:
        self._log = record_log
        self._shadows = shadows
        self._clock = clock
        self.max_items = max_items
        # lock that is held while entries are removed or changed
        self._one_commit_at_a_time = one_commit_at_a_time
        self._kept: dict[bytes, _StoredGroup] = {}
        self._of_key: dict[str, dict[bytes, None]] = {}  # entries by the name of the sender's key
        self._held = UsedAmountByOwner[str]()  # number of items by the name of the sender's key
        self._is_shared = False
        self._items = 0
        self._open_s = self._not_before = 0.0

    async def load_stored(self, stored: Iterable[PartialReport], *, record_hold_s: float) -> int:
        damaged = 0
        self._open_s, self._not_before = record_hold_s, self._clock.now() + record_hold_s
        for count, report in enumerate(sorted(stored), start=1):
            if count % TURN == 0:
                await asyncio.sleep(0)
            try:
                self._add_entry(
                    report.key, _StoredGroup(report.at, _counted.decode(report.body), report_version(report))
                )
            except (msgspec.DecodeError, UnicodeDecodeError):
                damaged += 1
        return damaged

    def forget_all(self) -> None:
        """
        Forget all counters in memory. From now on they are read from the storage each time, because other
        processes change them as well.
        """
        self._is_shared = True
        self._kept.clear()
        self._of_key.clear()
        self._held = UsedAmountByOwner()
        self._items = 0

    @property
    def held_by_sender_key(self) -> Mapping[str, int]:
        return self._held

    def reporters(self) -> set[CallReporter]:
        return {reporter for entry in self._kept.values() for reporter in entry.counted.reporters}

    def new_counted_group(self, key: str) -> CountedCounterGroup:
        return CountedCounterGroup(after=self._log.lowest_open_number(AI_TELEMETRY), key=key)

    def to_partial_report(
        self, key: bytes, counted_group: CountedCounterGroup, stored_at: float
    ) -> PartialReport:
        return PartialReport(COUNTED + key, stored_at, _encode(counted_group))

    def remember_counted_group(
        self, stored_report: PartialReport, counted_group: CountedCounterGroup, receipt: Receipt
    ) -> None:
        self._add_entry(
            stored_report.key,
            _StoredGroup(stored_report.at, counted_group, report_version(stored_report), receipt.id),
        )

    def keys_of_old_and_excess_groups(self) -> list[bytes]:
        now = self._clock.now()
        items = self._items
        old_keys = []
        old_keys_of: dict[str, set[bytes]] = {}
        for key, entry in self._kept.items():
            if now - entry.at <= WINDOW_S:
                break
            items -= entry.counted.count
            old_keys.append(key)
            old_keys_of.setdefault(entry.counted.key, set()).add(key)
        # remove counters of the key with the most counters, so that no key displaces those of another key
        if items > self.max_items:
            for key in entries_to_remove(
                self._held,
                self._of_key.__getitem__,
                lambda key: self._kept[key].counted.count,
                gone=old_keys_of,
            ):
                if items <= self.max_items:
                    break
                items -= self._kept[key].counted.count
                old_keys.append(key)
        return old_keys

    def remove_entries(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            counted = self._kept.pop(key).counted
            self._items -= counted.count
            self._held.add_use(counted.key, -counted.count)
            del self._of_key[counted.key][key]
            if not self._of_key[counted.key]:
                del self._of_key[counted.key]

    async def delete_old_entries(self) -> None:
        """
        Delete counted groups that are too old to be reversed, because they may have people's names. The
        caller holds the lock for commits.
        """
        if old := self.keys_of_old_and_excess_groups():
            await self._log.append_submission(Submission(topic=AI_TELEMETRY, received=0, forget=old))
            self.remove_entries(old)

    async def reverse_counters_that_repeat_calls(self) -> int:
        """
        Reverse the counters whose reporters have reported calls since. Return the number of reversed records.
        """
        corrected = 0
        looked_at = 0
        for key, entry in list(self._kept.items()):
            looked_at += len(entry.counted.reporters)
            if looked_at >= LOOKED_AT:
                looked_at = 0
                await pause_for_others()
            heard_reporters = {
                reporter
                for reporter in entry.counted.reporters
                if self._shadows.has_any_reported_calls([reporter], entry.at)
            }
            if heard_reporters:
                async with self._one_commit_at_a_time:
                    if key in self._kept:  # a request may have removed the oldest entries in the meantime
                        corrected += await self._reverse_group_of_reporters(key, entry, heard_reporters)
        if corrected:
            _log.info("reversed %d counters that repeat calls", corrected, extra={"action": "taken_back"})
        return corrected

    async def _reverse_group_of_reporters(
        self, key: bytes, entry: _StoredGroup, reporters_of_calls: set[CallReporter]
    ) -> int:
        at, counted, version, receipt = entry
        if receipt:
            self._kept[key] = entry._replace(receipt="")
            await self._read_record_numbers(counted, receipt)
        below = self._log.lowest_open_number(AI_TELEMETRY)
        now = self._clock.now()
        known_since = at + self._open_s if self._is_shared else max(at + self._open_s, self._not_before)
        may_be_open = counted.last >= below if counted.last else now < known_since
        if may_be_open or now - at > WINDOW_S:
            return 0
        corrections = [record async for record in self._find_reversals(counted, reporters_of_calls, below)]
        remaining = msgspec.structs.replace(counted, reporters=counted.reporters - reporters_of_calls)
        stays = [PartialReport(key, at, _encode(remaining))] if remaining.reporters else []
        await self._log.append_submission(
            Submission(
                topic=AI_TELEMETRY,
                received=0,
                split=len(corrections),
                records=corrections,
                identities=[RecordIdentity(record.id) for record in corrections],
                keep=stays,
                forget=() if stays else [key],
                expects=[ExpectedVersion(key, version)] if self._is_shared else (),
            )
        )
        if stays:
            self._kept[key] = _StoredGroup(at, remaining, report_version(stays[0]))
        else:
            self.remove_entries([key])
        return len(corrections)

    async def _read_record_numbers(self, counted_group: CountedCounterGroup, receipt: str) -> None:
        """
        Read from a receipt which record numbers the counters got. Only counters that must be reversed need
        them.
        """
        try:
            view = await self._log.describe_receipt(receipt)
        # without the receipt, the records are searched for, as after a restart
        except (NotThere, EntryUnreadable):
            return
        first = view["first_number"]
        last = view["last_number"]
        if isinstance(first, int) and isinstance(last, int):
            counted_group.after, counted_group.last = first, last

    async def _find_reversals(
        self,
        counted_group: CountedCounterGroup,
        reporters_of_calls: set[CallReporter],
        lowest_open_number: int,
    ) -> AsyncIterator[UsageMetric]:
        members = _RecordsOfCountedGroup(counted_group)
        last = counted_group.last or min(lowest_open_number - 1, counted_group.after + MOST_BEHIND)
        for first in range(counted_group.after, last + 1, STEP):
            for entry in await self._log.read(
                AI_TELEMETRY, first, min(first + STEP - 1, last), must_be_closed=True
            ):
                for number, record in _usage_metrics(entry):
                    if not reporters_of_calls.isdisjoint(reporters_of_record(record)) and record in members:
                        yield reversal_record(record, number, entry.committed_at)

    def _add_entry(self, key: bytes, entry: _StoredGroup) -> None:
        counted = entry.counted
        self._kept[key] = entry
        self._of_key.setdefault(counted.key, {})[key] = None
        self._held.add_use(counted.key, counted.count)
        self._items += counted.count


def reversal_record(record: UsageMetric, record_number: int, committed_at: float) -> UsageMetric:
    """
    Return a reversal of a record. The same arguments always give the same record.

    The reversal is in the same hour as the record, even if the ledger used the hour of its arrival.
    """
    arrived = int(committed_at * NS)
    start = record.start_time
    if start is None or not 0 < start < arrived + _BELIEVED_NS:
        start = arrived
    value = -record.value if isinstance(record.value, int) else f"-{record.value}"
    id = derived_dedup_key(record.id, "taken back")
    return msgspec.structs.replace(
        record, id=id, value=value, start_time=start, reverses_number=record_number
    )


def _usage_metrics(entry: LogEntry) -> Iterator[tuple[int, UsageMetric]]:
    for number, record in enumerate(entry.records, entry.first):
        if isinstance(record, UsageMetric) and not record.shadow:
            yield number, record


_encode = msgspec.msgpack.Encoder().encode
_counted = msgspec.msgpack.Decoder(CountedCounterGroup)
