"""
The portable form of a storage: the tables of the SQLite engine, with plain values. Engines exchange data
in this form.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from spool.errors import NotAllowed

# name of the fact with the shared [spool] settings as JSON; a storage for one node has no such fact
SETTINGS = "settings"
# name of the table with the highest id of each table; its columns are name and seq
NEWEST_NUMBERS = "sqlite_sequence"
# maximum rows per part, and maximum bytes per part, which the last row may exceed
AT_ONCE, BYTES_AT_ONCE = 200, 8 << 20

# Function that gets the current step and the number of rows copied so far. It is called often, from any thread.
Progress = Callable[[str, int], None]


def no_progress(what: str, rows: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class KeptTable:
    """A table's columns and stored rows. The rows are read on demand, and only once."""

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True)
class KeptContent:
    """A container metrics file, read on demand. `head` is the line before the file's bytes."""

    id: str
    head: bytes
    pieces: Iterator[bytes]


def split_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """
    Split rows into parts that fit in memory. Each part has at least one row, because a log entry
    may have megabytes.
    """
    part = list[tuple[Any, ...]]()
    size = 0
    for row in rows:
        part.append(row)
        size += row_bytes(row)
        if len(part) >= AT_ONCE or size >= BYTES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def row_bytes(row: Iterable[Any]) -> int:
    """Return the total length of a row's bytes and text values."""
    return sum(len(value) for value in row if isinstance(value, bytes | str))


class KeptTables(Protocol):
    """A consistent snapshot of a storage that no server has open. Use it on one thread."""

    secret: bytes
    names: Sequence[str]

    def table(self, name: str) -> KeptTable:
        """
        Return a table by one of `names`, which are results of `kept_name`.

        The table NEWEST_NUMBERS has the highest id ever assigned in each table that never reuses ids.
        """
        ...

    def contents(self) -> Iterator[KeptContent]:
        """Yield the container files one by one. Each must be read before the next one is requested."""
        ...


def kept_name(file: str, table: str) -> str:
    """
    Return the unique name of a SQLite table, for archives and PostgreSQL schemas.

    `file` is "registry", "ledger", or "" for the log.
    """
    return f"{file}_{table}" if file == "ledger" else table


def check_known(tables: KeptTables, known: Collection[str]) -> None:
    """Raise NotAllowed if a table that would not be copied has rows."""
    for name in tables.names:
        if name not in known and next(tables.table(name).rows, None) is not None:
            raise NotAllowed(
                f"the storage to copy has rows in {name}, a table that this Tollhouse does not know: "
                "copy it with the release that created it"
            )


def newest_numbers(tables: KeptTables) -> dict[str, int]:
    """Return the highest id ever assigned in each table, by table name."""
    table = tables.table(NEWEST_NUMBERS)
    name = table.columns.index("name")
    number = table.columns.index("seq")
    return {row[name]: row[number] for row in table.rows}


OpenTables = Callable[[], AbstractContextManager[KeptTables]]


@dataclass(frozen=True, kw_only=True)
class MadeCopy:
    """
    A copy that no server may use yet, even after a crash. `finish` makes it valid; `discard` deletes it.

    If `finish` fails, the copy may or may not be valid, so it is not deleted.
    """

    finish: Callable[[], Awaitable[None]]
    discard: Callable[[], Awaitable[None]]
