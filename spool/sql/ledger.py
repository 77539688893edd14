"""The rows of the ledger, as far as engines do not differ. Money and queries differ."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from spool.ledger.counting import EVERY, EVERY_BILLED, ROW_TAGS, new_data_versions_by_month, stored_dimensions
from spool.ledger.dimensions import BILLED as KIND
from spool.ledger.dimensions import ROW_TAG
from spool.ledger.ledger_rows import WRONG, WRONG_OF, FoundNumbers, Recalculation, TagList, new_data_version
from spool.ledger.sums import (
    BILLED_ROLLUPS,
    COUNTS,
    DAY_S,
    END_OF_TIME,
    HOUR_S,
    INPUT_UNKNOWN,
    OTHER,
    ROLLUP_WIDTHS,
    Dimensions,
    DimensionValues,
    Measures,
    MeterSums,
    period_start,
)
from spool.meters import SCALE
from spool.sql.columns import insert_sql, upsert_sql
from spool.sql.connection import SqlConnection
from spool.sql.dimensions import KEY, rollup_sql
from spool.sql.work import WORK, SqlWorkRows

if TYPE_CHECKING:
    from spool.ledger.billed import BilledDay, BilledSum


# Limit for rows that cost about as much as the last wanted one. If there are more, the query is repeated with
# a higher limit.
ALIKE = 1000
RENAMED_AT_ONCE = 10_000  # sets of dimensions in memory while people are renamed


def read_candidates_for_most_expensive(
    read_most_expensive: Callable[[int], Sequence[tuple[Any, ...]]], most_expensive_count: int
) -> Sequence[tuple[Any, ...]]:
    """
    Return the rows that, by their approximate costs, may be among the `most_expensive_count` most expensive.

    `read_most_expensive`: returns at most a number of rows, the most expensive first. The last value of a row is its
    approximate cost in billionths of a dollar.
    """
    row_limit = most_expensive_count + ALIKE
    while len(rows := read_most_expensive(row_limit)) >= most_expensive_count:
        last = rows[most_expensive_count - 1][-1]
        least = last - 2 * (abs(last) * WRONG_OF + WRONG)
        if len(rows) < row_limit or rows[-1][-1] < least:
            return [row for row in rows if row[-1] >= least]
        row_limit *= 4
    return rows


# -- rows ----------------------------------------------------------------------------------------------------


TABLES = {HOUR_S: "hours", DAY_S: "days"}
METERS = "meters"  # table of meters, for sums of hours and of days
# tables of rollups, and of the marks of existing rollups
ROLLUPS, ROLLED = "rollups", "rolled"
# names of amounts in other currencies begin with "charge.", so they sort between these texts
CHARGES = ("charge.", "charge/")
_WIDTH = len(Dimensions._fields)
_COST = 1 + len(COUNTS)  # position of the cost in a row
_LOWEST = "SET first = CASE WHEN excluded.first < old.first THEN excluded.first ELSE old.first END"


class SqlLedgerRows(SqlWorkRows):
    """
    The part of `LedgerRows` that is equal in all engines.

    `prefix`: of table names. `columns`: of measures. `shown`: SQL that reads the measures from the alias `h`.
    `about`: SQL of the approximate cost of a sum, in billionths of a dollar, with an error of at most WRONG +
    WRONG_OF * cost. `cost`: SQL of the exact cost, which `cost_units` converts to units of money.
    """

    prefix: ClassVar = ""
    each_tag: ClassVar[str]  # expression of the tags of `k`, as rows of `key` and `value`
    columns: ClassVar[Sequence[str]]
    shown: ClassVar[Sequence[str]]
    about: ClassVar[str]
    cost: ClassVar[Sequence[str]]
    cost_units: ClassVar[Callable[..., int]]

    def __init__(self, tables: SqlConnection) -> None:
        self._tables = tables

    if TYPE_CHECKING:

        def find_or_assign_dimension_set_numbers(
            self, dimensions: Sequence[DimensionValues]
        ) -> Sequence[int]: ...

        def delete_unused_dimension_sets(self) -> int: ...

        def _put_dimensions(self, dimension_set_number: int, dimensions: Dimensions) -> None: ...

    @abstractmethod
    def _read_measures(self, values: Sequence[Any]) -> Measures: ...

    def state_values(self) -> Mapping[str, int]:
        return dict(self._tables.all(f"SELECT name, value FROM {self._table('state')}"))

    def set_state(self, **values: int) -> None:
        rows = [{"name": name, "value": value} for name, value in sorted(values.items())]
        self._tables.run_each(upsert_sql(f"{self.prefix}state", ("name", "value"), "name"), rows)

    def rename_dimensions(self, renamed: Callable[[Dimensions], Dimensions]) -> int:
        statement = (
            f"SELECT k.id, {KEY} FROM {self._table('keys')} k WHERE k.id > :after ORDER BY k.id LIMIT :most"
        )
        count = after = 0
        while rows := self._tables.all(statement, after=after, most=RENAMED_AT_ONCE):
            for after, *values in rows:
                before = Dimensions(*values)
                if (dimensions := renamed(before)) != before:
                    self._put_dimensions(after, dimensions)
                    count += 1
        if count:
            self.set_state(
                **new_data_versions_by_month(), **new_data_versions_by_month(all_months_name=EVERY_BILLED)
            )
        return count

    def dimension_set_numbers_in_period(self, period_s: int, start: int) -> set[int]:
        rows = self._tables.all(
            f"SELECT key FROM {self._sums_table(period_s)} WHERE start = :start", start=start
        )
        return {number for (number,) in rows}

    def delete_sums(self, period_s: int, places: Iterable[tuple[int, int]]) -> None:
        rows = [{"start": start, "key": number} for start, number in sorted(places)]
        self._mark_change_and_unmark_rollups(period_s, {row["start"] for row in rows})
        self._tables.run_each(
            f"DELETE FROM {self._sums_table(period_s)} WHERE start = :start AND key = :key", rows
        )
        if rows and self._has_meters(period_s):
            meter_rows = [{"width": period_s, **row} for row in rows]
            where = "width = :width AND start = :start AND key = :key"
            self._tables.run_each(f"DELETE FROM {self._table(METERS)} WHERE {where}", meter_rows)

    def add_sums(self, period_s: int, sums: Iterable[tuple[int, int, Measures]]) -> None:
        rows = [((start, number), measures) for start, number, measures in sums]
        self._mark_change_and_unmark_rollups(period_s, {start for (start, _), _ in rows})
        self._add_measures_to_table(TABLES[period_s], ("start", "key"), rows)

    def add_meters(self, period_s: int, sums: Iterable[tuple[int, int, MeterSums]]) -> None:
        units_by_key: dict[tuple[int, int, str], int] = {}
        for start, number, meters in sums:
            for name, units in meters.items():
                key = (start, number, name)
                units_by_key[key] = units_by_key.get(key, 0) + units
        rows = [
            {
                "width": period_s,
                "start": start,
                "key": number,
                "meter": name,
                "whole": units // SCALE,
                "millionths": units % SCALE,
            }
            for (start, number, name), units in sorted(units_by_key.items())
        ]
        self._tables.run_each(
            f"INSERT INTO {self._table(METERS)} AS old (width, start, key, meter, whole, millionths)"
            " VALUES (:width, :start, :key, :meter, :whole, :millionths)"
            " ON CONFLICT (width, start, key, meter) DO UPDATE SET"
            " whole = old.whole + excluded.whole, millionths = old.millionths + excluded.millionths",
            rows,
        )

    def read_meters(self, period_s: int, start: int) -> Mapping[int, MeterSums]:
        rows = self._tables.all(
            f"SELECT key, meter, whole, millionths FROM {self._table(METERS)}"
            " WHERE width = :width AND start = :start",
            width=period_s,
            start=start,
        )
        return _group_meters_by_key(rows)

    def metered_sums(self, period_s: int, start: int) -> Sequence[tuple[Dimensions, MeterSums]]:
        rows = self._tables.all(
            f"SELECT h.meter, h.whole, h.millionths, {KEY} FROM {self._table(METERS)} h"
            f" JOIN {self._table('keys')} k ON k.id = h.key WHERE h.width = :width AND h.start = :start",
            width=period_s,
            start=start,
        )
        sums = _group_meters_by_key(
            (Dimensions(*key), meter, whole, millionths) for meter, whole, millionths, *key in rows
        )
        return list(sums.items())

    def drop_meters(self, period_s: int, start: int) -> None:
        statement = f"DELETE FROM {self._table(METERS)} WHERE width = :width AND start = :start"
        self._tables.run(statement, width=period_s, start=start)

    def store_billed_day(self, day: BilledDay, sums: Iterable[BilledSum]) -> None:
        from spool.sql.billed import BilledSumTables

        self.invalidate_rollups([day.day], billed=True)
        if day.connection:
            self.set_state(**{ROW_TAGS: new_data_version()})
        BilledSumTables(self._tables, self.prefix).replace_day(
            day,
            sums,
            lambda dimensions: self.find_or_assign_dimension_set_numbers(
                list(map(stored_dimensions, dimensions))
            ),
        )

    def delete_billed_day(self, day: int, provider: str) -> None:
        from spool.sql.billed import BilledSumTables

        self.invalidate_rollups([day], billed=True)
        BilledSumTables(self._tables, self.prefix).delete_day(day, provider)

    def billed_days(self, since_s: int, until_s: int) -> Sequence[BilledDay]:
        from spool.sql.billed import BilledSumTables

        return BilledSumTables(self._tables, self.prefix).billed_days(since_s, until_s)

    def starts_of_billed_days(self, since_s: int, until_s: int) -> Sequence[int]:
        days = f"{self._table('billed_days')} WHERE start >= :since AND start < :until"
        statement = f"SELECT DISTINCT start FROM {days} AND NOT provider LIKE :corrections"
        rows = self._tables.all(statement, since=since_s, until=until_s, corrections="%\x1f%")
        return sorted(start for (start,) in rows)

    def billed_sums(self, day: int, provider: str) -> Sequence[BilledSum]:
        from spool.sql.billed import BilledSumTables

        return BilledSumTables(self._tables, self.prefix).billed_sums(day, provider)

    def _has_meters(self, period_s: int) -> bool:
        statement = f"SELECT EXISTS (SELECT 1 FROM {self._table(METERS)} WHERE width = :width)"
        [has_any] = self._tables.first_row(statement, width=period_s)
        return bool(has_any)

    def first_and_last_start(self, period_s: int) -> Sequence[int]:
        table = self._sums_table(period_s)
        ends = f"SELECT (SELECT MIN(start) FROM {table}), (SELECT MAX(start) FROM {table})"
        return [start for start in self._tables.first_row(ends) if start is not None]

    def period_starts(self, period_s: int, since_s: int, until_s: int = END_OF_TIME) -> Sequence[int]:
        is_within = "start >= :since AND start < :until"
        statement = (
            f"SELECT DISTINCT start FROM {self._sums_table(period_s)} WHERE {is_within} ORDER BY start"
        )
        return [start for (start,) in self._tables.all(statement, since=since_s, until=until_s)]

    def call_sums(self, period_s: int, start: int) -> Sequence[tuple[int, Dimensions, Measures]]:
        rows = self._tables.all(
            f"{self._period_sums_sql(period_s, 'h.key, ')} AND k.kind = 'call'", start=start
        )
        return [
            (row[0], Dimensions(*row[1 : _WIDTH + 1]), self._read_measures(row[_WIDTH + 1 :])) for row in rows
        ]

    def token_sums_by_dimension_set(
        self, period_s: int, start: int, *, most_expensive_count: int = 0
    ) -> Sequence[tuple[int, Measures]]:
        columns = ", ".join(["h.key", *(f"h.{name}" for name in COUNTS), *self.cost])
        calls = f"{self._sums_at_start_sql(period_s)} AND k.kind = 'call' AND k.size <> {INPUT_UNKNOWN}"
        statement = f"SELECT {columns}, {self.about} AS about {calls}"
        if most_expensive_count:
            first = f"{statement} ORDER BY about DESC LIMIT :most"
            rows = read_candidates_for_most_expensive(
                lambda row_limit: self._tables.all(first, start=start, most=row_limit), most_expensive_count
            )
        else:
            rows = self._tables.all(statement, start=start)
        return [(row[0], [*row[1:_COST], self.cost_units(*row[_COST:-1])]) for row in rows]

    def dimensions_by_number(self, numbers: Collection[int]) -> Mapping[int, Dimensions]:
        statement = f"SELECT k.id, {KEY} FROM {self._table('keys')} k WHERE k.id IN :numbers"
        rows = self._tables.all(statement, numbers=[*numbers])
        return {number: Dimensions(*values) for number, *values in rows}

    def read_sums(self, period_s: int, start: int) -> Sequence[tuple[Dimensions, Measures]]:
        rows = self._tables.all(self._period_sums_sql(period_s), start=start)
        return [(Dimensions(*row[:_WIDTH]), self._read_measures(row[_WIDTH:])) for row in rows]

    def measures_by_dimension_set_number(self, period_s: int, start: int) -> Sequence[tuple[int, Measures]]:
        statement = f"SELECT h.key, {', '.join(self.shown)} FROM {self._sums_table(period_s)} h WHERE h.start = :start"
        rows = self._tables.all(statement, start=start)
        return [(key, self._read_measures(values)) for key, *values in rows]

    def dimension_sets_merged_into_other(self) -> Mapping[int, Dimensions]:
        statement = f'SELECT k.id, {KEY} FROM {self._table("keys")} k WHERE k."user" = :other'
        rows = self._tables.all(statement, other=OTHER)
        return {number: Dimensions(*values) for number, *values in rows}

    def damaged_dimension_sets(self, after_number: int, max_sets: int) -> FoundNumbers:
        return (), None

    def delete_damaged_rows(self) -> None:
        super().delete_damaged_rows()
        self.delete_unused_dimension_sets()

    def first_start_since(self, period_s: int, since_s: int) -> int | None:
        statement = f"SELECT min(start) FROM {self._sums_table(period_s)} WHERE start >= :since"
        [start] = self._tables.first_row(statement, since=since_s)
        return None if start is None else int(start)

    def make_daily_sums_from_hours(self, day: int) -> None:
        self.invalidate_rollups([day])
        summed = ", ".join(f"sum({name})" for name in self.columns)
        self._tables.run(
            f"INSERT INTO {self._sums_table(DAY_S)} (start, key, {', '.join(self.columns)})"
            f" SELECT :day, key, {summed} FROM {self._sums_table(HOUR_S)} WHERE start >= :day AND start < :next"
            " GROUP BY key ORDER BY key",
            day=day,
            next=day + DAY_S,
        )
        self._tables.run(
            f"INSERT INTO {self._table(METERS)} (width, start, key, meter, whole, millionths)"
            " SELECT :width, :day, key, meter, CAST(sum(whole) AS bigint), CAST(sum(millionths) AS bigint)"
            f" FROM {self._table(METERS)} WHERE width = :hour AND start >= :day AND start < :next"
            " GROUP BY key, meter",
            width=DAY_S,
            hour=HOUR_S,
            day=day,
            next=day + DAY_S,
        )

    def drop_days(self, since_s: int) -> None:
        self.set_state(**new_data_versions_by_month())
        of_days = f"{self._table(ROLLED)} WHERE rollup <= {BILLED_ROLLUPS}"
        self._tables.run(f"DELETE FROM {of_days} AND start + width > :since", since=since_s)
        self._tables.run(f"DELETE FROM {self._sums_table(DAY_S)} WHERE start >= :since", since=since_s)
        self._tables.run(
            f"DELETE FROM {self._table(METERS)} WHERE width = :width AND start >= :since",
            width=DAY_S,
            since=since_s,
        )

    def drop_hours(self, before_s: int) -> int:
        deleted = self._tables.run(
            f"DELETE FROM {self._sums_table(HOUR_S)} WHERE start < :before", before=before_s
        )
        self._tables.run(
            f"DELETE FROM {self._table(METERS)} WHERE width = :width AND start < :before",
            width=HOUR_S,
            before=before_s,
        )
        self._move_hours_to_days(before_s)
        periods, old = self._table("periods"), "width = :hour AND start < :before"
        self._tables.run(
            f"INSERT INTO {periods} AS old (width, start, first)"
            f" SELECT :day, start / :day * :day, min(first) FROM {periods} WHERE {old}"
            f" GROUP BY start / :day ON CONFLICT (width, start) DO UPDATE {_LOWEST}",
            day=DAY_S,
            hour=HOUR_S,
            before=before_s,
        )
        self._tables.run(f"DELETE FROM {periods} WHERE {old}", hour=HOUR_S, before=before_s)
        return deleted

    def store_lowest_record_numbers(self, widths_starts_and_numbers: Iterable[tuple[int, int, int]]) -> None:
        rows = [
            {"width": width, "start": start, "first": first}
            for width, start, first in sorted(widths_starts_and_numbers)
        ]
        insert = f"INSERT INTO {self._table('periods')} AS old (width, start, first)"
        values = "VALUES (:width, :start, :first)"
        self._tables.run_each(f"{insert} {values} ON CONFLICT (width, start) DO UPDATE {_LOWEST}", rows)

    def reset_lowest_record_numbers_and_unfreeze_periods(self) -> None:
        self._tables.run(f"UPDATE {self._table('periods')} SET first = 0, frozen = false")

    def recalculations(self) -> Sequence[Recalculation]:
        columns = ", ".join(Recalculation._fields)
        rows = self._tables.all(f"SELECT {columns} FROM {self._table('recalculations')} ORDER BY number")
        return [Recalculation(*row) for row in rows]

    def add_recalculation(self, recalculation: Recalculation) -> None:
        table, columns = self._table("recalculations"), ", ".join(recalculation._fields)
        values = ", ".join(f":{name}" for name in recalculation._fields)
        self._tables.run(
            f"INSERT INTO {table} (number, {columns})"
            f" SELECT coalesce(max(number), 0) + 1, {values} FROM {table}",
            **recalculation._asdict(),
        )

    def lower_recalculation_ends(self, end_record_number: int) -> None:
        self._tables.run(
            f"UPDATE {self._table('recalculations')} SET reach = :reach WHERE reach > :reach",
            reach=end_record_number,
        )

    def price_lists(self) -> Mapping[str, bytes]:
        return dict(self._tables.all(f"SELECT digest, content FROM {self._table('price_lists')}"))

    def add_price_list(self, digest: str, content: bytes) -> None:
        statement = insert_sql(f"{self.prefix}price_lists", ("digest", "content"))
        self._tables.run(f"{statement} ON CONFLICT (digest) DO NOTHING", digest=digest, content=content)

    def tag_lists(self) -> Sequence[TagList]:
        rows = self._tables.all(f"SELECT first, since, tags FROM {self._table('tag_lists')} ORDER BY number")
        return [TagList(first, since, tuple(json.loads(tags))) for first, since, tags in rows]

    def replace_tag_lists(self, lists: Sequence[TagList]) -> None:
        self._tables.run(f"DELETE FROM {self._table('tag_lists')}")
        rows = [
            {"number": number, "first": each.first, "since": each.since, "tags": json.dumps(each.tags)}
            for number, each in enumerate(lists)
        ]
        columns = ("number", "first", "since", "tags")
        self._tables.run_each(insert_sql(f"{self.prefix}tag_lists", columns), rows)

    def freeze_periods_for_rebuild(self, below_record_number: int) -> None:
        statement = "SET frozen = (first < :below) WHERE frozen <> (first < :below)"
        self._tables.run(f"UPDATE {self._table('periods')} {statement}", below=below_record_number)

    def periods_frozen_for_rebuild(self) -> set[tuple[int, int]]:
        rows = self._tables.all(f"SELECT width, start FROM {self._table('periods')} WHERE frozen")
        return {(width, start) for width, start in rows}

    def lowest_number_by_period(self) -> Mapping[tuple[int, int], int]:
        rows = self._tables.all(f"SELECT width, start, first FROM {self._table('periods')}")
        return {(width, start): first for width, start, first in rows}

    def delete_sums_of_unfrozen_periods(self) -> int:
        self.invalidate_rollups()
        is_open = f"SELECT start FROM {self._table('periods')} WHERE width = :width AND NOT frozen"
        for width in TABLES:
            self._tables.run(f"DELETE FROM {self._sums_table(width)} WHERE start IN ({is_open})", width=width)
            meters = f"DELETE FROM {self._table(METERS)} WHERE width = :width AND start IN ({is_open})"
            self._tables.run(meters, width=width)
            # no width: a daily sum of a unit of work exists only where its hourly sums are deleted
            work = f"DELETE FROM {self._table(WORK)} WHERE start IN ({is_open})"
            self._tables.run(work, width=width)
        return self._tables.run(f"DELETE FROM {self._table('periods')} WHERE NOT frozen")

    def valid_rollup_keys(self, since_s: int, until_s: int) -> Collection[tuple[int, int, int]]:
        rows = self._tables.all(
            f"SELECT rollup, width, start FROM {self._table(ROLLED)} WHERE start >= :since AND start < :until",
            since=since_s,
            until=until_s,
        )
        return {(number, width, start) for number, width, start in rows}

    def make_rollup(self, rollup_number: int, dimensions: Sequence[str], period_s: int, start: int) -> None:
        rollup_key = {"rollup": rollup_number, "width": period_s, "start": start}
        where = "WHERE rollup = :rollup AND width = :width AND start = :start"
        table, columns, computed_sql = self._rollup_table_columns_and_sql(rollup_number, dimensions)
        self._tables.run(f"DELETE FROM {table} {where}", **rollup_key)
        self._tables.run(
            f"INSERT INTO {table} (rollup, width, start, {', '.join(columns)})"
            f" SELECT {rollup_number}, {period_s}, {start}, made.* FROM ({computed_sql}) made",
            since=start,
            until=start + period_s,
        )
        self._tables.run(f"DELETE FROM {self._table(ROLLED)} {where}", **rollup_key)
        self._tables.run(insert_sql(f"{self.prefix}{ROLLED}", ("rollup", "width", "start")), **rollup_key)

    def drop_rollups(self, rollup_number: int, period_s: int, before_s: int) -> None:
        where = "WHERE rollup = :rollup AND width = :width AND start < :before"
        for table in (ROLLUPS, ROLLED):
            self._tables.run(
                f"DELETE FROM {self._table(table)} {where}",
                rollup=rollup_number,
                width=period_s,
                before=before_s,
            )

    def is_rollup_different(
        self, rollup_number: int, dimensions: Sequence[str], period_s: int, start: int
    ) -> bool:
        table, columns, computed_sql = self._rollup_table_columns_and_sql(rollup_number, dimensions)
        rows_sql = f"{table} WHERE rollup = {rollup_number} AND width = {period_s}"
        stored = f"SELECT {', '.join(columns)} FROM {rows_sql} AND start = :since"
        for left_sql, right_sql in ((computed_sql, stored), (stored, computed_sql)):
            statement = f"SELECT EXISTS (SELECT * FROM ({left_sql}) a EXCEPT SELECT * FROM ({right_sql}) b)"
            [differs] = self._tables.first_row(statement, since=start, until=start + period_s)
            if differs:
                return True
        return False

    def invalidate_rollups(self, days: Collection[int] | None = None, *, billed: bool = False) -> None:
        self.set_state(**new_data_versions_by_month(days, all_months_name=EVERY_BILLED if billed else EVERY))
        of_kind = f"{self._table(ROLLED)} WHERE rollup {'>' if billed else '<='} {BILLED_ROLLUPS}"
        if days is None:
            self._tables.run(f"DELETE FROM {of_kind}")
            return
        rows = sorted({(width, period_start(width, day)) for day in days for width in ROLLUP_WIDTHS})
        self._tables.run_each(
            f"DELETE FROM {of_kind} AND width = :width AND start = :start",
            [{"width": width, "start": start} for width, start in rows],
        )

    def _mark_change_and_unmark_rollups(self, period_s: int, starts: Collection[int]) -> None:
        self.set_state(**new_data_versions_by_month(starts))
        if period_s == DAY_S and starts:
            self.invalidate_rollups(starts)

    def _rollup_table_columns_and_sql(
        self, rollup_number: int, dimensions: Sequence[str]
    ) -> tuple[str, Sequence[str], str]:
        table, days, sums = self._table(ROLLUPS), self._sums_table(DAY_S), self.columns
        extra_columns = tuple[str, ...]()
        if rollup_number > BILLED_ROLLUPS:
            from spool.sql import billed

            table, days = self._table(billed.ROLLUPS), self._table(billed.BILLED)
            extra_columns, sums = billed.PLACE, billed.LIMBS
        computed_sql = rollup_sql(
            days, self._table("keys"), dimensions, sums=sums, other_group_columns=extra_columns
        )
        return table, ("key", *extra_columns, *sums), computed_sql

    def tag_values_in_calls_and_billing_rows(self) -> Sequence[tuple[str, str, bool, bool]]:
        has_calls, has_rows = (
            f"MAX(CASE WHEN k.kind {sign} '{KIND}' THEN 1 ELSE 0 END)" for sign in ("<>", "=")
        )
        rows = self._tables.all(
            f"SELECT j.key, j.value, {has_calls}, {has_rows} FROM {self._table('keys')} k CROSS JOIN {self.each_tag}"
            f" WHERE j.value <> '' AND substr(j.key, 1, {len(ROW_TAG)}) <> '{ROW_TAG}' GROUP BY j.key, j.value"
        )
        return [(name, value, bool(of_calls), bool(of_rows)) for name, value, of_calls, of_rows in rows]

    def count_rows(self) -> int:
        counts = [f"(SELECT count(*) FROM {self._sums_table(width)})" for width in TABLES]
        [count] = self._tables.first_row(f"SELECT {' + '.join(counts)}")
        return int(count)

    def _table(self, table: str) -> str:
        return f"{{schema}}.{self.prefix}{table}"

    def _sums_table(self, period_s: int) -> str:
        return self._table(TABLES[period_s])

    def _rollup_source_sql(self, period_s: int, rollup: int) -> str:
        if not rollup:
            return f"{self._sums_table(period_s)} WHERE"
        return f"{self._table(ROLLUPS)} WHERE rollup = {rollup} AND width = {period_s} AND"

    def _period_sums_sql(self, period_s: int, leading_columns_sql: str = "") -> str:
        return (
            f"SELECT {leading_columns_sql}{KEY}, {', '.join(self.shown)} {self._sums_at_start_sql(period_s)}"
        )

    def _sums_at_start_sql(self, period_s: int) -> str:
        table = self._sums_table(period_s)
        return f"FROM {table} h JOIN {self._table('keys')} k ON k.id = h.key WHERE h.start = :start"


def _group_meters_by_key(rows: Iterable[tuple[Any, ...]]) -> dict[Any, MeterSums]:
    meters: dict[Any, MeterSums] = {}
    for key, meter, whole, millionths in rows:
        meters.setdefault(key, {})[meter] = int(whole) * SCALE + int(millionths)
    return meters
