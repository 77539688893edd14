"""Interfaces of destinations, and the configuration of a route."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from exporters.errors import Misconfigured
from exporters.pace import Backoff
from spool.deliveries.values import Delivery, RouteSpec, Settlement
from spool.log.values import LogEntry

StoreRouteMark = Callable[[str], Awaitable[None]]

_DIGEST: Final = "digest="  # prefix of the digest in a mark


class Exporter(Protocol):
    """A destination. Methods raise exporters.errors. After a cancelled `send`, the outcome is unknown."""

    in_flight: int  # maximum deliveries sent at the same time
    max_records: int  # maximum records per delivery

    async def prepare_delivery_mark(self, delivery: Delivery) -> str | None:
        """Return the mark to store before the delivery is sent, or None if the destination needs none."""
        ...

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        """Send a delivery. The same delivery always sends the same bytes."""
        ...

    async def close(self) -> None: ...


class WholeDeliveryExporter(Protocol):
    """
    A destination that takes each delivery as a whole, such as a data lake.

    A delivery is never split, set aside or sent as another. Raises Retryable without a status, or
    Misconfigured.
    """

    in_flight: int
    max_records: int

    async def write_delivery(
        self, delivery: Delivery, entries: AsyncIterator[LogEntry], store_delivery_mark: StoreRouteMark
    ) -> Settlement:
        """
        Write a delivery. Entries are read one after the other. `store_delivery_mark` stores a mark with the content's
        digest before the first byte is written.
        """
        ...

    async def close(self) -> None: ...


async def store_or_compare_delivery_mark(
    delivery: Delivery, mark: str, store_delivery_mark: StoreRouteMark
) -> None:
    """
    Store the mark, a digest of the content, at the first attempt. At a repeat, raise Misconfigured if the
    mark differs, because the log then returned other records.
    """
    if delivery.mark is None:
        await store_delivery_mark(mark)
    elif delivery.mark.rpartition(_DIGEST)[2] != mark.rpartition(_DIGEST)[2]:
        raise Misconfigured(
            f"the log changed under a delivery: records {delivery.first} to {delivery.last} differ "
            "from those of the first attempt; run tollhouse spool verify to see if the log is damaged",
            answered=False,
        )


@dataclass(frozen=True, kw_only=True)
class RouteConfig:
    """The configuration of a route. Routes with equal settings (`compared_settings`) are equal."""

    spec: RouteSpec
    compared_settings: object
    exporter: Exporter | WholeDeliveryExporter
    # Function that returns one value per secret, which changes with the secret's file; None for a secret that is
    # in no file. After a change, the route tries again at once.
    stamps: Callable[[], Sequence[object]] = tuple
    backoff: Backoff = field(default_factory=Backoff)
    linger_s: float = 0.0  # seconds that a record waits for others
    # whether it is a WholeDeliveryExporter, for which `linger_s` counts from the commit
    lands: bool = False
    # a task for the route's lifetime, which must not fail
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None
    reads_packed: bool = False  # the exporter accepts spool.packed.records.PackedRecords
