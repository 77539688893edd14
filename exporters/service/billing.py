"""
Billing drops as they were received: forwarded whole, never split, and in order for each connection.

The service takes no concurrent requests for one connection, so whoever sends to one holds its lane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from exporters.keyring import Keyring
from exporters.pace import InOrder
from exporters.service.client import Client
from exporters.service.paths import STREAMS, Paths
from spool.log import Delivery, Entry, Settlement
from spool.record import BillingDrop

STREAM = "billing-drops"


class Lanes:
    """One request at a time for each connection, whoever makes it."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    def of(self, connection_id: str) -> asyncio.Lock:
        return self._locks.setdefault(connection_id, asyncio.Lock())


class BillingExporter:
    in_flight = 1
    max_records = 1  # one drop is one request

    def __init__(self, client: Client, paths: Paths, keyring: Keyring, lanes: Lanes) -> None:
        self._client = client
        self._paths = paths
        self._keyring = keyring
        self._lanes = lanes
        self._order = InOrder()

    async def prepare(self, delivery: Delivery) -> str | None:
        return None

    async def send(self, delivery: Delivery, entries: Sequence[Entry]) -> Settlement:
        drops = [record for entry in entries for record in entry.records if isinstance(record, BillingDrop)]
        for drop in drops:
            with self._order.turn(drop.connection_id, delivery):
                async with self._lanes.of(drop.connection_id):
                    await self._post(drop, delivery.idempotency_key)
        return Settlement(delivered=len(drops), damaged=delivery.count - len(drops))

    async def close(self) -> None:
        await self._client.close()

    async def _post(self, drop: BillingDrop, idempotency_key: str) -> None:
        url = self._paths.needed(STREAM, connection_id=drop.connection_id)
        await self._client.send(
            url,
            drop.body,
            content_type="application/json",
            authorization=self._keyring.secret_for(STREAMS[STREAM].scope),
            idempotency_key=idempotency_key,
        )
