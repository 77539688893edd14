"""What an engine keeps as tables of plain values, as the SQLite engine has them: how one gives it to another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from spool.errors import NotAllowed

SETTINGS = "settings"  # the fact with those of [spool] that nodes share, as JSON; files have none
NEWEST_NUMBERS = "sqlite_sequence"  # the table of the newest number of each table: name, seq
AT_ONCE, BYTES_AT_ONCE = 200, 8 << 20  # rows in memory together, and their bytes, which the last one may pass

# What is at hand, and how many rows of it were taken over so far: told from any thread, often.
Progress = Callable[[str, int], None]


def no_progress(what: str, rows: int) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, kw_only=True)
class KeptTable:
    """Rows as they are stored. They are read while they are asked for, once."""

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True)
class KeptContent:
    """The bytes of a file of container metrics, read while they are asked for; `head` is the line before them."""

    id: str
    head: bytes
    pieces: Iterator[bytes]


def parts(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """An entry may have megabytes: so many rows as fit into memory together, but one at least."""
    part = list[tuple[Any, ...]]()
    size = 0
    for row in rows:
        part.append(row)
        size += bytes_of(row)
        if len(part) >= AT_ONCE or size >= BYTES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def bytes_of(row: Iterable[Any]) -> int:
    """Sum the lengths of a row's bytes and texts, which may be long."""
    return sum(len(value) for value in row if isinstance(value, bytes | str))


class KeptTables(Protocol):
    """Everything that a storage keeps while nobody has it open, all of one moment. Used on one thread."""

    secret: bytes
    names: Sequence[str]

    def table(self, name: str) -> KeptTable:
        """
        A table by one of `names`: those that `kept_name` makes.

        NEWEST_NUMBERS has the highest number that was ever given in each table where none comes again.
        """
        ...

    def contents(self) -> Iterator[KeptContent]:
        """Yield the contents one by one: each is read before the next is asked for."""
        ...


def kept_name(file: str, table: str) -> str:
    """
    Returns the name of a table of the SQLite engine (`file`: registry, ledger or empty) where all tables have
    one place: in an archive, and in a schema.
    """
    return f"{file}_{table}" if file == "ledger" else table


def check_known(tables: KeptTables, known: Collection[str]) -> None:
    """NotAllowed where a table that would not be taken over has rows."""
    for name in tables.names:
        if name not in known and next(tables.table(name).rows, None) is not None:
            raise NotAllowed(
                f"the storage to copy has rows in {name}, a table that this Tollhouse does not know: copy it"
                " with the release that made it"
            )


def newest_numbers(tables: KeptTables) -> dict[str, int]:
    """Return the newest number of each table, by its name."""
    table = tables.table(NEWEST_NUMBERS)
    name = table.columns.index("name")
    number = table.columns.index("seq")
    return {row[name]: row[number] for row in table.rows}


OpenTables = Callable[[], AbstractContextManager[KeptTables]]


@dataclass(frozen=True, kw_only=True)
class MadeCopy:
    """
    A copy that nobody may use yet, also after a kill. `finish` makes it one that counts: where that fails it
    may count or not, so it stays. `discard` takes it away again.
    """

    finish: Callable[[], Awaitable[None]]
    discard: Callable[[], Awaitable[None]]
