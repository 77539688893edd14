"""
Two reports of one call: what the later one fills in, and where the two disagree. Pure.

A fact is taken from the report that stated it first; what goes with it (where a cost comes from) goes along.
Reports that do not contradict each other make the same record in every order: what the ones leave out the others
fill, and two weak statements give way: a part of 0 to a count that fits the total, `ok` to another outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from spool import meters
from spool.meters import METERS, millionths
from spool.processing import mode_of
from spool.record import AMENDABLE, MAX_TAGS, Inference

# A total and its parts. Where two reports contradict each other, a part of the one's total is none of the
# other's.
SIDES = (
    ("input_tokens", "cache_read_tokens", "cache_write_tokens"),
    ("output_tokens", "reasoning_tokens"),
    ("cache_write_tokens", "cache_write_1h_tokens"),
)
TOKENS = tuple(dict.fromkeys(name for side in SIDES for name in side))
PARTS = frozenset(part for _, *parts in SIDES for part in parts)
# Fields that an estimate is worked out from: where a later report fills one, the estimate is worked out
# again.
PRICED_BY = frozenset({*TOKENS, "meters", "provider", "request_model", "response_model", "start_time"})
SAME_COST = Decimal("0.000001")  # relative: sources round money differently


def changes_mode(known: Inference, fields: Mapping[str, Any]) -> bool:
    """True if new tags name the way in which the provider processed the call, which decides its price."""
    tags = fields.get("tags")
    return tags is not None and mode_of(tags) != mode_of(known.tags)


def missing(first: Inference, later: Inference) -> dict[str, Any]:
    """The fields that the first report left null and the later one states, as far as both make one picture."""
    fields: dict[str, Any] = {}
    for name in AMENDABLE:
        if getattr(first, name) is None:
            value = getattr(later, name)
            if value is not None:
                fields[name] = value
    if first.charges or later.charges:
        _fill_charges(fields, first, later)
    for name in PARTS:
        if getattr(first, name) == 0 and getattr(later, name):
            fields[name] = getattr(later, name)
    if first.status == "ok" != later.status:
        fields["status"] = later.status
    if fields:  # a repeat brings none
        _leave_out_what_does_not_fit(fields, first, later)
    if later.meters and later.meters != first.meters and (filled := _filled(first, later, fields)):
        fields["meters"] = filled
    room = max(0, MAX_TAGS - len(first.tags))
    more = [name for name in later.tags if name not in first.tags][:room]
    if more:
        fields["tags"] = {**first.tags, **{name: later.tags[name] for name in more}}
    if later.estimated_cost is not None and (first.estimated_cost is None or _counts_more(first, later)):
        fields["estimated_cost"] = later.estimated_cost
        fields["price_book"] = later.price_book
        if first.cost_source == "none":
            fields["cost_source"] = "estimated"
    if "cost" in fields or "charges" in fields:
        fields["cost_source"] = "reported"
    return fields


def _fill_charges(fields: dict[str, Any], first: Inference, later: Inference) -> None:
    """The first amount holds, in whatever currency it is."""
    if first.charges:
        fields.pop("cost", None)
    elif first.cost is None and later.cost is None:
        fields["charges"] = later.charges


def _filled(first: Inference, later: Inference, fields: dict[str, Any]) -> dict[str, int | str] | None:
    """
    The meters of both reports; None if the later adds none. Where both tell one, the first holds, unless it
    is a part of 0, which may be one that the report cannot tell.
    """
    known = first.meters
    more = {
        name: quantity
        for name, quantity in later.meters.items()
        if name not in known or (_is_zero_part(name, known[name]) and quantity != known[name])
    }
    if not more:
        return None
    kept = meters.fitting(amended(first, fields), known | more)
    adds = any(name not in known or kept[name] != known[name] for name in kept)
    return kept if adds and kept.keys() >= known.keys() else None


def _is_zero_part(name: str, quantity: int | str) -> bool:
    return not quantity and name in METERS and METERS[name].is_part


def _meters_differ(first: Inference, later: Inference) -> bool:
    """True if both tell one meter, and not the same quantity."""
    return any(
        name in later.meters
        and millionths(quantity) != millionths(later.meters[name])
        and not _is_zero_part(name, quantity)
        and not _is_zero_part(name, later.meters[name])
        for name, quantity in first.meters.items()
    )


def _leave_out_what_does_not_fit(fields: dict[str, Any], first: Inference, later: Inference) -> None:
    for total, *parts in SIDES:
        if _contradict(first, later, (total, *parts)) or not _fit(first, later, total, parts):
            for name in (total, *parts):
                fields.pop(name, None)
    written = fields.get("cache_write_tokens", first.cache_write_tokens)
    # the writes that it is a part of were left out
    if fields.get("cache_write_1h_tokens", 0) > (written or 0):
        del fields["cache_write_1h_tokens"]
    start, end = (fields.get(name, getattr(first, name)) for name in ("start_time", "end_time"))
    if start is not None and end is not None and end < start:  # two clocks
        fields.pop("start_time", None)
        fields.pop("end_time", None)
    if fields.get("status", first.status) != "error":
        fields.pop("error_type", None)


def _contradict(first: Inference, later: Inference, names: Iterable[str]) -> bool:
    """
    True if both state one of these counts, and not the same. A part of 0 may be one that the report cannot tell.
    """
    for name in names:
        one = getattr(first, name)
        other = getattr(later, name)
        if one is not None and other is not None and one != other and (name not in PARTS or (one and other)):
            return True
    return False


def _is_hidden(first: Inference, later: Inference, name: str) -> bool:
    """True if one of the two states 0 where the other counts something."""
    one = getattr(first, name)
    other = getattr(later, name)
    return one is not None and other is not None and bool(one) != bool(other)


def _fit(first: Inference, later: Inference, total: str, parts: Iterable[str]) -> bool:
    """True if the parts that either states are no more than the whole."""
    whole = _stated(first, later, total)
    counts = [_stated(first, later, part) or 0 for part in parts]
    return whole is None or sum(counts) <= whole


def _stated(first: Inference, later: Inference, name: str) -> int | None:
    count: int | None = getattr(first, name)
    other: int | None = getattr(later, name)
    if count is None or (name in PARTS and not count and other is not None):
        return other
    return count


def _counts_more(first: Inference, later: Inference) -> bool:
    """
    True if the later report states every token count of the first and more: then its estimate is the better one.
    """
    return (
        _told(first) < _told(later)
        and not _contradict(first, later, TOKENS)
        and not _meters_differ(first, later)
    )


def _told(report: Inference) -> set[str]:
    """The counts that a report states; a part of 0 costs nothing, stated or not."""
    told = {
        name
        for name in TOKENS
        if (count := getattr(report, name)) is not None and (count or name not in PARTS)
    }
    return told.union(report.meters) if report.meters else told


def disagree(first: Inference, later: Inference) -> bool:
    """True if both state a token count or a cost, and not the same."""
    if _contradict(first, later, TOKENS) or (first.meters and _meters_differ(first, later)):
        return True
    for total, *parts in SIDES:
        is_hidden = any(_is_hidden(first, later, part) for part in parts)
        if is_hidden and not _fit(first, later, total, parts):
            return True
    if first.charges and later.charges:
        return first.charges.keys() != later.charges.keys() or any(
            _amounts_differ(amount, later.charges[currency]) for currency, amount in first.charges.items()
        )
    if first.cost is None or later.cost is None or first.cost == later.cost:
        return False
    return _amounts_differ(first.cost, later.cost)


def _amounts_differ(one_text: str, other_text: str) -> bool:
    try:
        one = Decimal(one_text)
        other = Decimal(other_text)
    except InvalidOperation:
        return True
    if not (one.is_finite() and other.is_finite()):
        return True
    return abs(one - other) > SAME_COST * max(abs(one), abs(other))


def amended(record: Inference, fields: Mapping[str, Any]) -> Inference:
    """The record with an amendment in it; the original stays as it is."""
    known = {name: value for name, value in fields.items() if name in record.__struct_fields__}
    return msgspec.structs.replace(record, **known)
