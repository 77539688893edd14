"""
Comparison of two reports of one call: which gaps the later one fills, and where the two disagree. Pure.

Each fact is taken from the first report that has it, with its details, such as the source of a cost. If
reports do not contradict each other, every order of arrival makes the same record. Of an assistant's report
and another, the other's provider and models count (`served_models`).

Two values are weak: a partial count (such as cached tokens) of 0 is replaced by a count that fits the total,
and the status `ok` by any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any

import msgspec

from spool import meters
from spool.meters import METERS, quantity_in_millionths
from spool.people import USER_EMAIL
from spool.processing import processing_mode
from spool.record import AMENDABLE, MAX_TAGS, RUNS, Inference

# Totals with their parts. If two reports differ in a total, the parts of one report may not belong to the
# total of the other.
SIDES = (
    ("input_tokens", "cache_read_tokens", "cache_write_tokens"),
    ("output_tokens", "reasoning_tokens"),
    ("cache_write_tokens", "cache_write_1h_tokens"),
)
TOKENS = tuple(dict.fromkeys(name for side in SIDES for name in side))
PARTS = frozenset(part for _, *parts in SIDES for part in parts)
# If a later report fills one of these, the cost is estimated again.
PRICED_BY = frozenset({*TOKENS, "meters", "provider", "request_model", "response_model", "start_time"})
# what an assistant asks for, and a gateway decides
MODELS = ("provider", "request_model", "response_model")
ASKED_MODEL = "asked_model"  # the tag with the model that an assistant asked for, if another one served
# relative difference at which costs are equal, because sources round money differently
SAME_COST = Decimal("0.000001")


def is_processing_mode_changed(known_record: Inference, fields: Mapping[str, Any]) -> bool:
    """Return whether later fields change the processing mode, such as batch, on which the price depends."""
    tags = fields.get("tags")
    return tags is not None and processing_mode(tags) != processing_mode(known_record.tags)


def is_person_changed(known_record: Inference, fields: Mapping[str, Any]) -> bool:
    """Return whether later fields state who made the call."""
    tags = fields.get("tags")
    return tags is not None and tags.get(USER_EMAIL) != known_record.tags.get(USER_EMAIL)


def served_models(asked: Inference, served: Inference) -> dict[str, str | None]:
    """
    Return the provider and the models of a call that an assistant asked for, and another program reports as
    well. The assistant may state as the model of the response the one that it asked for, or the gateway's alias.
    So if the gateway asked for another model, the assistant's counts only if it is a version of that one.
    """
    request_model = served.request_model or asked.request_model
    response_model = served.response_model or asked.response_model
    if served.response_model is None and response_model is not None and request_model != asked.request_model:
        is_version = response_model.startswith(request_model or "") and response_model != asked.request_model
        response_model = response_model if is_version else None
    provider = served.provider or asked.provider
    return {"provider": provider, "request_model": request_model, "response_model": response_model}


def with_tag_of_asked_model(
    tags: Mapping[str, str], asked: Inference, served_model: str | None
) -> dict[str, str]:
    """Return tags with the model that an assistant asked for, if another one served."""
    model = asked.request_model
    if model is None or served_model in (None, model) or len(tags) >= MAX_TAGS:
        return dict(tags)
    return {ASKED_MODEL: model, **tags}


def missing_fields(first_record: Inference, later_record: Inference) -> dict[str, Any]:
    """
    Return the fields that only the later report states, if the two reports are consistent.

    If the first report's input excludes cached tokens and the later one includes them, the input is also
    returned.
    """
    fields: dict[str, Any] = _input_with_cached_parts(first_record, later_record)
    completes_input = bool(fields)
    if completes_input:
        first_record = replace_fields(first_record, fields)
    elif cached := _input_with_cached_parts(later_record, first_record):
        later_record = replace_fields(later_record, cached)
    for name in AMENDABLE:
        if getattr(first_record, name) is None:
            value = getattr(later_record, name)
            if value is not None:
                fields[name] = value
    if first_record.charges or later_record.charges:
        _fill_charges(fields, first_record, later_record)
    for name in PARTS:
        if getattr(first_record, name) == 0 and getattr(later_record, name):
            fields[name] = getattr(later_record, name)
    if first_record.status == "ok" != later_record.status:
        fields["status"] = later_record.status
    if fields:  # without fields, the report only repeats the record
        _drop_contradictions(fields, first_record, later_record)
    if (
        later_record.meters
        and later_record.meters != first_record.meters
        and (filled := _merged_meters(first_record, later_record, fields))
    ):
        fields["meters"] = filled
    room = max(0, MAX_TAGS - len(first_record.tags))
    added_tags = [name for name in later_record.tags if name not in first_record.tags][:room]
    if USER_EMAIL in added_tags and first_record.user not in (None, later_record.user):
        added_tags.remove(USER_EMAIL)  # do not add another person's address
    if added_tags:
        fields["tags"] = {**first_record.tags, **{name: later_record.tags[name] for name in added_tags}}
    counts_more = completes_input or _has_additional_counts(first_record, later_record)
    if later_record.estimated_cost is not None and (first_record.estimated_cost is None or counts_more):
        fields["estimated_cost"] = later_record.estimated_cost
        fields["price_book"] = later_record.price_book
        if first_record.cost_source == "none":
            fields["cost_source"] = "estimated"
    if "cost" in fields or "charges" in fields:
        fields["cost_source"] = "reported"
    return fields


_CACHED = (("cache_read_tokens", "cache_write_tokens"), ("cache_read_tokens",), ("cache_write_tokens",))


def _input_with_cached_parts(report: Inference, other: Inference) -> dict[str, int]:
    """
    Return the report's input tokens with cached tokens, if the other report shows that this report's input
    excludes them.

    That is so if the other report's cached tokens are exactly the difference of the inputs, and this report
    states the same cached tokens or none.
    """
    input_tokens, whole = report.input_tokens, other.input_tokens
    if input_tokens is None or whole is None or input_tokens >= whole:
        return {}
    for parts in _CACHED:
        cached = {part: count for part in parts if (count := getattr(other, part))}
        agrees = all(getattr(report, part) in (None, 0, count) for part, count in cached.items())
        if agrees and input_tokens + sum(cached.values()) == whole:
            return {"input_tokens": whole, **cached}
    return {}


def _with_cached_input(first_record: Inference, later_record: Inference) -> tuple[Inference, Inference]:
    if cached := _input_with_cached_parts(first_record, later_record):
        return replace_fields(first_record, cached), later_record
    cached = _input_with_cached_parts(later_record, first_record)
    return first_record, replace_fields(later_record, cached) if cached else later_record


def _fill_charges(fields: dict[str, Any], first_record: Inference, later_record: Inference) -> None:
    """
    Add the later report's amounts in other currencies, unless the first report has a cost in any currency.
    """
    if first_record.charges:
        fields.pop("cost", None)
    elif first_record.cost is None and later_record.cost is None:
        fields["charges"] = later_record.charges


def _merged_meters(
    first_record: Inference, later_record: Inference, fields: dict[str, Any]
) -> dict[str, int | str] | None:
    """
    Return the meters of both reports, or None if the later one adds none.

    The first quantity of a meter counts, unless it is a partial count of 0: the first report may be unable to
    measure it.
    """
    known = first_record.meters
    added = {
        name: quantity
        for name, quantity in later_record.meters.items()
        if name not in known or (_is_partial_meter_of_zero(name, known[name]) and quantity != known[name])
    }
    if not added:
        return None
    combined = meters.plausible_meters(replace_fields(first_record, fields), known | added)
    adds = any(name not in known or combined[name] != known[name] for name in combined)
    return combined if adds and combined.keys() >= known.keys() else None


def _is_partial_meter_of_zero(meter_name: str, quantity: int | str) -> bool:
    return not quantity and meter_name in METERS and METERS[meter_name].is_part_of_token_count


def _has_different_meters(first_record: Inference, later_record: Inference) -> bool:
    return any(
        name in later_record.meters
        and quantity_in_millionths(quantity) != quantity_in_millionths(later_record.meters[name])
        and not _is_partial_meter_of_zero(name, quantity)
        and not _is_partial_meter_of_zero(name, later_record.meters[name])
        for name, quantity in first_record.meters.items()
    )


def _drop_contradictions(fields: dict[str, Any], first_record: Inference, later_record: Inference) -> None:
    for total, *parts in SIDES:
        if _has_contradiction(first_record, later_record, (total, *parts)) or not _is_within_total(
            first_record, later_record, total, parts
        ):
            for name in (total, *parts):
                fields.pop(name, None)
    written = fields.get("cache_write_tokens", first_record.cache_write_tokens)
    # a part must not exceed its total, and cache writes may have been left out above
    if fields.get("cache_write_1h_tokens", 0) > (written or 0):
        del fields["cache_write_1h_tokens"]
    start, end = (fields.get(name, getattr(first_record, name)) for name in ("start_time", "end_time"))
    # the times come from different clocks
    if start is not None and end is not None and end < start:
        fields.pop("start_time", None)
        fields.pop("end_time", None)
    if fields.get("status", first_record.status) != "error":
        fields.pop("error_type", None)
    # if the later report is of another run, its runs above do not apply to the first record
    for run, above in pairwise(RUNS):
        if above in fields and getattr(first_record, run) not in (None, getattr(later_record, run)):
            del fields[above]


def _has_contradiction(first_record: Inference, later_record: Inference, names: Iterable[str]) -> bool:
    """
    Return whether one of these counts differs. A partial count of 0 agrees with any other, because a report
    may be unable to measure it.
    """
    for name in names:
        first_value = getattr(first_record, name)
        later_value = getattr(later_record, name)
        if (
            first_value is not None
            and later_value is not None
            and first_value != later_value
            and (name not in PARTS or (first_value and later_value))
        ):
            return True
    return False


def _is_zero_in_one(first_record: Inference, later_record: Inference, name: str) -> bool:
    first_value = getattr(first_record, name)
    later_value = getattr(later_record, name)
    return first_value is not None and later_value is not None and bool(first_value) != bool(later_value)


def _is_within_total(
    first_record: Inference, later_record: Inference, total: str, parts: Iterable[str]
) -> bool:
    whole = _first_or_later_count(first_record, later_record, total)
    counts = [_first_or_later_count(first_record, later_record, part) or 0 for part in parts]
    return whole is None or sum(counts) <= whole


def _first_or_later_count(first_record: Inference, later_record: Inference, name: str) -> int | None:
    count: int | None = getattr(first_record, name)
    later_count: int | None = getattr(later_record, name)
    if count is None or (name in PARTS and not count and later_count is not None):
        return later_count
    return count


def _has_additional_counts(first_record: Inference, later_record: Inference) -> bool:
    return (
        _stated_count_names(first_record) < _stated_count_names(later_record)
        and not _has_contradiction(first_record, later_record, TOKENS)
        and not _has_different_meters(first_record, later_record)
    )


def _stated_count_names(report: Inference) -> set[str]:
    """
    Return the names of the counts that a report states. Partial counts of 0 are left out, because they cost
    nothing.
    """
    names = {
        name
        for name in TOKENS
        if (count := getattr(report, name)) is not None and (count or name not in PARTS)
    }
    return names.union(report.meters) if report.meters else names


def has_disagreeing_counts_or_cost(first_record: Inference, later_record: Inference) -> bool:
    """Return whether both reports state a token count or a cost, and the values differ."""
    first_record, later_record = _with_cached_input(first_record, later_record)
    if _has_contradiction(first_record, later_record, TOKENS) or (
        first_record.meters and _has_different_meters(first_record, later_record)
    ):
        return True
    for total, *parts in SIDES:
        is_hidden = any(_is_zero_in_one(first_record, later_record, part) for part in parts)
        if is_hidden and not _is_within_total(first_record, later_record, total, parts):
            return True
    if first_record.charges and later_record.charges:
        return first_record.charges.keys() != later_record.charges.keys() or any(
            _are_different_amounts(amount, later_record.charges[currency])
            for currency, amount in first_record.charges.items()
        )
    if first_record.cost is None or later_record.cost is None or first_record.cost == later_record.cost:
        return False
    return _are_different_amounts(first_record.cost, later_record.cost)


def are_of_two_calls(first_record: Inference, later_record: Inference) -> bool:
    """Return whether the input or output counts of two reports cannot be those of one call."""
    first_record, later_record = _with_cached_input(first_record, later_record)
    counts = [
        (getattr(first_record, total), getattr(later_record, total))
        for total in ("input_tokens", "output_tokens")
    ]
    return any(count and later_count and count != later_count for count, later_count in counts)


def _are_different_amounts(one_text: str, other_text: str) -> bool:
    try:
        first_amount = Decimal(one_text)
        later_amount = Decimal(other_text)
    except InvalidOperation:
        return True
    if not (first_amount.is_finite() and later_amount.is_finite()):
        return True
    return abs(first_amount - later_amount) > SAME_COST * max(abs(first_amount), abs(later_amount))


def replace_fields(record: Inference, fields: Mapping[str, Any]) -> Inference:
    known = {name: value for name, value in fields.items() if name in record.__struct_fields__}
    return msgspec.structs.replace(record, **known)
