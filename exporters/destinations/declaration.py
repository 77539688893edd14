"""What each destination module declares; `exporters.destinations.catalogue` collects it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from exporters.exporter import Exporter
from exporters.probe import Probe
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock
from spool.record import TOPICS

Build = Callable[[DestinationSettings, SecretSource | None, Clock], Exporter]
Try = Callable[[DestinationSettings, SecretSource | None, Clock], Awaitable[Probe]]


@dataclass(frozen=True, kw_only=True)
class DestinationType:
    """
    `needs` is the setting of [[destinations]] that must be given; `topics` are those it can take. `probe`
    finds out what would become of a delivery, and leaves nothing behind.
    """

    name: str
    needs: str
    build: Build
    probe: Try
    topics: tuple[str, ...] = TOPICS
    reads_packed: bool = False  # as in RouteConfig
