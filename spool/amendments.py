"""
Two reports of one call: what the later one fills in, and where the two disagree. Pure.

A fact is taken from the report that stated it first; what goes with it (where a cost comes from) goes along.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from spool.record import AMENDABLE, Inference

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
SAME_COST = Decimal("0.000001")  # relative: sources round money differently


def missing(first: Inference, later: Inference) -> dict[str, Any]:
    """The fields that the first report left null and the later one states."""
    fields = {
        name: value
        for name in AMENDABLE
        if getattr(first, name) is None and (value := getattr(later, name)) is not None
    }
    if not first.tags and later.tags:
        fields["tags"] = later.tags
    if later.estimated_cost is not None and (first.estimated_cost is None or _counts_more(first, later)):
        fields["estimated_cost"] = later.estimated_cost
        fields["price_book"] = later.price_book
        if first.cost_source == "none":
            fields["cost_source"] = "estimated"
    if "cost" in fields:
        fields["cost_source"] = "reported"
    return fields


def _counts_more(first: Inference, later: Inference) -> bool:
    """Whether the later report states every token count of the first and more: then its estimate is the better one."""
    firsts = {name for name in TOKENS if getattr(first, name) is not None}
    return firsts < {name for name in TOKENS if getattr(later, name) is not None}


def disagree(first: Inference, later: Inference) -> bool:
    """Whether both state a token count or a cost, and not the same."""
    for name in TOKENS:
        one, other = getattr(first, name), getattr(later, name)
        if one is not None and other is not None and one != other:
            return True
    if first.cost is None or later.cost is None or first.cost == later.cost:
        return False
    try:
        one, other = Decimal(first.cost), Decimal(later.cost)
    except InvalidOperation:
        return True
    if not (one.is_finite() and other.is_finite()):
        return True
    return abs(one - other) > SAME_COST * max(abs(one), abs(other))


def amended(record: Inference, fields: Mapping[str, Any]) -> Inference:
    """The record with an amendment in it; the original stays as it is."""
    known = {name: value for name, value in fields.items() if name in record.__struct_fields__}
    return msgspec.structs.replace(record, **known)
