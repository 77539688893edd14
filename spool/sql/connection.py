"""
The interface of an SQL engine: a connection that runs statements, and transactions.

Both engines must run each statement, with parameters `:name` and tables `{schema}.NAME`. `IN :names` and `NOT
IN :names` take a list of texts or integers. Without a column that gives the type, cast: `CAST(:name AS
text)`. `{for_update}` at the end locks rows that other processes may write. SQLite stores booleans as
numbers, see `RowColumns`. Where engines differ, one of them overrides a method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class SqlConnection(Protocol):
    def run(self, statement: str, /, **values: object) -> int:
        """Run a statement. Return the number of affected rows."""
        ...

    def run_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None: ...

    def all(self, statement: str, /, **values: object) -> list[tuple[Any, ...]]: ...

    def first_row(self, statement: str, /, **values: object) -> Any: ...

    def folded_expression(self, text: str) -> tuple[str, Mapping[str, object]]:
        """Return an SQL expression that folds case as `spool.listing.fold_case` does, with its parameters."""
        ...


class SqlTransactions(Protocol):
    """Runs work on a connection, perhaps on another thread."""

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        """Read without a transaction: each statement sees every earlier commit."""
        ...

    async def snapshot(self, work: Callable[[SqlConnection], T]) -> T:
        """Run `work`, which only reads, on one snapshot."""
        ...

    async def transaction(self, work: Callable[[SqlConnection], T]) -> T:
        """Run `work` in one transaction. It may run again if the connection is lost."""
        ...
