"""Sent billing hours without a disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spool.billing_hours import SentHour


class MemoryBillingHours:
    def __init__(self) -> None:
        self._sent: dict[tuple[str, int], SentHour] = {}

    async def sent(self, connection_id: str, since: int, until: int) -> Mapping[int, SentHour]:
        return {
            start: hour for (of, start), hour in self._sent.items() if of == connection_id and since <= start < until
        }

    async def keep(self, connection_id: str, hours: Sequence[SentHour]) -> None:
        self._sent.update({(connection_id, hour.start): hour for hour in hours})
