"""
Pricing sums again after a price was wrong or missing: a sum of tokens costs what its calls cost, because calls of other
price tiers, modes and models are summed apart.

What a source reported never changes, only the estimate beside it; a sum that the pricer does not know stays as it was.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Protocol

from spool.ledger import money
from spool.ledger.sums import COUNTS, INPUT_UNKNOWN, MONEY, Key, Row, sized
from spool.record import NS
from spool.sqlite.ledger.store import COLUMNS, TABLES, Keys, add_rows, sum_up_again

_ESTIMATED = len(COUNTS) + MONEY.index("estimated")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSum:
    """Calls of one hour, model, mode and price tier. `beyond`: every input is beyond this of SIZES, and no further."""

    provider: str | None
    response_model: str | None
    request_model: str | None
    mode: str
    time: int  # ns
    beyond: int
    calls: int
    input_tokens: int
    output_tokens: int | None
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int


class Pricer(Protocol):
    """What a price book is to the ledger."""

    def estimate_sum(self, total: TokenSum) -> str | None:
        """The cost of all the calls together, exactly; None when it is not known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Repriced:
    """Rows with a new estimate, rows that the pricer does not know, and the estimates before and after."""

    rows: int
    unpriced: int
    before: str
    after: str


def reprice(connection: sqlite3.Connection, keys: Keys, pricer: Pricer, since: int) -> Repriced:
    """Estimate again every row that begins at or after `since` (epoch seconds). Days are summed up anew from hours."""
    sum_up_again(connection)
    changed = unpriced = before = after = 0
    for table, start in _periods(connection, since):
        gone, new = [], []
        for number, key, row in _rows(connection, table, start):
            estimate = pricer.estimate_sum(_total(start, key, row))
            if estimate is None:
                unpriced += 1
                continue
            old, row[_ESTIMATED] = row[_ESTIMATED], money.units(estimate)
            if row[_ESTIMATED] == old and key.cost_source != "none":
                continue
            before, after = before + old, after + row[_ESTIMATED]
            cost_source = "estimated" if key.cost_source == "none" else key.cost_source
            gone.append((start, number))
            new.append((start, keys.place(connection, table, start, key._replace(cost_source=cost_source)), row))
        # All go before any comes: an unpriced row may join one that is priced anew itself.
        connection.executemany(f"DELETE FROM {table} WHERE start = ? AND key = ?", gone)
        add_rows(connection, table, new)
        changed += len(new)
    return Repriced(rows=changed, unpriced=unpriced, before=money.text(before), after=money.text(after))


def _periods(connection: sqlite3.Connection, since: int) -> list[tuple[str, int]]:
    return [
        (table, start)
        for table in TABLES.values()
        for (start,) in connection.execute(f"SELECT DISTINCT start FROM {table} WHERE start >= ?", (since,))
    ]


def _rows(connection: sqlite3.Connection, table: str, start: int) -> list[tuple[int, Key, Row]]:
    wide = len(Key._fields)
    columns = ", ".join([*(f"k.{name}" for name in Key._fields), *(f"h.{name}" for name in COLUMNS)])
    statement = (
        f"SELECT h.key, {columns} FROM {table} h JOIN keys k ON k.id = h.key"
        " WHERE h.start = ? AND k.kind = 'call' AND k.size <> ?"
    )
    rows = connection.execute(statement, (start, INPUT_UNKNOWN)).fetchall()
    return [(number, Key(*values[:wide]), in_memory(values[wide:])) for number, *values in rows]


def in_memory(columns: list[int]) -> Row:
    """A row of COLUMNS with its money joined."""
    counts, end = len(COUNTS), len(COUNTS) + 3 * len(MONEY)
    joined = [money.joined(*columns[place : place + 3]) for place in range(counts, end, 3)]
    return [*columns[:counts], *joined, *columns[end:]]


def _total(start: int, key: Key, row: Row) -> TokenSum:
    beyond, output_known = sized(key.size)
    calls, given, made, read, written, thought = row[: len(COUNTS)]
    return TokenSum(
        provider=key.provider or None,
        response_model=key.model or None,
        request_model=key.request_model or None,
        mode=key.mode,
        time=start * NS,
        beyond=beyond,
        calls=calls,
        input_tokens=given,
        output_tokens=made if output_known else None,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thought,
    )
