"""Comparison of Python's rules with the compiled readers of packed records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from exporters.batch import SendTally, build_batch_without_duplicates
from exporters.errors import Rejected
from exporters.otlp.spans import PackedSpans, SpanEncoder, join_export_request
from exporters.otlp.telemetry import OUT_OF_RANGE
from spool.deliveries.values import Delivery
from spool.errors import EntryUnreadable
from spool.ledger.sums import HourlySums
from spool.log.amendments import replace_fields
from spool.log.entries import codec
from spool.log.entries.cache import CachedEntry
from spool.log.values import LogEntry
from spool.packed.native import NativeModule
from spool.packed.records import PackedRecords, packed_records
from spool.packed.sums import PackedSums
from spool.record import Inference, Record
from tests.spool.digests import DIGESTS

FIRST = 1000  # record number of an entry's first record
TAGS = ("service", "env")


@dataclass
class Both:
    """
    One entry, read by the rules and by the compiled readers. The readers remember earlier entries, as
    in a server.
    """

    native: NativeModule
    rule: SpanEncoder = field(default_factory=SpanEncoder)

    def __post_init__(self) -> None:
        self.writer = PackedSpans(self.native, SpanEncoder())

    def compare(
        self,
        packed: bytes,
        begin: int = 0,
        end: int | None = None,
        *,
        amendments: Mapping[int, dict[str, Any]] | None = None,
        at: float = 1_790_000_000.25,
    ) -> bool:
        """Compare records, spans and sums and return whether the compiled readers read the packed bytes."""
        cached = CachedEntry(codec.split_records(packed), packed)
        end = len(cached.raw_records) if end is None else end
        filled = {FIRST + place: fields for place, fields in (amendments or {}).items()}
        try:
            expected: Sequence[Record] | None = _decoded(cached, begin, end, amendments or {})
        except EntryUnreadable:
            expected = None
        try:
            found = packed_records(self.native, cached, FIRST, FIRST + begin, FIRST + end - 1, filled)
        except EntryUnreadable:
            assert expected is None
            return False
        if found is None:
            return False
        assert expected is not None
        assert expected == list(found) == [found[place] for place in range(len(found))]
        here, there = entry_of(begin, expected, at), entry_of(begin, found, at)
        delivery = Delivery(
            id=1, route="r", first=here.first, last=here.last, attempts=0, idempotency_key="k"
        )
        assert self._by_rule(delivery, here) == self._as_packed(delivery, there)
        assert _sums(here, None) == _sums(there, self.native)
        return True

    def _by_rule(self, delivery: Delivery, entry: LogEntry) -> object:
        batch = build_batch_without_duplicates(delivery, [entry])
        if not all(isinstance(record, Inference) for record, _ in batch.records):
            return None
        try:
            spans = [(record, at) for record, at in batch.records if isinstance(record, Inference)]
            return batch.tally, self.rule.encode_request(spans)
        except OUT_OF_RANGE:
            return Rejected

    def _as_packed(self, delivery: Delivery, entry: LogEntry) -> object:
        try:
            found: tuple[SendTally, list[bytes]] | None = asyncio.run(
                self.writer.encode_spans(delivery, [entry])
            )
        except OUT_OF_RANGE:
            return Rejected
        if found is None:  # the rules also leave out shadows of counters, but this test does not compare that
            return self._by_rule(delivery, entry)
        return found[0], join_export_request(found[1])


def entry_of(begin: int, records: Sequence[Record | None], at: float) -> LogEntry:
    return LogEntry(topic="ai-telemetry", first=FIRST + begin, committed_at=at, records=records)


def _decoded(
    cached: CachedEntry, begin: int, end: int, amendments: Mapping[int, dict[str, Any]]
) -> Sequence[Record]:
    records = [codec.decode_record(raw) for raw in cached.raw_records[begin:end]]
    for place, fields in amendments.items():
        if begin <= place < end and isinstance(record := records[place - begin], Inference):
            records[place - begin] = replace_fields(record, fields)
    return records


def _sums(entry: LogEntry, native: NativeModule | None) -> tuple[object, ...]:
    """Return the sums of one entry, added as a whole and in two parts."""
    sums = HourlySums(TAGS, unit_hasher=DIGESTS)
    try:
        if native is None:
            sums.add_entries([entry])
        else:
            asyncio.run(_add(PackedSums(native, sums), entry))
    except ValueError as error:  # the text of one of the two is not an amount
        return (type(error),)
    return sums.hours, sums.meters, sums.work, sums.work_names, sums.first, sums.damaged, sums.absurd


async def _add(sums: PackedSums, entry: LogEntry) -> None:
    assert isinstance(entry.records, PackedRecords)
    for part in entry.split(max(1, len(entry.records) * 2 // 3)):
        await sums.add_entry(part)
    await sums.move_rows_to_sums()


def packed_as(records: Sequence[Record], items: Sequence[int] = ()) -> bytes:
    """
    Pack records. Record number i gets only its first `items[i]` fields, as in earlier versions. Records
    beyond `items` get all fields.
    """
    raws = []
    for place, record in enumerate(records):
        row: list[Any] = msgspec.msgpack.decode(codec.encode_records([record]))[0]
        most = items[place] if place < len(items) else len(row)
        raws.append(msgspec.Raw(codec.encode_records([row[:most]])[1:]))
    return codec.encode_records(raws)
