"""Conversion of OTLP requests to records, for receivers and files."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, Literal

import msgspec

from gateway.core.errors import BadPayload
from gateway.normalise.otlp.decoding import json_decoder, protobuf_decoder
from gateway.normalise.otlp.decoding.json_schema import SIGNAL_ADDRESSES
from gateway.normalise.otlp.decoding.pieces import ItemReader, PayloadPiece
from gateway.normalise.otlp.decoding.signal_check import refuse_protobuf_of_other_signal
from gateway.normalise.otlp.logs import OtlpLogReader
from gateway.normalise.otlp.metrics import PointReader
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.spans.reader import SpanReader
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.normalise.payload.body_limits import BodyReadLimits, Hold, TimeSliceClock, reserve_nothing
from gateway.normalise.payload.first_bytes import describe_foreign_encoding
from gateway.normalise.payload.items import remove_byte_order_mark

Signal = Literal["traces", "metrics", "logs"]

_READERS: dict[Signal, type[ItemReader[Any]]] = {
    "traces": SpanReader,
    "metrics": PointReader,
    "logs": OtlpLogReader,
}

TURN = 16  # items read between two checks of the clock
_LOOKED_AT = 1024  # bytes; an empty request is not longer

_WITHOUT_ITEMS: dict[Signal, str] = {
    "traces": (
        'The body has no spans. Send {"resourceSpans": [{"scopeSpans": [{"spans": [...]}]}]}; logs of AI gateways '
        "go to /v1/ai-telemetry."
    ),
    "metrics": (
        'The body has no metrics. Send {"resourceMetrics": [{"scopeMetrics": [{"metrics": [...]}]}]}; logs of AI '
        "gateways go to /v1/ai-telemetry."
    ),
    "logs": (
        'The body has no log records. Send {"resourceLogs": [{"scopeLogs": [{"logRecords": [...]}]}]}; logs of AI '
        "gateways go to /v1/ai-telemetry."
    ),
}


# decodes the spans of a request in protobuf
TracesDecoder = Callable[[bytes, BodyReadLimits], Iterator[PayloadPiece[Span]]]


def normalise_otlp(
    signal: Signal,
    body: bytes,
    *,
    json: bool,
    options: ReadOptions,
    hold: Hold = reserve_nothing,
    traces: TracesDecoder = protobuf_decoder.traces,
) -> Generator[None, None, ReadOutcome]:
    """
    Normalise a request. Yields so that the event loop can run. `traces` decodes spans in protobuf. Raises
    BadPayload if the body is not an export request of the signal.
    """
    outcome = ReadOutcome(why=[] if options.explain else None, keep_tags=options.keep_tags)
    reader = _READERS[signal](outcome, options)  # type: ignore[call-arg]
    decoder = json_decoder if json else protobuf_decoder
    decode = traces if signal == "traces" and not json else getattr(decoder, signal)
    slices: Iterator[PayloadPiece[Any]] = decode(body, BodyReadLimits(options.max_items, hold))
    try:
        yield from _read_pieces(slices, reader, outcome)
    except BadPayload as error:
        if not json:
            refuse_protobuf_of_other_signal(signal, body)
        remedy = _describe_other_media_type(body, json=json) or describe_foreign_encoding(body)
        if not remedy:
            raise
        raise BadPayload(f"{error.message}; {remedy}") from None
    if not outcome.has_records_or_points:
        if not json:
            refuse_protobuf_of_other_signal(signal, body)
        if not outcome.received and not _is_empty_request(body, json=json):
            outcome.note_body_without_items(_WITHOUT_ITEMS[signal])
    return outcome


def _read_pieces(
    slices: Iterator[PayloadPiece[Any]], reader: ItemReader[Any], outcome: ReadOutcome
) -> Iterator[None]:
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


def _describe_other_media_type(body: bytes, *, json: bool) -> str:
    starts_like_json = body[:_LOOKED_AT].lstrip()[:1] in (b"{", b"[")
    if json and body[:1] == b"\n" and not starts_like_json:
        return "if it is protobuf, send Content-Type: application/x-protobuf"
    if not json and starts_like_json:
        return "if it is JSON, send Content-Type: application/json"
    return ""


def _is_empty_request(body: bytes, *, json: bool) -> bool:
    """Return whether a body without items is an export of nothing, such as `{}` or `{"resourceSpans": []}`."""
    if not json or len(body) > _LOOKED_AT:
        return not body
    try:
        members = msgspec.json.decode(remove_byte_order_mark(body))
    except msgspec.DecodeError:  # the decoder has repaired the body
        return False
    return all(name in SIGNAL_ADDRESSES and not value for name, value in members.items())
