"""The sums of `spool.ledger.sums`, computed without decoding packed records."""

from __future__ import annotations

from typing import Final

import msgspec

from spool import money
from spool.ledger import sums as rule
from spool.ledger import work
from spool.ledger.comparing import max_records_at_once
from spool.ledger.sums import HourlySums
from spool.ledger.token_sums import SIZES
from spool.log.values import LogEntry
from spool.packed.native import HourlyRowAdder, NativeFault, NativeModule, inference_field_index
from spool.packed.records import PackedRecords
from spool.processing import MARKS
from spool.record import NS
from spool.turns.fair_turns import pause_for_others

_DIMENSIONS: Final = rule.CountedFields.__struct_fields__[:-3]
_decoder = msgspec.msgpack.Decoder(rule.CountedFields)


class PackedSums:
    """
    Adds up packed records. Call `move_rows_to_sums` at the end.

    After a NativeFault, discard `sums`, which are incomplete, and start again without the module.
    """

    def __init__(self, native: NativeModule, sums: HourlySums) -> None:
        self._native = native
        self._sums = sums
        self._rows = _row_adder(native, sums)

    async def add_entry(self, entry: LogEntry) -> None:
        """
        Add the records of an entry to the sums. Records that the compiled module cannot add are added in
        Python, with pauses for other tasks.
        """
        records = entry.records
        if not isinstance(records, PackedRecords):
            for part in entry.split(max_records_at_once()):
                self._sums.add_entries([part])
                await pause_for_others()
            return
        arrival = rule.start_hour_or_arrival_hour(None, entry.committed_at)
        came = arrival // rule.HOUR_S, (arrival + rule.AHEAD_S) * NS
        done = 0
        at, end = records.begin, records.end
        while at < end:
            if self._rows.is_full:
                await self.move_rows_to_sums()
            number = entry.first + at - records.begin
            try:
                at = self._rows.add(records.packed, records.offsets, at, end, number, came)
            except self._native.panic as error:
                self._native.count_fault(error)
                raise NativeFault from error
            if at < end:  # the compiled module leaves this record to Python
                self._sums.add_entries([_single_record_entry(entry, at - records.begin)])
                at, done = at + 1, done + 1
                if done % max_records_at_once() == 0:
                    await pause_for_others()
        await pause_for_others()

    async def move_rows_to_sums(self) -> None:
        """Add the rows of the compiled module to the sums. There may be as many rows as calls."""
        rows, first = self._rows.take()
        for number, (hour, values, measures) in enumerate(rows, start=1):
            if number % max_records_at_once() == 0:
                await pause_for_others()
            self._sums.add_call_sums(hour * rule.HOUR_S, _decoder.decode(values), measures)
        for hour, number in first.items():
            self._sums.note_lowest_record_number(hour * rule.HOUR_S, number)


def _single_record_entry(entry: LogEntry, record_index: int) -> LogEntry:
    return LogEntry(
        topic=entry.topic,
        first=entry.first + record_index,
        committed_at=entry.committed_at,
        records=[entry.records[record_index]],
    )


def _row_adder(native: NativeModule, sums: HourlySums) -> HourlyRowAdder:
    most = 2**63 - 1
    bounds = {"input_tokens": rule.MAX_TOKENS, "output_tokens": rule.MAX_TOKENS}
    return native.row_adder(
        start=inference_field_index("start_time"),
        end=inference_field_index("end_time"),
        shadow=inference_field_index("shadow"),
        dimensions=[inference_field_index(field) for field in _DIMENSIONS],
        tags=(
            inference_field_index("tags"),
            frozenset(name.encode() for name in {*sums.tags, *MARKS, *work.TAGS}),
        ),
        sized=(inference_field_index("input_tokens"), inference_field_index("output_tokens"), SIZES),
        counts=[(inference_field_index(field), bounds.get(field, most)) for field in rule.COUNTS[1:]],
        amounts=(
            [inference_field_index("cost"), inference_field_index("estimated_cost")],
            money.DECIMALS,
            rule.MAX_MONEY,
        ),
        hour=rule.HOUR_S * NS,
        unit=rule.MS,
        edges=rule.LATENCY_EDGES_MS,
    )
