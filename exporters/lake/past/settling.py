"""
Settles the deliveries of a restored copy whose records are in its lake already: under the same numbers, or under
those that the original gave them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from exporters.lake import manifest
from exporters.lake.columns import VERSION
from exporters.lake.destination import MOST_RECORDS
from exporters.lake.digest import RowDigest
from exporters.lake.exporter import bring_manifest
from exporters.lake.manifest import LakeManifest
from exporters.lake.stores import Store
from exporters.lake.tables.catalogue import table_of
from exporters.lake.verification import ReadManifest
from spool.clock import Clock
from spool.deliveries.protocols import Deliveries, Landings
from spool.deliveries.values import Delivery, Landing, Settlement
from spool.errors import NotAllowed
from spool.log.protocols import Log

_FOR_EVER_S: Final = 10**9  # a delivery that waits for another attempt is taken all the same


@dataclass(frozen=True, kw_only=True)
class LakeSettling:
    """What is taken and not settled waits for a start of the routes. Files are fetched into `scratch`."""

    store: Store
    landings: Landings
    deliveries: Deliveries
    log: Log
    clock: Clock
    route: str
    writer: int
    batch_records: int
    scratch: Path

    async def take(self, first: int, last: int) -> list[Delivery]:
        """The deliveries of these numbers; one that has others, too, is split."""
        await self._closed(last)
        taken = list[Delivery]()
        while first <= last:
            delivery = await self._due(below=last + 1, most=MOST_RECORDS)
            if delivery is None or delivery.first != first:
                raise NotAllowed(
                    f"the number {first} is in the lake, and {self.route} does not wait with it here"
                )
            if delivery.last > last:
                await self._split(delivery, last + 1)
                continue
            taken.append(delivery)
            first = delivery.last + 1
        return taken

    async def _split(self, delivery: Delivery, at: int) -> None:
        if delivery.mark is not None:
            raise NotAllowed(
                f"the delivery {delivery.first} to {delivery.last} of {self.route} has begun to land"
            )
        await self.deliveries.split(delivery, reason="the lake has a part of it", at=at)

    async def _due(self, *, below: int, most: int) -> Delivery | None:
        now = self.clock.now() + _FOR_EVER_S
        return await self.deliveries.due(self.route, now=now, max_records=most, below=below)

    async def _closed(self, last: int) -> None:
        """Wait until a number is closed: `spool.hold` from its commit."""
        async for below in self.log.changes(self.route.partition("/")[2]):
            if below > last:
                return

    async def settle_brought(self, first: int, last: int) -> list[Delivery]:
        """Settle numbers whose records are in the lake under others; return the deliveries before them."""
        await self._closed(last)
        held = []
        for below in (first, last + 1):
            while (delivery := await self._due(below=below, most=self.batch_records)) is not None:
                border = next(
                    (each for each in (first, last + 1) if delivery.first < each <= delivery.last), None
                )
                if border is not None:
                    await self._split(delivery, border)
                elif first <= delivery.first <= last:
                    await self._settle_own(delivery)
                else:
                    held.append(delivery)
        return held

    async def _settle_own(self, delivery: Delivery) -> None:
        """Settle a delivery under a manifest without files."""
        edition = (await self.landings.editions(self.route, delivery.first))[0]
        made = LakeManifest(
            route=self.route,
            edition=edition,
            first=delivery.first,
            last=delivery.last,
            writer=self.writer,
            schema=VERSION,
            digest=RowDigest(table_of(self.route)).text(),
            landed_at="",
            numbers=manifest.Numbers(rows=0, shadow=0),
            kinds={},
            counted=manifest.CountedRows(calls=0, spend="0", input_tokens=0, output_tokens=0),
            files=[],
        )
        body = await bring_manifest(self.store, self.landings, self.clock, made, self.scratch)
        landing = Landing(
            route=self.route, first=delivery.first, last=delivery.last, edition=edition, body=body
        )
        await self.deliveries.settle(delivery, Settlement(delivered=delivery.count, landing=landing))

    async def settle_shared(self, other: ReadManifest, deliveries: Sequence[Delivery]) -> None:
        """Settle numbers that both have; the manifest is kept with the last of them."""
        made = other.body
        await self.store.fetch(other.name, self.scratch / "there")
        body = await asyncio.to_thread((self.scratch / "there").read_bytes)
        landing = Landing(route=self.route, first=made.first, last=made.last, edition=made.edition, body=body)
        for delivery in deliveries:
            damaged = sum(delivery.first <= number <= delivery.last for number in made.numbers.damaged)
            settlement = Settlement(
                delivered=delivery.count - damaged,
                damaged=damaged,
                landing=landing if delivery is deliveries[-1] else None,
            )
            await self.deliveries.settle(delivery, settlement)
