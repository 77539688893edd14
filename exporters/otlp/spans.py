"""
Inference records as OTLP spans, with the attributes of the current OpenTelemetry GenAI conventions.

Fields that the conventions lack become `tollhouse.*` attributes, so that another Tollhouse can restore every
field. A trace, span or request id that is not a valid OTel id is in `tollhouse.trace_id`, `.span_id` or
`.request_id`. If the start or the end is unknown, `tollhouse.times` names the known times: `none`, `start` or
`end`. A meter without an attribute in the conventions is `tollhouse.meter.NAME`: a number, or decimal text if
it has a fraction. Equal records always become equal bytes.

The compiled module encodes packed records to the same spans without decoding plain records. This module passes
it the fields, their positions and their names, and encodes the records that the compiled module cannot encode.
"""

from __future__ import annotations

import asyncio
import re
from binascii import hexlify
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct

from msgspec import structs

from exporters.batch import TURN, SendTally
from exporters.otlp import wire
from spool import identity
from spool.caches import remove_oldest_eighth
from spool.deliveries.values import Delivery
from spool.log.values import LogEntry
from spool.meters import METERS, MODALITIES
from spool.packed.native import NativeModule, SpanWriter, inference_field_index
from spool.packed.records import PackedRecords
from spool.record import CURRENCY, NS, Inference

ATTRIBUTES = 9  # field number of `attributes` in opentelemetry.proto.trace.v1.Span
_HEAD = Struct("<2s16s2s8scQcQ")  # layout of trace id, span id, start and end, each with its tag and length
# tag bytes (and length bytes of ids) before each value
SPAN, TRACE_ID, SPAN_ID, START, END = b"\x12", b"\x0a\x10", b"\x12\x08", b"\x39", b"\x41"
_CLIENT = b"\x30\x03"
_FAILED = wire.encode_field(15, b"\x18\x02")  # the field status { code: ERROR }

_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_SPAN_ID = re.compile(r"(?!0{16})[0-9a-f]{16}")
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)

_LATEST = 2**63  # upper limit of a time in nanoseconds


def _text_attribute_encoder(attribute_name: str) -> Callable[[str], bytes]:
    return wire.text_attribute_encoder(attribute_name, field_number=ATTRIBUTES)


def _text_attribute_prefixes(attribute_name: str) -> wire.TextAttributePrefixes:
    return wire.TextAttributePrefixes(attribute_name, field_number=ATTRIBUTES)


def _number_encoder(key: str) -> Callable[[int], bytes]:
    return wire.integer_attribute_encoder(key, field_number=ATTRIBUTES)


ID, RESPONSE_ID, TAG = "tollhouse.id", "gen_ai.response.id", "tollhouse.tag."
# The attribute of each field, in the order of the wire format: all numbers first, then all texts.
NUMBERS = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_write.input_tokens",
    "cache_write_1h_tokens": "tollhouse.cache_write_1h_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
TEXTS = {
    "cost": "tollhouse.cost",
    "estimated_cost": "tollhouse.estimated_cost",
    "user": "tollhouse.user",
    "team": "tollhouse.team",
    "session": "gen_ai.conversation.id",
    "api_key": "tollhouse.api_key",
    "device": "tollhouse.device",
    "run": "tollhouse.run",
    "parent_run": "tollhouse.parent_run",
    "ancestors": "tollhouse.ancestors",
}
_trace_id = _text_attribute_encoder("tollhouse.trace_id")
_span_id = _text_attribute_encoder("tollhouse.span_id")
_input, _output, _cache_read, _cache_write, _cache_write_1h, _reasoning = map(
    _number_encoder, NUMBERS.values()
)
# heads instead of encoders, because calling a function for each text takes longer than joining head and text
_ID, _RESPONSE_ID, _REQUEST_ID = map(_text_attribute_prefixes, (ID, RESPONSE_ID, "tollhouse.request_id"))
_COST, _ESTIMATED_COST, _USER, _TEAM, _SESSION, _API_KEY, _DEVICE, _RUN, _PARENT_RUN, _ANCESTORS = map(
    _text_attribute_prefixes, TEXTS.values()
)
_times = _text_attribute_encoder("tollhouse.times")


def _meter_attribute_names() -> dict[str, str]:
    usage = "gen_ai.usage"
    names = {name: f"tollhouse.meter.{name}" for name in METERS}
    for kind in MODALITIES:
        names[f"input_{kind}_tokens"] = f"{usage}.{kind}.input_tokens"
        names[f"output_{kind}_tokens"] = f"{usage}.{kind}.output_tokens"
        names[f"cache_{kind}_read_tokens"] = f"{usage}.{kind}.cache_read.input_tokens"
    return names


_METERS = {
    name: (_number_encoder(attribute), _text_attribute_encoder(attribute))
    for name, attribute in _meter_attribute_names().items()
}

# Fields that have few different values. Each combination of values is encoded only once.
COMBINED = {
    "operation": _text_attribute_encoder("gen_ai.operation.name"),
    "provider": _text_attribute_encoder("gen_ai.provider.name"),
    "request_model": _text_attribute_encoder("gen_ai.request.model"),
    "response_model": _text_attribute_encoder("gen_ai.response.model"),
    "error_type": _text_attribute_encoder("error.type"),
    "source": _text_attribute_encoder("tollhouse.source"),
    "status": _text_attribute_encoder("tollhouse.status"),
    "cost_source": _text_attribute_encoder("tollhouse.cost_source"),
    "price_book": _text_attribute_encoder("tollhouse.price_book"),
    "region": _text_attribute_encoder("tollhouse.region"),
}
_CURRENCY = _text_attribute_encoder("tollhouse.currency")(CURRENCY)

_MOST_KINDS = 4096
_MOST_TAGS = 1024
_MOST_SETS, _LARGEST_SET = 4096, 512  # maximum number of cached tag sets, and maximum bytes of one set


def join_export_request(fields: Iterable[bytes]) -> bytes:
    spans = [_SCOPE, *fields]  # `join` copies the spans only once, because a delivery has about a megabyte
    size = sum(map(len, spans))
    head = RESOURCE + wire.encode_field_head(2, size)
    return b"".join([wire.encode_field_head(1, len(head) + size), head, *spans])


class SpanEncoder:
    """Encodes spans and caches encoded parts. Each destination has its own encoder."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str | None, ...], bytes] = {}
        self._tags: dict[str, Callable[[str], bytes]] = {}
        self._tag_sets: dict[tuple[str, ...], bytes] = {}
        # the tags of the last span, because the calls of a request often share one dict
        self._last_tags: Mapping[str, str] = {}
        self._last_tag_set = b""

    def encode_request(self, records: Iterable[tuple[Inference, float]]) -> bytes:
        """
        Return an ExportTraceServiceRequest. Each record is given with the time of its commit in seconds.
        """
        return join_export_request([self.encode_fields(records)])

    def encode_fields(self, records: Iterable[tuple[Inference, float]]) -> bytes:
        """
        Return the spans of records as repeated fields, which `join_export_request` joins into a request.
        """
        spans: list[bytes] = []
        for record, committed_at in records:
            span = self.encode_span(record, committed_at)
            spans.append(SPAN)
            spans.append(wire.encode_length(len(span)))
            spans.append(span)
        return b"".join(spans)

    def encode_span(self, record: Inference, committed_at: float) -> bytes:
        r = record if not record.charges else _without_reported_cost(record)
        try:
            trace, span = bytes.fromhex(r.trace_id or ""), bytes.fromhex(r.span_id or "")
        except ValueError:
            trace = span = b""
        is_plain = (
            len(trace) == 16 and len(span) == 8 and trace.hex() == r.trace_id and span.hex() == r.span_id
        )
        if is_plain and trace != _NO_TRACE and span != _NO_SPAN:
            parts: list[bytes] = []
        else:
            trace, span, parts = _valid_ids_and_id_attributes(r)
        start, end, times = r.start_time, r.end_time, b""
        if start is None or end is None:
            start, end, times = _start_end_and_times_attribute(start, end, committed_at)
        parts.append(_HEAD.pack(TRACE_ID, trace, SPAN_ID, span, START, start, END, end))
        parts.append(self.encode_common_fields(r))
        text = hexlify(r.id)
        parts.append(_ID[len(text)])
        parts.append(text)
        parts.append(times)
        if r.request_id is not None:
            text = r.request_id.encode()
            # Readers treat the response id as the provider's id, so it may only contain an id that is
            # unique everywhere.
            parts.append((_RESPONSE_ID if identity.is_long_id(r.request_id) else _REQUEST_ID)[len(text)])
            parts.append(text)
        if r.input_tokens is not None:
            parts.append(_input(r.input_tokens))
        if r.output_tokens is not None:
            parts.append(_output(r.output_tokens))
        if r.cache_read_tokens is not None:
            parts.append(_cache_read(r.cache_read_tokens))
        if r.cache_write_tokens is not None:
            parts.append(_cache_write(r.cache_write_tokens))
        if r.cache_write_1h_tokens is not None:
            parts.append(_cache_write_1h(r.cache_write_1h_tokens))
        if r.reasoning_tokens is not None:
            parts.append(_reasoning(r.reasoning_tokens))
        if r.cost is not None:
            text = r.cost.encode()
            parts.append(_COST[len(text)])
            parts.append(text)
        if r.estimated_cost is not None:
            text = r.estimated_cost.encode()
            parts.append(_ESTIMATED_COST[len(text)])
            parts.append(text)
        if r.user is not None:
            text = r.user.encode()
            parts.append(_USER[len(text)])
            parts.append(text)
        if r.team is not None:
            text = r.team.encode()
            parts.append(_TEAM[len(text)])
            parts.append(text)
        if r.session is not None:
            text = r.session.encode()
            parts.append(_SESSION[len(text)])
            parts.append(text)
        if r.api_key is not None:
            text = r.api_key.encode()
            parts.append(_API_KEY[len(text)])
            parts.append(text)
        if r.device is not None:
            text = r.device.encode()
            parts.append(_DEVICE[len(text)])
            parts.append(text)
        if r.run is not None:
            text = r.run.encode()
            parts.append(_RUN[len(text)])
            parts.append(text)
        if r.parent_run is not None:
            text = r.parent_run.encode()
            parts.append(_PARENT_RUN[len(text)])
            parts.append(text)
        if r.ancestors is not None:
            text = r.ancestors.encode()
            parts.append(_ANCESTORS[len(text)])
            parts.append(text)
        if r.tags:
            if r.tags is not self._last_tags:
                self._last_tags, self._last_tag_set = r.tags, self._encode_tags(r.tags)
            parts.append(self._last_tag_set)
        if r.meters:
            parts += [_encode_meter(name, quantity) for name, quantity in r.meters.items() if name in _METERS]
        if r.charges:
            parts += [
                _text_attribute_encoder(f"tollhouse.charge.{currency}")(amount)
                for currency, amount in r.charges.items()
            ]
        return b"".join(parts)

    def encode_common_fields(self, record: Inference) -> bytes:
        """
        Return the encoded name, kind, status and those attributes of a call that many other calls have with
        equal values. Results are cached.
        """
        r = record
        key = (
            r.operation,
            r.provider,
            r.request_model,
            r.response_model,
            r.error_type,
            r.source,
            r.status,
            r.cost_source,
            r.price_book,
            r.region,
        )
        encoded = self._kinds.get(key)
        if encoded is None:
            if len(self._kinds) >= _MOST_KINDS:
                remove_oldest_eighth(self._kinds)
            encoded = self._kinds[key] = _encode_name_and_common_attributes(record)
        return encoded

    def _encode_tags(self, tags: Mapping[str, str]) -> bytes:
        """Return the encoded tags of a call, from a cache, because many calls have equal tags."""
        key = (*tags, *tags.values())
        encoded = self._tag_sets.get(key)
        if encoded is None:
            encoders = self._tags
            encoded = b"".join(
                [(encoders.get(name) or self._add_tag_encoder(name))(value) for name, value in tags.items()]
            )
            if len(encoded) <= _LARGEST_SET:
                if len(self._tag_sets) >= _MOST_SETS:
                    remove_oldest_eighth(self._tag_sets)
                self._tag_sets[key] = encoded
        return encoded

    def _add_tag_encoder(self, name: str) -> Callable[[str], bytes]:
        if len(self._tags) >= _MOST_TAGS:
            remove_oldest_eighth(self._tags)
        tag = self._tags[name] = _text_attribute_encoder(TAG + name)
        return tag


def _encode_meter(name: str, quantity: int | str) -> bytes:
    number, text = _METERS[name]
    return number(quantity) if isinstance(quantity, int) else text(quantity)


def _without_reported_cost(record: Inference) -> Inference:
    """
    Return the record without its reported cost, but with its estimate, for readers that do not know other
    currencies than dollars.
    """
    cost_source = "none" if record.estimated_cost is None else "estimated"
    return structs.replace(record, cost_source=cost_source)


def _encode_name_and_common_attributes(record: Inference) -> bytes:
    name = " ".join(filter(None, (record.operation, record.request_model or record.response_model))) or "call"
    parts = [wire.encode_field(5, name.encode()), _CLIENT]
    for field, attribute in COMBINED.items():
        value = getattr(record, field)
        if value is not None:
            parts.append(attribute(value))
    parts.append(_CURRENCY)
    if record.status == "error":
        parts.append(_FAILED)
    return b"".join(parts)


def _valid_ids_and_id_attributes(record: Inference) -> tuple[bytes, bytes, list[bytes]]:
    """
    Return a trace id and a span id to send, and attributes for the record's own ids. At least one of these is
    missing or no valid OTel id.
    """
    trace_id = record.trace_id
    span_id = record.span_id
    on_wire = list(identity.derived_trace_and_span_ids(record.id))
    id_attributes: list[bytes] = []
    forms = ((0, trace_id, _TRACE_ID, _trace_id), (1, span_id, _SPAN_ID, _span_id))
    for part, value, form, attribute in forms:
        if value is None:
            continue
        if form.fullmatch(value):
            on_wire[part] = bytes.fromhex(value)
        else:
            id_attributes.append(attribute(value))
    return on_wire[0], on_wire[1], id_attributes


NO_TIME, START_ALONE, END_ALONE = _times("none"), _times("start"), _times("end")


def _start_end_and_times_attribute(
    start: int | None, end: int | None, committed_at: float
) -> tuple[int, int, bytes]:
    if start is not None:
        return start, start, START_ALONE
    if end is not None:
        return end, end, END_ALONE
    received = int(committed_at * NS)
    return received, received, NO_TIME


# The beginning of every request: resource { service.name } and the scope of its spans or metrics.
RESOURCE = wire.encode_field(1, wire.text_attribute_encoder("service.name", field_number=1)("tollhouse"))
_SCOPE = wire.encode_field(1, wire.encode_field(1, b"tollhouse"))


def native_module_for_packed_entries(entries: Sequence[LogEntry]) -> NativeModule | None:
    """
    Return the compiled module that reads the packed records of all entries, or None if some are not packed.
    """
    modules = {
        entry.records.native if isinstance(entry.records, PackedRecords) else None for entry in entries
    }
    native = modules.pop() if len(modules) == 1 else None
    return native if native is not None and native.is_on else None


class PackedSpans:
    """
    Encodes packed records and caches encoded combinations of fields. Each destination has its own encoder.
    """

    def __init__(self, native: NativeModule, encoder: SpanEncoder) -> None:
        self._native = native
        self._encoder = encoder
        self._writer = _build_span_writer(native)

    async def encode_spans(
        self, delivery: Delivery, entries: Sequence[LogEntry]
    ) -> tuple[SendTally, list[bytes]] | None:
        """
        Return the tally and the spans of the records in order. Return None if the records must be decoded.

        The event loop runs other tasks after each TURN records that Python encodes.
        """
        sent = 0
        shadow = 0
        fields = list[bytes]()
        try:
            for entry in entries:
                assert isinstance(entry.records, PackedRecords)
                counts = await self._append_entry(entry.records, entry.committed_at, fields)
                if counts is None:
                    return None
                sent, shadow = sent + counts[0], shadow + counts[1]
        except self._native.panic as error:
            self._native.count_fault(error)
            return None
        return SendTally(sent, shadow, delivery.count - sent - shadow), fields

    async def _append_entry(
        self, records: PackedRecords, committed_at: float, fields: list[bytes]
    ) -> tuple[int, int] | None:
        """
        Append the spans of one entry. Return the number of spans and the number of omitted duplicates. Return
        None if the records must be decoded.
        """
        received = int(committed_at * NS)
        odd = [record for index, record in records.odd.items() if records.begin <= index < records.end]
        if not 0 <= received < _LATEST or not all(isinstance(record, Inference) for record in odd):
            return None  # counters cannot share a request with spans
        at = records.begin
        sent = 0
        shadow = 0
        alone = 0
        while at < records.end:
            encoded, spans_made, shadows, at = self._writer.encode(
                records.packed, records.offsets, at, records.end, received
            )
            fields.append(encoded)
            sent, shadow = sent + spans_made, shadow + shadows
            if at < records.end:
                is_sent = self._append_span(records, at, committed_at, fields)
                sent, shadow = sent + is_sent, shadow + (not is_sent)
                at, alone = at + 1, alone + 1
                if alone % TURN == 0:
                    await asyncio.sleep(0)
        return sent, shadow

    def _append_span(
        self, records: PackedRecords, index: int, committed_at: float, fields: list[bytes]
    ) -> bool:
        """
        Append one span that Python encodes. Return False for a duplicate kept for reference, which is omitted.
        """
        record = records.decode_record(index)
        assert isinstance(record, Inference)
        if record.shadow:
            return False
        fields.append(self._encoder.encode_fields([(record, committed_at)]))
        if index not in records.odd:
            combination = self._encoder.encode_common_fields(record)
            self._writer.learn(records.packed, records.offsets, index, combination)
        return True


def _build_span_writer(native: NativeModule) -> SpanWriter:
    mark = wire.encode_varint(ATTRIBUTES << 3 | 2)
    numbers = [(inference_field_index(field), True, (mark, name.encode())) for field, name in NUMBERS.items()]
    texts = [(inference_field_index(field), False, (mark, name.encode())) for field, name in TEXTS.items()]
    return native.span_writer(
        span=SPAN,
        trace_id=(inference_field_index("trace_id"), TRACE_ID),
        span_id=(inference_field_index("span_id"), SPAN_ID),
        start=(inference_field_index("start_time"), START),
        end=(inference_field_index("end_time"), END),
        times=(NO_TIME, START_ALONE, END_ALONE),
        shadow=inference_field_index("shadow"),
        combination=[inference_field_index(field) for field in COMBINED],
        id=(inference_field_index("id"), (mark, ID.encode())),
        response_id=(inference_field_index("request_id"), (mark, RESPONSE_ID.encode())),
        long_enough=identity.LONG_ENOUGH,
        attributes=[*numbers, *texts],
        tags=(inference_field_index("tags"), (mark, TAG.encode())),
        stand_in=identity.STAND_IN,
    )
