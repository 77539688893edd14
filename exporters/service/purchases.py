"""Fees of seats of a month as a billing drop: a row of the type Purchase for each seat. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from exporters.service.cbf import MAX_TAG, Row
from spool.ledger import money

TAGS = ("plan", "user", "team")


def drop_of(plan_costs: Mapping[str, Any], seats: Iterable[Mapping[str, Any]], operation: str) -> bytes:
    """Encode the drop of a month, as the operator API answers it; b"" if no seat has a fee."""
    rows = list(_rows(plan_costs, seats))
    if not rows:
        return b""
    return msgspec.json.encode({"month": plan_costs["month"], "operation": operation, "data": rows})


def _rows(plan_costs: Mapping[str, Any], seats: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    start = _time(plan_costs["start"])
    end = _time(plan_costs["end"])
    for seat in seats:
        fee = str(seat["fees"])
        if not money.units(fee):
            continue
        row = {
            "lineitem/type": "Purchase",
            "lineitem/description": f"Seat of {seat['plan']}",
            "time/usage_start": start,
            "time/usage_end": end,
            "resource/id": f"tollhouse:seat:{seat['plan']}:{seat['user']}:{seat['since']}",
            "resource/service": str(seat["plan"]),
            "resource/usage_family": "seats",
            "usage/amount": "1",
            "usage/units": "seats",
            "cost/cost": fee,
        }
        for name in TAGS:
            value = seat[name]
            if value:
                row[f"resource/tag:{name}"] = str(value)[:MAX_TAG]
        yield row


def _time(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%Y-%m-%dT%H:%M:%SZ")
