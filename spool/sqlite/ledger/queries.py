"""
What the ledger answers: costs in periods and by dimensions, and the values that a dimension has. Reads only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

from spool.ledger import money
from spool.ledger.sums import COUNTS, LATENCY, Row
from spool.sqlite.ledger.repricing import in_memory
from spool.sqlite.ledger.store import COLUMNS, DAY_S, state

DIMENSIONS = (
    "model", "request_model", "provider", "team", "user", "device", "source", "api_key", "status", "cost_source",
)  # fmt: skip
TAG = "tag:"  # before the name of a chosen tag
GRANULARITIES = ("hourly", "daily", "weekly", "monthly", "quarterly", "yearly")
TOTAL = "total"  # everything in one period
MOST_VALUES = 1000  # of one dimension


@dataclass(frozen=True, kw_only=True)
class CostQuery:
    """
    Costs of calls from `since` until before `until`, in periods of `zone`.

    `include` and `exclude` are by dimension; "" stands for unknown. A period that `since` cuts begins at `since`.
    """

    since: datetime
    until: datetime
    granularity: str = "daily"
    group_by: Sequence[str] = ()
    include: Mapping[str, Sequence[str]] = field(default_factory=dict)
    exclude: Mapping[str, Sequence[str]] = field(default_factory=dict)
    zone: tzinfo = UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """
    One period and one set of dimensions. Money is decimal text: `cost` is what counts (reported, else estimated),
    `reported` and `estimated` are both sums of the same calls, `saved` is the estimate of cached calls.
    """

    start: datetime
    group: tuple[str | None, ...]
    cost: str
    reported: str
    estimated: str
    saved: str
    calls: int
    errors: int
    cached: int
    unpriced: int  # calls whose cost nobody knows
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    latency_ms: int
    latency: tuple[int, ...]  # calls by LATENCY_EDGES_MS, the last are beyond


def costs(connection: sqlite3.Connection, query: CostQuery) -> list[CostRow]:
    """The rows of a query, by period and then by the dimensions' values, all of one moment."""
    terms, values = _where(query)
    names = [_column(name) for name in query.group_by]
    columns = ", ".join([*names, "k.status", "k.cost_source", *(f"SUM(h.{name})" for name in COLUMNS)])
    grouped = ", ".join(str(place) for place in range(1, len(names) + 3))
    connection.execute("BEGIN")
    try:
        values_of = state(connection)
        rows = []
        for start, end in periods(query):
            span = (int(start.timestamp()), int(end.timestamp()))
            totals: dict[tuple[str | None, ...], _Total] = {}
            for table, low, high in _spans(*span, daily=values_of["daily"], hourly=values_of["hourly"]):
                statement = (
                    f"SELECT {columns} FROM {table} h JOIN keys k ON k.id = h.key"
                    f" WHERE h.start >= ? AND h.start < ?{terms} GROUP BY {grouped}"
                )
                for row in connection.execute(statement, (low, high, *values)):
                    group = tuple(value or None for value in row[: len(names)])
                    status, cost_source, *sums = row[len(names) :]
                    totals.setdefault(group, _Total()).add(status, cost_source, in_memory(sums))
            rows += [total.row(start, group) for group, total in sorted(totals.items(), key=_order)]
        return rows
    finally:
        connection.execute("ROLLBACK")


def values(connection: sqlite3.Connection, dimension: str) -> list[str]:
    """The known values of a dimension, in order."""
    column = _column(dimension)
    statement = f"SELECT DISTINCT {column} AS value FROM keys k WHERE value <> '' ORDER BY value LIMIT ?"
    return [value for (value,) in connection.execute(statement, (MOST_VALUES,))]


def periods(query: CostQuery) -> Iterator[tuple[datetime, datetime]]:
    """The periods of a query, cut at both ends, as instants."""
    start = query.since.astimezone(query.zone)
    until = query.until.astimezone(query.zone)
    while start.astimezone(UTC) < until.astimezone(UTC):
        end = min(_next(start, query.granularity) if query.granularity != TOTAL else until, until, key=_instant)
        yield start.astimezone(UTC), end.astimezone(UTC)
        start = end.astimezone(query.zone)


class _Total:
    """Rows of one group, whose status and cost source say what their money means."""

    def __init__(self) -> None:
        self._cost = self._reported = self._estimated = self._saved = 0
        self._calls = self._errors = self._cached = self._unpriced = 0
        self._tokens = [0] * (len(COUNTS) - 1)
        self._latency = [0] * len(LATENCY)

    def add(self, status: str, cost_source: str, row: Row) -> None:
        calls, *tokens = row[: len(COUNTS)]
        reported, estimated = row[len(COUNTS) : len(COUNTS) + 2]
        self._calls += calls
        self._errors += calls if status == "error" else 0
        self._tokens = [a + b for a, b in zip(self._tokens, tokens, strict=True)]
        self._latency = [a + b for a, b in zip(self._latency, row[len(COUNTS) + 2 :], strict=True)]
        if status == "cached":
            self._cached += calls
            self._saved += estimated
            return
        self._reported += reported
        self._estimated += estimated
        self._cost += {"reported": reported, "estimated": estimated}.get(cost_source, 0)
        self._unpriced += calls if cost_source == "none" else 0

    def row(self, start: datetime, group: tuple[str | None, ...]) -> CostRow:
        given, made, read, written, thought = self._tokens
        return CostRow(
            start=start,
            group=group,
            cost=money.text(self._cost),
            reported=money.text(self._reported),
            estimated=money.text(self._estimated),
            saved=money.text(self._saved),
            calls=self._calls,
            errors=self._errors,
            cached=self._cached,
            unpriced=self._unpriced,
            input_tokens=given,
            output_tokens=made,
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=thought,
            latency_ms=self._latency[0],
            latency=tuple(self._latency[1:]),
        )


def _spans(start: int, end: int, *, daily: int, hourly: int) -> Iterator[tuple[str, int, int]]:
    """
    Which table answers for which part of a period: whole days that are summed up, hours for the rest.

    A day without hours belongs as a whole to the period in which it begins.
    """
    first_day = -(-start // DAY_S) * DAY_S
    last_day = max(min(end, daily) // DAY_S * DAY_S, min(end, hourly))
    if last_day <= first_day:
        yield "hours", start, end
        return
    yield "days", first_day, last_day
    for low, high in ((start, first_day), (last_day, end)):
        if low < high:
            yield "hours", low, high


def _where(query: CostQuery) -> tuple[str, list[str]]:
    terms, values = "", list[str]()
    for word, chosen in (("IN", query.include), ("NOT IN", query.exclude)):
        for name, wanted in chosen.items():
            terms += f" AND {_column(name)} {word} ({', '.join('?' * len(wanted))})"
            values += wanted
    return terms, values


def _column(dimension: str) -> str:
    """SQL for a dimension; ValueError for a name that is none. A tag's name is made part of a JSON path."""
    if dimension in DIMENSIONS:
        return f"k.{dimension}"
    name = dimension.removeprefix(TAG)
    if name == dimension or not name:
        raise ValueError(f"{dimension} is no dimension")
    path = name.replace("\\", "\\\\").replace('"', '\\"').replace("'", "''")
    return f"IFNULL(json_extract(NULLIF(k.tags, ''), '$.\"{path}\"'), '')"


def _order(item: tuple[tuple[str | None, ...], _Total]) -> tuple[str, ...]:
    return tuple(value or "" for value in item[0])


def _instant(when: datetime) -> float:
    return when.timestamp()


def _next(start: datetime, granularity: str) -> datetime:
    """The first moment of the next period, by the wall clock of the zone."""
    if granularity == "hourly":
        after = (start.astimezone(UTC) + timedelta(hours=1)).astimezone(start.tzinfo)
        return after.replace(minute=0, second=0, microsecond=0)
    day = start.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if granularity == "daily":
        return day + timedelta(days=1)
    if granularity == "weekly":
        return day + timedelta(days=7 - day.weekday())
    months = {"monthly": 1, "quarterly": 3, "yearly": 12}[granularity]
    month = (day.month - 1) // months * months + months  # counted from January of the year
    return day.replace(year=day.year + month // 12, month=month % 12 + 1, day=1)
