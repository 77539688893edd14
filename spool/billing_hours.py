"""Hours of AI cost and what a billing connection was last told of them: a changed hour is found and sent again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


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
    """What a span of hours comes to in drops: `cost` is exact decimal text, `sent` the hours that were accepted."""

    hours: int
    rows: int
    bytes: int
    drops: int
    cost: str
    sent: int = 0


class BillingHours(Protocol):
    async def sent(self, connection_id: str, since: int, until: int) -> Mapping[int, SentHour]:
        """By their start, the hours that begin in [since, until)."""
        ...

    async def keep(self, connection_id: str, hours: Sequence[SentHour]) -> None:
        """They were accepted."""
        ...
