"""
Checks whether Tollhouse can have written a row: column types, checksums, and whether values can be decoded.

A damaged page can yield rows that were never written. SQLite does not detect this, because it checks column
types only when it writes.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec

from spool.deliveries.values import OPEN, ROUTE_STATES, UNKNOWN
from spool.log import accounting, log_positions, runs
from spool.log.commits.following import AFTER, FIRST, unpack_ids_added_to_earlier_records
from spool.log.conflicts import Conflict
from spool.log.counters import KNOWN_SINCE
from spool.log.entries import codec
from spool.log.recent_senders import unpack_sender_keys
from spool.record import TOPICS, unpack_records
from spool.sqlite.database import damage_error

# rows of one table that may be repeated; a damaged page can lead back to earlier pages, so that reading never
# ends
MOST_REPEATS = 10_000

# errors that are raised when a damaged value is decoded
VALUE_ERRORS = (
    TypeError,
    ValueError,
    KeyError,
    AttributeError,
    ArithmeticError,
    struct.error,
    msgspec.MsgspecError,
)
LARGEST = 1 << 53  # larger than any count, record number or time in seconds

_TYPES: Mapping[str, tuple[type, ...]] = {
    "INTEGER": (int,),
    "REAL": (float,),
    "TEXT": (str,),
    "BLOB": (bytes,),
}

Row = Mapping[str, Any]


class RowCheck:
    """
    A check whether rows have the types of their table's columns. Rows of tables that this version does not
    know pass.
    """

    def __init__(self, empty_database: sqlite3.Connection) -> None:
        self._columns: dict[str, list[tuple[str, tuple[type, ...], bool]]] = {}
        tables = (
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        )
        for (table,) in empty_database.execute(tables).fetchall():
            info = empty_database.execute(
                f"SELECT name, type, \"notnull\" OR pk > 0 FROM pragma_table_info('{table}')"
            )
            self._columns[table] = [(name, _TYPES[type], bool(required)) for name, type, required in info]

    @property
    def table_names(self) -> list[str]:
        return list(self._columns)

    def first_column_names(self, table: str, column_count: int) -> list[str]:
        """
        Return the names of a row's columns. `column_count`: their number, which is lower in files of earlier
        versions.
        """
        return [name for name, _, _ in self._columns[table]][:column_count]

    def find_problem(self, table: str, row: Sequence[Any]) -> str:
        columns = self._columns.get(table)
        if columns is None:
            return ""
        for value, (name, types, required) in zip(row, columns, strict=False):
            if value is None:
                if required:
                    return f"{name} is missing"
            elif not isinstance(value, types):
                return f"{name} has another type"
        values_by_name = {name: value for value, (name, _, _) in zip(row, columns, strict=False)}
        check = _CHECKS.get(table)
        try:
            return (
                ""
                if check is None or check(values_by_name)
                else "the values of the row contradict each other"
            )
        except VALUE_ERRORS as error:
            return f"it cannot be decoded ({type(error).__name__})"


def _is_valid_fact_row(row: Row) -> bool:
    name: str = row["name"]
    reader = unpack_ids_added_to_earlier_records if FIRST <= name < AFTER else _FACTS.get(name)
    if log_positions.FIRST <= name < log_positions.AFTER:
        reader = partial(log_positions.unpack_position_block, name)
    if reader is not None:
        reader(row["value"])
    return True


def _is_valid_entry_row(row: Row) -> bool:
    if row["damaged"]:
        return row["topic"] in TOPICS and 0 < row["first"] < LARGEST and 0 < row["count"] < LARGEST
    checksum: int = row["checksum"]
    return (
        codec.checksum_bound_to_location(
            row["body"], codec.entry_location(row["topic"], row["first"], row["count"])
        )
        == checksum
    )


def _is_valid_amendment_row(row: Row) -> bool:
    checksum: int = row["checksum"]
    return (
        codec.checksum_bound_to_location(row["fields"], codec.amendment_location(row["topic"], row["number"]))
        == checksum
    )


def _is_valid_commit_row(row: Row) -> bool:
    checksum: int = row["checksum"]
    accounting.unpack_submission_counts(row["terms"])
    return zlib.crc32(row["terms"]) == checksum


def _is_valid_accounting_counter_row(row: Row) -> bool:
    is_known = row["topic"] in TOPICS and accounting.is_counter_name(row["term"])
    return is_known and abs(row["n"]) < LARGEST and abs(row["carried"]) < LARGEST


def _is_valid_heard_senders_row(row: Row) -> bool:
    count: int = row["count"]
    return len(list(unpack_sender_keys(row["senders"]))) == count


def _is_valid_id_run_row(row: Row) -> bool:
    return runs.unpack_ids(row["ids"], row["checksum"]) is not None


def _is_valid_conflict_row(row: Row) -> bool:
    msgspec.msgpack.decode(row["sums"], type=Conflict)
    return _is_valid_count_row(row)


def _is_valid_route_row(row: Row) -> bool:
    counts = [value for value in row.values() if isinstance(value, int)]
    named_rightly = row["topic"] in TOPICS and accounting.route_topic(row["name"]) == row["topic"]
    return named_rightly and row["state"] in ROUTE_STATES and all(abs(n) < LARGEST for n in counts)


def _is_valid_delivery_row(row: Row) -> bool:
    if row["kept"] is not None:
        unpack_records(row["kept"])
    return row["state"] in (OPEN, UNKNOWN) and 0 < row["first"] <= row["last"] < LARGEST


def _is_valid_dead_letter_row(row: Row) -> bool:
    return row["topic"] in TOPICS and len(unpack_records(row["record"])) == 1


def _is_valid_device_row(row: Row) -> bool:
    return isinstance(json.loads(row["labels"]), dict) and isinstance(
        json.loads(row["operator_labels"]), dict
    )


def _is_valid_cluster_row(row: Row) -> bool:
    return isinstance(json.loads(row["checks"]), list)


def _is_valid_stream_row(row: Row) -> bool:
    return row["keys"] is None or isinstance(json.loads(row["keys"]), list)


def _is_valid_stream_total_row(row: Row) -> bool:
    return isinstance(json.loads(row["dimensions"]), dict) and Decimal(row["value"]).is_finite()


def _is_valid_billing_rows_row(row: Row) -> bool:
    size: int = row["bytes"]
    return len(zlib.decompress(row["body"])) == size


def _is_valid_count_row(row: Row) -> bool:
    count: int = row["count"]
    return 0 <= count < LARGEST


def _is_valid_event_type_row(row: Row) -> bool:
    amount: str | None = row["amount"]
    return _is_valid_count_row(row) and (amount is None or Decimal(amount).is_finite())


_FACTS: Mapping[str, Callable[[bytes], object]] = {
    "ids": partial(msgspec.msgpack.decode, type=dict[str, Any]),
    "incarnation": lambda value: bytes.fromhex(value.decode()),
    "streams since": lambda value: float(value.decode()),
    KNOWN_SINCE: lambda value: float(value.decode()),
}
_CHECKS: Mapping[str, Callable[[Row], bool]] = {
    "facts": _is_valid_fact_row,
    "entries": _is_valid_entry_row,
    "amendments": _is_valid_amendment_row,
    "commits": _is_valid_commit_row,
    "books": _is_valid_accounting_counter_row,
    "id_runs": _is_valid_id_run_row,
    "heard": _is_valid_heard_senders_row,
    "series": lambda row: Decimal(row["value"]).is_finite(),
    "conflicts": _is_valid_conflict_row,
    "unrecognised": _is_valid_count_row,
    "event_types": _is_valid_event_type_row,
    "routes": _is_valid_route_row,
    "deliveries": _is_valid_delivery_row,
    "dead": _is_valid_dead_letter_row,
    "devices": _is_valid_device_row,
    "unenrolled": _is_valid_count_row,
    "clusters": _is_valid_cluster_row,
    "streams": _is_valid_stream_row,
    "stream_totals": _is_valid_stream_total_row,
    "billing_rows": _is_valid_billing_rows_row,
}


def raise_at_page_loop(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    seen: set[int] = set()
    repeats = 0
    for row in rows:
        known_as = hash(row)
        repeats += known_as in seen
        seen.add(known_as)
        if repeats > MOST_REPEATS:
            raise damage_error("a page leads back to an earlier one")
        yield row
