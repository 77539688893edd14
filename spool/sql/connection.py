"""
What a table needs of an engine: a connection that runs SQL texts, and transactions over one.

A text is one that both engines read. Parameters are `:name`, tables `{schema}.NAME`. `IN :names` and `NOT IN
:names` take a list of texts or of integers. A parameter whose type no column tells is cast: `CAST(:name AS
text)`. `{for_update}` behind a query locks its rows where other processes write, too. Rows are tuples. In
SQLite truths are numbers: `Columns` (`spool/sql/columns.py`) reads them as truths. Where engines must differ,
a class has methods that an engine overrides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class SqlConnection(Protocol):
    """A connection, in or outside of a transaction."""

    def run(self, statement: str, /, **values: object) -> int:
        """Run a statement that writes; how many rows it was about."""
        ...

    def run_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        """Run a statement that writes once for each row."""
        ...

    def all(self, statement: str, /, **values: object) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        ...

    def one(self, statement: str, /, **values: object) -> Any:
        """Return the first row, None if there is none."""
        ...

    def folded(self, text: str) -> tuple[str, Mapping[str, object]]:
        """Return an expression for a text as `spool.listing.folded` has it, and the values that it takes."""
        ...


class SqlTransactions(Protocol):
    """Runs functions of a connection, which may be on a thread of their own."""

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        """Each statement sees all that was committed before it."""
        ...

    async def snapshot(self, work: Callable[[SqlConnection], T]) -> T:
        """All that is read is of one moment."""
        ...

    async def transaction(self, work: Callable[[SqlConnection], T]) -> T:
        """An error of `work` leaves everything as it was. A lost connection may run `work` again."""
        ...
