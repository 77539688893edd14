"""
The normalised record types: the one vocabulary that doors, spool and destinations share.

A record is packed as a tagged msgpack array, so fields are only ever added at the end and always with a default: an
entry written by an older version stays readable. Times are nanoseconds since the epoch, money is decimal text, unknown
is None and never zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

AI_TELEMETRY = "ai-telemetry"
USAGE_EVENTS = "usage-events"
UNIT_COST = "unit-cost"
BILLING_DATA = "billing-data"
TOPICS = (AI_TELEMETRY, USAGE_EVENTS, UNIT_COST, BILLING_DATA)

CURRENCY = "USD"
NS = 1_000_000_000


# Not frozen: the intake fills in attribution and price before anybody else sees a record, and msgspec.structs.replace
# costs more than a whole price look-up.
class Inference(msgspec.Struct, array_like=True, tag=1, kw_only=True, gc=False):
    """One AI call. Field meanings: DESIGN section 5; input includes cached tokens, output includes reasoning."""

    kind: ClassVar[str] = "inference"
    topic: ClassVar[str] = AI_TELEMETRY

    id: bytes
    source: str
    request_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    provider: str | None = None
    operation: str | None = None
    request_model: str | None = None
    response_model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: str | None = None
    estimated_cost: str | None = None
    cost_source: str = "none"
    price_book: str | None = None
    status: str = "ok"
    error_type: str | None = None
    user: str | None = None
    team: str | None = None
    session: str | None = None
    api_key: str | None = None
    device: str | None = None
    tags: dict[str, str] = {}
    shadow: bool = False


class UsageMetric(msgspec.Struct, array_like=True, tag=2, kw_only=True, gc=False):
    """A token or cost counter's delta. `value` is an integer for tokens and decimal text for money."""

    kind: ClassVar[str] = "usage_metric"
    topic: ClassVar[str] = AI_TELEMETRY

    id: bytes
    source: str
    name: str
    model: str | None = None
    token_type: str | None = None
    value: int | str = 0
    unit: str = "{token}"
    start_time: int | None = None
    end_time: int | None = None
    session: str | None = None
    user: str | None = None
    team: str | None = None
    api_key: str | None = None
    device: str | None = None
    tags: dict[str, str] = {}
    shadow: bool = False


Record = Inference | UsageMetric

# What a later report of the same call may fill while the record is open, when the first left it null.
AMENDABLE = (
    "request_id", "trace_id", "span_id", "start_time", "end_time", "provider", "operation", "request_model",
    "response_model", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
    "cost", "error_type", "user", "team", "session", "api_key", "device",
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])


def pack(records: Iterable[Record]) -> bytes:
    """Records as one msgpack array, uncompressed."""
    return _encoder.encode(list(records))


def unpack(packed: bytes) -> list[Record]:
    """The inverse of `pack`; msgspec.DecodeError when the bytes are not that."""
    return _decoder.decode(packed)


def rfc3339(time_ns: int | None) -> str | None:
    """UTC with `Z`; a fraction only when it is not zero, up to nine digits, no trailing zeros."""
    if time_ns is None:
        return None
    seconds, fraction = divmod(time_ns, NS)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:09d}".rstrip("0") + "Z" if fraction else text + "Z"


def as_json(record: Record) -> dict[str, Any]:
    """The canonical JSON form of DESIGN section 5: every field there, ids in hex, times as text."""
    row: dict[str, Any] = {"kind": record.kind}
    for field in record.__struct_fields__:
        row[field] = getattr(record, field)
    row["id"] = record.id.hex()
    row["start_time"] = rfc3339(record.start_time)
    row["end_time"] = rfc3339(record.end_time)
    if isinstance(record, Inference):
        row["currency"] = CURRENCY
    return row
