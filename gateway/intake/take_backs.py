"""
Takes back what counters added when a call of their reporter comes after they were put on record.

A correction is a counter's record with the negative value, of the same series, time and dimensions: sums in
the ledger, in archives and upstream come out as if the counter had been a shadow. What was counted in the
last hour is known by ids, kept in the commit that counted it; the correction replaces that in its own commit.
So it happens once, also over restarts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gateway.intake.shadows import WINDOW_S, Reporter, Shadows, reporters_of
from spool.clock import Clock
from spool.identity import Identity, of_derived, of_point
from spool.log.partial_reports import COUNTED, NOTHING, Expectation, PartialReport, version_of
from spool.log.protocols import Log
from spool.log.values import CounterPoint, Receipt, Submission
from spool.record import AI_TELEMETRY, NS, AiRecord, UsageMetric
from spool.shares import Holdings, fullest_first
from spool.turns.fair_turns import pause

STEP = 1024  # records read at a time
TURN = 64  # groups that are read between two turns of the event loop
LOOKED_AT = 1024  # reporters that are looked at between two turns
MOST_BEHIND = 200_000  # records looked at for a group of before a restart
_BELIEVED_NS = 2 * 3600 * NS  # how far ahead of its arrival the ledger believes a time

_log = logging.getLogger(__name__)


class Counted(msgspec.Struct, array_like=True):
    """
    Counters of one key that were put on record together and count.

    As they are stored; fields are only ever added at the end.
    """

    after: int  # their numbers are not below this
    reporters: set[Reporter] = set()
    ids: set[bytes] = set()
    points: set[tuple[bytes, int]] = set()  # series and time of cumulative ones, whose ids the log makes
    last: int = 0  # their numbers are not above this; 0: not known
    key: str = ""  # the name of the key that brought them

    @property
    def count(self) -> int:
        return len(self.ids) + len(self.points)


class _Members:
    """Recognises the records of a group among others; the ids of points are made once for each span of time."""

    def __init__(self, counted: Counted) -> None:
        self._ids = counted.ids
        self._series: dict[int, list[bytes]] = {}
        for series, time in counted.points:
            self._series.setdefault(time, []).append(series)
        self._of_span: dict[tuple[int, int], set[bytes]] = {}

    def __contains__(self, record: UsageMetric) -> bool:
        if record.id in self._ids:
            return True
        begin = record.start_time or 0
        end = record.end_time or 0
        known = self._of_span.get((begin, end))
        if known is None:
            known = {of_point(series, begin, end) for series in self._series.get(end, ())}
            self._of_span[begin, end] = known
        return record.id in known


class _Kept(NamedTuple):
    at: float
    counted: Counted
    version: int = NOTHING  # as it was read, where other processes may take it back, too


class TakeBacks:
    """
    What counted in the last hour, oldest first.

    Beyond `max_items` the oldest of the key that has the most stays as it was counted.
    """

    def __init__(self, log: Log, shadows: Shadows, clock: Clock, *, max_items: int) -> None:
        self._log = log
        self._shadows = shadows
        self._clock = clock
        self.max_items = max_items
        self._kept: dict[bytes, _Kept] = {}
        self._of_key: dict[str, dict[bytes, None]] = {}  # the same by the key that brought it
        self._held = Holdings[str]()  # items of each key
        self._is_shared = False
        self._items = 0
        self._open_s = self._not_before = 0.0

    async def load(self, stored: Iterable[PartialReport], *, hold_s: float) -> int:
        """
        Take up what was known when the process ended; how many reports cannot be read.

        Their records may be open for `hold_s`, and their last number is not known.
        """
        damaged = 0
        self._open_s, self._not_before = hold_s, self._clock.now() + hold_s
        for place, report in enumerate(sorted(stored), start=1):
            if place % TURN == 0:
                await asyncio.sleep(0)
            try:
                self._add(report.key, _Kept(report.at, _counted.decode(report.body), version_of(report)))
            except (msgspec.DecodeError, UnicodeDecodeError):
                damaged += 1
        return damaged

    def forget_all(self) -> None:
        """Clear this memory and read the stored counters each time, because other processes change them, too."""
        self._is_shared = True
        self._kept.clear()
        self._of_key.clear()
        self._held = Holdings()
        self._items = 0

    @property
    def held(self) -> Mapping[str, int]:
        """Return how many counters of each key may be taken back."""
        return self._held

    def reporters(self) -> set[Reporter]:
        """Return the reporters whose counters may be taken back."""
        return {reporter for kept in self._kept.values() for reporter in kept.counted.reporters}

    def counted(
        self, key: str, records: Iterable[AiRecord], points: Iterable[CounterPoint]
    ) -> Counted | None:
        """Note the counters of one key that will count when they go on record next; None if all are shadows."""
        counted = Counted(after=self._log.closed_below(AI_TELEMETRY), key=key)
        for record in records:
            if isinstance(record, UsageMetric) and not record.shadow:
                counted.reporters.update(reporters_of(record))
                counted.ids.add(record.id)
        for point in points:
            if not point.template.shadow:
                counted.reporters.update(reporters_of(point.template))
                counted.points.add((point.series, point.time))
        return counted if counted.reporters else None

    def stored(self, key: bytes, counted: Counted, at: float) -> PartialReport:
        return PartialReport(COUNTED + key, at, _encode(counted))

    async def remember(self, stored: PartialReport, receipt: Receipt) -> None:
        """Remember counters that are on record now."""
        counted = _counted.decode(stored.body)
        view = await self._log.receipt(receipt.id)
        first = view["first_number"]
        last = view["last_number"]
        if isinstance(first, int) and isinstance(last, int):
            counted.after, counted.last = first, last
        self._add(stored.key, _Kept(stored.at, counted, version_of(stored)))

    def old(self) -> list[bytes]:
        """Keys of what nothing takes back any more."""
        now = self._clock.now()
        items = self._items
        gone = []
        gone_of: dict[str, set[bytes]] = {}
        for key, (at, counted, _) in self._kept.items():
            if now - at <= WINDOW_S:
                break
            items -= counted.count
            gone.append(key)
            gone_of.setdefault(counted.key, set()).add(key)
        if items > self.max_items:  # no key pushes out counters of another
            for key in fullest_first(
                self._held,
                self._of_key.__getitem__,
                lambda key: self._kept[key].counted.count,
                gone=gone_of,
            ):
                if items <= self.max_items:
                    break
                items -= self._kept[key].counted.count
                gone.append(key)
        return gone

    def drop(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            counted = self._kept.pop(key).counted
            self._items -= counted.count
            self._held.add(counted.key, -counted.count)
            del self._of_key[counted.key][key]
            if not self._of_key[counted.key]:
                del self._of_key[counted.key]

    async def take_back(self) -> int:
        """Correct what was counted of reporters that told calls since; how many records were corrected."""
        corrected = 0
        looked_at = 0
        for key, (at, counted, version) in list(self._kept.items()):
            looked_at += len(counted.reporters)
            if looked_at >= LOOKED_AT:
                looked_at = 0
                await pause()
            heard = {one for one in counted.reporters if self._shadows.have_heard([one], at)}
            below = self._log.closed_below(AI_TELEMETRY)
            now = self._clock.now()
            known_since = at + self._open_s if self._is_shared else self._not_before
            may_be_open = counted.last >= below if counted.last else now < known_since
            if not heard or may_be_open or now - at > WINDOW_S:
                continue
            corrections = [one async for one in self._corrections(counted, heard, below)]
            left = msgspec.structs.replace(counted, reporters=counted.reporters - heard)
            stays = [PartialReport(key, at, _encode(left))] if left.reporters else []
            await self._log.append(
                Submission(
                    topic=AI_TELEMETRY,
                    received=0,
                    split=len(corrections),
                    records=corrections,
                    identities=[Identity(one.id) for one in corrections],
                    keep=stays,
                    forget=() if stays else [key],
                    expects=[Expectation(key, version)] if self._is_shared else (),
                )
            )
            corrected += len(corrections)
            if stays:
                self._kept[key] = _Kept(at, left, version_of(stays[0]))
            else:
                self.drop([key])
        if corrected:
            _log.info(
                "%d counters that repeat calls were taken back", corrected, extra={"action": "taken_back"}
            )
        return corrected

    async def _corrections(
        self, counted: Counted, heard: set[Reporter], below: int
    ) -> AsyncIterator[UsageMetric]:
        members = _Members(counted)
        last = counted.last or min(below - 1, counted.after + MOST_BEHIND)
        for first in range(counted.after, last + 1, STEP):
            for entry in await self._log.read(AI_TELEMETRY, first, min(first + STEP - 1, last), whole=True):
                for record in _metrics(entry.records):
                    if not heard.isdisjoint(reporters_of(record)) and record in members:
                        yield correction(record, entry.committed_at)

    def _add(self, key: bytes, kept: _Kept) -> None:
        counted = kept.counted
        self._kept[key] = kept
        self._of_key.setdefault(counted.key, {})[key] = None
        self._held.add(counted.key, counted.count)
        self._items += counted.count


def correction(record: UsageMetric, committed_at: float) -> UsageMetric:
    """
    Make the record that takes another one back; it is the same each time it is made.

    If the ledger put the record into the hour of its arrival, it puts this one there, too.
    """
    arrived = int(committed_at * NS)
    start = record.start_time
    if start is None or not 0 < start < arrived + _BELIEVED_NS:
        start = arrived
    value = -record.value if isinstance(record.value, int) else f"-{record.value}"
    id = of_derived(record.id, "taken back")
    return msgspec.structs.replace(record, id=id, value=value, start_time=start)


def _metrics(records: Sequence[object]) -> Iterable[UsageMetric]:
    return (record for record in records if isinstance(record, UsageMetric) and not record.shadow)


_encode = msgspec.msgpack.Encoder().encode
_counted = msgspec.msgpack.Decoder(Counted)
