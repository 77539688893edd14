"""
The audit list. Each row has a change, its author, its time, and the address from which it was made. It
contains no secrets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from spool.registry.operators import Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedChange:
    """
    A change for the audit list. `before` and `after` have the fields that differ. They are None
    if no field differs.
    """

    actor: Actor
    action: str
    target: str
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None


# function that adds the audit rows of changes that are made together
Auditor = Callable[[Sequence[AuditedChange]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """A numbered change in the audit list."""

    id: int
    at: float
    actor: str
    address: str
    action: str
    target: str
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None
