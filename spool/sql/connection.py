"""
Interface that an engine provides to these tables: a connection that runs SQL, and transactions.

Both engines must be able to run each statement. Parameters are `:name`, and tables are `{schema}.NAME`. `IN
:names` and `NOT IN :names` accept a list of texts or integers. If no column gives a parameter its type, cast
it: `CAST(:name AS text)`. `{for_update}` at the end of a query locks its rows if other processes may write
them. Rows are tuples. SQLite stores booleans as numbers, which `Columns` (`spool/sql/columns.py`) converts.
If the engines must differ, a class has methods that an engine overrides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class SqlConnection(Protocol):
    def run(self, statement: str, /, **values: object) -> int:
        """Run a statement that writes. Return the number of affected rows."""
        ...

    def run_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        """Run a statement that writes, once per row."""
        ...

    def all(self, statement: str, /, **values: object) -> list[tuple[Any, ...]]: ...

    def first_row(self, statement: str, /, **values: object) -> Any:
        """Return the first row, or None."""
        ...

    def folded_expression(self, text: str) -> tuple[str, Mapping[str, object]]:
        """
        Return an SQL expression that folds a text as `spool.listing.fold_case` does, and the parameters
        of the expression.
        """
        ...


class SqlTransactions(Protocol):
    """Runs functions with a connection, possibly on another thread."""

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        """Run `work` without a transaction. Each statement sees every earlier commit."""
        ...

    async def snapshot(self, work: Callable[[SqlConnection], T]) -> T:
        """Run `work`, which only reads, on one consistent snapshot."""
        ...

    async def transaction(self, work: Callable[[SqlConnection], T]) -> T:
        """
        Run `work` in one transaction. If it raises, nothing is changed. If the connection is lost, `work`
        may run again.
        """
        ...
