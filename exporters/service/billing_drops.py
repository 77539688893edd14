"""
Billing drops as they were received: forwarded whole, never split, and in order for each connection.

The service takes no concurrent requests for one connection, so whoever sends to one holds its lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from exporters.pace import InOrder
from exporters.service.upstream_client import UpstreamClient
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import Entry
from spool.record import BillingDrop

STREAM = "billing-drops"


class ConnectionLocks:
    """A lock for each billing connection: one request at a time."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    def of(self, connection_id: str) -> asyncio.Lock:
        return self._locks.setdefault(connection_id, asyncio.Lock())


class BillingDropExporter:
    in_flight = 1
    max_records = 1  # one drop is one request

    def __init__(
        self, upstream: UpstreamClient, locks: ConnectionLocks, id_upstream: Callable[[BillingDrop], str]
    ) -> None:
        """`id_upstream`: the id that the connection of a drop has upstream."""
        self._upstream = upstream
        self._id_upstream = id_upstream
        self._locks = locks
        self._order = InOrder()

    async def prepare(self, delivery: Delivery) -> str | None:
        return None

    async def send(self, delivery: Delivery, entries: Sequence[Entry]) -> Settlement:
        drops = [record for entry in entries for record in entry.records if isinstance(record, BillingDrop)]
        key = delivery.idempotency_key
        for drop in drops:
            to = self._id_upstream(drop)
            with self._order.turn(to, delivery):
                async with self._locks.of(to):
                    await self._upstream.send(STREAM, drop.body, idempotency_key=key, connection_id=to)
        return Settlement(delivered=len(drops), damaged=delivery.count - len(drops))

    async def close(self) -> None:
        await self._upstream.close()
