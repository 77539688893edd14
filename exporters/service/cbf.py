"""
Hours of the totals, and fees of seats, as rows of the service's common bill format. Pure.

Numbers are plain decimal text. If an hour is too large for a request or for the month, it is sent with fewer
dimensions: first without users, keys and devices, then only by model. The sum stays exactly the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import msgspec

from spool import money
from spool.ledger.queries import CostRow
from spool.meters import quantity_from_millionths

# maximum bytes per request; below the service's limit of 5 MB, whether a MB means 10^6 or 2^20 bytes
MAX_BYTES = 4_900_000
MAX_MONTH_ROWS = 1_000_000
MAX_MONTH_BYTES = 70_000_000
MAX_TAG = 256

FINE = ("source", "provider", "model", "team", "user", "api_key", "device", "status")
COARSER = ("source", "provider", "model", "team")
COARSEST = ("model",)
LEVELS = (FINE, COARSER, COARSEST)

Row = Mapping[str, str]
SEAT_TAGS = ("plan", "user", "team")


@dataclass(frozen=True, slots=True, kw_only=True)
class CbfHour:
    """The rows of one hour. `hash` differs if any row differs."""

    start: datetime
    rows: Sequence[Row]
    hash: bytes
    bytes: int

    @property
    def month(self) -> str:
        return self.start.strftime("%Y-%m")


def build_hour(start: datetime, rows: Sequence[Row]) -> CbfHour:
    packed = msgspec.json.encode(rows)
    digest = blake2b(packed, digest_size=16, person=b"billing hour").digest()
    return CbfHour(start=start, rows=rows, hash=digest, bytes=len(packed))


def cost_rows(costs: Iterable[CostRow], dimensions: Sequence[str]) -> list[Row]:
    """
    Return a row for each cost with money or usage. Its dimensions are tags and parts of the resource id.

    The cost excludes amounts without an exchange rate; a tag per currency has them. A tag per meter has the
    quantities.
    """
    with_usage = [cost for cost in costs if _has_cost_or_usage(cost)]
    return [_cost_row(cost, dict(zip(dimensions, cost.group, strict=True))) for cost in with_usage]


def zero_cost_hour_row(start: datetime) -> Row:
    """
    Return the row of an hour that no longer has costs. Without this row, the service would keep the old rows.
    """
    return {
        "lineitem/type": "Usage",
        "time/usage_start": _time_text(start),
        "time/usage_end": _time_text(start + timedelta(hours=1)),
        "usage/amount": "0",
        "usage/units": "tokens",
        "cost/cost": "0",
    }


def batch_hours(hours: Iterable[CbfHour], *, max_bytes: int = MAX_BYTES) -> Iterator[list[CbfHour]]:
    """
    Yield batches of whole hours of one month that fit into a request. Raises ValueError if an hour does not fit.
    """
    batch: list[CbfHour] = []
    size = 0
    for hour in hours:
        if hour.bytes > max_bytes:
            text = _time_text(hour.start)
            raise ValueError(f"the hour {text} has {hour.bytes} bytes, and a request at most {max_bytes}")
        if batch and (hour.month != batch[0].month or size + hour.bytes > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(hour)
        size += hour.bytes
    if batch:
        yield batch


def encode_billing_drop(batch: Sequence[CbfHour], operation: str) -> bytes:
    """
    Encode one drop. It always states the operation, because the service's default replaces the whole month.
    """
    data = [row for hour in batch for row in hour.rows]
    return msgspec.json.encode({"month": batch[0].month, "operation": operation, "data": data})


def _has_cost_or_usage(cost: CostRow) -> bool:
    has_money = cost.cost != "0" or bool(cost.unconverted)
    return has_money or bool(cost.calls or cost.input_tokens or cost.output_tokens)


def _cost_row(cost: CostRow, dimensions: Mapping[str, str | None]) -> Row:
    provider = dimensions.get("provider") or "unknown"
    model = dimensions.get("model") or "unknown"
    row = {
        "lineitem/type": "Usage",
        "lineitem/description": f"AI usage: {model}",
        "time/usage_start": _time_text(cost.start),
        "time/usage_end": _time_text(cost.start + timedelta(hours=1)),
        "resource/id": f"tollhouse:{provider}:{dimensions.get('team') or 'unknown'}:{model}",
        "resource/service": provider,
        "resource/usage_family": "llm-usage",
        "action/operation": "inference",
        "usage/amount": str(cost.input_tokens + cost.output_tokens),
        "usage/units": "tokens",
        "cost/cost": cost.cost,
    }
    account = dimensions.get("source")
    if account:
        row["resource/account"] = account
    tags = {
        **dimensions,
        "calls": str(cost.calls),
        "input_tokens": str(cost.input_tokens),
        "output_tokens": str(cost.output_tokens),
        "cache_read_tokens": str(cost.cache_read_tokens),
    }
    if cost.unpriced:
        tags["unpriced_calls"] = str(cost.unpriced)
    if cost.without_usage:
        tags["calls_without_usage"] = str(cost.without_usage)
    tags |= {f"unconverted_{currency}": amount for currency, amount in cost.unconverted.items()}
    tags |= {
        f"meter_{name}": str(quantity_from_millionths(units))
        for name, units in sorted(cost.meters.items())
        if units
    }
    for name, value in tags.items():
        if value and value != "N/A":
            row[f"resource/tag:{name}"] = value[:MAX_TAG]
    return row


def _time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def encode_seat_drop(
    plan_costs: Mapping[str, Any], seats: Iterable[Mapping[str, Any]], operation: str
) -> bytes:
    """
    Encode the seat fees of a month, from the operator API, as one Purchase row per seat.

    Return b"" if no seat has a fee.
    """
    rows = list(_fee_rows(plan_costs, seats))
    if not rows:
        return b""
    return msgspec.json.encode({"month": plan_costs["month"], "operation": operation, "data": rows})


def _fee_rows(plan_costs: Mapping[str, Any], seats: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    start = _utc_time(plan_costs["start"])
    end = _utc_time(plan_costs["end"])
    for seat in seats:
        fee = str(seat["fees"])
        if not money.text_to_units(fee):
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
        for name in SEAT_TAGS:
            value = seat[name]
            if value:
                row[f"resource/tag:{name}"] = str(value)[:MAX_TAG]
        yield row


def _utc_time(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%Y-%m-%dT%H:%M:%SZ")
