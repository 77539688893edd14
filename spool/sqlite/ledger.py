"""The ledger on SQLite. A sum is a row of measures. Each amount of money is stored in three limbs."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import sub
from pathlib import Path
from typing import Any, TypeVar

from spool import money
from spool.clock import Clock
from spool.errors import LedgerLost, SpoolUnavailable
from spool.ledger.dimensions import (
    BILLED,
    BILLED_DIMENSIONS,
    DIMENSIONS,
    PRICED_BY,
    ROW_DIMENSIONS,
    ROW_TAG,
    TAG,
    DerivedDimension,
    DerivedDimensions,
    Group,
)
from spool.ledger.ledger import CHUNK, Ledger
from spool.ledger.ledger_rows import GroupSum, LedgerRows, MeterSum, Span
from spool.ledger.queries import EVERY_METER, CostQuery, needed_sums
from spool.ledger.sums import COUNTS, LATENCY, MONEY, Dimensions, DimensionValues, Measures, period_start
from spool.ledger.work import ROLLUP, UNITS, WORK_LIMITS, WorkLimits
from spool.meters import SCALE
from spool.packed.native import NativeModule
from spool.sql.ledger import CHARGES, TABLES, SqlLedgerRows
from spool.sql.work import WORK
from spool.sqlite.database import (
    Database,
    SqliteConnection,
    Watch,
    damage_error,
    is_corrupt,
    overwrite_deleted_rows,
    passes_quick_check,
)
from spool.sqlite.directory import LEDGER
from spool.sqlite.migrations import migrate, read_migration_statements

COLUMNS = (*COUNTS, *(f"{name}_{limb}" for name in MONEY for limb in (1, 2, 3)), *LATENCY)
# the limbs of the amounts, in the order of MONEY
_REPORTED, _ESTIMATED = (slice(first, first + 3) for first in (len(COUNTS), len(COUNTS) + 3))


class AskedSums:
    """Selects the columns that a query needs, and converts their sums to measures."""

    def __init__(self, measures: Sequence[str]) -> None:
        needed = needed_sums(measures)
        self.wanted = [name for name in COLUMNS if name in needed or name.rpartition("_")[0] in MONEY]
        read = COLUMNS if LATENCY[0] in needed else COLUMNS[: -len(LATENCY)]
        self.sums = [f"SUM(h.{name})" if name in self.wanted else "0" for name in read]
        self._rest = (0,) * (len(COLUMNS) - len(read))

    def read_measures(self, values: Sequence[int]) -> Measures:
        return [*join_money_limbs(values), *self._rest]


def join_money_limbs(values: Sequence[int]) -> Measures:
    reported, estimated = money.join_limbs(*values[_REPORTED]), money.join_limbs(*values[_ESTIMATED])
    return [*values[: _REPORTED.start], reported, estimated, *values[_ESTIMATED.stop :]]


def column_values(measures: Measures) -> Sequence[int]:
    counts = len(COUNTS)
    reported, estimated = measures[counts : counts + len(MONEY)]
    latency = measures[counts + len(MONEY) :]
    return (
        *measures[:counts],
        *money.split_into_limbs(reported),
        *money.split_into_limbs(estimated),
        *latency,
    )


# -- dimensions in statements --------------------------------------------------------------------------------


FUNCTION = (
    # The arguments of this function are the name of a derived dimension and the values of its sources.
    "derived"
)


def filter_condition(query: CostQuery) -> tuple[str, list[str]]:
    """Return an SQL condition for the query's filters, to append to another one, with its parameters."""
    terms = ""
    values = list[str]()
    for word, chosen in (("IN", query.include), ("NOT IN", query.exclude)):
        for name, wanted_values in chosen.items():
            marks = ", ".join("?" * len(wanted_values))
            terms += f" AND {dimension_sql(query.derived.get(name, name))} {word} ({marks})"
            values += wanted_values
    if query.only is not None:
        names = [dimension_sql(query.derived.get(name, name)) for name in query.group_by]
        marks = f"({', '.join('?' * len(names))})"
        listed = ", ".join([marks] * len(query.only))
        terms += f" AND ({', '.join(names)}) IN (VALUES {listed})"
        values += [value or "" for group in query.only for value in group]
    return terms, values


def nullable_dimension_sql(dimension: str | DerivedDimension) -> str:
    """Return SQL for a dimension in a result, where unknown values are NULL."""
    return f"NULLIF({dimension_sql(dimension)}, '')"


def dimension_sql(dimension: str | DerivedDimension) -> str:
    """Return SQL for a dimension. The name of a tag becomes part of the SQL."""
    if isinstance(dimension, DerivedDimension):
        name = dimension.name.replace("'", "''")
        return f"{FUNCTION}('{name}'{''.join(f', {dimension_sql(source)}' for source in dimension.sources)})"
    if dimension in DIMENSIONS:
        return f"k.{dimension}"
    if dimension in PRICED_BY:
        return f"CAST(k.{dimension} AS TEXT)"
    if dimension == "origin":
        return f"COALESCE({nullable_dimension_sql(TAG + ROW_TAG + dimension)}, 'calls')"
    if dimension in ROW_DIMENSIONS:
        return dimension_sql(TAG + ROW_TAG + dimension)
    if dimension == "corrects":  # the part of the column `provider` after the separator
        return "substr(h.provider, instr(h.provider || char(31), char(31)) + 1)"
    if dimension in BILLED_DIMENSIONS:
        return f"h.{dimension}"
    name = dimension.removeprefix(TAG).replace("'", "''")
    # A JSON path has no escapes.
    json_value = f"json_extract(k.tags, '$.\"{name}\"')"
    if not {'"', "\\"}.isdisjoint(name):
        json_value = f"(SELECT value FROM json_each(k.tags) WHERE key = '{name}')"
    # An empty text stands for no tags, and is not valid JSON.
    return f"IFNULL(CASE json_valid(k.tags) WHEN 1 THEN {json_value} END, '')"


# -- rows ----------------------------------------------------------------------------------------------------


_FETCHED = 1000  # rows in memory at a time while all rows are read
_NAMES = ", ".join(COLUMNS)
_WIDTH = len(Dimensions._fields)
_ADDED = ", ".join(f"{column} = {column} + excluded.{column}" for column in COLUMNS)
_FIND_NUMBER = f"SELECT id FROM keys WHERE {' AND '.join(f'{name} = ?' for name in Dimensions._fields)}"
_PUT_DIMENSIONS = f"UPDATE keys SET {', '.join(f'{name} = ?' for name in Dimensions._fields)} WHERE id = ?"
_ADD_NUMBER = f"INSERT INTO keys ({', '.join(Dimensions._fields)}) VALUES ({', '.join('?' * _WIDTH)})"
# for a range of more start times, sums are added up by number before their dimensions are joined
_FEW = 3
_LOOKED_UP = 20_000  # for more sums, a scan of the whole time range is faster than lookups
# the two higher limbs of each amount
_LIMBS = tuple(f"{name}_{limb}" for name in MONEY for limb in (1, 2))
# the columns that a comparison of two times reads
_COMPARED = (*COUNTS[:5], *(f"{name}_{limb}" for name in MONEY for limb in (1, 2, 3)))
# limbs of the reported cost, or else of the estimate
_LIMBS_OF_COST = [
    "CASE WHEN k.status = 'cached' THEN 0"
    f" WHEN k.cost_source = 'reported' THEN h.reported_{limb}"
    f" WHEN k.cost_source = 'estimated' THEN h.estimated_{limb} ELSE 0 END"
    for limb in (1, 2, 3)
]
# Limbs are added as integers. Adding doubles with opposite signs would cause a larger error.
_COST_LIMBS = [f"SUM({limb})" for limb in _LIMBS_OF_COST[:2]]
# The most frequent pair among the newest sets of dimensions.
_NEWEST_OUTCOME = """
    SELECT status, cost_source FROM (SELECT status, cost_source FROM keys ORDER BY id DESC LIMIT 1000)
     GROUP BY status, cost_source ORDER BY COUNT(*) DESC LIMIT 1"""


def migrate_ledger(connection: sqlite3.Connection) -> None:
    migrate(connection, read_migration_statements(LEDGER))


class SqliteLedgerRows(SqlLedgerRows):
    # An empty text stands for no tags, and is not valid JSON.
    each_tag = "json_each(CASE json_valid(k.tags) WHEN 1 THEN k.tags ELSE '{}' END) j"
    columns = COLUMNS
    shown = tuple(f"h.{name}" for name in COLUMNS)
    about = f"({_LIMBS_OF_COST[0]} + {_LIMBS_OF_COST[1]} / 1e9)"
    cost = _LIMBS_OF_COST
    cost_units = staticmethod(money.join_limbs)
    hexadecimal = "printf('%016x', {})"
    listed = "SELECT value FROM json_each('[{}]')"

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(SqliteConnection(connection))
        self._connection = connection
        self._clear_filter_caches()
        self._functions: dict[str, Callable[[tuple[str, ...]], str]] = {}

    def _clear_filter_caches(self) -> None:
        # the last results: (filter, maximum results, results), and (filter, IN or NOT IN, numbers as JSON)
        self._chosen: tuple[Sequence[str], int, Sequence[int]] = (), 0, ()
        self._divided: tuple[Sequence[str], str, str] = (), "", ""

    def find_or_assign_dimension_set_numbers(self, dimensions: Sequence[DimensionValues]) -> Sequence[int]:
        return [self._find_or_add_number(values) for values in dimensions]

    def _find_or_add_number(self, values: DimensionValues) -> int:
        row = self._connection.execute(_FIND_NUMBER, values).fetchone()
        if row is None:
            self._clear_filter_caches()
            row = (self._connection.execute(_ADD_NUMBER, values).lastrowid,)
        number: int = row[0]
        return number

    def _put_dimensions(self, dimension_set_number: int, dimensions: Dimensions) -> None:
        self._connection.execute(_PUT_DIMENSIONS, (*dimensions, dimension_set_number))

    def delete_unused_dimension_sets(self) -> int:
        self._clear_filter_caches()
        used = " UNION ".join(f"SELECT key FROM {table}" for table in (*TABLES.values(), WORK, "billed"))
        return self._connection.execute(f"DELETE FROM keys WHERE id NOT IN ({used})").rowcount

    def _add_measures_to_table(
        self, table: str, key_columns: Sequence[str], sums: Iterable[tuple[tuple[int, ...], Measures]]
    ) -> None:
        # neighbouring sums are on the same page
        sums = sorted(sums)
        marks = ", ".join("?" * (len(key_columns) + len(COLUMNS)))
        self._connection.executemany(
            f"INSERT INTO {table} ({', '.join(key_columns)}, {_NAMES}) VALUES ({marks})"
            f" ON CONFLICT DO UPDATE SET {_ADDED}",
            ((*place, *column_values(measures)) for place, measures in sums),
        )

    def totals_by_group(
        self, spans: Sequence[Span], query: CostQuery, *, groups_by_start: bool = False
    ) -> Iterator[GroupSum]:
        self._register_derived(query.derived)
        if query.group_by:
            yield from self._sum_by_group(spans, query, groups_by_start=groups_by_start)
            return
        for span in spans:
            width, since, until, rollup = span
            is_by_unit = rollup == ROLLUP and query.has_unit_filters
            if is_by_unit or 0 < rollup < ROLLUP or until - since <= _FEW * width:
                yield from self._sum_by_group([span], query, groups_by_start=groups_by_start)
            else:
                yield from self._sum_by_outcome(span, query, groups_by_start=groups_by_start)

    def sums_by_dimension_set(self, spans: Sequence[Span], query: CostQuery) -> Iterator[Sequence[int]]:
        self._register_derived(query.derived)
        summed, values = self._sums_by_number_sql(spans, query, _COMPARED)
        join = money.join_limbs
        for row in self._connection.execute(f"SELECT * FROM {summed}", values):
            yield (*row[:6], join(row[6], row[7], row[8]), join(row[9], row[10], row[11]))

    def groups_of_dimension_sets(
        self, dimension_set_numbers: Sequence[int], query: CostQuery
    ) -> Iterator[tuple[int, str, str, Group]]:
        self._register_derived(query.derived)
        names = [nullable_dimension_sql(query.derived.get(name, name)) for name in query.group_by]
        rows = self._connection.execute(
            f"SELECT {', '.join(['k.id', 'k.status', 'k.cost_source', *names])} FROM keys k"
            " WHERE k.id IN (SELECT value FROM json_each(?))",
            (json.dumps(dimension_set_numbers),),
        )
        for number, status, cost_source, *group in rows:
            yield number, status, cost_source, tuple(group)

    def _sum_by_group(
        self, spans: Sequence[Span], query: CostQuery, *, groups_by_start: bool
    ) -> Iterator[GroupSum]:
        names = self._group_expressions(query)
        needed_columns = AskedSums(query.measures)
        columns = ", ".join(
            ["h.start" if groups_by_start else "0", "k.status", "k.cost_source", *names, *needed_columns.sums]
        )
        # Names come first in GROUP BY, and status and cost source last, because most rows have the same two
        # values.
        places = (*self._group_by_terms_sql(query, 4), *range(1 if groups_by_start else 2, 4))
        grouped = ", ".join(map(str, places))
        width, since, until, _ = spans[0]
        if not groups_by_start and self._can_add_up_by_unit_set(query):
            yield from self._unit_groups(spans[0], query, needed_columns)
            return
        # Joining the dimensions to each row costs more than adding up the rows first, except for a few days.
        # Sums of units of work would lose their unit.
        if (
            query.unit_of_work is None
            and not groups_by_start
            and (len(spans) > 1 or until - since > _FEW * width)
        ):
            summed, values = self._sums_by_number_sql(spans, query, needed_columns.wanted)
        else:
            within, values = self._span_sums_sql(spans[0], query)
            summed = f"(SELECT * FROM {within})"
        only, listed = self._condition_on_groups(query)
        rows = self._connection.execute(
            f"SELECT {columns} FROM {summed} h JOIN keys k ON k.id = h.key{only} GROUP BY {grouped}",
            (*values, *listed),
        )
        end = 3 + len(names)
        measures = needed_columns.read_measures
        for row in rows:
            yield GroupSum(row[3:end], row[1], row[2], measures(row[end:]), row[0])

    def _unit_groups(self, span: Span, query: CostQuery, needed_columns: AskedSums) -> Iterator[GroupSum]:
        columns = ", ".join(
            ["k.status", "k.cost_source", *(f"SUM(h.{name}) AS {name}" for name in needed_columns.wanted)]
        )
        table, values = self._sums_by_unit_set_sql(
            span, query, columns, group_by_sql="h.units, k.status, k.cost_source"
        )
        shown = ", ".join(
            [*self._group_expressions(query), "h.status", "h.cost_source", *needed_columns.sums]
        )
        rows = self._connection.execute(
            f"SELECT {shown} FROM {table} h GROUP BY {self._group_by_terms_sql(query, 1)[0]}, 2, 3", values
        )
        for row in rows:
            yield GroupSum(row[:1], row[1], row[2], needed_columns.read_measures(row[3:]))

    def _sums_by_unit_set_sql(
        self, span: Span, query: CostQuery, columns_sql: str, group_by_sql: str
    ) -> tuple[str, Sequence[int | str]]:
        """
        Return SQL that adds up columns of a span by set of units, and then joins the units. Reading in the
        order of the sets finds their units in a third of the time that the order of hours needs.
        """
        width, since, until, _ = span
        few = self._condition_if_few_unit_sets(query) or self._condition_on_unit_sets_in_range(
            query, since, until
        )
        rows_of_sets = f"{WORK} WHERE{few and f' {few} AND'}".replace("{schema}.", "")
        within, values = self._filtered_sums_sql(
            rows_of_sets, width, since, until, *filter_condition(query.without_units())
        )
        sums = f"SELECT h.units, {columns_sql} FROM (SELECT * FROM {within}) h JOIN keys k ON k.id = h.key"
        sums += f" GROUP BY {group_by_sql}"
        return f"(SELECT * FROM {self._filtered_sums_table_sql(query, sums)} TRUE)".replace(
            "{schema}.", ""
        ), values

    def _sums_by_number_sql(
        self, spans: Sequence[Span], query: CostQuery, columns: Sequence[str]
    ) -> tuple[str, Sequence[int | str]]:
        parts, values = list[str](), list[int | str]()
        for span in spans:
            within, parameters = self._span_sums_sql(span, query)
            parts.append(f"SELECT key, {', '.join(columns)} FROM {within}")
            values += parameters
        sums = ", ".join(f"SUM({name}) AS {name}" for name in columns)
        return f"(SELECT key, {sums} FROM ({' UNION ALL '.join(parts)}) GROUP BY key)", values

    def _span_sums_sql(self, span: Span, query: CostQuery) -> tuple[str, Sequence[int | str]]:
        width, since, until, rollup = span
        table = (
            self._filtered_sums_table_sql(query)
            if rollup == ROLLUP
            else self._rollup_source_sql(width, rollup)
        )
        table = table.replace("{schema}.", "")
        return self._filtered_sums_sql(
            table,
            width,
            since,
            until,
            *filter_condition(query.without_units() if query.unit_of_work else query),
        )

    def _group_expressions(self, query: CostQuery) -> Sequence[str]:
        return [
            f"NULLIF({self._unit_name_sql(name, query).replace('{schema}.', '')}, '')"
            if name in UNITS
            else nullable_dimension_sql(query.derived.get(name, name))
            for name in query.group_by
        ]

    def _condition_on_groups(self, query: CostQuery) -> tuple[str, Sequence[str]]:
        if query.only is None or query.work_unit_group_index is None or query.aggregated:
            return "", ()
        names = [f"IFNULL({name}, '')" for name in self._group_expressions(query)]
        listed = ", ".join([f"({', '.join('?' * len(names))})"] * len(query.only))
        values = [value or "" for group in query.only for value in group]
        return f" WHERE ({', '.join(names)}) IN (VALUES {listed})", values

    def _sum_by_outcome(self, span: Span, query: CostQuery, *, groups_by_start: bool) -> Iterator[GroupSum]:
        """
        Yield the sums by status and cost source only.

        The sums of the most frequent pair are the total minus all other pairs. So most rows are added in
        table order, without sorting or lookups.
        """
        within, values = self._span_sums_sql(span, query)
        needed_columns = AskedSums(query.measures)
        start, grouped = ("h.start", "GROUP BY h.start") if groups_by_start else ("0", "")
        sums = ", ".join(needed_columns.sums)
        rows = self._connection.execute(
            f"SELECT {start}, {sums} FROM (SELECT * FROM {within}) h {grouped}", values
        )
        remaining = {row[0]: needed_columns.read_measures(row[1:]) for row in rows if row[1] is not None}
        newest_outcome = self._connection.execute(_NEWEST_OUTCOME).fetchone() if remaining else None
        if newest_outcome is None:
            return
        for row in self._sums_of_other_outcomes(span, query, newest_outcome, start, sums):
            measures = needed_columns.read_measures(row[3:])
            remaining[row[0]] = list(map(sub, remaining[row[0]], measures))
            yield GroupSum((), row[1], row[2], measures, row[0])
        for begun, measures in remaining.items():
            yield GroupSum((), newest_outcome[0], newest_outcome[1], measures, begun)

    def _sums_of_other_outcomes(
        self, span: Span, query: CostQuery, newest_outcome: tuple[str, str], start_sql: str, sums_sql: str
    ) -> Iterable[Sequence[Any]]:
        others = "k.status <> ? OR k.cost_source <> ?"
        terms, wanted = filter_condition(query.without_units() if query.unit_of_work else query)
        exist = f"SELECT EXISTS (SELECT 1 FROM keys k WHERE ({others}){terms})"
        [has_others] = self._connection.execute(exist, (*newest_outcome, *wanted)).fetchone()
        if not has_others:  # the usual case: all sets have the most frequent outcome
            return ()
        within, values = self._span_sums_sql(span, query)
        others_sql = f"{within} AND key IN (SELECT id FROM keys k WHERE {others})"
        return self._connection.execute(
            f"SELECT {start_sql}, k.status, k.cost_source, {sums_sql} FROM (SELECT * FROM {others_sql}) h"
            " JOIN keys k ON k.id = h.key GROUP BY 1, 2, 3",
            (*values, *newest_outcome),
        )

    def group_count_and_largest_groups(
        self, spans: Sequence[Span], query: CostQuery, most: int | None
    ) -> tuple[int, Sequence[tuple[Group, float]]]:
        self._register_derived(query.derived)
        names = self._group_expressions(query)
        most = -1 if most is None else most
        if query.unit_of_work is not None:
            return self._unit_count_and_most_expensive_units(spans[0], query, most)
        summed, values = self._sums_by_number_sql(spans, query, _LIMBS)
        grouped = ", ".join(str(index) for index in range(1, len(names) + 1))
        rows = self._connection.execute(
            f"SELECT {', '.join(names)}, COUNT(*) OVER (), {_COST_LIMBS[0]} + {_COST_LIMBS[1]} / 1e9 AS cost"
            f" FROM {summed} h JOIN keys k ON k.id = h.key GROUP BY {grouped} ORDER BY cost DESC LIMIT ?",
            (*values, most),
        ).fetchall()
        return rows[0][-2] if rows else 0, [(row[:-2], row[-1]) for row in rows]

    def numbers_with_derived_value(self, dimension: DerivedDimension) -> Sequence[int]:
        self._register_derived({dimension.name: dimension})
        rows = self._connection.execute(f"SELECT id FROM keys k WHERE {dimension_sql(dimension)} <> ''")
        return [number for (number,) in rows]

    def _unit_count_and_most_expensive_units(
        self, span: Span, query: CostQuery, max_units: int
    ) -> tuple[int, Sequence[tuple[Group, float]]]:
        """Return how many units of work there are, at most `max_units`, and the most expensive of them."""
        cost, dimensions = "SUM(h.high) + SUM(h.low) / 1e9", ""
        if self._can_add_up_by_unit_set(query):
            columns = f"{_COST_LIMBS[0]} AS high, {_COST_LIMBS[1]} AS low"
            table, values = self._sums_by_unit_set_sql(span, query, columns, group_by_sql="h.units")
        else:
            cost, dimensions = f"{_COST_LIMBS[0]} + {_COST_LIMBS[1]} / 1e9", "JOIN keys k ON k.id = h.key"
            within, values = self._span_sums_sql(span, query)
            table = f"(SELECT * FROM {within})"
        rows = self._connection.execute(
            f"SELECT {', '.join(self._group_expressions(query))}, {cost} AS cost FROM {table} h {dimensions}"
            f" GROUP BY {', '.join(map(str, self._group_by_terms_sql(query, 1)))} ORDER BY cost DESC LIMIT ?",
            (*values, max_units),
        ).fetchall()
        return len(rows), [(row[:-1], row[-1]) for row in rows]

    def has_more_groups(self, query: CostQuery, max_groups: int) -> bool:
        if query.unit_of_work is not None:
            return True
        self._register_derived(query.derived)
        names = ", ".join(nullable_dimension_sql(query.derived.get(name, name)) for name in query.group_by)
        statement = f"SELECT COUNT(*) FROM (SELECT DISTINCT {names} FROM keys k LIMIT ?)"
        [count] = self._connection.execute(statement, (max_groups + 1,)).fetchone()
        return bool(count > max_groups)

    def has_filters_excluding_nothing(self, query: CostQuery) -> bool:
        self._register_derived(query.derived)
        terms, values = filter_condition(replace(query, only=None))
        fails = f"SELECT EXISTS (SELECT 1 FROM keys k WHERE k.kind <> '{BILLED}' AND NOT (TRUE{terms}))"
        [fails_any] = self._connection.execute(fails, values).fetchone()
        return not fails_any

    def _filtered_sums_sql(
        self,
        table_sql: str,
        period_s: int,
        since_s: int,
        until_s: int,
        filter_terms_sql: str,
        values: Sequence[str],
    ) -> tuple[str, Sequence[int | str]]:
        """
        Return SQL for the sums whose dimensions pass the filter conditions `filter_terms_sql`. `table_sql`: a
        table and the beginning of a WHERE condition.

        The numbers of the sets of dimensions that pass are selected first. If there are few, their sums are
        looked up one by one.
        """
        if not filter_terms_sql:
            return f"{table_sql} start >= ? AND start < ?", (since_s, until_s)
        chosen = f"SELECT id FROM keys k WHERE TRUE{filter_terms_sql}"
        first = period_start(period_s, since_s)
        starts = range(first if first == since_s else first + period_s, until_s, period_s)
        max_numbers = _LOOKED_UP // max(len(starts), 1)
        numbers = self._dimension_set_numbers_within_limit(chosen, values, max_numbers)
        listed = "(SELECT value FROM json_each(?))"
        if numbers is None and f"{FUNCTION}(" in filter_terms_sql:
            word, divided = self._operator_and_dimension_set_numbers(filter_terms_sql, values)
            return f"{table_sql} start >= ? AND start < ? AND key {word} {listed}", (
                since_s,
                until_s,
                divided,
            )
        if numbers is None:
            return f"{table_sql} start >= ? AND start < ? AND key IN ({chosen})", (since_s, until_s, *values)
        parameters = (json.dumps([*starts]), json.dumps(numbers))
        return f"{table_sql} start IN {listed} AND key IN {listed}", parameters

    def _dimension_set_numbers_within_limit(
        self, chosen_keys_sql: str, values: Sequence[str], max_numbers: int
    ) -> Sequence[int] | None:
        """
        Return the numbers of the sets of dimensions that pass the filters `chosen_keys_sql`, or None if there are more
        than `max_numbers`.

        The last result is cached, because one query reads several time ranges and should scan the dimensions
        once.
        """
        filter_key = (chosen_keys_sql, *values)
        known, limit, numbers = self._chosen
        if known != filter_key or len(numbers) > limit < max_numbers:
            rows = self._connection.execute(f"{chosen_keys_sql} LIMIT ?", (*values, max_numbers + 1))
            limit = max_numbers
            numbers = [number for (number,) in rows]
            self._chosen = (filter_key, limit, numbers)
        return numbers if len(numbers) <= max_numbers else None

    def _operator_and_dimension_set_numbers(
        self, filter_terms_sql: str, values: Sequence[str]
    ) -> tuple[str, str]:
        """
        Return "IN" with the numbers of the sets of dimensions that pass the filter conditions `filter_terms_sql` or, if
        the other numbers are fewer, "NOT IN" with those, as JSON.

        Otherwise SQLite would compute derived dimensions again for each time range of a query.
        """
        filter_key = (filter_terms_sql, *values)
        if self._divided[0] != filter_key:
            numbers: dict[int, list[int]] = {0: [], 1: []}
            for number, passes in self._connection.execute(
                f"SELECT id, TRUE{filter_terms_sql} FROM keys k", values
            ):
                numbers[passes].append(number)
            passes = len(numbers[1]) <= len(numbers[0])
            self._divided = filter_key, "IN" if passes else "NOT IN", json.dumps(numbers[passes])
        return self._divided[1:]

    def meter_totals(
        self, period_s: int, since_s: int, until_s: int, query: CostQuery, *, groups_by_start: bool = False
    ) -> Iterator[MeterSum]:
        start = "h.start" if groups_by_start else "0"
        if query.meter == EVERY_METER:
            return self._read_meter_sums(
                period_s, since_s, until_s, query, start, "NOT (h.meter >= ? AND h.meter < ?)", *CHARGES
            )
        return self._read_meter_sums(period_s, since_s, until_s, query, start, "h.meter = ?", query.meter)

    def charge_totals(
        self, period_s: int, since_s: int, until_s: int, query: CostQuery
    ) -> Iterator[MeterSum]:
        return self._read_meter_sums(
            period_s, since_s, until_s, query, "h.start", "h.meter >= ? AND h.meter < ?", *CHARGES
        )

    def _read_meter_sums(
        self,
        period_s: int,
        since_s: int,
        until_s: int,
        query: CostQuery,
        start: str,
        condition: str,
        *named: str,
    ) -> Iterator[MeterSum]:
        self._register_derived(query.derived)
        names = [dimension_sql(query.derived.get(name, name)) for name in query.group_by]
        columns = ", ".join([start, *names, "k.status", "h.meter"])
        grouped = ", ".join(str(index) for index in range(1 if start != "0" else 2, len(names) + 4))
        terms, values = filter_condition(query)
        rows = self._connection.execute(
            f"SELECT {columns}, SUM(h.whole), SUM(h.millionths) FROM meters h JOIN keys k ON k.id = h.key"
            f" WHERE h.width = ? AND h.start >= ? AND h.start < ? AND {condition}{terms} GROUP BY {grouped}",
            (period_s, since_s, until_s, *named, *values),
        )
        for first, *row, status, meter, whole, millionths in rows:
            group = tuple([value or None for value in row])
            yield MeterSum(group, status, whole * SCALE + millionths, first, meter)

    def billed_totals(
        self,
        period_s: int,
        since_s: int,
        until_s: int,
        query: CostQuery,
        *,
        groups_by_start: bool = False,
        rollup: int = 0,
    ) -> Iterator[GroupSum]:
        self._register_derived(query.derived)
        from spool.sql import billed

        names = [dimension_sql(query.derived.get(name, name)) for name in query.group_by]
        filters = billed.FilterParts.split_filters(query)
        group_columns = filters.columns_before_join(query, groups_by_start=groups_by_start)
        of_keys, keys = filter_condition(filters.of_keys)
        of_bills, bills = filter_condition(filters.of_bills)
        of_both, both_values = filter_condition(filters.of_both)
        if "key" in group_columns or of_keys or rollup:
            table = billed.billed_sums_from_and_where_sql(self.prefix, period_s, rollup).replace(
                "{schema}.", ""
            )
            within, values = self._filtered_sums_sql(table, period_s, since_s, until_s, of_keys, keys)
        else:  # use the sums per day
            within = f"({billed.billed_sums_sql(self.prefix, '?1', '?2')}) h WHERE TRUE".replace(
                "{schema}.", ""
            )
            values = (since_s, until_s)
        # Joining the dimensions to each row would cost more than adding up the rows first.
        limbs = ", ".join(f"SUM({limb}) AS {limb}" for limb in billed.LIMBS)
        group_sql = f" GROUP BY {', '.join(group_columns)}" if group_columns else ""
        joined = " JOIN keys k ON k.id = h.key" if "key" in group_columns else ""
        columns = ", ".join(["h.start" if groups_by_start else "0", *names])
        grouped = ", ".join(str(index) for index in range(1, len(names) + 2))
        rows = self._connection.execute(
            f"SELECT {columns}, SUM(h.high), SUM(h.middle), SUM(h.low)"
            f" FROM (SELECT {', '.join([*group_columns, limbs])} FROM {within}"
            f" AND arranged & ? <> 0{of_bills}{group_sql}) h{joined}"
            f" WHERE h.high IS NOT NULL{of_both} GROUP BY {grouped}",
            (*values, query.arranged, *bills, *both_values),
        )
        yield from billed.parse_group_sums(rows)

    def first_period_start_with_dimension(self, period_s: int, dimension: str) -> int | None:
        known = f"SELECT id FROM keys k WHERE {dimension_sql(dimension)} <> ''"
        statement = f"SELECT start FROM {TABLES[period_s]} WHERE key IN ({known}) ORDER BY start LIMIT 1"
        row = self._connection.execute(statement).fetchone()
        return int(row[0]) if row else None

    def values(self, dimension: str | DerivedDimension, max_values: int) -> Sequence[str]:
        if isinstance(dimension, DerivedDimension):
            self._register_derived({dimension.name: dimension})
        column = dimension_sql(dimension)
        statement = (
            f"SELECT DISTINCT {column} AS value FROM keys k WHERE value <> '' AND k.kind <> '{BILLED}'"
            " ORDER BY value LIMIT ?"
        )
        return [value for (value,) in self._connection.execute(statement, (max_values,))]

    def value_combinations(self, dimensions: Sequence[str]) -> Iterator[Sequence[tuple[str, ...]]]:
        if not dimensions:
            yield [()]
            return
        columns = ", ".join(map(dimension_sql, dimensions))
        cursor = self._connection.execute(f"SELECT {columns} FROM keys k WHERE k.kind <> '{BILLED}'")
        while rows := cursor.fetchmany(_FETCHED):
            yield rows

    def _read_measures(self, values: Sequence[Any]) -> Measures:
        return join_money_limbs(values)

    def _register_derived(self, derived: DerivedDimensions) -> None:
        known = self._functions
        added = {
            name: dimension.value
            for name, dimension in derived.items()
            if known.get(name) is not dimension.value
        }
        if not added:
            return
        self._clear_filter_caches()
        known.update(added)
        self._connection.create_function(
            FUNCTION, -1, lambda name, *values: known[name](values), deterministic=True
        )


# -- the file ------------------------------------------------------------------------------------------------


T = TypeVar("T")
VALUE_ERRORS = (TypeError, KeyError, AttributeError, ArithmeticError)  # errors that damaged values raise

_log = logging.getLogger(__name__)


class SqliteLedger:
    shares_log = False

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._repair = asyncio.Lock()

    @classmethod
    async def open(cls, directory: Path, clock: Clock) -> SqliteLedger:
        return cls(await _open_or_replace(directory / LEDGER, clock), clock)

    async def change(self, work: Callable[[LedgerRows], T]) -> T:
        return await self._translate_errors(lambda database, inner: database.transaction(inner), work)

    async def read(self, work: Callable[[LedgerRows], T]) -> T:
        return await self._translate_errors(lambda database, inner: database.snapshot(inner), work)

    async def overwrite_deleted_data(self) -> str:
        return await overwrite_deleted_rows(self._database)

    def are_files_in_place(self) -> bool:
        return self._repair.locked() or self._database.are_files_in_place()

    async def close(self) -> None:
        await self._database.close()

    async def _translate_errors(
        self,
        run: Callable[[Database, Callable[[sqlite3.Connection], T]], Awaitable[T]],
        work: Callable[[LedgerRows], T],
    ) -> T:
        database = self._database
        try:
            return await run(database, lambda connection: work(SqliteLedgerRows(connection)))
        except sqlite3.DatabaseError as error:
            is_odd = isinstance(error, sqlite3.IntegrityError) and not await passes_quick_check(database)
            if (is_corrupt(error) or is_odd) and await self._replace_damaged(database):
                raise LedgerLost(f"{LEDGER}: {error}") from error
            raise SpoolUnavailable(f"{LEDGER}: {error}") from error
        except VALUE_ERRORS as error:
            if await passes_quick_check(database) or not await self._replace_damaged(database):
                raise
            raise LedgerLost(f"{LEDGER}: {type(error).__name__}") from error

    async def _replace_damaged(self, damaged: Database) -> bool:
        async with self._repair:
            if self._database is not damaged:
                return False
            await damaged.close()
            _move_ledger_aside(damaged.path, self._clock)
            self._database = await _open_or_replace(damaged.path, self._clock)
            return True


async def open_ledger(
    directory: Path,
    *,
    clock: Clock,
    tags: Sequence[str] = ("service",),
    chunk: int = CHUNK,
    native: NativeModule | None = None,
    work: WorkLimits = WORK_LIMITS,
    watch: Watch | None = None,
) -> Ledger:
    """Open the ledger of a data directory. The caller must hold the directory's lock."""
    store = await SqliteLedger.open(directory, clock)
    if watch is not None:
        watch(LEDGER, store.are_files_in_place)
    return await Ledger(store, clock=clock, tags=tags, chunk=chunk, native=native, work=work).load()


async def _open_or_replace(path: Path, clock: Clock) -> Database:
    try:
        return await Database.open(path, _migrate_and_check)
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise SpoolUnavailable(f"{path}: {error}") from error
        _move_ledger_aside(path, clock)
        return await Database.open(path, _migrate_and_check)


def _migrate_and_check(connection: sqlite3.Connection) -> None:
    """
    Migrate and check the file. Commits are flushed from now on, because a log entry may be deleted once it is
    counted.
    """
    migrate_ledger(connection)
    if any(type(value) is not int for value in SqliteLedgerRows(connection).state_values().values()):
        # raised here, so that damage is found at the start and not later
        raise damage_error("a value of the ledger's state has another type")


def _move_ledger_aside(path: Path, clock: Clock) -> None:
    new_path = path.with_name(f"{path.name}.damaged-{int(clock.now())}")
    _log.error(
        "the ledger is damaged: it was moved aside and is rebuilt from the log",
        extra={"action": "ledger_damaged", "file": str(new_path)},
    )
    for ending in ("", "-wal", "-shm"):
        part = path.with_name(path.name + ending)
        if part.exists():
            part.rename(new_path.with_name(new_path.name + ending))
