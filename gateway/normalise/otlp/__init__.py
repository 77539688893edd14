"""Conversion of OTLP requests to records, for receivers and files."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Literal

from gateway.normalise.otlp.decoding import json_decoder, protobuf_decoder
from gateway.normalise.otlp.decoding.pieces import ItemReader, PayloadPiece
from gateway.normalise.otlp.logs import OtlpLogReader
from gateway.normalise.otlp.metrics import PointReader
from gateway.normalise.otlp.spans.reader import SpanReader
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.normalise.payload.body_limits import BodyReadLimits, Hold, TimeSliceClock, reserve_nothing

Signal = Literal["traces", "metrics", "logs"]

_READERS: dict[Signal, type[ItemReader[Any]]] = {
    "traces": SpanReader,
    "metrics": PointReader,
    "logs": OtlpLogReader,
}

TURN = 16  # items read between two checks of the clock


def normalise_otlp(
    signal: Signal, body: bytes, *, json: bool, options: ReadOptions, hold: Hold = reserve_nothing
) -> Generator[None, None, ReadOutcome]:
    """
    Normalise a request. Yields so that the event loop can run. Raises BadPayload if the body is not an export
    request of the signal.
    """
    outcome = ReadOutcome(why=[] if options.explain else None, keep_tags=options.keep_tags)
    reader = _READERS[signal](outcome, options)  # type: ignore[call-arg]
    decoder = json_decoder if json else protobuf_decoder
    slices: Iterator[PayloadPiece[Any]] = getattr(decoder, signal)(
        body, BodyReadLimits(options.max_items, hold)
    )
    for part in slices:
        outcome.received += part.received
        outcome.rejects += part.rejects
        if part.ignored:
            outcome.ignored.update(part.ignored)
        clock = TimeSliceClock()
        for number, (index, item) in enumerate(part.items, start=1):
            reader.read_item(index, item)
            # check within a metric as well, because one metric may have any number of points
            if number % TURN == 0 and clock.is_over():
                outcome.pack_finished_part_if_full()
                yield
                clock.begin_slice()
        if part.ended:
            yield from reader.add_calls_of_ended_traces(part.ended)
        outcome.pack_finished_part_if_full()
        yield
    for _ in reader.add_items_that_waited() or ():
        outcome.pack_finished_part_if_full()
        yield
    return outcome
