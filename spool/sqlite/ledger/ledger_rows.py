"""The rows of ledger.sqlite, as functions of a connection inside its transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any

from spool.ledger import money
from spool.ledger.derived import Derived, DerivedDimensions
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
from spool.ledger.sums import COUNTS, LATENCY, MONEY, Dimensions, Measures, begin
from spool.meters import SCALE
from spool.sql.ledger import CHARGES, TABLES, SqlLedgerRows, billed_measures
from spool.sqlite.migrations import migrate
from spool.sqlite.transactions import SqliteConnection

COLUMNS = (*COUNTS, *(f"{name}_{limb}" for name in MONEY for limb in (1, 2, 3)), *LATENCY)

_REPORTED, _ESTIMATED = (
    slice(first, first + 3) for first in (len(COUNTS), len(COUNTS) + 3)
)  # of a row, as MONEY
# Measures that came after the first version of the file: columns at the end of its tables.
_ADDED_LATER = ("cache_write_1h_tokens",)

_NAMES = ", ".join(COLUMNS)
_WIDTH = len(Dimensions._fields)
_MARKS = ", ".join("?" * (2 + len(COLUMNS)))
_ADDED = ", ".join(f"{column} = {column} + excluded.{column}" for column in COLUMNS)
_FIND_NUMBER = f"SELECT id FROM keys WHERE {' AND '.join(f'{name} = ?' for name in Dimensions._fields)}"
_ADD_NUMBER = f"INSERT INTO keys ({', '.join(Dimensions._fields)}) VALUES ({', '.join('?' * _WIDTH)})"
_FEW = 3  # starts of sums: of more, sums of one number are added up before their dimensions are looked up
_LOOKED_UP = 20_000  # sums: more are found sooner by going through all of their time
_LIMBS = tuple(f"{name}_{limb}" for name in MONEY for limb in (1, 2))  # without the lowest
# What counts of a sum. Limbs are added up as integers: a sum of doubles that cancel each other is wrong by more.
_COST_LIMBS = [
    "SUM(CASE WHEN k.status = 'cached' THEN 0"
    f" WHEN k.cost_source = 'reported' THEN h.reported_{limb}"
    f" WHEN k.cost_source = 'estimated' THEN h.estimated_{limb} ELSE 0 END)"
    for limb in (1, 2)
]
_NONE_CHOSEN: tuple[Sequence[str], int, Sequence[int]] = (
    (),
    0,
    (),
)  # a filter, at most so many numbers, and these
_LIMBS_OF_BILLED = ("high", "middle", "low")
_FUNCTION = "derived"  # of a connection: takes the name of a derived dimension and the values of its sources
# Regions came with the third version: sums of before have none.
_REGIONS = """
    ALTER TABLE keys ADD COLUMN region TEXT NOT NULL DEFAULT '';
    DROP INDEX keys_by_dimensions;
    CREATE UNIQUE INDEX keys_by_dimensions ON keys (
        model, user, device, api_key, team, tags, source, provider, request_model, status, cost_source, kind, mode,
        size, region
    );"""
# The names of keys came with the fourth.
_SENDERS = """
    ALTER TABLE keys ADD COLUMN sender TEXT NOT NULL DEFAULT '';
    DROP INDEX keys_by_dimensions;
    CREATE UNIQUE INDEX keys_by_dimensions ON keys (
        model, user, device, api_key, team, tags, source, provider, request_model, status, cost_source, kind, mode,
        size, region, sender
    );"""
# Meters came with the fifth.
_METERS = """
    CREATE TABLE meters (
        width INTEGER NOT NULL,
        start INTEGER NOT NULL,
        key INTEGER NOT NULL,
        meter TEXT NOT NULL,
        whole INTEGER NOT NULL,
        millionths INTEGER NOT NULL,
        PRIMARY KEY (width, start, key, meter)
    ) STRICT, WITHOUT ROWID;"""

# Rollups came with the seventh.
_ROLLED = """
    CREATE TABLE rolled (
        width INTEGER NOT NULL,
        start INTEGER NOT NULL,
        rollup INTEGER NOT NULL,
        PRIMARY KEY (width, start, rollup)
    ) STRICT, WITHOUT ROWID;"""


def prepare(connection: sqlite3.Connection) -> None:
    """Bring the file to the newest version."""
    schema, billed = (
        files(__package__).joinpath(f"{name}.sql").read_text("utf-8") for name in ("schema", "billed")
    )
    first = [column for column in COLUMNS if column not in _ADDED_LATER]
    columns = ",\n".join(f"{column} INTEGER NOT NULL" for column in first)
    tables = "\n".join(
        f"CREATE TABLE {table} (start INTEGER NOT NULL, key INTEGER NOT NULL,\n{columns},\n"
        "PRIMARY KEY (start, key)) STRICT, WITHOUT ROWID;"
        for table in TABLES.values()
    )
    added = (
        f"ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0;"
        for table in TABLES.values()
        for column in _ADDED_LATER
    )
    sums = ", ".join(f"{column} INTEGER NOT NULL" for column in COLUMNS)
    rollups = (
        "CREATE TABLE rollups (rollup INTEGER NOT NULL, width INTEGER NOT NULL, start INTEGER NOT NULL,"
        f" key INTEGER NOT NULL, {sums}, PRIMARY KEY (rollup, width, start, key)) STRICT, WITHOUT ROWID;"
    )
    later = ("\n".join(added), _REGIONS, _SENDERS, _METERS, billed, _ROLLED + rollups)
    migrate(connection, (schema + tables, *later))


class SqliteLedgerRows(SqlLedgerRows):
    """See `spool.ledger.ledger_rows.LedgerRows`."""

    columns = COLUMNS
    shown = tuple(f"h.{name}" for name in COLUMNS)

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(SqliteConnection(connection))
        self._connection = connection
        self._chosen: tuple[Sequence[str], int, Sequence[int]] = _NONE_CHOSEN

    def number(self, dimensions: Dimensions) -> int:
        number = self.find_number(dimensions)
        if number is None:
            self._chosen = _NONE_CHOSEN
            number = self._connection.execute(_ADD_NUMBER, dimensions).lastrowid
        assert number is not None
        return number

    def find_number(self, dimensions: Dimensions) -> int | None:
        row = self._connection.execute(_FIND_NUMBER, dimensions).fetchone()
        return row[0] if row else None

    def drop_unused_numbers(self) -> int:
        self._chosen = _NONE_CHOSEN
        used = " UNION ".join(f"SELECT key FROM {table}" for table in (*TABLES.values(), "billed"))
        return self._connection.execute(f"DELETE FROM keys WHERE id NOT IN ({used})").rowcount

    def add(self, width: int, sums: Iterable[tuple[int, int, Measures]]) -> None:
        sums = list(sums)
        self._unmark_changed(width, {start for start, _, _ in sums})
        self._connection.executemany(
            f"INSERT INTO {TABLES[width]} (start, key, {_NAMES}) VALUES ({_MARKS}) ON CONFLICT DO UPDATE SET "
            f"{_ADDED}",
            ((start, number, *_columns(measures)) for start, number, measures in sums),
        )

    def totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False, rollup: int = 0
    ) -> Iterator[GroupSum]:
        self._derive(query.derived)
        names = [_shown(query.derived.get(name, name)) for name in query.group_by]
        needed = needed_sums(query.measures)
        wanted = [name for name in COLUMNS if name in needed or name.rpartition("_")[0] in MONEY]
        read = COLUMNS if LATENCY[0] in needed else COLUMNS[: -len(LATENCY)]
        sums = [f"SUM(h.{name})" if name in wanted else "0" for name in read]
        columns = ", ".join(["h.start" if by_start else "0", "k.status", "k.cost_source", *names, *sums])
        # Names first: most rows have one status and one cost source, so these tell few of them apart.
        places = (*range(4, len(names) + 4), *range(1 if by_start else 2, 4))
        grouped = ", ".join(map(str, places))
        of = self._of_rollup(width, rollup).replace("{schema}.", "")
        within, values = self._within(of, width, since, until, query)
        # Looking up the dimensions of every row takes longer than adding it up, but for a few days.
        if until - since > _FEW * width and not by_start:
            by_number = ", ".join(f"SUM({name}) AS {name}" for name in wanted)
            summed = f"(SELECT key, {by_number} FROM {within} GROUP BY key)"
        else:
            summed = f"(SELECT * FROM {within})"
        rows = self._connection.execute(
            f"SELECT {columns} FROM {summed} h JOIN keys k ON k.id = h.key GROUP BY {grouped}",
            values,
        )
        end, rest = 3 + len(names), (0,) * (len(COLUMNS) - len(read))
        reported, estimated = end + _REPORTED.start, end + _ESTIMATED.start
        after, joined = end + _ESTIMATED.stop, money.joined
        for row in rows:
            units = joined(*row[reported:estimated]), joined(*row[estimated:after])
            measures = [*row[end:reported], *units, *row[after:], *rest]
            yield GroupSum(row[3:end], row[1], row[2], measures, row[0])

    def largest(
        self, spans: Sequence[tuple[int, int, int, int]], query: CostQuery, most: int
    ) -> tuple[int, Sequence[tuple[Group, float]]]:
        self._derive(query.derived)
        names = [_shown(query.derived.get(name, name)) for name in query.group_by]
        parts, values = list[str](), list[int | str]()
        for width, since, until, rollup in spans:
            of = self._of_rollup(width, rollup).replace("{schema}.", "")
            within, given = self._within(of, width, since, until, query)
            parts.append(f"SELECT key, {', '.join(_LIMBS)} FROM {within}")
            values += given
        by_number = ", ".join(f"SUM({name}) AS {name}" for name in _LIMBS)
        summed = f"(SELECT key, {by_number} FROM ({' UNION ALL '.join(parts)}) GROUP BY key)"
        grouped = ", ".join(str(place) for place in range(1, len(names) + 1))
        rows = self._connection.execute(
            f"SELECT {', '.join(names)}, COUNT(*) OVER (), {_COST_LIMBS[0]} + {_COST_LIMBS[1]} / 1e9 AS cost"
            f" FROM {summed} h JOIN keys k ON k.id = h.key GROUP BY {grouped} ORDER BY cost DESC LIMIT ?",
            (*values, most),
        ).fetchall()
        return rows[0][-2] if rows else 0, [(row[:-2], row[-1]) for row in rows]

    def _within(
        self, of: str, width: int, since: int, until: int, query: CostQuery
    ) -> tuple[str, Sequence[int | str]]:
        """
        The sums of a question, with their parameters; `of` is a table and the begin of a condition. The numbers
        that a filter lets through are chosen first:
        where they are few, their sums are looked up one by one.
        """
        terms, values = _where(query)
        if not terms:
            return f"{of} start >= ? AND start < ?", (since, until)
        chosen = f"SELECT id FROM keys k WHERE TRUE{terms}"
        first = begin(width, since)
        starts = range(first if first == since else first + width, until, width)
        most = _LOOKED_UP // max(len(starts), 1)
        numbers = self._numbers(chosen, values, most)
        if numbers is None:
            return f"{of} start >= ? AND start < ? AND key IN ({chosen})", (since, until, *values)
        listed = "(SELECT value FROM json_each(?))"
        given = (json.dumps([*starts]), json.dumps(numbers))
        return f"{of} start IN {listed} AND key IN {listed}", given

    def _numbers(self, chosen: str, values: Sequence[str], most: int) -> Sequence[int] | None:
        """
        The numbers that a filter lets through; None if there are more than `most`. Those of the filter before are kept:
        one question asks for several stretches of sums, and goes through all dimensions once.
        """
        asked = (chosen, *values)
        known, limit, numbers = self._chosen
        if known != asked or len(numbers) > limit < most:
            rows = self._connection.execute(f"{chosen} LIMIT ?", (*values, most + 1))
            limit, numbers = most, [number for (number,) in rows]
            self._chosen = (asked, limit, numbers)
        return numbers if len(numbers) <= most else None

    def meter_totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False
    ) -> Iterator[MeterSum]:
        start = "h.start" if by_start else "0"
        if query.meter == EVERY_METER:
            return self._metered(
                width, since, until, query, start, "NOT (h.meter >= ? AND h.meter < ?)", *CHARGES
            )
        return self._metered(width, since, until, query, start, "h.meter = ?", query.meter)

    def charge_totals(self, width: int, since: int, until: int, query: CostQuery) -> Iterator[MeterSum]:
        return self._metered(width, since, until, query, "h.start", "h.meter >= ? AND h.meter < ?", *CHARGES)

    def _metered(
        self, width: int, since: int, until: int, query: CostQuery, start: str, which: str, *named: str
    ) -> Iterator[MeterSum]:
        self._derive(query.derived)
        names = [_expression(query.derived.get(name, name)) for name in query.group_by]
        columns = ", ".join([start, *names, "k.status", "h.meter"])
        grouped = ", ".join(str(place) for place in range(1 if start != "0" else 2, len(names) + 4))
        terms, values = _where(query)
        rows = self._connection.execute(
            f"SELECT {columns}, SUM(h.whole), SUM(h.millionths) FROM meters h JOIN keys k ON k.id = h.key"
            f" WHERE h.width = ? AND h.start >= ? AND h.start < ? AND {which}{terms} GROUP BY {grouped}",
            (width, since, until, *named, *values),
        )
        for first, *row, status, meter, whole, millionths in rows:
            group = tuple([value or None for value in row])
            yield MeterSum(group, status, whole * SCALE + millionths, first, meter)

    def billed_totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False
    ) -> Iterator[GroupSum]:
        self._derive(query.derived)
        names = [_expression(query.derived.get(name, name)) for name in query.group_by]
        columns = ", ".join(["h.start" if by_start else "0", *names])
        grouped = ", ".join(str(place) for place in range(1, len(names) + 2))
        terms, values = _where(query)
        # Looking up the dimensions of every row takes longer than adding it up.
        apart = [*(["start"] if by_start else []), *_of_billed_rows(query)]
        limbs = ", ".join(f"SUM({limb}) AS {limb}" for limb in _LIMBS_OF_BILLED)
        within = "FROM billed WHERE start >= ? AND start < ? AND arranged & ? <> 0"
        kept = f" GROUP BY {', '.join(apart)}" if apart else ""
        joined = " JOIN keys k ON k.id = h.key" if "key" in apart else ""
        rows = self._connection.execute(
            f"SELECT {columns}, SUM(h.high), SUM(h.middle), SUM(h.low)"
            f" FROM (SELECT {', '.join([*apart, limbs])} {within}{kept}) h{joined}"
            f" WHERE h.high IS NOT NULL{terms} GROUP BY {grouped}",
            (since, until, query.arranged, *values),
        )
        for start, *row, high, middle, low in rows:
            group = tuple([value or None for value in row])
            yield GroupSum(group, "ok", "reported", billed_measures(high, middle, low), start)

    def first_known(self, width: int, dimension: str) -> int | None:
        known = f"SELECT id FROM keys k WHERE {_expression(dimension)} <> ''"
        statement = f"SELECT start FROM {TABLES[width]} WHERE key IN ({known}) ORDER BY start LIMIT 1"
        row = self._connection.execute(statement).fetchone()
        return int(row[0]) if row else None

    def values(self, dimension: str | Derived, limit: int, *, of_rows: bool = False) -> Sequence[str]:
        if isinstance(dimension, Derived):
            self._derive({dimension.name: dimension})
        column = _expression(dimension)
        sign = "=" if of_rows else "<>"
        statement = (
            f"SELECT DISTINCT {column} AS value FROM keys k WHERE value <> '' AND k.kind {sign} '{BILLED}'"
            " ORDER BY value LIMIT ?"
        )
        return [value for (value,) in self._connection.execute(statement, (limit,))]

    def _measures(self, values: Sequence[Any]) -> Measures:
        reported, estimated = money.joined(*values[_REPORTED]), money.joined(*values[_ESTIMATED])
        return [*values[: len(COUNTS)], reported, estimated, *values[_ESTIMATED.stop :]]

    def _derive(self, derived: DerivedDimensions) -> None:
        """Let statements of this transaction call the dimensions' functions, by their names."""
        if not derived:
            return
        self._chosen = _NONE_CHOSEN
        functions = {name: each.value for name, each in derived.items()}
        self._connection.create_function(
            _FUNCTION, -1, lambda name, *values: functions[name](values), deterministic=True
        )


def _columns(measures: Measures) -> Iterator[int]:
    counts = len(COUNTS)
    yield from measures[:counts]
    for units in measures[counts : counts + len(MONEY)]:
        yield from money.limbs(units)
    yield from measures[counts + len(MONEY) :]


def _where(query: CostQuery) -> tuple[str, list[str]]:
    terms, values = "", list[str]()
    for word, chosen in (("IN", query.include), ("NOT IN", query.exclude)):
        for name, wanted in chosen.items():
            marks = ", ".join("?" * len(wanted))
            terms += f" AND {_expression(query.derived.get(name, name))} {word} ({marks})"
            values += wanted
    return terms, values


def _of_billed_rows(query: CostQuery) -> Sequence[str]:
    """Return the columns of rows of billed money that the dimensions of a question are read from."""
    asked = (query.derived.get(name) for name in query.named)
    named = {*query.named, *(source for each in asked if each is not None for source in each.sources)}
    columns = {"charge": "charge", "basis": "basis", "corrects": "provider"}
    own = [column for name, column in columns.items() if name in named]
    return [*own, "key"] if named - columns.keys() else own


def _shown(dimension: str | Derived) -> str:
    """Return SQL for a dimension in an answer, where the unknown is NULL."""
    return f"NULLIF({_expression(dimension)}, '')"


def _expression(dimension: str | Derived) -> str:
    """SQL for a dimension. A tag's name is made part of a JSON path."""
    if isinstance(dimension, Derived):
        name = dimension.name.replace("'", "''")
        return f"{_FUNCTION}('{name}'{''.join(f', {_expression(source)}' for source in dimension.sources)})"
    if dimension in DIMENSIONS:
        return f"k.{dimension}"
    if dimension in PRICED_BY:
        return f"CAST(k.{dimension} AS TEXT)"
    if dimension == "origin":
        return f"COALESCE({_shown(TAG + ROW_TAG + dimension)}, 'calls')"
    if dimension in ROW_DIMENSIONS:
        return _expression(TAG + ROW_TAG + dimension)
    if dimension == "corrects":  # what stands behind a mark in the key of a provider
        return "substr(h.provider, instr(h.provider || char(31), char(31)) + 1)"
    if dimension in BILLED_DIMENSIONS:
        return f"h.{dimension}"
    path = dimension.removeprefix(TAG).replace("\\", "\\\\").replace('"', '\\"').replace("'", "''")
    # Earlier versions cut long texts of tags off: these are no JSON any more.
    return f"IFNULL(CASE json_valid(k.tags) WHEN 1 THEN json_extract(k.tags, '$.\"{path}\"') END, '')"
