"""
The AI telemetry table, version 1, with fields of `spool.record.record_to_json`. Pure.

New columns are only appended, and are null in older files. A column's type and meaning never change; other
changes need a new version under another path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from spool import money
from spool.ledger.verdicts import CountedAmounts, counted_amounts, counted_time_us
from spool.meters import quantity_in_millionths
from spool.record import (
    CALL_UNIT,
    RUNS,
    TOKEN_UNIT,
    Correction,
    Inference,
    Record,
    UsageMetric,
    charge_differences,
    decimal_text,
)

VERSION: Final = 1
TABLE: Final = "ai_telemetry"

TEXT = "text"
WORD = "word"  # column type for text with few different values
COUNT = "count"  # column type: integer of 64 bits
TRUTH = "truth"
TIME = "time"  # column type: microseconds since 1970, UTC
MONEY = "money"  # units of spool.money: 38 digits, 27 decimals
TAGS = "tags"  # column type: map from names to texts
METERS = "meters"  # column type: map from names to millionths

# the columns that begin every table
FIRST: Final[Mapping[str, str]] = {
    "edition": WORD,
    "number": COUNT,
    "at": TIME,
    "committed_at": TIME,
    "kind": WORD,
    "counted": TRUTH,
    "calls": COUNT,
    "spend": MONEY,
    "id": TEXT,
}
COLUMNS: Final[Mapping[str, str]] = {
    **FIRST, "request_id": TEXT, "trace_id": TEXT, "span_id": TEXT, "start_time": TIME,
    "end_time": TIME, "provider": WORD, "operation": WORD, "request_model": WORD, "response_model": WORD,
    "region": WORD, "status": WORD, "error_type": WORD, "cost_source": WORD, "price_book": WORD, "source": WORD,
    "input_tokens": COUNT, "output_tokens": COUNT, "cache_read_tokens": COUNT, "cache_write_tokens": COUNT,
    "cache_write_1h_tokens": COUNT, "reasoning_tokens": COUNT, "cost": MONEY, "estimated_cost": MONEY, "user": TEXT,
    "team": TEXT, "session": TEXT, "api_key": TEXT, "device": TEXT, "tags": TAGS, "shadow": TRUTH, "name": WORD,
    "model": WORD, "token_type": WORD, "value": COUNT, "value_money": MONEY, "unit": WORD, "meters": METERS,
    "corrects": TEXT, "reason": WORD, "known_at": TIME, "run": TEXT, "parent_run": TEXT,
    "ancestors": TEXT, "charges": TAGS, "counted_by": TEXT,
}  # fmt: skip

# columns that cannot be left out, because sums and digests need them
KEPT: Final = frozenset(
    {*FIRST, "shadow", *(name for name, type in COLUMNS.items() if name.endswith("_tokens"))}
)

_MOST_COUNT: Final = 2**63 - 1
# limit of an amount, because the column has 38 digits
_MOST_MONEY: Final = 10**11 * money.UNIT
_MICROSECOND_NS: Final = 1000
_DAY_US: Final = 24 * 3600 * 1_000_000
_ID: Final = list(FIRST).index("id")


class LakeRow(NamedTuple):
    """A row of a file: its day (days since 1970), and its values in the order of columns."""

    day: int
    values: tuple[Any, ...]

    @property
    def id(self) -> str:
        return str(self.values[_ID])

    def replace_counts_and_spend(self, **verdict: Any) -> LakeRow:
        """Return the row with other values of `counted`, `calls` or `spend`."""
        values = dict(zip(COLUMNS, self.values, strict=True)) | verdict
        return LakeRow(self.day, tuple(values.values()))


class RowBuilder(Protocol):
    def __call__(
        self, record: Record, *, number: int | None, committed_at: float, log_edition: str | None
    ) -> LakeRow: ...


@dataclass(frozen=True, kw_only=True)
class LakeTable:
    """
    A table of a data lake. Its `columns` begin with FIRST: edition, number and times. `row_of` builds a row
    from a record.
    """

    name: str
    columns: Mapping[str, str]
    row_of: RowBuilder

    def column_position(self, column: str) -> int | None:
        return list(self.columns).index(column) if column in self.columns else None


_NONE: Final = dict.fromkeys(COLUMNS)
_OF_CALL: Final = (
    "request_id", "trace_id", "span_id", "provider", "operation", "request_model", "response_model", "region", "status",
    "error_type", "cost_source", "price_book", "user", "team", "session", "api_key", "device",
    *RUNS,
)  # fmt: skip


def row_of_record(
    record: Record, *, number: int | None, committed_at: float, log_edition: str | None
) -> LakeRow:
    verdict = counted_amounts(record)
    at = counted_time_us(record, committed_at)
    committed = int(committed_at * 1_000_000)
    if isinstance(record, Inference):
        return LakeRow(at // _DAY_US, _call_values(record, verdict, number, at, committed, log_edition))
    input_tokens, output_tokens, cache_read, cache_write, reasoning, cache_write_1h = verdict.tokens
    row = _NONE.copy()
    row["edition"] = log_edition
    row["number"] = number
    row["at"] = at
    row["committed_at"] = committed
    row["kind"] = record.kind
    row["counted"] = verdict.counted
    row["calls"] = verdict.calls
    row["spend"] = verdict.spend
    row["id"] = record.id.hex()
    row["source"] = record.source
    row["shadow"] = record.shadow
    row["start_time"] = _to_microseconds(record.start_time)
    row["input_tokens"] = _count_if_storable(input_tokens)
    row["output_tokens"] = _count_if_storable(output_tokens)
    row["cache_read_tokens"] = _count_if_storable(cache_read)
    row["cache_write_tokens"] = _count_if_storable(cache_write)
    row["reasoning_tokens"] = _count_if_storable(reasoning)
    row["cache_write_1h_tokens"] = _count_if_storable(cache_write_1h)
    day = at // _DAY_US
    if isinstance(record, UsageMetric):
        _set_metric_columns(row, record)
    elif isinstance(record, Correction):
        _set_call_columns(row, record.after)
        _set_correction_columns(row, record)
        day = record.known_at // _MICROSECOND_NS // _DAY_US
    return LakeRow(day, tuple(row.values()))


def _call_values(
    call: Inference,
    verdict: CountedAmounts,
    record_number: int | None,
    at_us: int,
    committed_at_us: int,
    log_edition: str | None,
) -> tuple[Any, ...]:
    """
    Return the values in the order of COLUMNS, in one step, because setting them by name takes twice the time.
    """
    counted, calls, spend, tokens = verdict
    input_tokens, output_tokens, cache_read, cache_write, reasoning, cache_write_1h = tokens
    start = call.start_time
    end = call.end_time
    # source of the amount in `spend`
    spent_from = "" if spend is None or call.status == "cached" else call.cost_source
    meters = call.meters
    return (
        log_edition,
        record_number,
        at_us,
        committed_at_us,
        "inference",
        counted,
        calls,
        spend,
        call.id.hex(),
        call.request_id,
        call.trace_id,
        call.span_id,
        None if start is None else _to_microseconds(start),
        None if end is None else _to_microseconds(end),
        call.provider,
        call.operation,
        call.request_model,
        call.response_model,
        call.region,
        call.status,
        call.error_type,
        call.cost_source,
        call.price_book,
        call.source,
        input_tokens if input_tokens is None else _count_if_storable(input_tokens),
        output_tokens if output_tokens is None else _count_if_storable(output_tokens),
        cache_read if cache_read is None else _count_if_storable(cache_read),
        cache_write if cache_write is None else _count_if_storable(cache_write),
        cache_write_1h if cache_write_1h is None else _count_if_storable(cache_write_1h),
        reasoning if reasoning is None else _count_if_storable(reasoning),
        spend
        if call.cost is not None and spent_from == "reported"
        else _money_units_unless_too_large(call.cost),
        spend
        if call.estimated_cost is not None and spent_from == "estimated"
        else _money_units_unless_too_large(call.estimated_cost),
        call.user,
        call.team,
        call.session,
        call.api_key,
        call.device,
        list(call.tags.items()) or None,
        call.shadow,
        None,
        None,
        None,
        None,
        None,
        None,  # None for the columns of counters
        [(name, quantity_in_millionths(quantity)) for name, quantity in meters.items()] if meters else None,
        None,
        None,
        None,  # None for the columns of corrections
        call.run,
        call.parent_run,
        call.ancestors,
        list(call.charges.items()) or None,
        None if call.counted_by is None else call.counted_by.hex(),
    )


AI_TABLE: Final = LakeTable(name=TABLE, columns=COLUMNS, row_of=row_of_record)


def _set_call_columns(row: dict[str, Any], call: Inference) -> None:
    for name in _OF_CALL:
        row[name] = getattr(call, name)
    row["end_time"] = _to_microseconds(call.end_time)
    if call.counted_by is not None:
        row["counted_by"] = call.counted_by.hex()
    if call.tags:
        row["tags"] = list(call.tags.items())


def _set_metric_columns(row: dict[str, Any], metric: UsageMetric) -> None:
    row["end_time"] = _to_microseconds(metric.end_time)
    row["name"] = metric.name
    row["model"] = metric.model
    row["token_type"] = metric.token_type
    row["unit"] = metric.unit
    if metric.unit not in (TOKEN_UNIT, CALL_UNIT):
        row["value_money"] = _money_units_unless_too_large(str(metric.value))
    else:
        row["value"] = _count_if_storable(int(metric.value))
        if metric.meter is not None:
            row["meters"] = [(metric.meter, quantity_in_millionths(int(metric.value)))]
    row["user"] = metric.user
    row["team"] = metric.team
    row["session"] = metric.session
    row["api_key"] = metric.api_key
    row["device"] = metric.device
    if metric.tags:
        row["tags"] = list(metric.tags.items())


def _set_correction_columns(row: dict[str, Any], record: Correction) -> None:
    """Set the columns of a correction: amounts and tokens are new minus old values."""
    before = dict(record.before.meters)
    differences = {
        name: quantity_in_millionths(record.after.meters.get(name, 0))
        - quantity_in_millionths(before.get(name, 0))
        for name in {**record.after.meters, **before}
    }
    row["meters"] = [(name, units) for name, units in differences.items() if units] or None
    row["cost"] = _money_difference(record.after.cost, record.before.cost)
    row["estimated_cost"] = _money_difference(record.after.estimated_cost, record.before.estimated_cost)
    charges = charge_differences(record).items()
    row["charges"] = [(name, decimal_text(amount)) for name, amount in charges if amount] or None
    row["corrects"] = record.corrects.hex()
    row["reason"] = record.reason
    row["known_at"] = _to_microseconds(record.known_at)


def _money_difference(after: str | None, before: str | None) -> int | None:
    if after is None and before is None:
        return None
    return (_money_units_unless_too_large(after) or 0) - (_money_units_unless_too_large(before) or 0)


def _money_units_unless_too_large(text: str | None) -> int | None:
    if text is None:
        return None
    units = money.text_to_units(text)
    return units if -_MOST_MONEY < units < _MOST_MONEY else None


def _count_if_storable(count: int | None) -> int | None:
    return count if count is None or -_MOST_COUNT <= count <= _MOST_COUNT else None


def _to_microseconds(time_ns: int | None) -> int | None:
    return None if time_ns is None else _count_if_storable(time_ns // _MICROSECOND_NS)
