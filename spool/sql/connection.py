"""
What an engine provides: a connection that runs SQL, and transactions.

Both engines must run each statement, with parameters `:name` and tables `{schema}.NAME`. `IN :names` and `NOT
IN :names` take a list of texts or integers. Without a column that gives the type, cast: `CAST(:name AS
text)`. `{for_update}` at the end locks rows that other processes may write. SQLite stores booleans as
numbers, see `Columns`. If engines differ, one overrides methods.
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
        """
        Return an expression with its parameters that folds case in the way of `spool.listing.fold_case`.
        """
        ...


class SqlTransactions(Protocol):
    """Transactions, which may run on another thread."""

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        """Read without a transaction: each statement sees every earlier commit."""
        ...

    async def snapshot(self, work: Callable[[SqlConnection], T]) -> T:
        """Run `work`, which only reads."""
        ...

    async def transaction(self, work: Callable[[SqlConnection], T]) -> T:
        """Commit all or nothing. `work` may run again if the connection is lost."""
        ...
