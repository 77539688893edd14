"""What is asked of those that keep statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from spool.registry.operators import Actor
from spool.statements.values import Statement, StatementInfo, StatementMonth, StatementOutcome, StatementRow


class Statements(Protocol):
    """A statement replaces what is kept of its source and account in its span, and nothing else. Nothing is added."""

    async def put(self, statement: Statement, *, actor: Actor, dry_run: bool = False) -> StatementOutcome:
        """
        The same statement again changes nothing. Invalid if a value breaks a rule, NotAllowed if it is too large.
        """
        ...

    async def rows(self, *, provider: str | None, start: int, end: int) -> Sequence[StatementRow]:
        """Rows whose bucket lies in the span at least in part."""
        ...

    async def statements(self) -> Sequence[StatementInfo]:
        """The days that are covered, also those without a row."""
        ...

    async def months(self) -> Sequence[StatementMonth]: ...

    async def delete(self, id: str, *, actor: Actor) -> None:
        """Forget a month; NotThere if there is none of this id."""
        ...

    async def pull_state(self, name: str) -> Mapping[str, Any] | None:
        """Return the stored state of a pull; None if it never ran."""
        ...

    async def keep_pull_state(self, name: str, state: Mapping[str, Any]) -> None: ...
