"""
Packed records as spans, as `exporters.otlp.spans` writes them, without decoding the plain ones.

The compiled module gets from here what stands where and under which name; what it does not take is written by
the rule, record by record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from exporters.batch import TURN, Tally
from exporters.otlp import spans, wire
from exporters.otlp.spans import SpanEncoder
from spool import identity
from spool.deliveries.values import Delivery
from spool.log.values import Entry
from spool.packed.native import Native, SpanWriter, place
from spool.packed.records import PackedRecords
from spool.record import NS, Inference

_LATEST = 2**63  # nanoseconds


def native_of(entries: Sequence[Entry]) -> Native | None:
    """Returns the module that reads the records of all entries as they are packed; None if some are not."""
    found = {entry.records.native if isinstance(entry.records, PackedRecords) else None for entry in entries}
    native = found.pop() if len(found) == 1 else None
    return native if native is not None and native.is_on else None


class PackedSpans:
    """Keeps what combinations of a record are encoded as; one for each destination."""

    def __init__(self, native: Native, encoder: SpanEncoder) -> None:
        self._native = native
        self._encoder = encoder
        self._writer = _span_writer(native)

    async def encoded(self, delivery: Delivery, entries: Sequence[Entry]) -> tuple[Tally, list[bytes]] | None:
        """
        Returns the tally of the records, and their spans in order. None if they are to be decoded.

        The event loop has a turn after as many records as Python may encode in one.
        """
        sent = 0
        shadow = 0
        fields = list[bytes]()
        try:
            for entry in entries:
                assert isinstance(entry.records, PackedRecords)
                found = await self._entry(entry.records, entry.committed_at, fields)
                if found is None:
                    return None
                sent, shadow = sent + found[0], shadow + found[1]
        except self._native.panic as error:
            self._native.fail(error)
            return None
        return Tally(sent, shadow, delivery.count - sent - shadow), fields

    async def _entry(
        self, records: PackedRecords, committed_at: float, fields: list[bytes]
    ) -> tuple[int, int] | None:
        """Adds the spans of one entry: how many, and how many shadows are left out. None as above."""
        received = int(committed_at * NS)
        odd = [one for place, one in records.odd.items() if records.begin <= place < records.end]
        if not 0 <= received < _LATEST or not all(isinstance(one, Inference) for one in odd):
            return None  # counters leave in requests of their own
        at = records.begin
        sent = 0
        shadow = 0
        alone = 0
        while at < records.end:
            made, spans_made, shadows, at = self._writer.encode(
                records.packed, records.offsets, at, records.end, received
            )
            fields.append(made)
            sent, shadow = sent + spans_made, shadow + shadows
            if at < records.end:
                is_sent = self._alone(records, at, committed_at, fields)
                sent, shadow = sent + is_sent, shadow + (not is_sent)
                at, alone = at + 1, alone + 1
                if alone % TURN == 0:
                    await asyncio.sleep(0)
        return sent, shadow

    def _alone(self, records: PackedRecords, place: int, committed_at: float, fields: list[bytes]) -> bool:
        """Adds one span by the rule; False for a shadow, which is left out."""
        record = records.record(place)
        assert isinstance(record, Inference)
        if record.shadow:
            return False
        fields.append(self._encoder.fields([(record, committed_at)]))
        if place not in records.odd:
            combination = self._encoder.combination(record)
            self._writer.learn(records.packed, records.offsets, place, combination)
        return True


def _span_writer(native: Native) -> SpanWriter:
    mark = wire.varint(spans.ATTRIBUTES << 3 | 2)
    numbers = [(place(field), True, (mark, name.encode())) for field, name in spans.NUMBERS.items()]
    texts = [(place(field), False, (mark, name.encode())) for field, name in spans.TEXTS.items()]
    return native.span_writer(
        span=spans.SPAN,
        trace_id=(place("trace_id"), spans.TRACE_ID),
        span_id=(place("span_id"), spans.SPAN_ID),
        start=(place("start_time"), spans.START),
        end=(place("end_time"), spans.END),
        times=(spans.NO_TIME, spans.START_ALONE, spans.END_ALONE),
        shadow=place("shadow"),
        combination=[place(field) for field in spans.COMBINED],
        id=(place("id"), (mark, spans.ID.encode())),
        response_id=(place("request_id"), (mark, spans.RESPONSE_ID.encode())),
        long_enough=identity.LONG_ENOUGH,
        attributes=[*numbers, *texts],
        tags=(place("tags"), (mark, spans.TAG.encode())),
        stand_in=identity.STAND_IN,
    )
