"""
The tables of a data lake by topic, and the rules for their rows: columns to leave out, sums by day, digests. Pure.

The tables of usage events, unit-cost operations and billing drops begin with the same columns as the AI
telemetry table. None of their rows count in the totals, so `counted` is always false. Values with arbitrary
names are JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from exporters.lake.columns import (
    AI_TABLE,
    COUNT,
    FIRST,
    KEPT,
    MONEY,
    TAGS,
    TEXT,
    TIME,
    TRUTH,
    WORD,
    LakeRow,
    LakeTable,
)
from exporters.problems import problems_of_choice
from spool import money, record
from spool.ledger.verdicts import counted_time_us
from spool.record import NS, HourlyBillingFile, Record, UnitCostOperation, UsageEvent

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
TAG_PREFIX: Final = "tags."
_TAGS_COLUMN: Final = "tags"

RowValues = tuple[Any, ...]
_DIGEST_COLUMNS: Final = ("number", "id", "spend", "input_tokens", "output_tokens")


def _event_values(event: UsageEvent) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "subject": event.subject,
        "data": _json_text(event.data),
        "tags": list(event.tags.items()) or None,
    }


def _operation_values(operation: UnitCostOperation) -> dict[str, Any]:
    return {
        "stream": operation.stream,
        "stream_type": operation.stream_type,
        "operation": operation.operation,
        "granularity": operation.granularity,
        "element_name": operation.element_name,
        "dimensions": _json_text(operation.dimensions),
        "value": None if operation.value is None else money.text_to_units(operation.value),
    }


def _billing_drop_values(billing_file: HourlyBillingFile) -> dict[str, Any]:
    return {
        "connection_id": billing_file.connection_id,
        "month": billing_file.month,
        "operation": billing_file.operation,
        "rows": billing_file.rows,
        "body": billing_file.body.decode(),
        "upstream_id": billing_file.upstream_id,
    }


def _json_text(value: Mapping[str, Any]) -> str | None:
    return msgspec.json.encode(value).decode() if value else None


def _build_table(
    name: str, columns: Mapping[str, str], fields_of: Callable[[Any], dict[str, Any]]
) -> LakeTable:
    def build_row(
        record: Record, *, number: int | None, committed_at: float, log_edition: str | None
    ) -> LakeRow:
        at = counted_time_us(record, committed_at)
        row: dict[str, Any] = {
            **dict.fromkeys(columns),
            "edition": log_edition,
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
        return LakeRow(at // _DAY_US, tuple(row.values()))

    return LakeTable(name=name, columns=columns, row_of=build_row)


TABLES: Final[Mapping[str, LakeTable]] = {
    record.AI_TELEMETRY: AI_TABLE,
    record.USAGE_EVENTS: _build_table("usage_events", _EVENTS, _event_values),
    record.UNIT_COST: _build_table("unit_cost", _UNIT_COST, _operation_values),
    record.BILLING_DATA: _build_table("billing_data", _BILLING, _billing_drop_values),
}
# Columns that a destination may leave out of at least one table.
OPTIONAL: Final = tuple(
    dict.fromkeys(name for table in TABLES.values() for name in table.columns if name not in KEPT)
)


def table_for_route(route: str) -> LakeTable:
    """Return the table for a route's topic, which is the second part of the route's name."""
    return TABLES[route.partition("/")[2]]


class LakeDay(NamedTuple):
    """Sums over the counted calls of one UTC day. `spend`: in units of `spool.money`."""

    calls: int = 0
    spend: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def plus(self, calls: int, spend: int, input_tokens: int, output_tokens: int) -> LakeDay:
        return LakeDay(
            self.calls + calls,
            self.spend + spend,
            self.input_tokens + input_tokens,
            self.output_tokens + output_tokens,
        )


class LakeSumsByDay:
    """
    Sums by day of the counted rows of all deliveries. Imported rows are excluded, because no totals include them.
    """

    def __init__(self) -> None:
        self._days: dict[str, LakeDay] = {}

    def add_to_day(
        self, at: datetime | str, calls: int, spend: int, input_tokens: int, output_tokens: int
    ) -> None:
        day = at[:10] if isinstance(at, str) else at.strftime("%Y-%m-%d")
        self._days[day] = self._days.get(day, LakeDay()).plus(calls, spend, input_tokens, output_tokens)

    @property
    def days(self) -> Mapping[str, LakeDay]:
        return self._days


class LeftOutColumns:
    """
    The columns and tags that the setting `leave_out` removes from rows.

    It may name columns of other tables.
    """

    def __init__(self, names: Sequence[str], table: LakeTable = AI_TABLE) -> None:
        places = [table.column_position(name) for name in names]
        self._places = [index for index in places if index is not None]
        self._tags_at = table.column_position(_TAGS_COLUMN)
        self._tags = {name.removeprefix(TAG_PREFIX) for name in names if name.startswith(TAG_PREFIX)}

    def blank_values(self, rows: Sequence[RowValues]) -> Sequence[RowValues]:
        if self._places or self._tags:
            return [self._blank_row(row) for row in rows]
        return rows

    def _blank_row(self, row: RowValues) -> RowValues:
        values = list(row)
        tags = None if self._tags_at is None else values[self._tags_at]
        if self._tags_at is not None and tags:
            kept_tags = [pair for pair in tags if pair[0] not in self._tags]
            values[self._tags_at] = kept_tags or None
        for index in self._places:
            values[index] = None
        return tuple(values)


def left_out_problems(shown_name: str, names: Sequence[str], columns: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if name in KEPT:
            yield f"{shown_name}.leave_out: {name!r} cannot be left out, because sums and digests need it"
        elif name == TAG_PREFIX:
            yield f"{shown_name}.leave_out: {name!r} names no tag; use tags.NAME"
        elif not name.startswith(TAG_PREFIX):
            yield from problems_of_choice(f"{shown_name}.leave_out", name, columns)


class RowDigest:
    """
    A digest of a delivery's rows. It is equal for equal rows, whichever release and library wrote them.

    It is SHA-256 over number, id, spend and tokens of the rows, ordered by number. Columns that the table
    lacks are skipped.
    """

    def __init__(self, table: LakeTable = AI_TABLE) -> None:
        self._sum = sha256()
        places = [index for name in _DIGEST_COLUMNS if (index := table.column_position(name)) is not None]
        self._values_of = itemgetter(*places)
        self._line = " ".join(["%s"] * len(places)) + "\n"

    def add_rows(self, rows: Iterable[tuple[Any, ...]]) -> None:
        lines = [self._line % values for values in map(self._values_of, rows)]
        self._sum.update("".join(lines).encode())

    def hexdigest(self) -> str:
        return self._sum.hexdigest()
