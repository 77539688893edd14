"""What each destination module declares; `exporters.destinations.catalogue` collects it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exporters.exporter import Exporter, LandingExporter
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
BuildLake = Callable[[DestinationSettings, SecretSource | None, Clock, "LakeContext"], LandingExporter]
# None: nothing runs beside the route.
Beside = Callable[
    [DestinationSettings, SecretSource | None, Clock, "LakeContext"],
    Callable[[], Coroutine[Any, Any, None]] | None,
]
Problems = Callable[[str, DestinationSettings], Iterator[str]]
Try = Callable[[DestinationSettings, SecretSource | None, Clock], Awaitable[Probe]]
TryOf = Callable[[DestinationSettings, SecretSource | None, Clock, str | None], Awaitable[Probe]]


@dataclass(frozen=True, kw_only=True)
class DestinationType:
    """
    `needs` is the setting of [[destinations]] that must be given; `topics` are those it can take. `probe`
    finds out what would become of a delivery, and leaves nothing behind. A lake has `build_lake` in place of
    `build`, and `beside` what runs beside its routes; `problems` are those of settings that it alone has. `probe_of`
    stands in for `probe` where it matters which installation asks: None is one without data. `probe_by_call` stands in
    for it where a marked call may be sent as well, and may count one call of zero tokens there.
    `build_by_lines` stands in for `build` with the setting `lines`.
    """

    name: str
    needs: str
    build: Build | None = None
    build_by_lines: BuildByLines | None = None
    probe: Try
    topics: tuple[str, ...] = TOPICS
    reads_packed: bool = False  # as in RouteConfig
    build_lake: BuildLake | None = None
    beside: Beside | None = None
    problems: Problems | None = None
    probe_of: TryOf | None = None
    probe_by_call: Try | None = None
    secret_lines: int = 1  # of its secret file
    linger_s: float = 0.25  # where none is set
