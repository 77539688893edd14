"""
The tables of usage events, of operations of unit-cost streams and of billing drops. Pure.

They begin like that of AI telemetry. The ledger counts none of their rows, so `counted` is false everywhere. Values
that have names of their own are JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from exporters.lake.columns import COUNT, FIRST, MONEY, TAGS, TEXT, TIME, TRUTH, WORD, LakeTable, Row
from spool.ledger import money
from spool.ledger.verdicts import time_of
from spool.record import NS, BillingDrop, Record, UnitCostOperation, UsageEvent

_US: Final = NS // 1_000_000
_DAY_US: Final = 24 * 3600 * 1_000_000
_EVENTS: Final[Mapping[str, str]] = {
    **FIRST,
    "source": TEXT,
    "start_time": TIME,
    "shadow": TRUTH,
    "event_id": TEXT,
    "event_type": WORD,
    "subject": TEXT,
    "data": TEXT,
    "tags": TAGS,
}
_UNIT_COST: Final[Mapping[str, str]] = {
    **FIRST,
    "source": TEXT,
    "start_time": TIME,
    "shadow": TRUTH,
    "stream": WORD,
    "stream_type": WORD,
    "operation": WORD,
    "granularity": WORD,
    "element_name": TEXT,
    "dimensions": TEXT,
    "value": MONEY,
}
_BILLING: Final[Mapping[str, str]] = {
    **FIRST,
    "source": TEXT,
    "start_time": TIME,
    "shadow": TRUTH,
    "connection_id": TEXT,
    "month": WORD,
    "operation": WORD,
    "rows": COUNT,
    "body": TEXT,
    "upstream_id": TEXT,
}


def _of_event(event: UsageEvent) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "subject": event.subject,
        "data": _json(event.data),
        "tags": list(event.tags.items()) or None,
    }


def _of_operation(operation: UnitCostOperation) -> dict[str, Any]:
    return {
        "stream": operation.stream,
        "stream_type": operation.stream_type,
        "operation": operation.operation,
        "granularity": operation.granularity,
        "element_name": operation.element_name,
        "dimensions": _json(operation.dimensions),
        "value": None if operation.value is None else money.units(operation.value),
    }


def _of_drop(drop: BillingDrop) -> dict[str, Any]:
    return {
        "connection_id": drop.connection_id,
        "month": drop.month,
        "operation": drop.operation,
        "rows": drop.rows,
        "body": drop.body.decode(),
        "upstream_id": drop.upstream_id,
    }


def _json(value: Mapping[str, Any]) -> str | None:
    return msgspec.json.encode(value).decode() if value else None


def _table(name: str, columns: Mapping[str, str], fields_of: Callable[[Any], dict[str, Any]]) -> LakeTable:
    def row_of(record: Record, *, number: int | None, committed_at: float, edition: str | None) -> Row:
        at = time_of(record, committed_at)
        row: dict[str, Any] = {
            **dict.fromkeys(columns),
            "edition": edition,
            "number": number,
            "at": at,
            "committed_at": int(committed_at * 1_000_000),
            "kind": record.kind,
            "counted": False,
            "calls": 0,
            "id": record.id.hex(),
            "source": record.source,
            "start_time": None if record.start_time is None else record.start_time // _US,
            "shadow": record.shadow,
            **fields_of(record),
        }
        return Row(at // _DAY_US, tuple(row.values()))

    return LakeTable(name=name, columns=columns, row_of=row_of)


USAGE_EVENTS: Final = _table("usage_events", _EVENTS, _of_event)
UNIT_COST: Final = _table("unit_cost", _UNIT_COST, _of_operation)
BILLING_DATA: Final = _table("billing_data", _BILLING, _of_drop)
