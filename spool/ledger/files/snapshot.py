"""
The totals as of one record: the files of one manifest and the open rows after it.

All statements of an answer use one snapshot, so they agree with each other. Its files and open rows stay until it is
closed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from operator import add
from pathlib import Path
from typing import Any

import duckdb

from spool import money
from spool.currencies import CurrencyConverter, Rates, find_no_rate, round_product_to_units
from spool.ledger.billed import with_constant_billing_dimensions
from spool.ledger.costs import periods_of_query
from spool.ledger.dimensions import BILLED_DIMENSIONS, DerivedDimension, Group
from spool.ledger.files.engine import quoted, within_limits
from spool.ledger.files.folder import FactFile, FactFolder
from spool.ledger.files.layout import Layout
from spool.ledger.files.remembered import RememberedParts
from spool.ledger.files.row import units_of_amount
from spool.ledger.files.source import OpenRows, sql_of_current_rows, unchanged_files
from spool.ledger.files.statements import (
    AMOUNTS,
    CostStatement,
    build_statement,
    combinations_statement,
    period_key,
    seconds_between,
)
from spool.ledger.queries import EVERY_METER, CostQuery, CostRow
from spool.ledger.sums import DAY_S, LATENCY_EDGES_MS, OTHER
from spool.ledger.work import TREES, UNITS, unit_digest_text
from spool.record import CURRENCY
from spool.turns.question_limit import QuestionLimit

_NO_LATENCY = (0,) * (len(LATENCY_EDGES_MS) + 1)
Groups = dict[Group, "_Total"]


@dataclass(slots=True)
class _Total:
    """The sums of a group in the order of a statement's result: counts and meters, then amounts in units."""

    counts: list[int]
    amounts: list[int]  # AMOUNTS, then by currency
    converted: int = 0
    unconverted: dict[str, int] | None = None

    def add(self, other: _Total) -> None:
        self.counts = list(map(add, self.counts, other.counts))
        self.amounts = list(map(add, self.amounts, other.amounts))
        self.converted += other.converted
        for currency, units in (other.unconverted or {}).items():
            self.unconverted = self.unconverted or {}
            self.unconverted[currency] = self.unconverted.get(currency, 0) + units

    @property
    def is_zero(self) -> bool:
        return not (any(self.counts) or any(self.amounts) or any((self.unconverted or {}).values()))


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """The files of a manifest and the rows after them, which all have all columns."""

    folder: FactFolder
    files: Mapping[str, FactFile]
    open_rows: OpenRows

    def whole_files(self, since: int, until: int) -> Sequence[str]:
        """Return the files of which all rows count, as they are, in [since, until)."""
        of_time = self._files_of(since, until)
        return [
            name
            for name in unchanged_files(of_time, self.open_rows)
            if since <= of_time[name].since and of_time[name].until <= until
        ]

    def by_file(self, names: Sequence[str]) -> str:
        """Return SQL that reads the rows of files, each with the path of its file in the column `filename`."""
        self.folder.fetch({name: self.files[name] for name in names})
        paths = ", ".join(quoted(self.folder.path / name) for name in names)
        read = f"read_parquet([{paths}], union_by_name = true, filename = true)"
        return f"(SELECT * FROM {read} UNION ALL BY NAME SELECT * FROM {self.open_rows.rows} WHERE false)"

    def between(self, since: int, until: int, without: Sequence[str] = ()) -> str:
        """Return SQL of the rows in [since, until) that are not in the files `without`."""
        files = {name: file for name, file in self._files_of(since, until).items() if name not in without}
        self.folder.fetch(files)
        rows = sql_of_current_rows(self.folder.path, files, self.open_rows)
        return f"(SELECT * FROM {rows} WHERE start >= {since} AND start < {until})"

    def _files_of(self, since: int, until: int) -> Mapping[str, FactFile]:
        return {name: file for name, file in self.files.items() if file.since < until and file.until > since}


class FactSnapshot:
    """`record` is the number of the first record that is not in it."""

    def __init__(
        self,
        engine: duckdb.DuckDBPyConnection,
        layout: Layout,
        rows: SnapshotRows,
        remembered: RememberedParts,
        record: int,
        close: Callable[[], None],
    ) -> None:
        self._engine, self._layout, self._rows, self._remembered = engine, layout, rows, remembered
        self.record = record
        self.close = close

    def costs(
        self, query: CostQuery, limit: QuestionLimit | None = None, rates: Rates | None = None
    ) -> list[CostRow]:
        """
        Return the rows of a query by period, then by group. Sums are exact. A group without calls has no row.

        Raises ValueError for an unknown dimension, and AskedTooMuch beyond the limit or the memory of the engine.
        """
        if not set(BILLED_DIMENSIONS).isdisjoint(query.used_dimensions):
            query = with_constant_billing_dimensions(query)
        converts = bool(self._layout.currencies) or query.currency != CURRENCY
        since, until = seconds_between(query)
        whole = self._rows.whole_files(since, until)
        others = self._rows.between(since, until, whole)
        statement = build_statement(query, self._layout, others, converts=converts)
        with within_limits(self._engine, limit):
            for name, table in statement.tables.items():
                self._create_table(table, query.derived[name], self._rows.between(since, until))
            result = self._engine.execute(statement.sql, statement.parameters).fetchall()
            for groups in self._groups_by_file(query, whole, converts=converts).values():
                result += groups
        if limit is not None:
            keys = 1 + statement.has_days + len(query.group_by)
            limit.check_rows(len({values[:keys] for values in result}))
        converter = CurrencyConverter(rates or find_no_rate, query.currency) if converts else None
        by_key = self._totals(query, statement, result, converter)
        periods = {start: by_key.get(period_key(query, start), {}) for start, _ in periods_of_query(query)}
        return [
            self._cost_row(statement, query, start, group, total, is_converted=converts)
            for start, groups in _chosen(query, statement, periods).items()
            for group, total in sorted(groups.items(), key=lambda item: [value or "" for value in item[0]])
            if not total.is_zero
        ]

    def _groups_by_file(
        self, query: CostQuery, names: Sequence[str], *, converts: bool
    ) -> Mapping[str, list[tuple[Any, ...]]]:
        """Return the groups of files, and read only those of which they are not remembered."""
        plan = build_statement(query, self._layout, "files", converts=converts, by=["filename"])
        definitions = tuple((table, query.derived[name]) for name, table in plan.tables.items())
        statement = plan.sql, tuple(plan.parameters), definitions
        found = dict(self._remembered.find(statement, names))
        missing = [name for name in names if name not in found]
        if missing:
            read: dict[str, list[tuple[Any, ...]]] = {name: [] for name in missing}
            sql = f"WITH files AS {self._rows.by_file(missing)} {plan.sql}"
            for path, *values in self._engine.execute(sql, plan.parameters).fetchall():
                read[Path(path).name].append(tuple(values))
            self._remembered.add(statement, read)
            found |= read
        return found

    def _create_table(self, table: str, dimension: DerivedDimension, rows: str) -> None:
        """Create a table with the dimension's value for each combination of its sources."""
        sources = dimension.sources
        found: Iterable[tuple[str, ...]] = [()]
        if sources:
            found = self._engine.execute(combinations_statement(sources, self._layout, rows)).fetchall()
        columns = "".join(f"s{place} VARCHAR, " for place in range(len(sources)))
        self._engine.execute(f"CREATE OR REPLACE TEMP TABLE {table} ({columns}value VARCHAR)")
        appender = self._engine.appender(table)
        appender.append_rows([(*values, dimension.value(values) or None) for values in found])
        appender.flush()

    def _totals(
        self,
        query: CostQuery,
        statement: CostStatement,
        result: Iterable[tuple[Any, ...]],
        converter: CurrencyConverter | None,
    ) -> Mapping[int, Groups]:
        by_key: dict[int, Groups] = {}
        first = 1 + statement.has_days
        after_group = first + len(query.group_by)
        after_counts = after_group + len(statement.sums)
        after_amounts = after_counts + 2 * (len(AMOUNTS) + len(self._layout.currencies))
        for values in result:
            group = _group(query, values[first:after_group])
            limbs = values[after_counts:after_amounts]
            amounts = [units_of_amount((limbs[at], limbs[at + 1])) for at in range(0, len(limbs), 2)]
            total = _Total([*values[after_group:after_counts], *values[after_amounts:]], amounts)
            if converter is not None:
                self._convert(total, converter, values[1] * DAY_S)
            groups = by_key.setdefault(values[0], {})
            if (known := groups.get(group)) is None:
                groups[group] = total
            else:
                known.add(total)
        return by_key

    def _convert(self, total: _Total, converter: CurrencyConverter, day: int) -> None:
        """Multiply dollars by the rate of their day, not yet rounded, and add amounts in other currencies."""
        dollars = converter.rate(CURRENCY, day)
        unconverted: dict[str, int] = {}
        if dollars is None and total.amounts[0]:
            unconverted[CURRENCY] = total.amounts[0]
        amounts = [units * (dollars or 0) for units in total.amounts[: len(AMOUNTS)]]
        charges = total.amounts[len(AMOUNTS) :]
        for currency, units in zip(self._layout.currencies, charges, strict=True):
            rate = converter.rate(currency, day)
            if rate is None and units:
                unconverted[currency] = units
            amounts[0] += units * (rate or 0)
            amounts[1] += units * (rate or 0)
            total.converted += units * (rate or 0)
        total.amounts = [*amounts, *charges]
        total.unconverted = unconverted

    def _cost_row(
        self,
        statement: CostStatement,
        query: CostQuery,
        start: datetime,
        group: Group,
        total: _Total,
        *,
        is_converted: bool,
    ) -> CostRow:
        counts = dict(zip((*statement.sums, *statement.meters), total.counts, strict=True))
        charges = total.amounts[len(AMOUNTS) :]

        def text(units: int) -> str:
            return (
                money.units_to_text(round_product_to_units(units) if is_converted else units)
                if units
                else "0"
            )

        latency = tuple(counts.pop(f"latency_{place}", 0) for place in range(len(_NO_LATENCY)))
        meters = {name: counts.pop(name) for name in statement.meters}
        every = query.meter == EVERY_METER
        fields: dict[str, Any] = dict(zip(AMOUNTS, map(text, total.amounts), strict=False))
        fields |= {name: counts.get(name, 0) for name in _COUNT_FIELDS}
        return CostRow(
            start=start,
            group=group,
            **fields,
            latency=latency,
            metered=sum(meters.values()) if query.meter else 0,
            charges=_texts(dict(zip(self._layout.currencies, charges, strict=True))),
            meters={name: units for name, units in meters.items() if units} if every or meters else {},
            converted=text(total.converted),
            unconverted=_texts(total.unconverted or {}),
        )


_COUNT_FIELDS = [
    name
    for name in CostRow.__struct_fields__
    if name
    not in (
        "start", "group", *AMOUNTS, "latency", "metered", "charges", "meters", "converted", "unconverted",
    )
]  # fmt: skip


def _group(query: CostQuery, values: Sequence[Any]) -> Group:
    if not any(name in UNITS for name in query.group_by):
        return tuple(values)
    return tuple(
        unit_digest_text(name, value) if name in TREES and value is not None else value
        for name, value in zip(query.group_by, values, strict=True)
    )


def _texts(amounts: Mapping[str, int]) -> Mapping[str, str]:
    return {name: money.units_to_text(units) for name, units in sorted(amounts.items()) if units}


# -- chosen groups ---------------------------------------------------------------------------------------------


def _chosen(
    query: CostQuery, statement: CostStatement, periods: Mapping[datetime, Groups]
) -> Mapping[datetime, Groups]:
    """Return the groups that the query shows. Others are left out (`only`) or one group (`kept`, `top`)."""
    if query.only is not None:
        only = query.only
        periods = {
            start: {group: total for group, total in groups.items() if group in only}
            for start, groups in periods.items()
        }
    kept: Collection[Group] | None = query.kept
    if query.top is not None:
        kept = {(None,) * len(query.group_by), *_largest(query, statement, periods)}
    if kept is None:
        return periods
    rest = (OTHER,) * len(query.group_by)
    chosen: dict[datetime, Groups] = {}
    for start, groups in periods.items():
        shown: Groups = {}
        for group, total in groups.items():
            place = group if group in kept else rest
            if (known := shown.get(place)) is None:
                shown[place] = total
            else:
                known.add(total)
        chosen[start] = shown
    return chosen


def _largest(query: CostQuery, statement: CostStatement, periods: Mapping[datetime, Groups]) -> set[Group]:
    """Return the groups with the largest `top_by` over all periods, without calls that have no unit of work."""
    names = (*statement.sums, *statement.meters)
    amount = AMOUNTS.index(query.top_by) if query.top_by in AMOUNTS else None
    sizes: dict[Group, int] = {}
    unit = query.work_unit_group_index
    for groups in periods.values():
        for group, total in groups.items():
            if unit is not None and (group[unit] in (None, OTHER) or total.is_zero):
                continue
            size = total.amounts[amount] if amount is not None else total.counts[names.index(query.top_by)]
            sizes[group] = sizes.get(group, 0) + size
    most = query.top or 0
    return set(nsmallest(most, sizes, key=lambda group: (-sizes[group], [value or "" for value in group])))
