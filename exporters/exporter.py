"""The seam of the outbound side: what a route asks of a destination, and how a route is configured."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from exporters.errors import Misconfigured
from exporters.pace import Backoff
from spool.deliveries.values import Delivery, RouteSpec, Settlement
from spool.log.values import Entry

KeepMark = Callable[[str], Awaitable[None]]

_DIGEST: Final = "digest="  # what the mark of a landing delivery ends with


class Exporter(Protocol):
    """One destination for one topic. Raises exporters.errors; cancellation means that nothing is known."""

    in_flight: int  # deliveries at once
    max_records: int  # a delivery's cut

    async def prepare(self, delivery: Delivery) -> str | None:
        """The mark to store before the first byte is written (files), else None."""
        ...

    async def send(self, delivery: Delivery, entries: Sequence[Entry]) -> Settlement:
        """Send the records; returns what became of them. The same delivery is always the same bytes."""
        ...

    async def close(self) -> None: ...


class LandingExporter(Protocol):
    """
    A destination that a delivery enters as files, whole: nothing of it is ever split, set aside or sent again
    as another delivery. Raises Retryable without a status, or Misconfigured.
    """

    in_flight: int
    max_records: int

    async def land(
        self, delivery: Delivery, entries: AsyncIterator[Entry], keep_mark: KeepMark
    ) -> Settlement:
        """Bring a delivery in, read step by step; `keep_mark` is awaited before the first byte leaves."""
        ...

    async def close(self) -> None: ...


async def keep_or_compare(delivery: Delivery, mark: str, keep: KeepMark) -> None:
    """Keep the mark of a landing delivery's first attempt; park if the log gives other records than then."""
    if delivery.mark is None:
        await keep(mark)
    elif delivery.mark.rpartition(_DIGEST)[2] != mark.rpartition(_DIGEST)[2]:
        raise Misconfigured(
            f"the log changed under a delivery: {delivery.first} to {delivery.last} had other records when it was "
            "first sent (tollhouse spool verify says if it is damaged)",
            answered=False,
        )


@dataclass(frozen=True, kw_only=True)
class RouteConfig:
    """
    A route, how it sends, and which secrets it needs. `made_of` are its settings: equal ones make an equal route.
    """

    spec: RouteSpec
    made_of: object
    exporter: Exporter | LandingExporter
    stamps: Callable[[], object] = tuple  # changes with the secret files; then the route tries again at once
    backoff: Backoff = field(default_factory=Backoff)
    linger_s: float = 0.0  # how long a record waits for others to leave with it
    lands: bool = (
        False  # the exporter is a LandingExporter, and `linger_s` counts from the commit of a record
    )
    beside: Callable[[], Coroutine[Any, Any, None]] | None = (
        None  # runs while the route does; it does not fail
    )
    reads_packed: bool = False  # the exporter takes spool.packed.records.PackedRecords as they are
