"""
The tables of ledger.sqlite and every change to them, as functions of a connection inside its transaction.

`hours` and `days` have the same columns. A day that is over is summed up once more in `days`, so that a year is not
read hour by hour; once its hours are old they go, and the day alone stays.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from importlib.resources import files

from spool.ledger import money
from spool.ledger.sums import COUNTS, HOUR_S, LATENCY, MONEY, Key, Row, Sums
from spool.sqlite.migrations import migrate

DAY_S = 24 * HOUR_S
TABLES = {HOUR_S: "hours", DAY_S: "days"}
OTHER = "(other)"
MAX_TEXT = 256  # of a dimension's value

COLUMNS = (*COUNTS, *(f"{name}_{limb}" for name in MONEY for limb in (1, 2, 3)), *LATENCY)
_MARKS = ", ".join("?" * (2 + len(COLUMNS)))
_ADDED = ", ".join(f"{column} = {column} + excluded.{column}" for column in COLUMNS)
_KEY_COLUMNS = ", ".join(Key._fields)
_FIND_KEY = f"SELECT id FROM keys WHERE {' AND '.join(f'{name} = ?' for name in Key._fields)}"
_ADD_KEY = f"INSERT INTO keys ({_KEY_COLUMNS}) VALUES ({', '.join('?' * len(Key._fields))})"
_SET_STATE = "INSERT INTO state VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
_ADD_PERIOD = """
    INSERT INTO periods (width, start, first) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET first = MIN(first, excluded.first)"""


def prepare(connection: sqlite3.Connection) -> None:
    """Bring the file to the newest version."""
    schema = files(__package__).joinpath("schema.sql").read_text("utf-8")
    columns = ",\n".join(f"{column} INTEGER NOT NULL" for column in COLUMNS)
    tables = "\n".join(
        f"CREATE TABLE {table} (start INTEGER NOT NULL, key INTEGER NOT NULL,\n{columns},\n"
        "PRIMARY KEY (start, key)) STRICT, WITHOUT ROWID;"
        for table in TABLES.values()
    )
    migrate(connection, (schema + tables,))


def state(connection: sqlite3.Connection) -> dict[str, int]:
    """All of the state table; what was never set is 0, except that numbers begin at 1."""
    values = {"reach": 1, "rebuilding": 0, "daily": 0, "hourly": 0, "missed": 0, "damaged": 0, "absurd": 0}
    return values | dict(connection.execute("SELECT name, value FROM state").fetchall())


def set_state(connection: sqlite3.Connection, **values: int) -> None:
    connection.executemany(_SET_STATE, values.items())


def add_rows(connection: sqlite3.Connection, table: str, rows: Iterable[tuple[int, int, Row]]) -> None:
    """Add measures to (start, key), one statement for each."""
    connection.executemany(
        f"INSERT INTO {table} VALUES ({_MARKS}) ON CONFLICT DO UPDATE SET {_ADDED}",
        ((start, key, *_on_disk(row)) for start, key, row in rows),
    )


def _on_disk(row: Row) -> Iterator[int]:
    counts = len(COUNTS)
    yield from row[:counts]
    for units in row[counts : counts + len(MONEY)]:
        yield from money.limbs(units)
    yield from row[counts + len(MONEY) :]


class Keys:
    """
    The ids of dimensions, with a bound on how many a period may have.

    Beyond `max_rows` a period's new combinations lose who they belong to, then what they ran: they are added to a row
    of `(other)`, so that every total stays right. What is kept in memory follows the file: after a transaction that
    failed, `forget` it.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._ids: dict[Key, int] = {}
        self._present: OrderedDict[tuple[str, int], set[int]] = OrderedDict()

    def forget(self) -> None:
        self._ids.clear()
        self._present.clear()

    def place(self, connection: sqlite3.Connection, table: str, start: int, key: Key) -> int:
        """The id under which a key is added up in a period."""
        present = self._rows_of(connection, table, start)
        for step, wanted in enumerate((key, _nobody(key), _nothing(key))):
            found = self.id(connection, wanted)
            # A tenth more for the rows without owners; the last step has few by its nature.
            if found in present or step == 2 or len(present) < self._max_rows * (10 + step) // 10:
                present.add(found)
                return found
        raise AssertionError("the last step always returns")

    def id(self, connection: sqlite3.Connection, key: Key) -> int:
        found = self._ids.get(key)
        if found is None:
            values = [_bounded(value) for value in key]
            row = connection.execute(_FIND_KEY, values).fetchone()
            found = row[0] if row else connection.execute(_ADD_KEY, values).lastrowid
            assert found is not None
            if len(self._ids) >= 100_000:
                self._ids.clear()
            self._ids[key] = found
        return found

    def _rows_of(self, connection: sqlite3.Connection, table: str, start: int) -> set[int]:
        present = self._present.get((table, start))
        if present is None:
            rows = connection.execute(f"SELECT key FROM {table} WHERE start = ?", (start,))
            present = self._present[table, start] = {key for (key,) in rows}
            if len(self._present) > 64:
                self._present.popitem(last=False)
        else:
            self._present.move_to_end((table, start))
        return present


def _bounded(value: str | int | None) -> str | int:
    if value is None:
        return ""
    # A lone surrogate cannot be stored as text.
    return value[:MAX_TEXT].encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _nobody(key: Key) -> Key:
    return key._replace(user=OTHER, device=OTHER, api_key=OTHER, tags="")


def _nothing(key: Key) -> Key:
    return _nobody(key)._replace(source=OTHER, provider=OTHER, model=OTHER, request_model=OTHER, team=OTHER)


def write(connection: sqlite3.Connection, sums: Sums, keys: Keys, *, reach: int, missed: int) -> None:
    """Add the sums and move the reach, which is only right together."""
    values = state(connection)
    rows: dict[str, dict[tuple[int, int], Row]] = {table: {} for table in TABLES.values()}
    for hour, key, row in sums.rows():
        for width, table in TABLES.items():
            if hour < values["hourly"] if width == HOUR_S else hour >= values["daily"]:
                continue
            start = hour // width * width
            placed = (start, keys.place(connection, table, start, key))
            before = rows[table].get(placed)
            rows[table][placed] = row if before is None else [a + b for a, b in zip(before, row, strict=True)]
    for table, added in rows.items():
        add_rows(connection, table, ((start, key, row) for (start, key), row in added.items()))
    periods = [(*period(hour, values["hourly"]), first) for hour, first in sums.first.items()]
    connection.executemany(_ADD_PERIOD, periods)
    set_state(connection, reach=reach)
    if values["rebuilding"]:  # what is read again was told of the first time
        if reach >= values["rebuilding"]:
            connection.execute("UPDATE periods SET frozen = 0 WHERE frozen")
            set_state(connection, rebuilding=0)
        return
    set_state(
        connection,
        missed=values["missed"] + missed,
        damaged=values["damaged"] + sums.damaged,
        absurd=values["absurd"] + sums.absurd,
    )


def period(hour: int, hourly: int) -> tuple[int, int]:
    """The width and start of the smallest period that keeps an hour's sums."""
    width = HOUR_S if hour >= hourly else DAY_S
    return width, hour // width * width


def frozen(connection: sqlite3.Connection) -> tuple[set[tuple[int, int]], int, int]:
    """The frozen periods, the number below which they are, and since when hours are kept."""
    values = state(connection)
    rows = connection.execute("SELECT width, start FROM periods WHERE frozen").fetchall()
    return {(width, start) for width, start in rows}, values["rebuilding"], values["hourly"]


def begin_anew(connection: sqlite3.Connection, reach: int) -> None:
    """Numbers below the reach come again, for other records: nothing that is summed can be counted anew."""
    connection.execute("UPDATE periods SET first = 0, frozen = 0")
    set_state(connection, reach=reach, rebuilding=0)


def begin_rebuild(connection: sqlite3.Connection, oldest: int) -> tuple[int, int, int]:
    """
    Empty every period whose records are all kept (numbers from `oldest` on), freeze the others, and read again.

    Returns how many are emptied and frozen, and the end of the last frozen one: the border (0 without one).
    """
    values = state(connection)
    sum_up_again(connection)
    connection.execute("UPDATE periods SET frozen = (first < ?)", (oldest,))
    for width, table in TABLES.items():
        connection.execute(
            f"DELETE FROM {table} WHERE start IN (SELECT start FROM periods WHERE width = ? AND NOT frozen)", (width,)
        )
    emptied = connection.execute("DELETE FROM periods WHERE NOT frozen").rowcount
    [kept, border] = connection.execute("SELECT COUNT(*), IFNULL(MAX(start + width), 0) FROM periods").fetchone()
    set_state(connection, reach=min(oldest, values["reach"]), rebuilding=values["reach"])
    return emptied, kept, border


def sum_up_again(connection: sqlite3.Connection) -> None:
    """Forget the days that can be made from their hours, because these are about to change."""
    hourly = state(connection)["hourly"]
    connection.execute("DELETE FROM days WHERE start >= ?", (hourly,))
    set_state(connection, daily=hourly)


def sum_up(connection: sqlite3.Connection, before: int) -> bool:
    """Sum up the next day that ended at or before `before`; False when there is none."""
    daily = state(connection)["daily"]
    [oldest] = connection.execute("SELECT MIN(start) FROM hours WHERE start >= ?", (daily,)).fetchone()
    if oldest is None or oldest // DAY_S * DAY_S + DAY_S > before:
        return False
    day = oldest // DAY_S * DAY_S
    sums = ", ".join(f"SUM({column})" for column in COLUMNS)
    connection.execute(
        f"INSERT INTO days SELECT {day}, key, {sums} FROM hours WHERE start >= ? AND start < ? GROUP BY key",
        (day, day + DAY_S),
    )
    set_state(connection, daily=day + DAY_S)
    return True


def drop_hours(connection: sqlite3.Connection, before: int) -> int:
    """Let go of hours before `before`, a midnight, whose days are summed up; how many rows went."""
    values = state(connection)
    before = min(before, values["daily"])
    if before <= values["hourly"]:
        return 0
    gone = connection.execute("DELETE FROM hours WHERE start < ?", (before,)).rowcount
    connection.execute(
        "INSERT INTO periods SELECT ?, start / ? * ?, MIN(first), 0 FROM periods WHERE width = ? AND start < ?"
        " GROUP BY start / ? ON CONFLICT DO UPDATE SET first = MIN(first, excluded.first)",
        (DAY_S, DAY_S, DAY_S, HOUR_S, before, DAY_S),
    )
    connection.execute("DELETE FROM periods WHERE width = ? AND start < ?", (HOUR_S, before))
    set_state(connection, hourly=before)
    return gone
