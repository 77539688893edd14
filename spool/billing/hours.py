"""Hours of AI cost and what was last sent of them over a billing connection: a changed hour is sent again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spool.sql.small import SmallTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SentHour:
    """`start` in epoch seconds."""

    start: int
    hash: bytes
    rows: int
    bytes: int
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingPlan:
    """What a span of hours amounts to in drops. `cost` is exact decimal text, `sent` counts the accepted hours."""

    hours: int
    rows: int
    bytes: int
    drops: int
    cost: str
    sent: int = 0


class BillingHours(Protocol):
    """What was accepted over each connection."""

    async def sent(self, connection_id: str, since: int, until: int) -> Mapping[int, SentHour]:
        """Return the sent hours that begin in [since, until), by their start."""
        ...

    async def keep(self, connection_id: str, hours: Sequence[SentHour]) -> None:
        """Keep what was accepted, in place of what was sent for the same hours before."""
        ...


BILLING_HOURS = SmallTable[BillingHours]("billing hours", kept_by=("billing_hours", "SqlBillingHours"))
