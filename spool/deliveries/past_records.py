"""Records of AI telemetry that the log keeps no more, as a lake has them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from typing import NamedTuple, Protocol

from spool.record import Record


class PastRecord(NamedTuple):
    number: int
    committed_at: float
    record: Record


class PastDates(NamedTuple):
    """Days (UTC) by the rule of the ledger, such as 2026-11-20; both are part of it."""

    first: str
    last: str


class PastRecords(Protocol):
    def lacks(self, dimensions: Collection[str]) -> bool:
        """True if the values of one of these dimensions are not kept there, so that all look unknown."""
        ...

    def read(
        self, dates: PastDates, *, below: int, most: int | None = None, oldest_first: bool = False
    ) -> AsyncGenerator[Sequence[PastRecord], None]:
        """
        Calls and counters of some days with numbers below one, delivery after delivery, the newest first; within
        a delivery in the order of their numbers. `most`: of what is over, the oldest are left out.

        SpoolUnavailable if the lake does not answer, or not within a bounded time.
        """
        ...

    async def find(self, id: bytes, dates: PastDates, *, below: int) -> PastRecord | None:
        """Return the call or counter of some days that has an id; None if there is none. Raises as `read`."""
        ...
