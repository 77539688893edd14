"""The audit list: who changed what, from where and when. What it says of a change holds no secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One change. `before` and `after` hold the fields that differ; None where there is nothing to say."""

    id: int
    at: float
    actor: str
    address: str
    action: str
    target: str
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None
