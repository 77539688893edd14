"""Sent billing hours without a disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spool.billing.hours import SentHour


class MemoryBillingHours:
    def __init__(self) -> None:
        self._sent: dict[tuple[str, int], SentHour] = {}

    async def sent(self, connection_id: str, since: int, until: int) -> Mapping[int, SentHour]:
        own = [hour for (connection, _), hour in self._sent.items() if connection == connection_id]
        return {hour.start: hour for hour in own if since <= hour.start < until}

    async def keep(self, connection_id: str, hours: Sequence[SentHour]) -> None:
        self._sent.update({(connection_id, hour.start): hour for hour in hours})
