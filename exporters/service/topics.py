"""The exporters of the service for every topic but AI telemetry, as its settings ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from exporters.exporter import Exporter
from exporters.keyring import Keyring
from exporters.service.billing import BillingExporter, Lanes
from exporters.service.events import STREAM as EVENTS
from exporters.service.events import EventExporter, StreamMapper
from exporters.service.paths import Paths
from exporters.service.unit_cost import UnitCostExporter
from exporters.service.upstream import Upstream
from exporters.settings import UpstreamSettings
from spool.clock import Clock
from spool.log.protocols import Log
from spool.record import BILLING_DATA, UNIT_COST, USAGE_EVENTS, UnitCostOperation
from spool.streams import StreamReader


@dataclass(frozen=True, kw_only=True)
class Rooms:
    """
    What these exporters need of the house beside their deliveries.

    `learn` hears of operations that come into the log from here; `lanes` hold whoever sends to one connection.
    """

    log: Log
    streams: StreamReader
    learn: Callable[[Sequence[UnitCostOperation]], None]
    lanes: Lanes
    single_writer: frozenset[str] = frozenset()  # streams that nobody else writes


def exporters(
    settings: UpstreamSettings, rooms: Rooms, keyring: Keyring, *, clock: Clock
) -> Iterator[tuple[str, Exporter]]:
    """A topic with nowhere to go has no exporter: its records are kept as long as retention says."""

    def upstream() -> Upstream:  # each closes its own client
        return Upstream.of(settings, keyring, clock=clock)

    if Paths(settings).template(EVENTS) is not None:
        yield USAGE_EVENTS, EventExporter(upstream(), max_bytes=settings.batch_bytes)
    elif settings.events:
        yield USAGE_EVENTS, StreamMapper(rooms.log, settings.events, rooms.learn)
    yield (
        UNIT_COST,
        UnitCostExporter(
            upstream(),
            rooms.streams,
            clock=clock,
            single_writer=rooms.single_writer,
            to_tollhouse=settings.kind == "tollhouse",
        ),
    )
    yield BILLING_DATA, BillingExporter(upstream(), rooms.lanes)
