"""The portable form of a storage: the tables of the SQLite engine, with plain values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from spool.errors import NotAllowed

# name of the fact with the shared [spool] settings as JSON, which belong to no node
SETTINGS = "settings"
# table with the highest ids by table: name and seq
NEWEST_NUMBERS = "sqlite_sequence"
# rows per part, and bytes of a part, which its last row may exceed
AT_ONCE, BYTES_AT_ONCE = 200, 8 << 20

# Function that gets a step and the number of copied rows, often, from any thread.
Progress = Callable[[str, int], None]


def no_progress(what: str, rows: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class KeptTable:
    """A table of a storage. Its rows are read on demand, and only once."""

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True)
class KeptContent:
    """The content of a container file, read on demand. `head`: the line before its bytes."""

    id: str
    head: bytes
    pieces: Iterator[bytes]


def split_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """
    Yield the rows in parts of at least one row, limited by size, because a log entry may have megabytes.
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
    return sum(len(value) for value in row if isinstance(value, bytes | str))


class OfflineStorageTables(Protocol):
    """All tables of a storage at one moment, while no server has it open. Use them on one thread."""

    secret: bytes
    names: Sequence[str]

    def table(self, name: str) -> KeptTable:
        """
        Return a table by its name from `portable_table_name`.

        The table NEWEST_NUMBERS has the highest id of each table that never reuses ids.
        """
        ...

    def contents(self) -> Iterator[KeptContent]:
        """Yield the contents of container files. Read each before the next one."""
        ...


def portable_table_name(file: str, table: str) -> str:
    """
    Return the name of a table in archives and in PostgreSQL.

    `file`: "registry", "ledger", or "" for the log.
    """
    return f"{file}_{table}" if file == "ledger" else table


def require_known_tables(tables: OfflineStorageTables, known_tables: Collection[str]) -> None:
    for name in tables.names:
        if name not in known_tables and next(tables.table(name).rows, None) is not None:
            raise NotAllowed(
                f"the storage to copy has rows in {name}, a table that this Tollhouse does not know: "
                "copy it with the release that created it"
            )


def highest_id_by_table(tables: OfflineStorageTables) -> dict[str, int]:
    table = tables.table(NEWEST_NUMBERS)
    name = table.columns.index("name")
    number = table.columns.index("seq")
    return {row[name]: row[number] for row in table.rows}


OpenTables = Callable[[], AbstractContextManager[OfflineStorageTables]]


@dataclass(frozen=True, kw_only=True)
class UnfinishedStorageCopy:
    """
    A complete copy of a storage that no server can use, even after a crash, until `finish`. `discard` deletes
    it.

    If `finish` fails, the copy may already be usable, so it is not deleted.
    """

    finish: Callable[[], Awaitable[None]]
    discard: Callable[[], Awaitable[None]]
