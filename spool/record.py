"""
The record types that receivers, storage and destinations share.

A record is packed as a tagged msgpack array: add new fields only at the end and with a default, so that older
entries stay readable. Times are nanoseconds since the epoch, money is decimal text, and unknown is None,
never zero.
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
CALL_UNIT = "{call}"
NS = 1_000_000_000
MAX_TAGS = 32  # maximum tags per record
# `sender_key` of reports from devices. They add only the owner to a call that a server reported.
DEVICE_KEYS = "keys of devices"
# mark in a price book's name before the name of the contract that decided the price
CONTRACT_MARK = "+contract:"
_EXACT = Context(prec=100)


# Not frozen, because the intake fills in attribution and price. msgspec.structs.replace would take longer
# than a price lookup.
class Inference(msgspec.Struct, array_like=True, tag=1, kw_only=True, gc=False):
    """A call of a model. Input includes cached tokens, output includes reasoning."""

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
    # Further names (spool.identity), 16 bytes each, which the log reads after a restart.
    also: bytes | None = None
    # the part of cache_write_tokens cached for an hour, if reported
    cache_write_1h_tokens: int | None = None
    # region where the call was processed, in the provider's notation, if reported
    region: str | None = None
    # Record that counts the call. It is set on a duplicate kept for reference that was a call of its own
    # until a report matched both.
    counted_by: bytes | None = None
    # key that first sent the call; never sent to destinations
    sender_key: str | None = None
    # Quantities besides plain text tokens, by spool.meters. Decimal text for fractions.
    meters: dict[str, int | str] = {}
    # Amounts in other currencies than dollars, as decimal text. `cost` is then None.
    charges: dict[str, str] = {}
    # the agent's run, which is unique within the session, and the run that started it
    run: str | None = None
    parent_run: str | None = None
    # runs above `parent_run`, separated by spaces, nearest first
    ancestors: str | None = None


class UsageMetric(msgspec.Struct, array_like=True, tag=2, kw_only=True, gc=False):
    """
    The increase of a counter. `value`: an integer for tokens, decimal text for money (`unit` is the currency
    code). The unit CALL_UNIT is only used by another Tollhouse to subtract calls that it sent.
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
    # key that first sent the counter; never sent to destinations
    sender_key: str | None = None
    # meter of spool.meters, if only one modality is counted
    meter: str | None = None
    reverses_number: int | None = None  # number of the record that this one takes back


Scalar = str | int | float | bool


class UsageEvent(msgspec.Struct, array_like=True, tag=3, kw_only=True, gc=False):
    """
    A usage event. `source`: as stated by the sender. `data` and `tags` (further attributes) are limited in
    size.
    """

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
    request: bytes | None = None  # dedup keys of the request, as in UnitCostOperation


class UnitCostOperation(msgspec.Struct, array_like=True, tag=4, kw_only=True, gc=False):
    """
    A request to the unit-cost interface, with its operation.

    `dimensions`: for an allocation, a filter with several values per key; for a metric, one value each.
    `value`: decimal text of at most 15 digits, or None.
    """

    kind: ClassVar[str] = "unit_cost"
    topic: ClassVar[str] = UNIT_COST

    id: bytes
    source: str = "unit-cost"
    stream: str
    stream_type: str  # type of the stream: allocation or metric
    operation: str  # operation: sum, replace or delete a record; create or drop the stream
    start_time: int | None = None
    granularity: str | None = None  # granularity: HOURLY, DAILY or MONTHLY
    element_name: str | None = None
    dimensions: dict[str, list[str]] = {}
    value: str | None = None
    # the record is not delivered, because the first sum creates the stream
    shadow: bool = False
    # Two dedup keys (16 bytes each) of a request with an idempotency key, on the request's first new record,
    # which the log reads after a restart.
    request: bytes | None = None


class HourlyBillingFile(msgspec.Struct, array_like=True, tag=5, kw_only=True, gc=False):
    """A complete hourly file of billing rows. `body` is sent upstream as it was received."""

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
    upstream_id: str | None = None  # id of the connection upstream when the file arrived, if it differs
    request: bytes | None = None  # dedup keys of the request, as in UnitCostOperation


# Tag 6 of the record types is unused.
class Correction(msgspec.Struct, array_like=True, tag=7, kw_only=True, gc=False):
    """
    A change of a call whose record is closed (final): its state as counted before (including earlier
    corrections), and its new state.

    Sums count `after` in place of `before`, in the hour of `start_time`. If `after` is a shadow (a duplicate
    stored for reference), the record `after.counted_by` counts the call.
    """

    kind: ClassVar[str] = "correction"
    topic: ClassVar[str] = AI_TELEMETRY

    id: bytes
    source: str  # source of the late report
    corrects: bytes  # id of the record that the correction changes
    reason: str  # reason: late_usage, final_cost, not_billed, same_call or late_run
    known_at: int
    start_time: int
    before: Inference
    after: Inference
    shadow: bool = False
    corrects_number: int | None = None


class RecalculationEntry(msgspec.Struct, array_like=True, tag=8, kw_only=True, gc=False):
    """
    Prices that replace the estimates of calls with a lower number from a time on, in the order of the log.

    It is no call, so it is a shadow: no sum counts it, and no destination of calls receives it. The prices of contracts
    are nobody else's business, so its JSON has no prices.
    """

    kind: ClassVar[str] = "recalculation"
    topic: ClassVar[str] = AI_TELEMETRY

    id: bytes
    source: str = "recalculation"
    since: int  # epoch seconds
    price_list: bytes  # compressed by zlib
    own_prices: bytes  # prices and terms of contracts that override the list
    user: str | None = None  # who asked for it
    start_time: int | None = None
    shadow: bool = True


AiRecord = Inference | UsageMetric
# records that may have an idempotency key
KeyedRecord = UsageEvent | UnitCostOperation | HourlyBillingFile
Record = (
    Inference
    | UsageMetric
    | UsageEvent
    | UnitCostOperation
    | HourlyBillingFile
    | Correction
    | RecalculationEntry
)

RUNS = ("run", "parent_run", "ancestors")  # runs around a call, nearest first
# Fields that a later report may fill while they are null and the record is open.
AMENDABLE = (
    "request_id", "trace_id", "span_id", "start_time", "end_time", "provider", "operation", "request_model",
    "response_model", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
    "cache_write_1h_tokens", "cost", "error_type", "user", "team", "session", "api_key", "device",
    "region", "run", "parent_run", "ancestors",
)  # fmt: skip

# fields that are in JSON only if reported
_WHERE_TOLD = ("cache_write_1h_tokens", "region", *RUNS)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])


def pack_records(records: Iterable[Record]) -> bytes:
    return _encoder.encode(list(records))


def unpack_records(packed: bytes) -> list[Record]:
    return _decoder.decode(packed)


def further_dedup_keys(record: Record) -> Iterable[bytes]:
    also = record.also if isinstance(record, Inference) else None
    return () if also is None else (also[at : at + 16] for at in range(0, len(also), 16))


def request_dedup_keys(record: Record) -> Iterable[bytes]:
    names = record.request if isinstance(record, KeyedRecord) else None
    return () if names is None else (names[:16], names[16:])


def decimal_text(amount: Decimal) -> str:
    """Return an amount with all digits, without exponent or trailing zeros."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def rfc3339(time_ns: int | None) -> str | None:
    """Format nanoseconds as RFC 3339 in UTC, with up to nine decimals and no trailing zeros."""
    if time_ns is None:
        return None
    seconds, fraction = divmod(time_ns, NS)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:09d}".rstrip("0") + "Z" if fraction else text + "Z"


@overload
def utc_iso(at: float) -> str: ...
@overload
def utc_iso(at: None) -> None: ...
@overload
def utc_iso(at: float | None) -> str | None: ...
def utc_iso(at: float | None) -> str | None:
    """Format epoch seconds as ISO 8601 in UTC, always with three decimals."""
    if at is None:
        return None
    seconds, milliseconds = divmod(round(at * 1000), 1000)
    return f"{_format_second(seconds)}.{milliseconds:03d}Z"


def format_to_second(moment: float) -> str:
    return f"{_format_second(int(moment))}Z"


def _format_second(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def record_to_json(record: Record) -> dict[str, Any]:
    """
    Return the JSON form of a record for destinations: ids in hex, times as text. `sender_key` and
    `reverses_number` are left out, because they mean nothing outside.
    """
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
    if isinstance(record, UsageMetric):
        del row["reverses_number"]
        if record.meter is None:
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
    if isinstance(record, HourlyBillingFile):
        row["body"] = msgspec.json.decode(record.body)
    if isinstance(record, RecalculationEntry):
        row["since"] = rfc3339(record.since * NS)
        del row["price_list"], row["own_prices"]
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
    """Return the call's cost as its `cost_source` says, 0 if it is cached or unknown."""
    stated = {"reported": call.cost, "estimated": call.estimated_cost}.get(call.cost_source)
    return Decimal(0) if stated is None or call.status == "cached" else Decimal(stated)


def charge_unless_cached(call: Inference, currency: str) -> Decimal:
    return Decimal(0 if call.status == "cached" else call.charges.get(currency, 0))


def charge_differences(record: Correction) -> dict[str, Decimal]:
    """Return by how much the amounts in other currencies change, by currency."""
    with localcontext(_EXACT):
        return {
            name: charge_unless_cached(record.after, name) - charge_unless_cached(record.before, name)
            for name in sorted({*record.before.charges, *record.after.charges})
        }


def cost_difference(record: Correction) -> Decimal:
    """Return by how much the cost changes, negative if it falls."""
    with localcontext(_EXACT):
        return counted_cost(record.after) - counted_cost(record.before)


def cost_differences(record: Correction) -> dict[str, Decimal]:
    """
    Return the change of the cost by cost source. The new source is included even if its difference is 0.
    """
    amounts: dict[str, Decimal] = {}
    with localcontext(_EXACT):
        for call, sign in ((record.after, 1), (record.before, -1)):
            source = "estimated" if call.cost_source == "estimated" else "reported"
            amounts[source] = amounts.get(source, Decimal(0)) + sign * counted_cost(call)
    new, *others = amounts.items()
    return dict([new, *[each for each in others if each[1]]])


def count_difference(record: Correction, name: str) -> int:
    return (getattr(record.after, name) or 0) - (getattr(record.before, name) or 0)


def _correction_as_json(record: Correction) -> dict[str, Any]:
    """
    Return a correction as JSON. `cost` and counts are signed differences; other fields have the new state.
    """
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
    for name in RUNS:
        if (run := getattr(record.after, name)) is not None:
            row[name] = run
    for name in ("meters", "charges"):
        if getattr(record.after, name) != getattr(record.before, name):
            row[name] = getattr(record.after, name)
            row[f"{name}_before"] = getattr(record.before, name)
    if record.after.counted_by is not None:
        row["counted_by"] = record.after.counted_by.hex()
    row["shadow"] = record.shadow
    return row
