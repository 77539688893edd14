"""The ledger on PostgreSQL: SQL for dimensions, rows of sums, and the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from operator import add
from typing import Any, TypeVar

from spool import money
from spool.ledger.dimensions import (
    BILLED,
    BILLED_DIMENSIONS,
    DIMENSIONS,
    PRICED_BY,
    ROW_DIMENSIONS,
    ROW_TAG,
    TAG,
    DerivedDimension,
    Group,
)
from spool.ledger.ledger_rows import FoundNumbers, GroupSum, LedgerRows, MeterSum, Span
from spool.ledger.queries import EVERY_METER, SLICE, CostQuery, needed_sums
from spool.ledger.sums import (
    COUNTS,
    LATENCY,
    MONEY,
    WIDTH,
    Dimensions,
    DimensionValues,
    Measures,
    period_start,
)
from spool.ledger.work import ROLLUP, UNITS
from spool.meters import SCALE
from spool.postgres.database import Connection, Database, PostgresConnection
from spool.sql.ledger import CHARGES, SqlLedgerRows

COST = (  # reported cost, or else the estimate
    "CASE WHEN k.status = 'cached' THEN 0 WHEN k.cost_source = 'reported' THEN h.reported"
    " WHEN k.cost_source = 'estimated' THEN h.estimated ELSE 0 END"
)
_KEY_COLUMNS = ", ".join(f'"{name}"' for name in Dimensions._fields)
_KEY_ARRAYS = ", ".join("%s::bigint[]" if name == "size" else "%s::text[]" for name in Dimensions._fields)
ADD_KEYS = f"""
    INSERT INTO {{schema}}.ledger_keys (digest, tag_values, {_KEY_COLUMNS})
    SELECT * FROM unnest(%s::bytea[], %s::jsonb[], {_KEY_ARRAYS})
    RETURNING digest, id"""
PUT_KEY = f"""
    UPDATE {{schema}}.ledger_keys
       SET digest = %s, tag_values = %s::jsonb, {", ".join(f'"{name}" = %s' for name in Dimensions._fields)}
     WHERE id = %s"""
DROP_KEYS = """
    DELETE FROM {schema}.ledger_keys k
     WHERE NOT EXISTS (SELECT FROM {schema}.ledger_hours h WHERE h.key = k.id)
       AND NOT EXISTS (SELECT FROM {schema}.ledger_days d WHERE d.key = k.id)
       AND NOT EXISTS (SELECT FROM {schema}.ledger_work w WHERE w.key = k.id)
       AND NOT EXISTS (SELECT FROM {schema}.ledger_billed b WHERE b.key = k.id)"""


# -- dimensions in statements --------------------------------------------------------------------------------


class StatementParameters:
    """The parameters of a statement while it is built. `joins`: tables to join to the dimensions."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.joins: list[str] = []

    def add(self, value: Any) -> str:
        name = f"p{len(self.values)}"
        self.values[name] = value
        return f"%({name})s"


def dimension_sql(dimension: str, parameters: StatementParameters) -> str:
    if dimension in DIMENSIONS:
        return f'k."{dimension}"'
    if dimension in PRICED_BY:
        return f'CAST(k."{dimension}" AS text)'
    if dimension == "origin":
        return f"COALESCE(NULLIF({dimension_sql(TAG + ROW_TAG + dimension, parameters)}, ''), 'calls')"
    if dimension in ROW_DIMENSIONS:
        return dimension_sql(TAG + ROW_TAG + dimension, parameters)
    if dimension == "corrects":  # the part of `provider` after the separator
        return "split_part(h.provider, chr(31), 2)"
    if dimension in BILLED_DIMENSIONS:
        return f"h.{dimension}"
    return (
        f"COALESCE(k.tag_values ->> {parameters.add(storable_value(dimension.removeprefix(TAG)))}::text, '')"
    )


def dimensions_digest(dimensions: DimensionValues) -> bytes:
    return blake2b(json.dumps(dimensions).encode(), digest_size=16).digest()


def storable_value(value: Any) -> Any:
    """Return a value that PostgreSQL can store: U+0000 and lone surrogates in texts are replaced."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _is_digest_of_dimensions_wrong(digest: bytes, tags: str, *dimensions: Any) -> bool:
    """
    Return whether stored dimensions do not match their digest. The digest is not compared if `storable_value`
    replaced a character, because it was computed before.
    """
    of = Dimensions(*dimensions)
    if json.loads(tags) != json.loads(storable_tags_json(of.tags)):
        return True
    return "\ufffd" not in "".join(map(str, of)) and bytes(digest) != dimensions_digest(of)


def storable_tags_json(tags_text: str) -> str:
    values = json.loads(tags_text) if tags_text else {}
    return json.dumps(
        {storable_value(name): storable_value(value) for name, value in values.items()}, ensure_ascii=False
    )


# -- rows ----------------------------------------------------------------------------------------------------


_COLUMNS = (*COUNTS, *MONEY, *LATENCY)
_NAMES = ", ".join(_COLUMNS)
_ADDED = ", ".join(f"{name} = old.{name} + excluded.{name}" for name in _COLUMNS)
# without these types, arithmetic may round a Decimal
_KINDS = tuple("%s::numeric[]" if name in MONEY else "%s::bigint[]" for name in _COLUMNS)

_OF_CALLS = f"WHERE k.kind <> '{BILLED}'"
# empty cache of one result: filter, its parameters, maximum number of results, and results
_NONE_FOUND: tuple[str, Mapping[str, Any], int, Sequence[int]] = ("", {}, 0, ())
# for more sums, a scan of the whole time range is faster than lookups
MOST_LOOKED_UP = 10_000
MOST_LISTED = 50_000  # maximum sets of dimensions in a statement

_LOCK = "SELECT FROM {schema}.ledger_state WHERE name = 'reach' FOR UPDATE"


def lock_sums(connection: Connection, database: Database) -> None:
    """Lock the sums for this transaction. Its later reads see all changes of sums by other processes."""
    connection.execute(database.fill_in_table_names(_LOCK))


class PostgresLedgerRows(SqlLedgerRows):
    prefix = "ledger_"
    each_tag = "jsonb_each_text(k.tag_values) j"
    columns = _COLUMNS
    shown = tuple(f"CAST(h.{name} AS text)" if name in MONEY else f"h.{name}" for name in _COLUMNS)
    about = f"CAST({COST} * 1000000000 AS float8)"
    cost = (f"CAST({COST} AS text)",)
    cost_units = staticmethod(money.text_to_units)
    cast = dict.fromkeys(MONEY, "numeric")
    hexadecimal = "lpad(to_hex({}), 16, '0')"
    listed = "SELECT unnest(CAST('{{{}}}' AS bigint[]))"

    def __init__(self, connection: Connection, database: Database) -> None:
        super().__init__(PostgresConnection(connection, database.fill_in_table_names))
        self._connection = connection
        self._database = database
        self._found = _NONE_FOUND

    def find_or_assign_dimension_set_numbers(self, dimensions: Sequence[DimensionValues]) -> Sequence[int]:
        digests = [dimensions_digest(values) for values in dimensions]
        found = self._all("SELECT digest, id FROM {schema}.ledger_keys WHERE digest = ANY(%s)", digests)
        numbers: dict[bytes, int] = dict(found)
        new = {
            digest: (digest, storable_tags_json(Dimensions._make(values).tags), *map(storable_value, values))
            for digest, values in zip(digests, dimensions, strict=True)
            if digest not in numbers
        }
        if new:
            self._found = _NONE_FOUND
            numbers.update(self._all(ADD_KEYS, *map(list, zip(*new.values(), strict=True))))
        return [numbers[digest] for digest in digests]

    def _put_dimensions(self, dimension_set_number: int, dimensions: Dimensions) -> None:
        values = (
            dimensions_digest(dimensions),
            storable_tags_json(dimensions.tags),
            *map(storable_value, dimensions),
        )
        self._run(PUT_KEY, *values, dimension_set_number)

    def damaged_dimension_sets(self, after_number: int, max_sets: int) -> FoundNumbers:
        rows = self._all(
            f"SELECT id, digest, CAST(tag_values AS text), {_KEY_COLUMNS} FROM {{schema}}.ledger_keys"
            " WHERE id > %s ORDER BY id LIMIT %s",
            after_number,
            max_sets,
        )
        wrong = [id for id, *row in rows if _is_digest_of_dimensions_wrong(*row)]
        return wrong, rows[-1][0] if rows else None

    def delete_unused_dimension_sets(self) -> int:
        self._found = _NONE_FOUND
        return self._run(DROP_KEYS)

    def _add_measures_to_table(
        self, table: str, key_columns: Sequence[str], sums: Iterable[tuple[tuple[int, ...], Measures]]
    ) -> None:
        sums_by_key: dict[tuple[int, ...], Measures] = {}
        # one statement can change a row only once
        for place, measures in sums:
            before = sums_by_key.get(place)
            sums_by_key[place] = measures if before is None else list(map(add, before, measures))
        if sums_by_key:
            cells = sorted(sums_by_key)
            columns = zip(*map(sums_by_key.__getitem__, cells), strict=True)
            arrays = ", ".join(("%s::bigint[]",) * len(key_columns) + _KINDS)
            self._run(
                f"INSERT INTO {self._table(table)} AS old ({', '.join(key_columns)}, {_NAMES})"
                f" SELECT * FROM unnest({arrays})"
                f" ON CONFLICT ({', '.join(key_columns)}) DO UPDATE SET {_ADDED}",
                *(_array_text(map(str, column)) for column in zip(*cells, strict=True)),
                *(
                    _array_text(map(money.units_to_text if name in MONEY else str, column))
                    for name, column in zip(_COLUMNS, columns, strict=True)
                ),
            )

    def totals_by_group(
        self, spans: Sequence[Span], query: CostQuery, *, groups_by_start: bool = False
    ) -> Iterator[GroupSum]:
        parameters = StatementParameters()
        known = self._dimension_expressions(query, parameters)
        names = [known[name] for name in query.group_by]
        needed = needed_sums(query.measures)
        places = [index for index, name in enumerate(_COLUMNS) if name in needed]
        wanted_sums = [_COLUMNS[index] for index in places]
        sums = [f"SUM(h.{name})::{'text' if name in MONEY else 'bigint'}" for name in wanted_sums]
        chosen = self._chosen_dimensions_sql(query, known, parameters)
        width, since, until, _ = spans[0]
        # Joining the dimensions to each row would cost more than adding up the rows first. But sums of units of work
        # would lose their unit.
        if query.unit_of_work is None and not groups_by_start and (len(spans) > 1 or until - since > width):
            summed = self._sums_by_dimension_number_sql(spans, chosen, wanted_sums, parameters)
        else:
            summed = f"(SELECT * FROM {self._span_sums_sql(spans[0], chosen, parameters, query)})"
        rows = self._run_unprepared(
            f"SELECT {', '.join(['h.start' if groups_by_start else '0', *names, 'k.status', 'k.cost_source', *sums])}"
            f" FROM {summed} h JOIN {{schema}}.ledger_keys k ON k.id = h.key {' '.join(parameters.joins)}"
            f"{self._only_groups_sql(query, known, parameters)}"
            f" GROUP BY {', '.join(str(index) for index in range(1 if groups_by_start else 2, len(names) + 4))}",
            parameters,
        )
        for start, *row in rows:
            group = tuple([value or None for value in row[: len(names)]])
            status, cost_source, *values = row[len(names) :]
            measures = [0] * WIDTH
            for index, value in zip(places, values, strict=True):
                measures[index] = money.text_to_units(value) if _COLUMNS[index] in MONEY else value
            yield GroupSum(group, status, cost_source, measures, start)

    def sums_by_dimension_set(self, spans: Sequence[Span], query: CostQuery) -> Iterator[Sequence[int]]:
        parameters = StatementParameters()
        chosen = self._chosen_dimensions_sql(
            query, self._dimension_expressions(query, parameters), parameters
        )
        summed = self._sums_by_dimension_number_sql(spans, chosen, (*COUNTS[:5], *MONEY), parameters)
        counts = ", ".join(f"{name}::bigint" for name in COUNTS[:5])
        amounts = ", ".join(f"{name}::text" for name in MONEY)
        for *values, reported, estimated in self._run_unprepared(
            f"SELECT key, {counts}, {amounts} FROM {summed} h", parameters
        ):
            yield (*values, money.text_to_units(reported), money.text_to_units(estimated))

    def groups_of_dimension_sets(
        self, dimension_set_numbers: Sequence[int], query: CostQuery
    ) -> Iterator[tuple[int, str, str, Group]]:
        parameters = StatementParameters()
        known = self._dimension_expressions(replace(query, include={}, exclude={}), parameters)
        names = [known[name] for name in query.group_by]
        rows = self._run_unprepared(
            f"SELECT {', '.join(['k.id', 'k.status', 'k.cost_source', *names])}"
            f" FROM {{schema}}.ledger_keys k {' '.join(parameters.joins)}"
            f" WHERE k.id = ANY({parameters.add(list(dimension_set_numbers))}::bigint[])",
            parameters,
        )
        for number, status, cost_source, *group in rows:
            yield number, status, cost_source, tuple([value or None for value in group])

    def group_count_and_largest_groups(
        self, spans: Sequence[Span], query: CostQuery, most: int | None
    ) -> tuple[int, Sequence[tuple[Group, float]]]:
        parameters = StatementParameters()
        known = self._dimension_expressions(query, parameters)
        names = [known[name] for name in query.group_by]
        chosen = self._chosen_dimensions_sql(query, known, parameters)
        if query.unit_of_work is None:
            summed = self._sums_by_dimension_number_sql(spans, chosen, MONEY, parameters)
        else:
            summed = f"(SELECT * FROM {self._span_sums_sql(spans[0], chosen, parameters, query)})"
        rows = self._run_unprepared(
            f"SELECT {', '.join(names)}, COUNT(*) OVER (), (SUM({COST}) * 1000000000)::float8 AS cost"
            f" FROM {summed} h JOIN {{schema}}.ledger_keys k ON k.id = h.key {' '.join(parameters.joins)}"
            f" GROUP BY {', '.join(str(index) for index in range(1, len(names) + 1))}"
            f" ORDER BY cost DESC LIMIT {parameters.add(most)}::bigint",
            parameters,
        )
        groups = [(tuple([value or None for value in row[:-2]]), row[-1]) for row in rows]
        return rows[0][-2] if rows else 0, groups

    def numbers_with_derived_value(self, dimension: DerivedDimension) -> Sequence[int]:
        parameters = StatementParameters()
        value = self._dimension_expression(dimension, parameters)
        joined = f"{{schema}}.ledger_keys k {' '.join(parameters.joins)}"
        rows = self._run_unprepared(f"SELECT k.id FROM {joined} WHERE {value} <> ''", parameters)
        return [number for (number,) in rows]

    def has_more_groups(self, query: CostQuery, max_groups: int) -> bool:
        if query.unit_of_work is not None:
            return True
        parameters = StatementParameters()
        names = self._dimension_expressions(replace(query, include={}, exclude={}), parameters).values()
        distinct = (
            f"SELECT DISTINCT {', '.join(names)} FROM {{schema}}.ledger_keys k {' '.join(parameters.joins)}"
        )
        return (
            len(self._run_unprepared(f"{distinct} LIMIT {parameters.add(max_groups + 1)}", parameters))
            > max_groups
        )

    def has_filters_excluding_nothing(self, query: CostQuery) -> bool:
        parameters = StatementParameters()
        plain = replace(query, group_by=(), only=None)
        terms = [*self._filter_conditions(plain, self._dimension_expressions(plain, parameters), parameters)]
        fails = (
            f"SELECT FROM {{schema}}.ledger_keys k {' '.join(parameters.joins)}"
            f" {_OF_CALLS} AND NOT ({' AND '.join(terms) or 'TRUE'})"
        )
        [(fails_any,)] = self._run_unprepared(f"SELECT EXISTS ({fails})", parameters)
        return not fails_any

    def _chosen_dimensions_sql(
        self, query: CostQuery, sql_by_dimension: Mapping[str, str], parameters: StatementParameters
    ) -> str:
        terms = [
            *self._filter_conditions(
                query.without_units() if query.unit_of_work else query, sql_by_dimension, parameters
            )
        ]
        if not terms:
            return ""
        visible = self._visible_dimensions_sql(sql_by_dimension, parameters)
        return f"{visible} {' '.join(parameters.joins)} WHERE {' AND '.join(terms)}"

    def _visible_dimensions_sql(
        self, sql_by_dimension: Mapping[str, str], parameters: StatementParameters
    ) -> str:
        """
        Return SQL for the dimensions of calls that a person may see. OFFSET 0 keeps the server from applying
        other filters first, because its running time would then reveal whether a hidden value exists.
        """
        if SLICE not in sql_by_dimension:
            return "{schema}.ledger_keys k"
        is_seen = sql_by_dimension[SLICE]
        [join] = [join for join in parameters.joins if is_seen.removesuffix("value") in join]
        return f"(SELECT k.* FROM {{schema}}.ledger_keys k {join} WHERE {is_seen} <> '' OFFSET 0) k"

    def _sums_by_dimension_number_sql(
        self,
        spans: Sequence[Span],
        chosen_keys_sql: str,
        columns: Sequence[str],
        parameters: StatementParameters,
    ) -> str:
        parts = [
            f"SELECT key, {', '.join(columns)} FROM {self._span_sums_sql(span, chosen_keys_sql, parameters)}"
            for span in spans
        ]
        sums = ", ".join(f"SUM({name}) AS {name}" for name in columns)
        return f"(SELECT key, {sums} FROM ({' UNION ALL '.join(parts)}) parts GROUP BY key)"

    def _span_sums_sql(
        self,
        span: Span,
        chosen_keys_sql: str,
        parameters: StatementParameters,
        query: CostQuery | None = None,
    ) -> str:
        """
        Return SQL for the sums of a span of time, read from the rollup that the span names, or from hours and
        days if it names none (0). Sums by unit of work need `query`.
        """
        width, since, until, rollup = span
        table = (
            self._filtered_sums_table_sql(query)
            if query and rollup == ROLLUP
            else self._rollup_source_sql(width, rollup)
        )
        return self._filtered_sums_sql(table, width, since, until, chosen_keys_sql, parameters)

    def _only_groups_sql(
        self, query: CostQuery, sql_by_dimension: Mapping[str, str], parameters: StatementParameters
    ) -> str:
        if query.only is None or query.work_unit_group_index is None or query.aggregated:
            return ""
        [term] = self._filter_conditions(replace(query, include={}, exclude={}), sql_by_dimension, parameters)
        return f" WHERE {term}"

    def _filtered_sums_sql(
        self,
        table_sql: str,
        period_s: int,
        since_s: int,
        until_s: int,
        chosen_keys_sql: str,
        parameters: StatementParameters,
    ) -> str:
        """
        Return SQL for the sums that pass the filters. `table_sql` is a table and the beginning of a condition.

        The dimensions that pass the filters are selected first. If there are few, their sums are looked up
        one by one.
        """
        first = period_start(period_s, since_s)
        starts = [*range(first if first == since_s else first + period_s, until_s, period_s)]
        numbers = (
            self._filtered_numbers(chosen_keys_sql, parameters, MOST_LISTED) if chosen_keys_sql else None
        )
        if numbers is not None and len(numbers) <= MOST_LOOKED_UP // max(len(starts), 1):
            of_starts = f"start = ANY({parameters.add(starts)}::bigint[])"
            return f"{table_sql} {of_starts} AND key = ANY({parameters.add(numbers)}::bigint[])"
        condition = f" AND key IN (SELECT k.id FROM {chosen_keys_sql})" if chosen_keys_sql else ""
        if numbers is not None:
            # a list, because the server underestimates how many numbers a derived dimension selects, and would
            # scan the index of the whole time once per number
            condition = f" AND key = ANY({parameters.add(numbers)}::bigint[])"
        return (
            f"{table_sql} start >= {parameters.add(since_s)} AND start < {parameters.add(until_s)}{condition}"
        )

    def _filtered_numbers(
        self, chosen_keys_sql: str, parameters: StatementParameters, max_numbers: int
    ) -> Sequence[int] | None:
        """
        Return the numbers of the sets of dimensions that pass the filters `chosen_keys_sql`, or None if there are more
        than `max_numbers`.

        The last result is cached, because one query reads several spans.
        """
        values = parameters.values
        statement, cached_values, limit, numbers = self._found
        is_same = statement == chosen_keys_sql and all(
            values.get(name) == value for name, value in cached_values.items()
        )
        if not is_same or len(numbers) > limit < max_numbers:
            rows = self._run_unprepared(
                f"SELECT k.id FROM {chosen_keys_sql} LIMIT {max_numbers + 1}", parameters
            )
            numbers = [number for (number,) in rows]
            self._found = (chosen_keys_sql, dict(values), max_numbers, numbers)
        return numbers if len(numbers) <= max_numbers else None

    def meter_totals(
        self, period_s: int, since_s: int, until_s: int, query: CostQuery, *, groups_by_start: bool = False
    ) -> Iterator[MeterSum]:
        parameters = StatementParameters()
        if query.meter == EVERY_METER:
            first, after = map(parameters.add, CHARGES)
            meter_filters = [f'NOT (h.meter COLLATE "C" >= {first} AND h.meter COLLATE "C" < {after})']
        else:
            meter_filters = [f"h.meter = {parameters.add(query.meter)}"]
        return self._read_meter_sums(
            parameters,
            period_s,
            since_s,
            until_s,
            query,
            "h.start" if groups_by_start else "0",
            meter_filters,
        )

    def charge_totals(
        self, period_s: int, since_s: int, until_s: int, query: CostQuery
    ) -> Iterator[MeterSum]:
        parameters = StatementParameters()
        first, after = map(parameters.add, CHARGES)
        meter_filters = [f'h.meter COLLATE "C" >= {first}', f'h.meter COLLATE "C" < {after}']
        return self._read_meter_sums(parameters, period_s, since_s, until_s, query, "h.start", meter_filters)

    def _read_meter_sums(
        self,
        parameters: StatementParameters,
        period_s: int,
        since_s: int,
        until_s: int,
        query: CostQuery,
        begin: str,
        condition: Sequence[str],
    ) -> Iterator[MeterSum]:
        known = self._dimension_expressions(query, parameters)
        names = [known[name] for name in query.group_by]
        terms = [
            f"h.width = {parameters.add(period_s)}",
            f"h.start >= {parameters.add(since_s)}",
            f"h.start < {parameters.add(until_s)}",
            *condition,
            *self._filter_conditions(query, known, parameters),
        ]
        columns = ", ".join([begin, *names, "k.status", "h.meter"])
        rows = self._run_unprepared(
            f"SELECT {columns}, SUM(h.whole)::bigint, SUM(h.millionths)::bigint"
            f" FROM {{schema}}.ledger_meters h JOIN {self._visible_dimensions_sql(known, parameters)} ON k.id = h.key"
            f" {' '.join(parameters.joins)} WHERE {' AND '.join(terms)}"
            f" GROUP BY {', '.join(str(index) for index in range(1 if begin != '0' else 2, len(names) + 4))}",
            parameters,
        )
        for start, *row, status, meter, whole, millionths in rows:
            group = tuple([value or None for value in row])
            yield MeterSum(group, status, whole * SCALE + millionths, start, meter)

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
        from spool.sql import billed

        parameters = StatementParameters()
        filters = billed.FilterParts.split_filters(query)
        known = self._dimension_expressions(filters.of_keys, parameters)
        chosen = self._chosen_dimensions_sql(filters.of_keys, known, parameters)
        known = self._dimension_expressions(query, parameters, known)
        group_columns = filters.columns_before_join(query, groups_by_start=groups_by_start)
        if "key" in group_columns or chosen or rollup:
            table = billed.billed_sums_from_and_where_sql(self.prefix, period_s, rollup)
            within = self._filtered_sums_sql(table, period_s, since_s, until_s, chosen, parameters)
        else:  # use the sums per day
            per_day = billed.billed_sums_sql(self.prefix, parameters.add(since_s), parameters.add(until_s))
            within = f"({per_day}) h WHERE TRUE"
        of_bills = [
            f"arranged & {parameters.add(query.arranged)} <> 0",
            *self._filter_conditions(filters.of_bills, known, parameters),
        ]
        # Joining the dimensions to each row would cost more than adding up the rows first.
        limbs = ", ".join(f"SUM({limb})::bigint AS {limb}" for limb in billed.LIMBS)
        group_sql = f" GROUP BY {', '.join(group_columns)}" if group_columns else ""
        keys = f" JOIN {{schema}}.ledger_keys k ON k.id = h.key {' '.join(parameters.joins)}"
        joined = keys if "key" in group_columns else ""
        terms = ["h.high IS NOT NULL", *self._filter_conditions(filters.of_both, known, parameters)]
        columns = ", ".join(
            ["h.start" if groups_by_start else "0", *(known[name] for name in query.group_by)]
        )
        rows = self._run_unprepared(
            f"SELECT {columns}, SUM(h.high)::bigint, SUM(h.middle)::bigint, SUM(h.low)::bigint"
            f" FROM (SELECT {', '.join([*group_columns, limbs])} FROM {within}"
            f" AND {' AND '.join(of_bills)}{group_sql}) h{joined}"
            f" WHERE {' AND '.join(terms)}"
            f" GROUP BY {', '.join(str(index) for index in range(1, len(query.group_by) + 2))}",
            parameters,
        )
        yield from billed.parse_group_sums(rows)

    def _filter_conditions(
        self, query: CostQuery, sql_by_dimension: Mapping[str, str], parameters: StatementParameters
    ) -> Iterator[str]:
        for word, chosen in (("= ANY", query.include), ("<> ALL", query.exclude)):
            for name, wanted_values in chosen.items():
                values = parameters.add(list(map(storable_value, wanted_values)))
                yield f"{sql_by_dimension[name]} {word}({values}::text[])"
        if query.only is not None:
            columns = [list(map(storable_value, values)) for values in zip(*query.only, strict=True)]
            listed = ", ".join(
                [f"{parameters.add([value or '' for value in values])}::text[]" for values in columns]
            )
            dimensions = ", ".join([sql_by_dimension[name] for name in query.group_by])
            yield f"({dimensions}) IN (SELECT * FROM unnest({listed}))"

    def first_period_start_with_dimension(self, period_s: int, dimension: str) -> int | None:
        parameters = StatementParameters()
        value = self._dimension_expression(dimension, parameters)
        known = f"SELECT id FROM {{schema}}.ledger_keys k WHERE {value} <> ''"
        statement = f"SELECT MIN(start) FROM {self._sums_table(period_s)} WHERE key IN ({known})"
        [(start,)] = self._run_unprepared(statement, parameters)
        return None if start is None else int(start)

    def values(self, dimension: str | DerivedDimension, max_values: int) -> Sequence[str]:
        if isinstance(dimension, DerivedDimension):
            derived_values = {
                dimension.value(sources) for sources in self._read_combinations(dimension.sources, _OF_CALLS)
            }
            return sorted(derived_values - {""})[:max_values]
        parameters = StatementParameters()
        expression = self._dimension_expression(dimension, parameters)
        statement = (
            f'SELECT value FROM (SELECT DISTINCT {expression} COLLATE "C" AS value FROM '
            f"{{schema}}.ledger_keys k {_OF_CALLS}) known"
            f" WHERE value <> '' ORDER BY value LIMIT {parameters.add(max_values)}"
        )
        return [value for (value,) in self._run_unprepared(statement, parameters)]

    def _dimension_expressions(
        self,
        query: CostQuery,
        parameters: StatementParameters,
        sql_by_dimension: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        expressions = dict(sql_by_dimension or {})
        for name in query.used_dimensions:
            if name in UNITS:
                expressions[name] = self._unit_name_sql(name, query)
            elif name not in expressions:
                expressions[name] = self._dimension_expression(query.derived.get(name, name), parameters)
        return expressions

    def _dimension_expression(
        self, dimension: str | DerivedDimension, parameters: StatementParameters
    ) -> str:
        """
        Return the SQL expression of a dimension. Values of derived dimensions are computed in Python for all
        stored values of their sources, and the query joins them by these.
        """
        if not isinstance(dimension, DerivedDimension):
            return dimension_sql(dimension, parameters)
        known = self._read_combinations(dimension.sources)
        name = f"d{len(parameters.joins)}"
        columns = [f"s{index}" for index in range(len(dimension.sources))]
        arrays = [*map(list, zip(*known, strict=True))] if known else [[] for _ in columns]
        texts = [
            parameters.add(text_array)
            for text_array in (*arrays, [storable_value(dimension.value(sources)) for sources in known])
        ]
        equal = [
            f"{name}.{column} = {dimension_sql(source, parameters)}"
            for column, source in zip(columns, dimension.sources, strict=True)
        ]
        parameters.joins.append(
            f"JOIN unnest({', '.join(f'{text}::text[]' for text in texts)}) AS "
            f"{name}({', '.join([*columns, 'value'])})"
            f" ON {' AND '.join(equal) or 'TRUE'}"
        )
        return f"{name}.value"

    def value_combinations(self, dimensions: Sequence[str]) -> Iterator[Sequence[tuple[str, ...]]]:
        found = self._read_combinations(dimensions, _OF_CALLS)
        if found:
            yield found

    def _read_combinations(self, dimensions: Sequence[str], condition: str = "") -> list[tuple[str, ...]]:
        if not dimensions:
            return [()]
        parameters = StatementParameters()
        columns = ", ".join(dimension_sql(dimension, parameters) for dimension in dimensions)
        statement = f"SELECT DISTINCT {columns} FROM {{schema}}.ledger_keys k {condition}"
        return self._run_unprepared(statement, parameters)

    def _read_measures(self, values: Sequence[Any]) -> Measures:
        named_values = zip(_COLUMNS, values, strict=True)
        return [money.text_to_units(value) if name in MONEY else value for name, value in named_values]

    def _run_unprepared(self, statement: str, parameters: StatementParameters) -> list[tuple[Any, ...]]:
        """
        Run a statement that only one query uses. It bypasses the cache of `Database.fill_in_table_names`, which
        would grow with every query.

        The server plans it for its actual values. A generic plan would assume that a filter selects almost
        nothing.
        """
        text = statement.replace("{schema}", self._database.schema).encode()
        return self._connection.execute(text, parameters.values, prepare=False).fetchall()

    def _all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._database.fill_in_table_names(statement), values).fetchall()

    def _run(self, statement: str, *values: Any) -> int:
        return self._connection.execute(self._database.fill_in_table_names(statement), values).rowcount


def _array_text(numbers: Iterable[str]) -> str:
    """Return an array as text, because the driver would examine each element of a list."""
    return f"{{{','.join(numbers)}}}"


# -- the store -----------------------------------------------------------------------------------------------


T = TypeVar("T")


class PostgresLedger:
    shares_log = True

    def __init__(self, database: Database) -> None:
        self._database = database

    async def change(self, work: Callable[[LedgerRows], T]) -> T:
        """
        Run `work` in a transaction that waits for no standby.

        If a failover loses the sums, it also loses their progress, so the missing records are counted again
        from the log.
        """

        def lock_rows_and_run_work(connection: Connection) -> T:
            lock_sums(connection, self._database)
            return work(PostgresLedgerRows(connection, self._database))

        return await self._database.transaction(lock_rows_and_run_work)

    async def read(self, work: Callable[[LedgerRows], T]) -> T:
        return await self._database.snapshot(
            lambda connection: work(PostgresLedgerRows(connection, self._database))
        )

    async def overwrite_deleted_data(self) -> str:
        """
        Return "" (nothing to report), because the storage reports what deleted rows leave on disk, for all
        tables at once.
        """
        return ""

    async def close(self) -> None:
        """Do nothing, because the database is closed by the code that opened it."""
