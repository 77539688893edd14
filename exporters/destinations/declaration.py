"""The declaration that each destination module makes for `exporters.destinations.catalogue`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exporters.exporter import Exporter, WholeDeliveryExporter
from exporters.probe import Probe
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock
from spool.record import TOPICS

if TYPE_CHECKING:
    from exporters.lake.exporter import LakeContext
    from spool.ledger.repricing import LinesOf

Build = Callable[[DestinationSettings, SecretSource | None, Clock], Exporter]
BuildByLines = Callable[[DestinationSettings, SecretSource | None, Clock, "LinesOf"], Exporter]
BuildLake = Callable[[DestinationSettings, SecretSource | None, Clock, "LakeContext"], WholeDeliveryExporter]
# function that returns a task for the route's lifetime, or None
Beside = Callable[
    [DestinationSettings, SecretSource | None, Clock, "LakeContext"],
    Callable[[], Coroutine[Any, Any, None]] | None,
]
Problems = Callable[[str, DestinationSettings], Iterator[str]]
ProbeFunction = Callable[[DestinationSettings, SecretSource | None, Clock], Awaitable[Probe]]
InstallationProbe = Callable[[DestinationSettings, SecretSource | None, Clock, str | None], Awaitable[Probe]]


@dataclass(frozen=True, kw_only=True)
class DestinationType:
    """
    A type of destination. `needs`: the setting of [[destinations]] that it requires. `problems`: checks its
    own settings. `probe`: tests whether deliveries would be accepted, and leaves no data at the receiver.

    A data lake has `build_lake` instead of `build`. `beside` returns a task that runs as long as its routes.
    `build_with_price_lines` replaces `build` if the setting `lines` is used. `probe_for_installation`
    replaces `probe` if the test depends on this installation's id (None without data), and `probe_by_call` if
    a test call may be sent, which the receiver may count as one call of zero tokens.
    """

    name: str
    needs: str
    build: Build | None = None
    build_with_price_lines: BuildByLines | None = None
    probe: ProbeFunction
    topics: tuple[str, ...] = TOPICS
    reads_packed: bool = False  # whether the exporter accepts packed records, as in RouteConfig
    build_lake: BuildLake | None = None
    beside: Beside | None = None
    problems: Problems | None = None
    probe_for_installation: InstallationProbe | None = None
    probe_by_call: ProbeFunction | None = None
    secret_lines: int = 1  # lines that the secret file may have
    linger_s: float = 0.25  # default of the setting `linger`
