"""The rows of ledger.sqlite, as functions of a connection inside its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files

from spool.ledger import money
from spool.ledger.derived import Derived, DerivedDimensions
from spool.ledger.queries import DIMENSIONS, TAG, CostQuery, needed_sums
from spool.ledger.rows import GroupSum
from spool.ledger.sums import COUNTS, DAY_S, HOUR_S, INPUT_UNKNOWN, LATENCY, MONEY, Dimensions, Measures
from spool.sqlite.migrations import migrate

TABLES = {HOUR_S: "hours", DAY_S: "days"}
COLUMNS = (*COUNTS, *(f"{name}_{limb}" for name in MONEY for limb in (1, 2, 3)), *LATENCY)

# Measures that came after the first version of the file: columns at the end of its tables.
_ADDED_LATER = ("cache_write_1h_tokens",)

_NAMES = ", ".join(COLUMNS)
_WIDTH = len(Dimensions._fields)
_MARKS = ", ".join("?" * (2 + len(COLUMNS)))
_ADDED = ", ".join(f"{column} = {column} + excluded.{column}" for column in COLUMNS)
_SUMMED = ", ".join(f"SUM({column})" for column in COLUMNS)
_FIND_NUMBER = f"SELECT id FROM keys WHERE {' AND '.join(f'{name} = ?' for name in Dimensions._fields)}"
_ADD_NUMBER = f"INSERT INTO keys ({', '.join(Dimensions._fields)}) VALUES ({', '.join('?' * _WIDTH)})"
_SET_STATE = "INSERT INTO state VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
_FUNCTION = "derived"  # of a connection: takes the name of a derived dimension and the values of its sources
_PRICEABLE_COLUMNS = ", ".join([*(f"k.{name}" for name in Dimensions._fields), *(f"h.{name}" for name in COLUMNS)])
_NOTE_PERIOD = """
    INSERT INTO periods (width, start, first) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET first = MIN(first, excluded.first)"""
# Regions came with the third version: sums of before have none.
_REGIONS = """
    ALTER TABLE keys ADD COLUMN region TEXT NOT NULL DEFAULT '';
    DROP INDEX keys_by_dimensions;
    CREATE UNIQUE INDEX keys_by_dimensions ON keys (
        model, user, device, api_key, team, tags, source, provider, request_model, status, cost_source, kind, mode,
        size, region
    );"""
# The hours' periods become those of their days.
_JOIN_PERIODS = """
    INSERT INTO periods
    SELECT :day, start / :day * :day, MIN(first), 0 FROM periods WHERE width = :hour AND start < :before
    GROUP BY start / :day
    ON CONFLICT DO UPDATE SET first = MIN(first, excluded.first)"""


def prepare(connection: sqlite3.Connection) -> None:
    """Bring the file to the newest version."""
    schema = files(__package__).joinpath("schema.sql").read_text("utf-8")
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
    migrate(connection, (schema + tables, "\n".join(added), _REGIONS))


class SqliteLedgerRows:
    """See `spool.ledger.rows.LedgerRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def state(self) -> Mapping[str, int]:
        return dict(self._connection.execute("SELECT name, value FROM state").fetchall())

    def set_state(self, **values: int) -> None:
        self._connection.executemany(_SET_STATE, values.items())

    def number(self, dimensions: Dimensions) -> int:
        number = self.find_number(dimensions)
        if number is None:
            number = self._connection.execute(_ADD_NUMBER, dimensions).lastrowid
        assert number is not None
        return number

    def find_number(self, dimensions: Dimensions) -> int | None:
        row = self._connection.execute(_FIND_NUMBER, dimensions).fetchone()
        return row[0] if row else None

    def drop_unused_numbers(self) -> int:
        used = " UNION ".join(f"SELECT key FROM {table}" for table in TABLES.values())
        return self._connection.execute(f"DELETE FROM keys WHERE id NOT IN ({used})").rowcount

    def numbers(self, width: int, start: int) -> set[int]:
        rows = self._connection.execute(f"SELECT key FROM {TABLES[width]} WHERE start = ?", (start,))
        return {number for (number,) in rows}

    def add(self, width: int, sums: Iterable[tuple[int, int, Measures]]) -> None:
        self._connection.executemany(
            f"INSERT INTO {TABLES[width]} (start, key, {_NAMES}) VALUES ({_MARKS}) ON CONFLICT DO UPDATE SET {_ADDED}",
            ((start, number, *_columns(measures)) for start, number, measures in sums),
        )

    def remove(self, width: int, places: Iterable[tuple[int, int]]) -> None:
        self._connection.executemany(f"DELETE FROM {TABLES[width]} WHERE start = ? AND key = ?", places)

    def starts(self, width: int, since: int) -> Sequence[int]:
        statement = f"SELECT DISTINCT start FROM {TABLES[width]} WHERE start >= ?"
        return [start for (start,) in self._connection.execute(statement, (since,))]

    def priceable(self, width: int, start: int) -> Sequence[tuple[int, Dimensions, Measures]]:
        statement = (
            f"SELECT h.key, {_PRICEABLE_COLUMNS} FROM {TABLES[width]} h JOIN keys k ON k.id = h.key"
            " WHERE h.start = ? AND k.kind = 'call' AND k.size <> ?"
        )
        rows = self._connection.execute(statement, (start, INPUT_UNKNOWN)).fetchall()
        found = []
        for number, *values in rows:
            dimensions, columns = values[:_WIDTH], values[_WIDTH:]
            found.append((number, Dimensions(*dimensions), _measures(columns)))
        return found

    def sums(self, width: int, start: int) -> Sequence[tuple[Dimensions, Measures]]:
        rows = self._connection.execute(
            f"SELECT {_PRICEABLE_COLUMNS} FROM {TABLES[width]} h JOIN keys k ON k.id = h.key WHERE h.start = ?",
            (start,),
        )
        return [(Dimensions(*values[:_WIDTH]), _measures(list(values[_WIDTH:]))) for values in rows]

    def oldest_hour(self, since: int) -> int | None:
        [start] = self._connection.execute("SELECT MIN(start) FROM hours WHERE start >= ?", (since,)).fetchone()
        return None if start is None else int(start)

    def sum_up_day(self, day: int) -> None:
        self._connection.execute(
            f"INSERT INTO days (start, key, {_NAMES})"
            f" SELECT {day}, key, {_SUMMED} FROM hours WHERE start >= ? AND start < ? GROUP BY key",
            (day, day + DAY_S),
        )

    def drop_days(self, since: int) -> None:
        self._connection.execute("DELETE FROM days WHERE start >= ?", (since,))

    def drop_hours(self, before: int) -> int:
        gone = self._connection.execute("DELETE FROM hours WHERE start < ?", (before,)).rowcount
        self._connection.execute(_JOIN_PERIODS, {"day": DAY_S, "hour": HOUR_S, "before": before})
        self._connection.execute("DELETE FROM periods WHERE width = ? AND start < ?", (HOUR_S, before))
        return gone

    def note_periods(self, firsts: Iterable[tuple[int, int, int]]) -> None:
        self._connection.executemany(_NOTE_PERIOD, firsts)

    def forget_firsts(self) -> None:
        self._connection.execute("UPDATE periods SET first = 0, frozen = 0")

    def freeze_periods(self, below: int) -> None:
        self._connection.execute("UPDATE periods SET frozen = (first < ?) WHERE frozen <> (first < ?)", (below, below))

    def frozen_periods(self) -> set[tuple[int, int]]:
        rows = self._connection.execute("SELECT width, start FROM periods WHERE frozen").fetchall()
        return {(width, start) for width, start in rows}

    def firsts(self) -> Mapping[tuple[int, int], int]:
        rows = self._connection.execute("SELECT width, start, first FROM periods").fetchall()
        return {(width, start): first for width, start, first in rows}

    def calls(self, width: int) -> Mapping[int, int]:
        return dict(self._connection.execute(f"SELECT start, SUM(calls) FROM {TABLES[width]} GROUP BY start"))

    def drop_open_periods(self) -> int:
        for width, table in TABLES.items():
            self._connection.execute(
                f"DELETE FROM {table} WHERE start IN (SELECT start FROM periods WHERE width = ? AND NOT frozen)",
                (width,),
            )
        return self._connection.execute("DELETE FROM periods WHERE NOT frozen").rowcount

    def count_rows(self) -> int:
        statement = "SELECT (SELECT COUNT(*) FROM hours) + (SELECT COUNT(*) FROM days)"
        [count] = self._connection.execute(statement).fetchone()
        return int(count)

    def totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False
    ) -> Iterator[GroupSum]:
        self._derive(query.derived)
        names = [_expression(query.derived.get(name, name)) for name in query.group_by]
        needed = needed_sums(query.measures)
        wanted = [name for name in COLUMNS if name in needed or name.rpartition("_")[0] in MONEY]
        sums = [f"SUM(h.{name})" if name in wanted else "0" for name in COLUMNS]
        columns = ", ".join(["h.start" if by_start else "0", *names, "k.status", "k.cost_source", *sums])
        grouped = ", ".join(str(place) for place in range(1 if by_start else 2, len(names) + 4))
        terms, values = _where(query)
        within = f"{TABLES[width]} WHERE start >= ? AND start < ?"
        # Looking up the dimensions of every row takes longer than adding it up.
        if until - since > width and not by_start:
            by_number = ", ".join(f"SUM({name}) AS {name}" for name in wanted)
            summed = f"(SELECT key, {by_number} FROM {within} GROUP BY key)"
        else:
            summed = f"(SELECT * FROM {within})"
        rows = self._connection.execute(
            f"SELECT {columns} FROM {summed} h JOIN keys k ON k.id = h.key WHERE TRUE{terms} GROUP BY {grouped}",
            (since, until, *values),
        )
        for start, *row in rows:
            group = tuple([value or None for value in row[: len(names)]])
            status, cost_source, *sums = row[len(names) :]
            yield GroupSum(group, status, cost_source, _measures(sums), start)

    def first_known(self, width: int, dimension: str) -> int | None:
        known = f"SELECT id FROM keys k WHERE {_expression(dimension)} <> ''"
        statement = f"SELECT start FROM {TABLES[width]} WHERE key IN ({known}) ORDER BY start LIMIT 1"
        row = self._connection.execute(statement).fetchone()
        return int(row[0]) if row else None

    def values(self, dimension: str | Derived, limit: int) -> Sequence[str]:
        if isinstance(dimension, Derived):
            self._derive({dimension.name: dimension})
        column = _expression(dimension)
        statement = f"SELECT DISTINCT {column} AS value FROM keys k WHERE value <> '' ORDER BY value LIMIT ?"
        return [value for (value,) in self._connection.execute(statement, (limit,))]

    def _derive(self, derived: DerivedDimensions) -> None:
        """Let statements of this transaction call the dimensions' functions, by their names."""
        if not derived:
            return
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


def _measures(columns: list[int]) -> Measures:
    counts, end = len(COUNTS), len(COUNTS) + 3 * len(MONEY)
    joined = [money.joined(*columns[place : place + 3]) for place in range(counts, end, 3)]
    return [*columns[:counts], *joined, *columns[end:]]


def _where(query: CostQuery) -> tuple[str, list[str]]:
    terms, values = "", list[str]()
    for word, chosen in (("IN", query.include), ("NOT IN", query.exclude)):
        for name, wanted in chosen.items():
            terms += f" AND {_expression(query.derived.get(name, name))} {word} ({', '.join('?' * len(wanted))})"
            values += wanted
    return terms, values


def _expression(dimension: str | Derived) -> str:
    """SQL for a dimension. A tag's name is made part of a JSON path."""
    if isinstance(dimension, Derived):
        name = dimension.name.replace("'", "''")
        return f"{_FUNCTION}('{name}'{''.join(f', {_expression(source)}' for source in dimension.sources)})"
    if dimension in DIMENSIONS:
        return f"k.{dimension}"
    path = dimension.removeprefix(TAG).replace("\\", "\\\\").replace('"', '\\"').replace("'", "''")
    # Earlier versions cut long texts of tags off: these are no JSON any more.
    return f"IFNULL(CASE json_valid(k.tags) WHEN 1 THEN json_extract(k.tags, '$.\"{path}\"') END, '')"
