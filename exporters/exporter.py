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
        """Return the mark to store before the first byte is written, for files. Otherwise return None."""
        ...

    async def send(self, delivery: Delivery, entries: Sequence[Entry]) -> Settlement:
        """Send the records and return their outcome. The same delivery always sends the same bytes."""
        ...

    async def close(self) -> None: ...


class LandingExporter(Protocol):
    """
    A destination that stores each delivery as a whole, such as a data lake.

    A delivery is never split, set aside or sent again as another delivery. Raises Retryable without a
    status, or Misconfigured.
    """

    in_flight: int
    max_records: int

    async def land(
        self, delivery: Delivery, entries: AsyncIterator[Entry], keep_mark: KeepMark
    ) -> Settlement:
        """
        Store a delivery, reading its entries step by step. Awaits `keep_mark` before it sends the first byte.
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
    """A route, how it sends, and the secrets it needs. Equal settings, `made_of`, make equal routes."""

    spec: RouteSpec
    made_of: object
    exporter: Exporter | LandingExporter
    # its value changes with the secret files; then the route tries again at once
    stamps: Callable[[], object] = tuple
    backoff: Backoff = field(default_factory=Backoff)
    linger_s: float = 0.0  # how long a record waits for more records, in seconds
    # the exporter is a LandingExporter, and `linger_s` counts from the commit of a record
    lands: bool = False
    # runs as long as the route does; it must not fail
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None
    reads_packed: bool = False  # the exporter accepts spool.packed.records.PackedRecords
