"""How the records of each topic are read back, from the rows of a lake and from the lines of record files. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec

from exporters.lake.columns import LakeTable
from exporters.lake.past import row_records
from exporters.lake.past.row_records import time_ns
from exporters.lake.tables.catalogue import TABLES
from spool.record import (
    AI_TELEMETRY,
    BILLING_DATA,
    UNIT_COST,
    USAGE_EVENTS,
    BillingDrop,
    Record,
    UnitCostOperation,
    UsageEvent,
    decimal_text,
)

Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TopicRecords:
    """`read` are the columns that a record is made of, and the verdict of its ledger."""

    topic: str
    table: LakeTable
    kinds: frozenset[str]
    read: tuple[str, ...]
    record_of: Callable[[Fields], Record | None]  # None of what cannot be made again

    def checked(self, row: Fields) -> Record | None:
        """The record of a row. ValueError, TypeError or the like if a value of it has another type."""
        record = self.record_of(row)
        if record is not None:
            msgspec.convert(msgspec.to_builtins(record), type(record))
        return record


def _event(row: Fields) -> Record | None:
    if row["event_type"] is None:  # a column that may be left out of a lake
        return None
    return UsageEvent(
        id=bytes.fromhex(row["id"]),
        source=row["source"],
        event_id=row["event_id"],
        event_type=row["event_type"],
        subject=row["subject"],
        start_time=time_ns(row["start_time"]),
        data=_object(row["data"]),
        tags=dict(row["tags"] or ()),
        shadow=row["shadow"],
    )


def _operation(row: Fields) -> Record | None:
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
        dimensions=_object(row["dimensions"]),
        value=None if value is None else decimal_text(Decimal(value)),
        shadow=row["shadow"],
    )


def _drop(row: Fields) -> Record | None:
    if None in (row["connection_id"], row["body"]):
        return None
    body = row["body"]
    return BillingDrop(
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


def _object(value: Any) -> dict[str, Any]:
    """An object of a record file, or its text in a row."""
    if isinstance(value, str):
        return msgspec.json.decode(value, type=dict[str, Any])
    return dict(value or ())


def _of(topic: str, kind: str, record_of: Callable[[Fields], Record | None]) -> TopicRecords:
    table = TABLES[topic]
    kinds = frozenset({kind})
    return TopicRecords(topic=topic, table=table, kinds=kinds, read=tuple(table.columns), record_of=record_of)


_AI: Final = TopicRecords(
    topic=AI_TELEMETRY,
    table=TABLES[AI_TELEMETRY],
    kinds=frozenset({"inference", "usage_metric", "correction"}),
    read=(*row_records.READ, "counted", "calls", "spend"),
    record_of=row_records.record_of,
)
RECORDS: Final[Mapping[str, TopicRecords]] = {
    AI_TELEMETRY: _AI,
    USAGE_EVENTS: _of(USAGE_EVENTS, UsageEvent.kind, _event),
    UNIT_COST: _of(UNIT_COST, UnitCostOperation.kind, _operation),
    BILLING_DATA: _of(BILLING_DATA, BillingDrop.kind, _drop),
}
