"""
The newest calls of a slice (the set of calls that a person with restricted access may see).

The list is limited by the number of calls in the slice and a fixed period, never by other people's calls,
because that would reveal their number. Each slice's search position is cached, so that each call is checked
once per slice.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spool.clock import Clock
from spool.log.protocols import RecordLog
from spool.record import AI_TELEMETRY, Record, pack_records, unpack_records

LOOK_BACK_S = 6 * 3600.0
STEP = 512  # numbers read between two turns of the event loop
MOST_SLICES = 8  # 10,000 calls take some 3 MiB

IsInSlice = Callable[[Record], bool]


class SliceRecord(NamedTuple):
    number: int
    committed_at: float
    packed: bytes

    def unpack_record(self) -> Record:
        return unpack_records(self.packed)[0]


@dataclass(eq=False, slots=True)
class _Remembered:
    """
    The cached search of the calls that a restricted person sees. `rows`: the newest calls with numbers below
    `below`, newest first. `turn`: held while a query searches further.
    """

    dimensions: Hashable  # the organization's dimensions that the search used
    below: int = 1
    rows: list[SliceRecord] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class NewestSliceCalls:
    def __init__(self, record_log: RecordLog, clock: Clock) -> None:
        self._log = record_log
        self._clock = clock
        self._slices: OrderedDict[Hashable, _Remembered] = OrderedDict()

    async def newest_calls(
        self, slice: Hashable, is_in_slice: IsInSlice, *, dimensions: Hashable, max_records: int
    ) -> Sequence[SliceRecord]:
        """
        Return at most `max_records` calls of the slice from the last LOOK_BACK_S seconds, newest first. Calls that
        may still get a report are left out.

        It uses `dimensions`: after a query with others, the calls are searched from the start.
        """
        remembered = self._slices.get(slice)
        if remembered is None or remembered.dimensions != dimensions:
            remembered = self._slices[slice] = _Remembered(dimensions)
        self._slices.move_to_end(slice)
        if len(self._slices) > MOST_SLICES:
            self._slices.popitem(last=False)
        async with remembered.turn:
            await self._extend_cached_search(remembered, is_in_slice, max_records)
            return list(remembered.rows)

    async def _extend_cached_search(
        self, cached_search: _Remembered, is_in_slice: IsInSlice, max_rows: int
    ) -> None:
        below, since = self._log.lowest_open_number(AI_TELEMETRY), self._clock.now() - LOOK_BACK_S
        if below < cached_search.below:  # the watermark has fallen: the log was replaced
            cached_search.below, cached_search.rows = 1, []
        floor = max(cached_search.below, await first_number_after(self._log, AI_TELEMETRY, since, below))
        own_records: list[SliceRecord] = []
        end = below
        while end > floor and len(own_records) < max_rows:
            begin = max(floor, end - STEP)
            own_records += await slice_records_between(self._log, begin, end, is_in_slice)
            end = begin
            await asyncio.sleep(0)
        rows = [*own_records, *cached_search.rows][:max_rows]
        cached_search.rows = [row for row in rows if row.committed_at > since]
        cached_search.below = below


async def slice_records_between(
    record_log: RecordLog, begin_number: int, end_number: int, is_in_slice: IsInSlice
) -> list[SliceRecord]:
    own_records = [
        SliceRecord(number, entry.committed_at, pack_records([record]))
        for entry in await record_log.read(AI_TELEMETRY, begin_number, end_number - 1)
        for number, record in enumerate(entry.records, entry.first)
        if record is not None and is_in_slice(record)
    ]
    return own_records[::-1]


async def first_number_after(record_log: RecordLog, topic: str, moment: float, below_number: int) -> int:
    low, high = 1, below_number
    while low < high:
        middle = (low + high) // 2
        entries = await record_log.read(topic, middle, middle, includes_open_records=True)
        if entries and entries[0].committed_at > moment:
            high = middle
        else:
            # committed before the moment, or deleted and so older than stored records
            low = middle + 1
    return low
