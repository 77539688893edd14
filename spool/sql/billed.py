"""
Billed costs in SQL. Each day is replaced as a whole, with its sums without dimensions, for queries without
dimensions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spool import money
from spool.ledger.billed import BilledDay, BilledSum, day_columns, read_day
from spool.ledger.ledger_rows import GroupSum
from spool.ledger.queries import CostQuery
from spool.ledger.sums import COUNTS, WIDTH, Dimensions
from spool.sql.columns import insert_sql
from spool.sql.connection import SqlConnection
from spool.sql.dimensions import KEY

BILLED, BILLED_DAYS, BILLED_SUMS = "billed", "billed_days", "billed_sums"
ROLLUPS = "billed_rollups"  # table of sums of billed days with fewer dimensions or over weeks
_MADE = ("start", "provider", "state", "mark", "source", "read_at", "made_at", "revision", "told")
PLACE = ("charge", "basis", "arranged")
LIMBS = ("high", "middle", "low")
_DAY = ("start", "provider")
_ROW = (*_DAY, "key", *PLACE, *LIMBS)
_SUM = (*_DAY, *PLACE, *LIMBS)
# the column that has a dimension's value
_COLUMNS = {"charge": "charge", "basis": "basis", "corrects": "provider"}

_Place = tuple[object, ...]


def billed_sums_sql(table_prefix: str, since_sql: str, until_sql: str) -> str:
    return (
        f"SELECT {', '.join(_SUM)} FROM {{schema}}.{table_prefix}{BILLED_SUMS}"
        f" WHERE start >= {since_sql} AND start < {until_sql}"
    )


def parse_group_sums(rows: Iterable[tuple[Any, ...]]) -> Iterator[GroupSum]:
    """Yield rows of billed costs as cost sums, with the amount as reported cost."""
    for start, *row, high, middle, low in rows:
        measures = [0] * WIDTH
        measures[len(COUNTS)] = money.join_limbs(int(high), int(middle), int(low))
        yield GroupSum(tuple([value or None for value in row]), "ok", "reported", measures, start)


def billed_sums_from_and_where_sql(table_prefix: str, period_s: int, rollup: int) -> str:
    if not rollup:
        return f"{{schema}}.{table_prefix}{BILLED} h WHERE"
    return f"{{schema}}.{table_prefix}{ROLLUPS} h WHERE rollup = {rollup} AND width = {period_s} AND"


def needed_columns(query: CostQuery, names: Iterable[str]) -> Sequence[str]:
    needed = _stored_dimensions_needed_for(query, names)
    own = [column for name, column in _COLUMNS.items() if name in needed]
    return [*own, "key"] if needed - _COLUMNS.keys() else own


def _stored_dimensions_needed_for(query: CostQuery, names: Iterable[str]) -> set[str]:
    sources = set[str]()
    for name in names:
        derived = query.derived.get(name)
        sources.update((name,) if derived is None else derived.sources)
    return sources


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterParts:
    """
    A query's filters by the source of the values: the dimensions of calls, the columns of a billed row, or
    both.
    """

    of_keys: CostQuery
    of_bills: CostQuery
    of_both: CostQuery

    @classmethod
    def split_filters(cls, query: CostQuery) -> FilterParts:
        parts = []
        for kind in ((False, True), (True, False), (True, True)):
            include, exclude = (
                {
                    name: values
                    for name, values in chosen.items()
                    if _needs_billed_row_and_key(query, (name,)) == kind
                }
                for chosen in (query.include, query.exclude)
            )
            has_only = query.only is not None and _needs_billed_row_and_key(query, query.group_by) == kind
            only, by = (query.only, query.group_by) if has_only else (None, ())
            parts.append(replace(query, include=include, exclude=exclude, only=only, group_by=by))
        of_keys, of_bills, of_both = parts
        return cls(of_keys=of_keys, of_bills=of_bills, of_both=of_both)

    def columns_before_join(self, query: CostQuery, *, groups_by_start: bool) -> Sequence[str]:
        columns = needed_columns(query, (*query.group_by, *self.of_both.used_dimensions))
        return ["start", *columns] if groups_by_start else columns


def _needs_billed_row_and_key(query: CostQuery, names: Iterable[str]) -> tuple[bool, bool]:
    needed = _stored_dimensions_needed_for(query, names)
    of_row = not needed.isdisjoint(_COLUMNS)
    return of_row, not of_row or bool(needed - _COLUMNS.keys())


class BilledSumTables:
    def __init__(self, tables: SqlConnection, prefix: str) -> None:
        self._tables = tables
        self._prefix = prefix

    def replace_day(
        self,
        day: BilledDay,
        sums: Iterable[BilledSum],
        numbers_of: Callable[[Iterable[Dimensions]], Sequence[int]],
    ) -> None:
        self.delete_day(day.day, day.provider)
        amounts, totals = Counter[_Place](), Counter[_Place]()
        sums = list(sums)
        numbers = numbers_of(billed_sum.dimensions for billed_sum in sums)
        for number, billed_sum in zip(numbers, sums, strict=True):
            charge_key = billed_sum.charge, billed_sum.basis, billed_sum.arranged
            amounts[number, *charge_key] += billed_sum.amount
            totals[charge_key] += billed_sum.amount
        self._insert_rows(BILLED, _ROW, _sum_rows(_ROW, day, amounts))
        self._insert_rows(BILLED_SUMS, _SUM, _sum_rows(_SUM, day, totals))
        day_row = day_columns(day)
        self._insert_rows(BILLED_DAYS, (*day_row,), [day_row])

    def delete_day(self, day: int, provider: str) -> None:
        for table in (BILLED, BILLED_SUMS, BILLED_DAYS):
            table_sql = f"{{schema}}.{self._prefix}{table}"
            statement = f"DELETE FROM {table_sql} WHERE start = :start AND provider = :provider"
            self._tables.run(statement, start=day, provider=provider)

    def billed_days(self, since_s: int, until_s: int) -> Sequence[BilledDay]:
        rows = self._tables.all(
            f"SELECT {', '.join(_MADE)} FROM {{schema}}.{self._prefix}{BILLED_DAYS}"
            " WHERE start >= :since AND start < :until ORDER BY start, provider",
            since=since_s,
            until=until_s,
        )
        return [read_day(dict(zip(_MADE, row, strict=True))) for row in rows]

    def billed_sums(self, day: int, provider: str) -> Sequence[BilledSum]:
        rows = self._tables.all(
            f"SELECT h.charge, h.basis, h.arranged, h.high, h.middle, h.low, {KEY}"
            f" FROM {{schema}}.{self._prefix}{BILLED} h JOIN {{schema}}.{self._prefix}keys k ON k.id = h.key"
            " WHERE h.start = :start AND h.provider = :provider",
            start=day,
            provider=provider,
        )
        billed_sums = [
            BilledSum(Dimensions(*key), charge, basis, arranged, money.join_limbs(high, middle, low))
            for charge, basis, arranged, high, middle, low, *key in rows
        ]
        return sorted(billed_sums)

    def _insert_rows(self, table: str, names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
        self._tables.run_each(insert_sql(f"{self._prefix}{table}", names), rows)


def _sum_rows(
    names: Sequence[str], day: BilledDay, amounts: Mapping[_Place, int]
) -> Iterator[Mapping[str, object]]:
    for charge_key in sorted(amounts):
        limbs = money.split_into_limbs(amounts[charge_key])
        yield dict(zip(names, (day.day, day.provider, *charge_key, *limbs), strict=True))
