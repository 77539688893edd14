"""
One SQL statement for a query of counted costs over the rows of a snapshot. Pure.

Each row of its result is a period's key, perhaps a day for exchange rates, a group, and sums. A limited person's
condition comes first and guards every other condition, so that the time of a query tells nothing about hidden rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

from spool.cost_kinds import KIND_OF_SOURCE, KINDS
from spool.ledger.dimensions import TOTAL
from spool.ledger.files.layout import Layout
from spool.ledger.queries import EVERY_METER, SLICE, CostQuery, check_dimension, needed_sums
from spool.ledger.sums import COUNTS, DAY_S, HOUR_S, LATENCY_EDGES_MS, OTHER
from spool.ledger.work import TREES, unit_numbers

_QUARTER_S: Final = 900  # clocks change at full quarters of hours
_MONTHS: Final = {"monthly": 1, "quarterly": 3, "yearly": 12}
# Names of sums, in the order of a result. Money has two columns, see `spool.ledger.files.row.Amount`.
COUNTED: Final = (
    *COUNTS,
    "errors",
    "cached",
    *KINDS,
    "cached_input_tokens",
    "cached_output_tokens",
    "latency_ms",
    *(f"latency_{place}" for place in range(len(LATENCY_EDGES_MS) + 1)),
)
AMOUNTS: Final = ("cost", "reported", "estimated", "saved")
_MONEY: Final[Mapping[str, str]] = {
    "cost": "cost_{0}",
    "reported": "CASE WHEN cost_source = 'reported' THEN cost_{0} WHEN status <> 'cached' THEN reported_{0} END",
    "estimated": "CASE WHEN cost_source = 'estimated' THEN cost_{0} WHEN status <> 'cached' THEN estimated_{0} END",
    "saved": "CASE WHEN status = 'cached' THEN estimated_{0} END",
}


@dataclass(frozen=True, kw_only=True)
class CostStatement:
    """
    `tables` are the derived dimensions that the statement joins, by the name of their table. `has_days` tells that a
    day follows the key of the period. `sums` are the names of the sums, and `meters` those of meters after them.
    """

    sql: str
    parameters: Sequence[Any]
    has_days: bool
    sums: Sequence[str]
    meters: Sequence[str]
    tables: Mapping[str, str] = field(default_factory=dict)


def build_statement(
    query: CostQuery, layout: Layout, rows: str, *, converts: bool, by: Sequence[str] = ()
) -> CostStatement:
    """
    Return the statement over SQL of rows. `converts` keeps days apart, as do the columns `by` of the rows, which are
    the first of the result. Raises ValueError for a wrong name.
    """
    for name in query.used_dimensions:
        if name not in query.derived:
            check_dimension(name)
    tables = {name: f"derived_{place}" for place, name in enumerate(query.derived)}
    parameters: list[Any] = []
    condition = _condition(query, layout, tables, parameters)
    keys = [*by, _period_key(query)]
    keys += [f"start // {DAY_S}"] if converts else []
    keys += [
        f"{tables[name]}.value" if name in tables else f"nullif({layout.column(name)}, {_none_of(name)})"
        for name in query.group_by
    ]
    sums = _needed(query)
    meters = [name for name in layout.meters if query.meter in (EVERY_METER, name)]
    columns = [
        *keys,
        *map(_count_sql, sums),
        *(_money_sql(_MONEY[name]) for name in AMOUNTS),
        *(
            _money_sql(f"CASE WHEN status <> 'cached' THEN c{place}_{{0}} END")
            for place in range(1, len(layout.currencies) + 1)
        ),
        *(
            f"coalesce(sum(m{layout.meters.index(name) + 1}) FILTER (status <> 'cached'), 0)"
            for name in meters
        ),
    ]
    joins = "".join(_join(table, query.derived[name].sources, layout) for name, table in tables.items())
    grouped = ", ".join(str(place) for place in range(1, len(keys) + 1))
    sql = f"SELECT {', '.join(columns)} FROM {rows}{joins} WHERE {condition} GROUP BY {grouped}"
    return CostStatement(
        sql=sql, parameters=parameters, has_days=converts, sums=sums, meters=meters, tables=tables
    )


def combinations_statement(sources: Sequence[str], layout: Layout, rows: str) -> str:
    """Return the statement for the distinct values of a derived dimension's sources, "" for unknown."""
    columns = ", ".join(f"coalesce({layout.column(name)}, '')" for name in sources)
    return f"SELECT DISTINCT {columns} FROM {rows}"


def seconds_between(query: CostQuery) -> tuple[int, int]:
    """Return the first second of a query, and the first one after it."""
    since, until = (int(-(-moment.timestamp() // 1)) for moment in (query.since, query.until))
    return since, until


def _condition(query: CostQuery, layout: Layout, tables: Mapping[str, str], parameters: list[Any]) -> str:
    conditions: dict[str, list[str]] = {SLICE: [], "": []}
    for filters, is_excluding in ((query.include, False), (query.exclude, True)):
        for name, values in filters.items():
            column = f"{tables[name]}.value" if name in tables else layout.column(name)
            found: list[Any] = [value for value in values if value]
            if name in TREES:
                found = unit_numbers(name, [value for value in found if value != OTHER])
            marks = ", ".join("?" for _ in found)
            inside = [f"{column} IN ({marks})"] if found else []
            inside += [f"coalesce({column}::VARCHAR, '') = ''"] if "" in values else []
            parts = " OR ".join(inside) or "false"
            parameters += found
            conditions[SLICE if name == SLICE else ""].append(
                f"NOT coalesce({parts}, false)" if is_excluding else f"({parts})"
            )
    others = " AND ".join(conditions[""]) or "true"
    if not conditions[SLICE]:
        return others
    return f"CASE WHEN {' AND '.join(conditions[SLICE])} THEN {others} ELSE false END"


def _none_of(name: str) -> str:
    return "0" if name in TREES else "''"


def _join(table: str, sources: Sequence[str], layout: Layout) -> str:
    matches = [
        f"{table}.s{place} = coalesce({layout.column(name)}, '')" for place, name in enumerate(sources)
    ]
    return f" JOIN {table} ON {' AND '.join(matches) or 'true'}"


def _needed(query: CostQuery) -> Sequence[str]:
    if not query.measures:
        return COUNTED
    sums = needed_sums(
        query.measures
    )  # with them, a group whose asked sums are zero has a row if it has others
    return [name for name in COUNTED if name in sums or name in query.measures]


def _count_sql(name: str) -> str:
    if name in KINDS:
        sources = ", ".join(f"'{source}'" for source, kind in KIND_OF_SOURCE.items() if kind == name)
        return f"coalesce(sum(calls) FILTER (cost_source IN ({sources})), 0)"
    if name in ("errors", "cached"):
        return f"coalesce(sum(calls) FILTER (status = '{'error' if name == 'errors' else name}'), 0)"
    if name.startswith("cached_"):
        return f"coalesce(sum({name.removeprefix('cached_')}) FILTER (status = 'cached'), 0)"
    if name == "latency_ms":
        return "coalesce(sum(took_ms), 0)"
    if name.startswith("latency_"):
        place = int(name.removeprefix("latency_"))
        low = f"took_ms > {LATENCY_EDGES_MS[place - 1]}" if place else "took_ms IS NOT NULL"
        high = f" AND took_ms <= {LATENCY_EDGES_MS[place]}" if place < len(LATENCY_EDGES_MS) else ""
        return f"count(*) FILTER ({low}{high})"
    return f"coalesce(sum({name}), 0)"


def _money_sql(column: str) -> str:
    return f"coalesce(sum({column.format('nano')}), 0), coalesce(sum({column.format('rest')}), 0)"


# -- periods --------------------------------------------------------------------------------------------------


def _period_key(query: CostQuery) -> str:
    """Return SQL of a number that only the calls of one period have, see `period_key`."""
    if query.granularity == TOTAL:
        return "0"
    offset = _offset_sql(query.zone, query.since, query.until)
    local = f"(start + {offset})"
    if query.granularity == "hourly":  # an hour that the clock repeats is two periods
        return f"{local} // {HOUR_S} * {DAY_S} + {offset} + {HOUR_S * 12}"
    day = f"({local} // {DAY_S})"
    if query.granularity == "daily":
        return day
    if query.granularity == "weekly":
        return f"({day} + 3) // 7"
    date = f"(DATE '1970-01-01' + {day}::INTEGER)"
    return f"(year({date}) * 12 + month({date}) - 1) // {_MONTHS[query.granularity]}"


def period_key(query: CostQuery, moment: datetime) -> int:
    """Return the number of `_period_key` for a moment."""
    if query.granularity == TOTAL:
        return 0
    local = moment.astimezone(query.zone)
    offset = _offset_s(local)
    second = int(moment.timestamp()) + offset
    if query.granularity == "hourly":
        return second // HOUR_S * DAY_S + offset + HOUR_S * 12
    if query.granularity == "daily":
        return second // DAY_S
    if query.granularity == "weekly":
        return (second // DAY_S + 3) // 7
    return (local.year * 12 + local.month - 1) // _MONTHS[query.granularity]


def _offset_sql(zone: tzinfo, since: datetime, until: datetime) -> str:
    changes: list[tuple[int, int]] = []
    moment = int(since.timestamp()) // _QUARTER_S * _QUARTER_S
    end = int(until.timestamp())
    while moment < end:
        offset = _offset_s(datetime.fromtimestamp(moment, UTC).astimezone(zone))
        if not changes or changes[-1][1] != offset:
            changes.append((moment, offset))
        # no zone changes its offset twice in a day
        following = _offset_s(datetime.fromtimestamp(moment + DAY_S, UTC).astimezone(zone))
        moment += DAY_S if following == offset else _QUARTER_S
    if len(changes) <= 1:
        return str(changes[0][1] if changes else 0)
    cases = " ".join(f"WHEN start >= {start} THEN {offset}" for start, offset in reversed(changes[1:]))
    return f"(CASE {cases} ELSE {changes[0][1]} END)"


def _offset_s(local: datetime) -> int:
    return int((local.utcoffset() or timedelta()).total_seconds())
