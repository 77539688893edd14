"""Interfaces of destinations, and the configuration of a route."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from exporters.errors import Misconfigured
from exporters.pace import Backoff
from spool.deliveries.values import Delivery, RouteSpec, Settlement
from spool.log.values import Entry

KeepMark = Callable[[str], Awaitable[None]]

_DIGEST: Final = "digest="  # prefix of the digest at the end of a landing delivery's mark


class Exporter(Protocol):
    """
    One destination for one topic. Methods raise exporters.errors. If `send` is cancelled, the outcome is unknown.
    """

    in_flight: int  # maximum number of deliveries at once
    max_records: int  # maximum number of records per delivery

    async def prepare(self, delivery: Delivery) -> str | None:
        """
        Return the mark to store before the first byte is written to a file. Return None for any other destination.
        """
        ...

    async def send(self, delivery: Delivery, entries: Sequence[Entry]) -> Settlement:
        """Send the records and return their outcome. The same delivery always sends the same bytes."""
        ...

    async def close(self) -> None: ...


class LandingExporter(Protocol):
    """
    A destination that stores each delivery as a whole, such as a data lake.

    A delivery is never split, set aside or sent again as another delivery. If it fails, raises Retryable
    without a status, or Misconfigured.
    """

    in_flight: int
    max_records: int

    async def land(
        self, delivery: Delivery, entries: AsyncIterator[Entry], keep_mark: KeepMark
    ) -> Settlement:
        """
        Store a delivery, and read its entries step by step. Awaits `keep_mark` before it sends the first byte.
        """
        ...

    async def close(self) -> None: ...


async def keep_or_compare(delivery: Delivery, mark: str, keep: KeepMark) -> None:
    """
    Store the mark of a landing delivery's first attempt. Raise Misconfigured if the log now returns other records.
    """
    if delivery.mark is None:
        await keep(mark)
    elif delivery.mark.rpartition(_DIGEST)[2] != mark.rpartition(_DIGEST)[2]:
        raise Misconfigured(
            f"the log changed under a delivery: records {delivery.first} to {delivery.last} differ "
            "from those of the first attempt; run tollhouse spool verify to see if the log is damaged",
            answered=False,
        )


@dataclass(frozen=True, kw_only=True)
class RouteConfig:
    """
    A route: its destination, how it sends, and the secrets that it needs. Routes with equal settings
    (`made_of`) are equal.
    """

    spec: RouteSpec
    made_of: object
    exporter: Exporter | LandingExporter
    # Function whose result changes when a secret file changes. After a change, the route tries again at once.
    # The stamp of a secret that is not in a file is None.
    stamps: Callable[[], Sequence[object]] = tuple
    backoff: Backoff = field(default_factory=Backoff)
    linger_s: float = 0.0  # seconds that a record waits for further records
    # If True, the exporter is a LandingExporter, and `linger_s` counts from the commit of a record.
    lands: bool = False
    # Function that returns a task for the lifetime of the route. The task must not fail.
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None
    reads_packed: bool = False  # whether the exporter accepts spool.packed.records.PackedRecords
