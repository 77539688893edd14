"""
Spans of another Tollhouse: taken as they are, under the id that they have there. No dialect, no price.

The attribute names are those that `exporters.service` writes: the semantic conventions where they have one, else
`tollhouse.*`.
"""

from __future__ import annotations

import re

from gateway.normalise.otlp.decoding.model import Attributes, Span
from gateway.normalise.otlp.dialect import ERROR_CODE
from gateway.normalise.outcome import IMPLAUSIBLE, MALFORMED, Outcome
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading import vocabulary as words
from spool.identity import Identity, stand_in_ids
from spool.record import AiRecord, Inference

MARK = "tollhouse.id"
NO_ID = f"{MARK} is not 32 hex digits"
_TAG = "tollhouse.tag."
_ID = re.compile(r"[0-9a-fA-F]{32}")
_STATUSES = frozenset({"ok", "error", "cached"})
_COST_SOURCES = frozenset({"reported", "estimated", "none"})

_TEXTS = {
    "operation": "gen_ai.operation.name",
    "provider": "gen_ai.provider.name",
    "request_model": "gen_ai.request.model",
    "response_model": "gen_ai.response.model",
    "session": "gen_ai.conversation.id",
    "error_type": "error.type",
    "price_book": "tollhouse.price_book",
    "user": "tollhouse.user",
    "team": "tollhouse.team",
    "api_key": "tollhouse.api_key",
    "device": "tollhouse.device",
}
_COUNTS = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_write.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_COSTS = {"cost": "tollhouse.cost", "estimated_cost": "tollhouse.estimated_cost"}


def take(place: int, span: Span, outcome: Outcome) -> None:
    """One record of the other house, or one rejected item."""
    record_id = id_of(span.attributes)
    if record_id is None:
        outcome.reject(place, MALFORMED, f"span {place}: {NO_ID}")
        return
    try:
        record = _record(span, record_id)
    except words.Implausible as error:
        outcome.reject(place, IMPLAUSIBLE, f"span {place}: {error}")
        return
    add(record, span.attributes, outcome)


def id_of(attributes: Attributes) -> bytes | None:
    """The record's id in the house that sent it; None when it is none."""
    stated = attributes[MARK]
    return bytes.fromhex(stated) if isinstance(stated, str) and _ID.fullmatch(stated) else None


def add(record: AiRecord, attributes: Attributes, outcome: Outcome) -> None:
    """Keep a record of the other house, with its tags, under its id."""
    for name, value in attributes.items():
        if name.startswith(_TAG):
            outcome.left_out += not tag_rules.put(record.tags, name[len(_TAG) :], value)
    outcome.forwarded.add(len(outcome.records))
    outcome.add(record, Identity(record.id), {"id": MARK})


def _record(span: Span, record_id: bytes) -> Inference:
    attributes = span.attributes
    record = Inference(id=record_id, source=text(attributes, "tollhouse.source") or "otel", tags={})
    for field, name in _TEXTS.items():
        setattr(record, field, text(attributes, name))
    for field, name in _COUNTS.items():
        setattr(record, field, words.count(attributes.get(name)))
    for field, name in _COSTS.items():
        setattr(record, field, words.money(attributes.get(name)))
    record.request_id = text(attributes, "tollhouse.request_id") or text(attributes, "gen_ai.response.id")
    record.trace_id, record.span_id = _ids(span, record_id)
    times = text(attributes, "tollhouse.times")
    record.start_time = span.start_time if times in (None, "start") else None
    record.end_time = span.end_time if times in (None, "end") else None
    status = text(attributes, "tollhouse.status")
    record.status = status if status in _STATUSES else "error" if span.status_code == ERROR_CODE else "ok"
    cost_source = text(attributes, "tollhouse.cost_source")
    record.cost_source = cost_source if cost_source in _COST_SOURCES else "none"
    return record


def _ids(span: Span, record_id: bytes) -> tuple[str | None, str | None]:
    """Trace and span id as the source gave them: ids cut from the hash of the record's stand for missing ones."""
    trace_id, span_id = span.trace_id, span.span_id
    stand_in_trace, stand_in_span = stand_in_ids(record_id)
    if trace_id == stand_in_trace.hex():
        trace_id = None
    if span_id == stand_in_span.hex():
        span_id = None
    attributes = span.attributes
    return text(attributes, "tollhouse.trace_id") or trace_id, text(attributes, "tollhouse.span_id") or span_id


def text(attributes: Attributes, name: str) -> str | None:
    """Texts are taken as they are: what stood for nothing, or was too long, the house that sent them left out."""
    value = attributes.get(name)
    return value if isinstance(value, str) and 0 < len(value) <= words.MAX_TEXT else None
