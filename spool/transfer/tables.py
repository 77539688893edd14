"""
What an engine keeps as tables of plain values, as the SQLite engine has them: how one gives it to another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

# Every table that an engine gives, by its name.
NAMES = (
    "facts", "entries", "amendments", "commits", "books", "id_runs", "series", "conflicts", "unrecognised",
    "event_types", "pending", "heard", "routes", "deliveries", "dead", "refusals", "devices", "unenrolled", "clusters",
    "streams", "stream_totals", "stream_sizes", "billing_hours", "billing_drops", "billing_rows", "billing_months",
    "container_files", "container_books", "sqlite_sequence", "registry.facts", "registry.keys", "registry.secrets",
    "registry.operators", "registry.sessions", "registry.links", "registry.audit", "registry.insights",
    "registry.comments", "registry.connections", "registry.documents", "registry.sqlite_sequence", "ledger.keys",
    "ledger.hours", "ledger.days", "ledger.periods", "ledger.state",
)  # fmt: skip

SETTINGS = "settings"  # the fact with those of [spool] that nodes share, as JSON; files have none
AT_ONCE, BYTES_AT_ONCE = 200, 8 << 20  # rows in memory together, and their bytes, which the last one may pass

# What is at hand, and how many rows of it were taken over so far: told from any thread, often.
Progress = Callable[[str, int], None]


def no_progress(what: str, rows: int) -> None:
    """For whoever is not interested."""


@dataclass(frozen=True, kw_only=True)
class KeptTable:
    """Rows as they are stored. They are read while they are asked for, once."""

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True)
class KeptContent:
    """
    The bytes of a file of container metrics, read while they are asked for; `head` is the line before them.
    """

    id: str
    head: bytes
    pieces: Iterator[bytes]


def parts(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """An entry may have megabytes: so many rows as fit into memory together, but one at least."""
    part, size = list[tuple[Any, ...]](), 0
    for row in rows:
        part.append(row)
        size += bytes_of(row)
        if len(part) >= AT_ONCE or size >= BYTES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def bytes_of(row: Iterable[Any]) -> int:
    """Of what may be long in a row."""
    return sum(len(value) for value in row if isinstance(value, bytes | str))


class KeptTables(Protocol):
    """Everything that a storage keeps while nobody has it open, all of one moment. Used on one thread."""

    secret: bytes

    def table(self, name: str) -> KeptTable:
        """
        A table by its name, of the registry and the ledger by `registry.NAME` and `ledger.NAME`.

        `sqlite_sequence` has the highest number that was ever given in each table where none comes again, and
        `heard` what only engines have that nodes share: it may be empty.
        """
        ...

    def contents(self) -> Iterator[KeptContent]:
        """One after the other: each is read before the next is asked for."""
        ...


OpenTables = Callable[[], AbstractContextManager[KeptTables]]


@dataclass(frozen=True, kw_only=True)
class MadeCopy:
    """
    A copy that nobody may use yet, also after a kill. `finish` makes it one that counts: where that fails it
    may count or not, so it stays. `discard` takes it away again.
    """

    finish: Callable[[], Awaitable[None]]
    discard: Callable[[], Awaitable[None]]
