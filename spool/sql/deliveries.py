from __future__ import annotations

from collections.abc import Iterable

from spool.deliveries.stored import COUNTS

ROUTE_COLUMNS = ("name", "topic", "required", "orphaned", "state", "reason", "state_since", *COUNTS)
DEAD_COLUMNS = ("id", "route", "topic", "number", "committed_at", "record", "error", "status", "at", "replay")
REFUSAL_COLUMNS = ("route", "first", "last", "count", "words", "at")
# columns for operators, without the record that some deliveries carry
UNSETTLED_COLUMNS = (
    "id",
    "route",
    "first",
    "last",
    "state",
    "replay",
    "attempts",
    "not_before",
    "last_error",
)


def qualified_columns(table: str, columns: Iterable[str]) -> str:
    return ", ".join(f"{table}.{column}" for column in columns)
