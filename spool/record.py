"""
The normalised record types: the one vocabulary that receivers, storage and destinations share.

A record is packed as a tagged msgpack array, so fields are only ever added at the end and always with a
default: an entry written by an older version stays readable. Times are nanoseconds since the epoch, money is
decimal text, unknown is None and never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Context, Decimal, localcontext
from typing import Any, ClassVar, overload

import msgspec

AI_TELEMETRY = "ai-telemetry"
USAGE_EVENTS = "usage-events"
UNIT_COST = "unit-cost"
BILLING_DATA = "billing-data"
TOPICS = (AI_TELEMETRY, USAGE_EVENTS, UNIT_COST, BILLING_DATA)

CURRENCY = "USD"
TOKEN_UNIT = "{token}"
NS = 1_000_000_000
MAX_TAGS = 32  # of one record
_EXACT = Context(prec=100)


# Not frozen: the intake fills in attribution and price before a record is kept, and msgspec.structs.replace
# costs more than a whole price look-up.
class Inference(msgspec.Struct, array_like=True, tag=1, kw_only=True, gc=False):
    """One AI call. Input includes cached tokens, output includes reasoning."""

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
    tags: Mapping[str, str] = {}
    shadow: bool = False
    # Its further names (spool.identity), 16 bytes each: only the log reads them, to know the call after a
    # restart.
    also: bytes | None = None
    # of cache_write_tokens, those kept for an hour; told by some sources
    cache_write_1h_tokens: int | None = None
    region: str | None = None  # where the provider processed it, in the provider's word; told by some sources
    # Of a shadow that was a call of its own until a further report fitted it and another: the id of that
    # other one.
    counted_by: bytes | None = None
    sender_key: str | None = (
        None  # the name of the Tollhouse key that brought it first; stays in the installation
    )
    # What it used beside plain text tokens, by the names of spool.meters: an integer, or decimal text where
    # the unit has fractions.
    meters: dict[str, int | str] = {}
    # What it cost in another currency than dollars: decimal text by the code of the currency. Then `cost` is None.
    charges: dict[str, str] = {}


class UsageMetric(msgspec.Struct, array_like=True, tag=2, kw_only=True, gc=False):
    """
    A token or cost counter's delta. `value` is an integer for tokens and decimal text for money, whose `unit` is the
    code of a currency.
    """

    kind: ClassVar[str] = "usage_metric"
    topic: ClassVar[str] = AI_TELEMETRY

    id: bytes
    source: str
    name: str
    model: str | None = None
    token_type: str | None = None
    value: int | str = 0
    unit: str = TOKEN_UNIT
    start_time: int | None = None
    end_time: int | None = None
    session: str | None = None
    user: str | None = None
    team: str | None = None
    api_key: str | None = None
    device: str | None = None
    tags: Mapping[str, str] = {}
    shadow: bool = False
    sender_key: str | None = None  # as above
    # The meter (spool.meters) that its tokens are, where it counts those of one modality apart.
    meter: str | None = None


Scalar = str | int | float | bool


class UsageEvent(msgspec.Struct, array_like=True, tag=3, kw_only=True, gc=False):
    """One metered event. `source` is the event's own; `data` and `tags` (its further attributes) are bounded."""

    kind: ClassVar[str] = "usage_event"
    topic: ClassVar[str] = USAGE_EVENTS

    id: bytes
    source: str
    event_id: str | None = None
    event_type: str
    subject: str | None = None
    start_time: int | None = None
    data: dict[str, Scalar] = {}
    tags: dict[str, str] = {}
    shadow: bool = False
    request: bytes | None = None  # as below


class UnitCostOperation(msgspec.Struct, array_like=True, tag=4, kw_only=True, gc=False):
    """
    One record of a unit-cost request, with what the request does to its stream.

    `dimensions` are the filter of an allocation record (several values a key) or the associated cost of a
    metric record (one). `value` is decimal text of at most 15 digits, None where the operation has none.
    """

    kind: ClassVar[str] = "unit_cost"
    topic: ClassVar[str] = UNIT_COST

    id: bytes
    source: str = "unit-cost"
    stream: str
    stream_type: str  # allocation, metric
    operation: str  # sum, replace, delete; create and drop are of the stream as a whole
    start_time: int | None = None
    granularity: str | None = None  # HOURLY, DAILY, MONTHLY
    element_name: str | None = None
    dimensions: dict[str, list[str]] = {}
    value: str | None = None
    shadow: bool = False  # it never leaves: creating is part of the first sum
    # Of the first record that a request under an idempotency key brought: the two names of the request
    # (spool.identity), 16 bytes each. Only the log reads them, to know the request after a restart.
    request: bytes | None = None


class BillingDrop(msgspec.Struct, array_like=True, tag=5, kw_only=True, gc=False):
    """One billing drop, whole: `body` is the JSON as it was received, and leaves as it is."""

    kind: ClassVar[str] = "billing_drop"
    topic: ClassVar[str] = BILLING_DATA

    id: bytes
    source: str = "billing"
    connection_id: str
    month: str | None = None
    operation: str | None = None
    rows: int = 0
    body: bytes = b"{}"
    start_time: int | None = None
    shadow: bool = False
    upstream_id: str | None = None  # of its connection when it came, where that differs
    request: bytes | None = None  # as above


# Tag 6 is not given.
class Correction(msgspec.Struct, array_like=True, tag=7, kw_only=True, gc=False):
    """
    What became known of a call after its record closed: the call as it was counted until then, and as it is.

    The record stays as it is. `before` has what earlier corrections of it said. Sums count `after` in place of
    `before`, in the hour of `start_time`.
    """

    kind: ClassVar[str] = "correction"
    topic: ClassVar[str] = AI_TELEMETRY

    id: bytes
    source: str  # that told it
    corrects: bytes  # the record's id
    reason: str  # late_usage, final_cost, not_billed
    known_at: int
    start_time: int
    before: Inference
    after: Inference
    shadow: bool = False


AiRecord = Inference | UsageMetric
KeyedRecord = UsageEvent | UnitCostOperation | BillingDrop  # what may come under an idempotency key
Record = Inference | UsageMetric | UsageEvent | UnitCostOperation | BillingDrop | Correction

# What a later report of the same call may fill while the record is open, when the first left it null.
AMENDABLE = (
    "request_id", "trace_id", "span_id", "start_time", "end_time", "provider", "operation", "request_model",
    "response_model", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
    "cache_write_1h_tokens", "cost", "error_type", "user", "team", "session", "api_key", "device",
    "region",
)  # fmt: skip

_WHERE_TOLD = ("cache_write_1h_tokens", "region")  # in the JSON only where a source tells them

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])


def pack(records: Iterable[Record]) -> bytes:
    """Records as one msgpack array, uncompressed."""
    return _encoder.encode(list(records))


def unpack(packed: bytes) -> list[Record]:
    """The inverse of `pack`; msgspec.DecodeError when the bytes are not that."""
    return _decoder.decode(packed)


def names_of(record: Record) -> Iterable[bytes]:
    """The further names of a call."""
    also = record.also if isinstance(record, Inference) else None
    return () if also is None else (also[at : at + 16] for at in range(0, len(also), 16))


def request_names_of(record: Record) -> Iterable[bytes]:
    """The names of the request that brought it, if the record bears them."""
    names = record.request if isinstance(record, KeyedRecord) else None
    return () if names is None else (names[:16], names[16:])


def decimal_text(amount: Decimal) -> str:
    """Every digit of an amount in plain notation: no exponent, no trailing zeros."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def rfc3339(time_ns: int | None) -> str | None:
    """The time of a record: UTC with `Z`, a fraction only if it is not zero, up to nine digits, no trailing zeros."""
    if time_ns is None:
        return None
    seconds, fraction = divmod(time_ns, NS)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:09d}".rstrip("0") + "Z" if fraction else text + "Z"


@overload
def moment(at: float) -> str: ...
@overload
def moment(at: None) -> None: ...
@overload
def moment(at: float | None) -> str | None: ...
def moment(at: float | None) -> str | None:
    """When something happened: RFC 3339 in UTC, with three digits of a second, whatever they are."""
    if at is None:
        return None
    seconds, milliseconds = divmod(round(at * 1000), 1000)
    return f"{_second(seconds)}.{milliseconds:03d}Z"


def border(at: float) -> str:
    """Write the begin or end of a period of whole seconds, in UTC."""
    return f"{_second(int(at))}Z"


def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def as_json(record: Record) -> dict[str, Any]:
    """The canonical JSON form, which also leaves: ids in hex, times as text, every field but `sender_key`."""
    if isinstance(record, Correction):
        return _correction_as_json(record)
    row: dict[str, Any] = {"kind": record.kind}
    for field in record.__struct_fields__:
        row[field] = getattr(record, field)
    row["id"] = record.id.hex()
    row["start_time"] = rfc3339(record.start_time)
    if isinstance(record, AiRecord):
        del row["sender_key"]
        row["end_time"] = rfc3339(record.end_time)
    if isinstance(record, UsageMetric) and record.meter is None:
        del row["meter"]
    if isinstance(record, Inference):
        row["currency"] = CURRENCY
        del row["also"]
        for name in _WHERE_TOLD:
            if row[name] is None:
                del row[name]
        if not record.meters:
            del row["meters"]
        if not record.charges:
            del row["charges"]
        if record.counted_by is None:
            del row["counted_by"]
        else:
            row["counted_by"] = record.counted_by.hex()
    if isinstance(record, KeyedRecord):
        del row["request"]
    if isinstance(record, BillingDrop):
        row["body"] = msgspec.json.decode(record.body)
    return row


CORRECTED_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cache_write_1h_tokens",
)
_CORRECTED_TEXTS = (
    "provider",
    "operation",
    "request_model",
    "response_model",
    "user",
    "team",
    "session",
    "api_key",
    "device",
    "tags",
    "status",
    "cost_source",
    "price_book",
)


def counted_cost(call: Inference) -> Decimal:
    """The cost of a call that counts as spend, 0 if it is not known."""
    stated = {"reported": call.cost, "estimated": call.estimated_cost}.get(call.cost_source)
    return Decimal(0) if stated is None or call.status == "cached" else Decimal(stated)


def counted_charge(call: Inference, currency: str) -> Decimal:
    """The amount in a currency other than dollars that counts as spend."""
    return Decimal(0 if call.status == "cached" else call.charges.get(currency, 0))


def charge_differences(record: Correction) -> dict[str, Decimal]:
    """Amounts by which the call costs more than it was counted for, by currency; those in dollars apart."""
    with localcontext(_EXACT):
        return {
            name: counted_charge(record.after, name) - counted_charge(record.before, name)
            for name in sorted({*record.before.charges, *record.after.charges})
        }


def cost_difference(record: Correction) -> Decimal:
    """The amount by which the call costs more than it was counted for; negative for less."""
    with localcontext(_EXACT):
        return counted_cost(record.after) - counted_cost(record.before)


def count_difference(record: Correction, name: str) -> int:
    """The number of tokens, one of CORRECTED_COUNTS, that the call has more than was counted; negative for fewer."""
    return (getattr(record.after, name) or 0) - (getattr(record.before, name) or 0)


def _correction_as_json(record: Correction) -> dict[str, Any]:
    """`cost` and the counts are signed differences to what was counted before; of the call itself as it is now."""
    row: dict[str, Any] = {
        "kind": record.kind,
        "id": record.id.hex(),
        "corrects": record.corrects.hex(),
        "source": record.source,
        "reason": record.reason,
        "known_at": rfc3339(record.known_at),
        "start_time": rfc3339(record.start_time),
        "cost": decimal_text(cost_difference(record)),
        "currency": CURRENCY,
        **{name: count_difference(record, name) for name in CORRECTED_COUNTS},
        **{name: getattr(record.after, name) for name in _CORRECTED_TEXTS},
    }
    for name in ("meters", "charges"):
        if getattr(record.after, name) != getattr(record.before, name):
            row[name] = getattr(record.after, name)
            row[f"{name}_before"] = getattr(record.before, name)
    row["shadow"] = record.shadow
    return row
