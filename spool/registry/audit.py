"""The audit list: changes with author, time and address, without secrets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from spool.registry.operators import Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedChange:
    """A change for the audit list. `before` and `after`: only the fields that differ, or None."""

    actor: Actor
    action: str
    target: str
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None


# function that adds the rows of changes made together
Auditor = Callable[[Sequence[AuditedChange]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    id: int
    at: float
    actor: str
    address: str
    action: str
    target: str
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None
