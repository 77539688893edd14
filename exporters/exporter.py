"""The seam of the outbound side: what a route asks of a destination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spool.deliveries.values import Delivery, Settlement
from spool.log.values import Entry


class Exporter(Protocol):
    """One destination for one topic. Raises exporters.errors; cancellation means that nothing is known."""

    in_flight: int  # deliveries at once
    max_records: int  # a delivery's cut

    async def prepare(self, delivery: Delivery) -> str | None:
        """The mark to store before the first byte is written (files), else None."""
        ...

    async def send(self, delivery: Delivery, entries: Sequence[Entry]) -> Settlement:
        """Send the delivery's records; returns where they went. The same delivery is always the same bytes."""
        ...

    async def close(self) -> None: ...
