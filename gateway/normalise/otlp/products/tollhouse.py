"""
Records of another Tollhouse. Its spans and metric points are accepted unchanged, under their original ids.

No dialect and no price is applied. The attribute names are the names that `exporters.otlp` writes. Fields
without a name in the semantic conventions are named `tollhouse.*`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.conventions import OTEL
from gateway.normalise.otlp.metric_rules import parse_cost_without_rounding, parse_token_count
from gateway.normalise.otlp.model import Attributes, MetricPoint, Span
from gateway.normalise.otlp.product import MONEY_UNIT, TOKEN_UNIT, TelemetryProduct
from gateway.normalise.otlp.span_rules import ERROR_CODE
from gateway.normalise.outcome import MALFORMED, ReadOutcome
from gateway.normalise.reading import meters, regions, values
from gateway.normalise.reading import tags as tag_rules
from spool.identity import RecordIdentity, derived_trace_and_span_ids
from spool.meters import METERS
from spool.record import CALL_UNIT, AiRecord, Inference, UsageMetric, decimal_text

_MARK = "tollhouse.id"
_TAG = "tollhouse.tag."
_ID = re.compile(r"[0-9a-fA-F]{32}")
_STATUSES = frozenset({"ok", "error", "cached"})
_COST_SOURCES = frozenset({"reported", "estimated", "none"})

_SPAN_TEXTS = {
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
    "run": "tollhouse.run",
    "parent_run": "tollhouse.parent_run",
    "ancestors": "tollhouse.ancestors",
}
_REGION = "tollhouse.region"
_COUNTS = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_write.input_tokens",
    "cache_write_1h_tokens": "tollhouse.cache_write_1h_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_METERS = {name: meter for name, meter in semconv.METERS.items() if semconv.is_meter_of_tollhouse(name)}
_POINT_TEXTS = {
    "model": "gen_ai.request.model",
    "token_type": "gen_ai.token.type",
    "meter": "tollhouse.meter",
    "session": "session.id",
    "user": "tollhouse.user",
    "team": "tollhouse.team",
    "api_key": "tollhouse.api_key",
    "device": "tollhouse.device",
}
_COUNTED = (TOKEN_UNIT, CALL_UNIT)  # units whose numbers are whole
_CHARGE = "tollhouse.charge."  # attribute prefix for charges, followed by a currency code
# attribute with the value as decimal text; as a double, large sums of money would be rounded
_VALUE = "tollhouse.value"
_COSTS = {"cost": "tollhouse.cost", "estimated_cost": "tollhouse.estimated_cost"}


def _read_and_add_or_reject(
    name: str,
    read: Callable[[Any, bytes], AiRecord],
    index: int,
    item: Any,
    outcome: ReadOutcome,
    *,
    tags: Mapping[str, str],
    device: str | None,
    version: str,
) -> bool:
    """Add one record of the other Tollhouse, or reject the item. Return True in both cases."""
    attributes = item.attributes
    try:
        record = read(item, _stated_record_id(attributes))
    except values.BadValue as error:
        outcome.reject_item(index, error.reason, f"{name} {index}: {error}")
        return True
    own = dict(record.tags)
    for tag, value in attributes.items():
        if tag.startswith(_TAG):
            # Accept tags that the other Tollhouse's operator chose unchanged. It has already checked tag
            # names that senders chose.
            text = tag_rules.tag_text(value)
            is_kept = text is not None and tag_rules.put_label_unless_content(own, tag[len(_TAG) :], text)
            outcome.left_out += not is_kept
    record.tags = own
    outcome.forwarded.add(len(outcome.records))
    why = None if outcome.why is None else _field_origins(record)
    outcome.add_record(record, RecordIdentity(record.id), why, version=None)
    return True


def _field_origins(record: AiRecord) -> dict[str, str]:
    tables: Mapping[str, str] = _POINT_TEXTS | {"value": f"the value of the point ({_VALUE})"}
    if isinstance(record, Inference):
        tables = _SPAN_TEXTS | _COUNTS | _COSTS | {"region": _REGION}
    known = {field: name for field, name in tables.items() if getattr(record, field) is not None}
    return {"id": _MARK, "source": "tollhouse.source", **known}


def _stated_record_id(attributes: Attributes) -> bytes:
    stated = attributes[_MARK]
    if isinstance(stated, str) and _ID.fullmatch(stated):
        return bytes.fromhex(stated)
    raise values.BadValue(MALFORMED, f"{_MARK} must be 32 hexadecimal digits")


def _read_inference(span: Span, record_id: bytes) -> Inference:
    attributes = span.attributes
    record = Inference(
        id=record_id, source=_text_attribute(attributes, "tollhouse.source") or OTEL.source, tags={}
    )
    for field, name in _SPAN_TEXTS.items():
        setattr(record, field, _text_attribute(attributes, name))
    for field, name in _COUNTS.items():
        setattr(record, field, semconv.parse_count_if_number(attributes.get(name), name))
    for field, name in _COSTS.items():
        setattr(record, field, semconv.parse_amount_if_number(attributes.get(name), name))
    record.region = regions.normal_region_name(attributes.get(_REGION))
    if not _METERS.keys().isdisjoint(attributes):
        stated_meters = {meter: attributes[name] for name, meter in _METERS.items() if name in attributes}
        record.meters = meters.keep_valid_meters(stated_meters) or {}
    record.request_id = _text_attribute(attributes, "tollhouse.request_id") or _text_attribute(
        attributes, "gen_ai.response.id"
    )
    record.trace_id, record.span_id = _trace_and_span_id_of_source(span, record_id)
    times = _text_attribute(attributes, "tollhouse.times")
    record.start_time = span.start_time if times in (None, "start") else None
    record.end_time = span.end_time if times in (None, "end") else None
    status = _text_attribute(attributes, "tollhouse.status")
    record.status = status if status in _STATUSES else "error" if span.status_code == ERROR_CODE else "ok"
    cost_source = _text_attribute(attributes, "tollhouse.cost_source")
    record.cost_source = cost_source if cost_source in _COST_SOURCES else "none"
    for name in attributes:
        if name.startswith(_CHARGE):
            _set_charge_if_foreign_currency(record, name, attributes[name])
    return record


def _set_charge_if_foreign_currency(record: Inference, name: str, value: Any) -> None:
    from spool.currencies import read_currency_code  # imported late, because few payloads state a currency

    currency = read_currency_code(name.removeprefix(_CHARGE))
    amount = semconv.parse_amount_if_number(value, name)
    if currency is not None and currency != MONEY_UNIT and amount is not None and record.cost is None:
        record.charges = {currency: amount}
        record.cost_source = "reported"


def _read_usage_metric(point: MetricPoint, record_id: bytes) -> UsageMetric:
    if point.unit not in (*_COUNTED, MONEY_UNIT) and not semconv.is_known_currency_code(point.unit):
        raise values.BadValue(MALFORMED, f"the unit must be {' or '.join(_COUNTED)}, or a currency code")
    attributes = point.attributes
    source = _text_attribute(attributes, "tollhouse.source") or OTEL.source
    record = UsageMetric(id=record_id, source=source, name=point.name, unit=point.unit, tags={})
    for field, name in _POINT_TEXTS.items():
        setattr(record, field, _text_attribute(attributes, name))
    if record.meter not in METERS:
        record.meter = None
    value = attributes.get(_VALUE, point.value)
    if point.may_fall and point.value < 0:  # a negative point corrects an earlier record downwards
        taken_back = _token_count_or_cost_text(
            point, value.removeprefix("-") if isinstance(value, str) else -point.value
        )
        record.value = -taken_back if isinstance(taken_back, int) else f"-{taken_back}"
    else:
        record.value = _token_count_or_cost_text(point, value)
    # for a record without times, the sender sets `tollhouse.times`, and the times of the point only replace
    # them
    if _text_attribute(attributes, "tollhouse.times") is None:
        record.start_time = point.start_time or None
        record.end_time = point.time or None
    return record


def _token_count_or_cost_text(point: MetricPoint, value: object) -> int | str:
    return (
        parse_token_count(value)
        if point.unit in _COUNTED
        else decimal_text(parse_cost_without_rounding(value))
    )


def _trace_and_span_id_of_source(span: Span, record_id: bytes) -> tuple[str | None, str | None]:
    """
    Return the trace and span id that the original source stated. A Tollhouse that forwards a record derives
    missing ids from the record id, so derived ids become None.
    """
    trace_id, span_id = span.trace_id, span.span_id
    stand_in_trace, stand_in_span = derived_trace_and_span_ids(record_id)
    if trace_id == stand_in_trace.hex():
        trace_id = None
    if span_id == stand_in_span.hex():
        span_id = None
    attributes = span.attributes
    stated_trace = _text_attribute(attributes, "tollhouse.trace_id")
    stated_span = _text_attribute(attributes, "tollhouse.span_id")
    return stated_trace or trace_id, stated_span or span_id


def _text_attribute(attributes: Attributes, name: str) -> str | None:
    """Return a text unchanged. The sender already left out empty and overlong texts."""
    value = attributes.get(name)
    return value if isinstance(value, str) and 0 < len(value) <= values.MAX_TEXT else None


PRODUCT = TelemetryProduct(
    source="tollhouse",
    taken_marks=(_MARK,),
    take_span=partial(_read_and_add_or_reject, "span", _read_inference),
    take_point=partial(_read_and_add_or_reject, "data point", _read_usage_metric),
)
