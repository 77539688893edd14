"""The ledger's rows in PostgreSQL, as functions of a connection inside its transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from spool.ledger import money
from spool.ledger.derived import Derived
from spool.ledger.ledger_rows import GroupSum, MeterSum
from spool.ledger.queries import (
    BILLED,
    BILLED_DIMENSIONS,
    DIMENSIONS,
    EVERY_METER,
    PRICED_BY,
    ROW_DIMENSIONS,
    ROW_TAG,
    TAG,
    CostQuery,
    Group,
    needed_sums,
)
from spool.ledger.sums import COUNTS, LATENCY, MONEY, WIDTH, Dimensions, Measures
from spool.meters import SCALE
from spool.postgres.database import Connection, Database
from spool.postgres.transactions import PostgresConnection
from spool.sql.ledger import CHARGES, SqlLedgerRows, billed_measures

_COLUMNS = (*COUNTS, *MONEY, *LATENCY)
_NAMES = ", ".join(_COLUMNS)
_ADDED = ", ".join(f"{name} = old.{name} + excluded.{name}" for name in _COLUMNS)
# Money as text: a Decimal is rounded by whatever context computes with it.
_ARRAYS = ", ".join(
    [
        "%s::bigint[]",
        "%s::bigint[]",
        *("%s::numeric[]" if name in MONEY else "%s::bigint[]" for name in _COLUMNS),
    ]
)
_KEY_COLUMNS = ", ".join(f'"{name}"' for name in Dimensions._fields)
_KEY_VALUES = ", ".join("%s" for _ in Dimensions._fields)

_COST = (  # what counts of a sum
    "CASE WHEN k.status = 'cached' THEN 0 WHEN k.cost_source = 'reported' THEN h.reported"
    " WHEN k.cost_source = 'estimated' THEN h.estimated ELSE 0 END"
)
_OF_CALLS = f"WHERE k.kind <> '{BILLED}'"
_OF_ROWS = f"WHERE k.kind = '{BILLED}'"
# of numbers in one transaction, each a way to the server and back; then all are read at once
MOST_LOOKUPS = 16

_LOCK = "SELECT FROM {schema}.ledger_state WHERE name = 'reach' FOR UPDATE"
_ADD_KEY = f"""
    INSERT INTO {{schema}}.ledger_keys (digest, tag_values, {_KEY_COLUMNS}) VALUES (%s, %s::jsonb, {_KEY_VALUES})
    RETURNING id"""
_DROP_KEYS = """
    DELETE FROM {schema}.ledger_keys k
     WHERE NOT EXISTS (SELECT FROM {schema}.ledger_hours h WHERE h.key = k.id)
       AND NOT EXISTS (SELECT FROM {schema}.ledger_days d WHERE d.key = k.id)
       AND NOT EXISTS (SELECT FROM {schema}.ledger_billed b WHERE b.key = k.id)"""


def lock(connection: Connection, database: Database) -> None:
    """Wait until nobody else changes sums; what is read from here on is the newest."""
    connection.execute(database.sql(_LOCK))


class PostgresLedgerRows(SqlLedgerRows):
    """See `spool.ledger.ledger_rows.LedgerRows`."""

    prefix = "ledger_"
    columns = _COLUMNS
    shown = tuple(f"CAST(h.{name} AS text)" if name in MONEY else f"h.{name}" for name in _COLUMNS)

    def __init__(self, connection: Connection, database: Database) -> None:
        super().__init__(PostgresConnection(connection, database.sql))
        self._connection = connection
        self._database = database
        self._lookups = 0
        # of all dimensions, once some were looked up one by one
        self._numbers: dict[bytes, int] | None = None

    def number(self, dimensions: Dimensions) -> int:
        number = self.find_number(dimensions)
        if number is None:
            digest, values = digest_of(dimensions), [stored(value) for value in dimensions]
            [(number,)] = self._all(_ADD_KEY, digest, tag_values(dimensions.tags), *values)
            if self._numbers is not None:
                self._numbers[digest] = number
        return number

    def find_number(self, dimensions: Dimensions) -> int | None:
        digest = digest_of(dimensions)
        if self._numbers is None and self._lookups < MOST_LOOKUPS:
            self._lookups += 1
            rows = self._all("SELECT id FROM {schema}.ledger_keys WHERE digest = %s", digest)
            return rows[0][0] if rows else None
        if self._numbers is None:
            self._numbers = dict(self._all("SELECT digest, id FROM {schema}.ledger_keys"))
        return self._numbers.get(digest)

    def drop_unused_numbers(self) -> int:
        self._numbers = None
        return self._run(_DROP_KEYS)

    def add(self, width: int, sums: Iterable[tuple[int, int, Measures]]) -> None:
        together: dict[tuple[int, int], Measures] = {}
        for start, number, measures in sums:  # a statement can change a row only once
            before = together.get((start, number))
            if before is not None:
                measures = [a + b for a, b in zip(before, measures, strict=True)]
            together[start, number] = measures
        self._unmark_changed(width, {start for start, _ in together})
        if together:
            rows = [(*place, *_columns(measures)) for place, measures in sorted(together.items())]
            self._run(
                f"INSERT INTO {self._of(width)} AS old (start, key, {_NAMES}) SELECT * FROM unnest({_ARRAYS})"
                f" ON CONFLICT (start, key) DO UPDATE SET {_ADDED}",
                *map(list, zip(*rows, strict=True)),
            )

    def totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False, rollup: int = 0
    ) -> Iterator[GroupSum]:
        asked = _Question()
        known = self._expressions(query, asked)
        names = [known[name] for name in query.group_by]
        terms = [*self._filters(query, known, asked)]
        needed = needed_sums(query.measures)
        places = [place for place, name in enumerate(_COLUMNS) if name in needed]
        wanted_sums = [_COLUMNS[place] for place in places]
        sums = [f"SUM(h.{name})::{'text' if name in MONEY else 'bigint'}" for name in wanted_sums]
        of = self._of_rollup(width, rollup)
        within = f"{of} start >= {asked.text(since)} AND start < {asked.text(until)}"
        if terms:  # what the filters let through is chosen before anything is added up
            chosen = f"{{schema}}.ledger_keys k {' '.join(asked.joins)} WHERE {' AND '.join(terms)}"
            within += f" AND key IN (SELECT k.id FROM {chosen})"
        # Looking up the dimensions of every row takes longer than adding it up.
        if until - since > width and not by_start:
            by_number = ", ".join(f"SUM({name}) AS {name}" for name in wanted_sums)
            summed = f"(SELECT key, {by_number} FROM {within} GROUP BY key)"
        else:
            summed = f"(SELECT * FROM {within})"
        rows = self._ask(
            f"SELECT {', '.join(['h.start' if by_start else '0', *names, 'k.status', 'k.cost_source', *sums])}"
            f" FROM {summed} h JOIN {{schema}}.ledger_keys k ON k.id = h.key {' '.join(asked.joins)}"
            f" GROUP BY {', '.join(str(place) for place in range(1 if by_start else 2, len(names) + 4))}",
            asked,
        )
        for start, *row in rows:
            group = tuple([value or None for value in row[: len(names)]])
            status, cost_source, *values = row[len(names) :]
            measures = [0] * WIDTH
            for place, value in zip(places, values, strict=True):
                measures[place] = money.units(value) if _COLUMNS[place] in MONEY else value
            yield GroupSum(group, status, cost_source, measures, start)

    def largest(
        self, spans: Sequence[tuple[int, int, int, int]], query: CostQuery, most: int
    ) -> tuple[int, Sequence[tuple[Group, float]]]:
        asked = _Question()
        known = self._expressions(query, asked)
        names = [known[name] for name in query.group_by]
        among = ""
        if terms := [*self._filters(query, known, asked)]:
            chosen = f"{{schema}}.ledger_keys k {' '.join(asked.joins)} WHERE {' AND '.join(terms)}"
            among = f" AND key IN (SELECT k.id FROM {chosen})"
        parts = [
            f"SELECT key, {', '.join(MONEY)} FROM {self._of_rollup(width, rollup)}"
            f" start >= {asked.text(since)} AND start < {asked.text(until)}{among}"
            for width, since, until, rollup in spans
        ]
        by_number = ", ".join(f"SUM({name}) AS {name}" for name in MONEY)
        summed = f"(SELECT key, {by_number} FROM ({' UNION ALL '.join(parts)}) parts GROUP BY key)"
        rows = self._ask(
            f"SELECT {', '.join(names)}, COUNT(*) OVER (), (SUM({_COST}) * 1000000000)::float8 AS cost"
            f" FROM {summed} h JOIN {{schema}}.ledger_keys k ON k.id = h.key {' '.join(asked.joins)}"
            f" GROUP BY {', '.join(str(place) for place in range(1, len(names) + 1))}"
            f" ORDER BY cost DESC LIMIT {asked.text(most)}",
            asked,
        )
        groups = [(tuple([value or None for value in row[:-2]]), row[-1]) for row in rows]
        return rows[0][-2] if rows else 0, groups

    def meter_totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False
    ) -> Iterator[MeterSum]:
        asked = _Question()
        if query.meter == EVERY_METER:
            first, after = map(asked.text, CHARGES)
            which = [f'NOT (h.meter COLLATE "C" >= {first} AND h.meter COLLATE "C" < {after})']
        else:
            which = [f"h.meter = {asked.text(query.meter)}"]
        return self._metered(asked, width, since, until, query, "h.start" if by_start else "0", which)

    def charge_totals(self, width: int, since: int, until: int, query: CostQuery) -> Iterator[MeterSum]:
        asked = _Question()
        first, after = map(asked.text, CHARGES)
        which = [f'h.meter COLLATE "C" >= {first}', f'h.meter COLLATE "C" < {after}']
        return self._metered(asked, width, since, until, query, "h.start", which)

    def _metered(
        self,
        asked: _Question,
        width: int,
        since: int,
        until: int,
        query: CostQuery,
        begin: str,
        which: Sequence[str],
    ) -> Iterator[MeterSum]:
        known = self._expressions(query, asked)
        names = [known[name] for name in query.group_by]
        terms = [
            f"h.width = {asked.text(width)}",
            f"h.start >= {asked.text(since)}",
            f"h.start < {asked.text(until)}",
            *which,
            *self._filters(query, known, asked),
        ]
        columns = ", ".join([begin, *names, "k.status", "h.meter"])
        rows = self._ask(
            f"SELECT {columns}, SUM(h.whole)::bigint, SUM(h.millionths)::bigint"
            f" FROM {{schema}}.ledger_meters h JOIN {{schema}}.ledger_keys k ON k.id = h.key"
            f" {' '.join(asked.joins)} WHERE {' AND '.join(terms)}"
            f" GROUP BY {', '.join(str(place) for place in range(1 if begin != '0' else 2, len(names) + 4))}",
            asked,
        )
        for start, *row, status, meter, whole, millionths in rows:
            group = tuple([value or None for value in row])
            yield MeterSum(group, status, whole * SCALE + millionths, start, meter)

    def billed_totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False
    ) -> Iterator[GroupSum]:
        asked = _Question()
        known = self._expressions(query, asked)
        terms = [
            f"h.start >= {asked.text(since)}",
            f"h.start < {asked.text(until)}",
            f"h.arranged & {asked.text(query.arranged)} <> 0",
            *self._filters(query, known, asked),
        ]
        columns = ", ".join(["h.start" if by_start else "0", *(known[name] for name in query.group_by)])
        rows = self._ask(
            f"SELECT {columns}, SUM(h.high)::bigint, SUM(h.middle)::bigint, SUM(h.low)::bigint"
            f" FROM {{schema}}.ledger_billed h JOIN {{schema}}.ledger_keys k ON k.id = h.key"
            f" {' '.join(asked.joins)} WHERE {' AND '.join(terms)}"
            f" GROUP BY {', '.join(str(place) for place in range(1, len(query.group_by) + 2))}",
            asked,
        )
        for start, *row, high, middle, low in rows:
            group = tuple([value or None for value in row])
            yield GroupSum(group, "ok", "reported", billed_measures(high, middle, low), start)

    def _filters(self, query: CostQuery, known: Mapping[str, str], asked: _Question) -> Iterator[str]:
        """Yield the conditions of what a question includes and excludes, by the expressions of dimensions."""
        for word, chosen in (("= ANY", query.include), ("<> ALL", query.exclude)):
            for name, wanted in chosen.items():
                yield f"{known[name]} {word}({asked.text(list(map(stored, wanted)))}::text[])"

    def first_known(self, width: int, dimension: str) -> int | None:
        asked = _Question()
        known = f"SELECT id FROM {{schema}}.ledger_keys k WHERE {self._expression(dimension, asked)} <> ''"
        statement = f"SELECT MIN(start) FROM {self._of(width)} WHERE key IN ({known})"
        [(start,)] = self._ask(statement, asked)
        return None if start is None else int(start)

    def values(self, dimension: str | Derived, limit: int, *, of_rows: bool = False) -> Sequence[str]:
        condition = _OF_ROWS if of_rows else _OF_CALLS
        if isinstance(dimension, Derived):
            found = {dimension.value(sources) for sources in self._sources_of(dimension, condition)}
            return sorted(found - {""})[:limit]
        asked = _Question()
        expression = self._expression(dimension, asked)
        statement = (
            f'SELECT value FROM (SELECT DISTINCT {expression} COLLATE "C" AS value FROM '
            f"{{schema}}.ledger_keys k {condition}) known"
            f" WHERE value <> '' ORDER BY value LIMIT {asked.text(limit)}"
        )
        return [value for (value,) in self._ask(statement, asked)]

    def _expressions(self, query: CostQuery, asked: _Question) -> dict[str, str]:
        """SQL for each dimension that a query names."""
        return {name: self._expression(query.derived.get(name, name), asked) for name in query.named}

    def _expression(self, dimension: str | Derived, asked: _Question) -> str:
        """
        SQL for a dimension; a derived one is joined, as it is only known here what it is of which sources.
        """
        if not isinstance(dimension, Derived):
            return _own(dimension, asked)
        known = self._sources_of(dimension)
        name = f"d{len(asked.joins)}"
        columns = [f"s{place}" for place in range(len(dimension.sources))]
        arrays = [*map(list, zip(*known, strict=True))] if known else [[] for _ in columns]
        texts = [
            asked.text(each) for each in (*arrays, [stored(dimension.value(sources)) for sources in known])
        ]
        equal = [
            f"{name}.{column} = {_own(source, asked)}"
            for column, source in zip(columns, dimension.sources, strict=True)
        ]
        asked.joins.append(
            f"JOIN unnest({', '.join(f'{text}::text[]' for text in texts)}) AS "
            f"{name}({', '.join([*columns, 'value'])})"
            f" ON {' AND '.join(equal) or 'TRUE'}"
        )
        return f"{name}.value"

    def _sources_of(self, dimension: Derived, condition: str = "") -> list[tuple[str, ...]]:
        """Every set of values that the sources of a derived dimension have."""
        if not dimension.sources:
            return [()]
        asked = _Question()
        columns = ", ".join(_own(source, asked) for source in dimension.sources)
        statement = f"SELECT DISTINCT {columns} FROM {{schema}}.ledger_keys k {condition}"
        return self._ask(statement, asked)

    def _measures(self, values: Sequence[Any]) -> Measures:
        return [
            money.units(value) if name in MONEY else value
            for name, value in zip(_COLUMNS, values, strict=True)
        ]

    def _ask(self, statement: str, asked: _Question) -> list[tuple[Any, ...]]:
        """
        Run a statement that was made for one question, past the cache of `Database.sql`, which would remember
        each of them. It is planned for its values: a plan for any values takes a filter to let nearly nothing
        through.
        """
        text = statement.replace("{schema}", self._database.schema).encode()
        return self._connection.execute(text, asked.values, prepare=False).fetchall()

    def _all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._database.sql(statement), values).fetchall()

    def _run(self, statement: str, *values: Any) -> int:
        """Run a statement and return how many rows it changed."""
        return self._connection.execute(self._database.sql(statement), values).rowcount


class _Question:
    """The parameters of one statement, and what it joins to the dimensions."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.joins: list[str] = []

    def text(self, value: Any) -> str:
        """The place of a parameter."""
        name = f"p{len(self.values)}"
        self.values[name] = value
        return f"%({name})s"


def _own(dimension: str, asked: _Question) -> str:
    if dimension in DIMENSIONS:
        return f'k."{dimension}"'
    if dimension in PRICED_BY:
        return f'CAST(k."{dimension}" AS text)'
    if dimension == "origin":
        return f"COALESCE(NULLIF({_own(TAG + ROW_TAG + dimension, asked)}, ''), 'calls')"
    if dimension in ROW_DIMENSIONS:
        return _own(TAG + ROW_TAG + dimension, asked)
    if dimension == "corrects":  # what stands behind a mark in the key of a provider
        return "split_part(h.provider, chr(31), 2)"
    if dimension in BILLED_DIMENSIONS:
        return f"h.{dimension}"
    return f"COALESCE(k.tag_values ->> {asked.text(stored(dimension.removeprefix(TAG)))}::text, '')"


def _columns(measures: Measures) -> Iterator[int | str]:
    for name, value in zip(_COLUMNS, measures, strict=True):
        yield money.text(value) if name in MONEY else value


def digest_of(dimensions: Dimensions) -> bytes:
    return blake2b(json.dumps(dimensions).encode(), digest_size=16).digest()


def stored(value: Any) -> Any:
    """A value as PostgreSQL can keep it: its texts have no U+0000 and no half of a character."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def tag_values(tags: str) -> str:
    """
    The tags as they are asked for. Of a text that an earlier version cut off nothing is known: it is not JSON.
    """
    try:
        values = json.loads(tags) if tags else {}
    except ValueError:
        values = {}
    return json.dumps({stored(name): stored(value) for name, value in values.items()}, ensure_ascii=False)
