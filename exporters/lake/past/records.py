"""
The record in a row of a data lake or in a line of a record file. This is the inverse of the modules `columns`
and `tables`. Pure.

Fields without a column are empty: the sender's Tollhouse key, and further dedup keys. Times are whole
microseconds. A correction cannot be restored, because its row has only the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec

from exporters.lake.columns import LakeTable
from exporters.lake.tables import TABLES
from spool.deliveries.protocols import PastRecord
from spool.meters import quantity_from_millionths, quantity_in_millionths
from spool.record import (
    AI_TELEMETRY,
    BILLING_DATA,
    RUNS,
    TOKEN_UNIT,
    UNIT_COST,
    USAGE_EVENTS,
    HourlyBillingFile,
    Inference,
    Record,
    UnitCostOperation,
    UsageEvent,
    UsageMetric,
    decimal_text,
)

READ: Final = (
    "number", "committed_at", "kind", "id", "request_id", "trace_id", "span_id", "start_time", "end_time", "provider",
    "operation", "request_model", "response_model", "region", "status", "error_type", "cost_source", "price_book",
    "source", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens",
    "reasoning_tokens", "cost", "estimated_cost", "user", "team", "session", "api_key", "device", "tags", "shadow",
    "name", "model", "token_type", "value", "value_money", "unit", "meters", *RUNS, "charges",
    "counted_by",
)  # fmt: skip
_BOTH: Final = ("source", "user", "team", "session", "api_key", "device", "shadow")
_OF_CALL: Final = (
    *_BOTH,
    "request_id",
    "trace_id",
    "span_id",
    "provider",
    "operation",
    "request_model",
    "response_model",
    "region",
    "error_type",
    "price_book",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
    *RUNS,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
RecordFields = Mapping[str, Any]


def build_past_record(values: tuple[Any, ...]) -> PastRecord | None:
    """Return the record of a row, None if it is neither a call nor a counter."""
    row = dict(zip(READ, values, strict=True))
    record = None if row["number"] is None else build_record(row)
    if record is None:
        return None
    return PastRecord(row["number"], (time_ns(row["committed_at"]) or 0) / 1e9, record)


def build_record(row: Mapping[str, Any]) -> Record | None:
    """Return the record of a row, None if it is neither a call nor a counter."""
    build = _MADE.get(row["kind"])
    return None if build is None else build(row)


def _restore_call(row: Mapping[str, Any]) -> Inference:
    return Inference(
        id=bytes.fromhex(row["id"]),
        start_time=time_ns(row["start_time"]),
        end_time=time_ns(row["end_time"]),
        cost=_money_text(row["cost"]),
        estimated_cost=_money_text(row["estimated_cost"]),
        # A data lake may leave out each of the columns below.
        cost_source=row["cost_source"] or "none",
        status=row["status"] or "ok",
        tags=dict(row["tags"] or ()),
        meters={name: _parse_quantity(value) for name, value in dict(row["meters"] or ()).items()},
        charges=dict(row["charges"] or ()),
        counted_by=None if row["counted_by"] is None else bytes.fromhex(row["counted_by"]),
        **{name: row[name] for name in _OF_CALL},
    )


def _restore_metric(row: Mapping[str, Any]) -> UsageMetric:
    money = _money_text(row["value_money"])
    return UsageMetric(
        id=bytes.fromhex(row["id"]),
        name=row["name"] or "",
        model=row["model"],
        token_type=row["token_type"],
        value=(row["value"] or 0) if money is None else money,
        unit=row["unit"] or TOKEN_UNIT,
        start_time=time_ns(row["start_time"]),
        end_time=time_ns(row["end_time"]),
        tags=dict(row["tags"] or ()),
        meter=next(iter(dict(row["meters"] or ())), None),
        **{name: row[name] for name in _BOTH},
    )


_MADE: Final[Mapping[str, Callable[[Mapping[str, Any]], Record]]] = {
    Inference.kind: _restore_call,
    UsageMetric.kind: _restore_metric,
}


def time_ns(value: datetime | str | None) -> int | None:
    if value is None:
        return None
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    return (at - _EPOCH) // _US * 1000


def _money_text(value: Decimal | str | None) -> str | None:
    return None if value is None else decimal_text(Decimal(value))


def _parse_quantity(value: Decimal | str | int) -> int | str:
    return quantity_from_millionths(
        int(value * 10**6) if isinstance(value, Decimal) else quantity_in_millionths(value)
    )


@dataclass(frozen=True, kw_only=True)
class TopicRecords:
    """
    The rules for reading a topic's records back. `read_columns`: those needed to restore a record and to know
    whether it counts.
    """

    topic: str
    table: LakeTable
    kinds: frozenset[str]
    read_columns: tuple[str, ...]
    # function that returns None if the record cannot be restored
    record_of: Callable[[RecordFields], Record | None]

    def restore_record(self, row: RecordFields) -> Record | None:
        """
        Return the record of a row, or None if it cannot be restored. Raises an error, such as ValueError or
        TypeError, if a value has a wrong type.
        """
        record = self.record_of(row)
        if record is not None:
            msgspec.convert(msgspec.to_builtins(record), type(record))
        return record


def _restore_event(row: RecordFields) -> Record | None:
    if row["event_type"] is None:
        return None
    return UsageEvent(
        id=bytes.fromhex(row["id"]),
        source=row["source"],
        event_id=row["event_id"],
        event_type=row["event_type"],
        subject=row["subject"],
        start_time=time_ns(row["start_time"]),
        data=_decode_object(row["data"]),
        tags=dict(row["tags"] or ()),
        shadow=row["shadow"],
    )


def _restore_operation(row: RecordFields) -> Record | None:
    if None in (row["stream"], row["stream_type"], row["operation"]):
        return None
    value = row["value"]
    return UnitCostOperation(
        id=bytes.fromhex(row["id"]),
        source=row["source"],
        stream=row["stream"],
        stream_type=row["stream_type"],
        operation=row["operation"],
        start_time=time_ns(row["start_time"]),
        granularity=row["granularity"],
        element_name=row["element_name"],
        dimensions=_decode_object(row["dimensions"]),
        value=None if value is None else decimal_text(Decimal(value)),
        shadow=row["shadow"],
    )


def _restore_drop(row: RecordFields) -> Record | None:
    if None in (row["connection_id"], row["body"]):
        return None
    body = row["body"]
    return HourlyBillingFile(
        id=bytes.fromhex(row["id"]),
        source=row["source"],
        connection_id=row["connection_id"],
        month=row["month"],
        operation=row["operation"],
        rows=row["rows"],
        body=body.encode() if isinstance(body, str) else msgspec.json.encode(body),
        start_time=time_ns(row["start_time"]),
        shadow=row["shadow"],
        upstream_id=row["upstream_id"],
    )


def _decode_object(value: Any) -> dict[str, Any]:
    """Return a JSON object. Record files contain it as an object, rows as JSON text."""
    if isinstance(value, str):
        return msgspec.json.decode(value, type=dict[str, Any])
    return dict(value or ())


def _topic_records(topic: str, kind: str, record_of: Callable[[RecordFields], Record | None]) -> TopicRecords:
    table = TABLES[topic]
    kinds = frozenset({kind})
    return TopicRecords(
        topic=topic, table=table, kinds=kinds, read_columns=tuple(table.columns), record_of=record_of
    )


_AI: Final = TopicRecords(
    topic=AI_TELEMETRY,
    table=TABLES[AI_TELEMETRY],
    kinds=frozenset({"inference", "usage_metric", "correction"}),
    read_columns=(*READ, "counted", "calls", "spend"),
    record_of=build_record,
)
RECORDS: Final[Mapping[str, TopicRecords]] = {
    AI_TELEMETRY: _AI,
    USAGE_EVENTS: _topic_records(USAGE_EVENTS, UsageEvent.kind, _restore_event),
    UNIT_COST: _topic_records(UNIT_COST, UnitCostOperation.kind, _restore_operation),
    BILLING_DATA: _topic_records(BILLING_DATA, HourlyBillingFile.kind, _restore_drop),
}
