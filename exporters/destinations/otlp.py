"""The `otlp` destination: any OTLP/HTTP endpoint, with headers of its own."""

from __future__ import annotations

from collections.abc import Mapping

from exporters.destinations.declaration import DestinationType
from exporters.http.client import Client, ClientSettings
from exporters.otlp.telemetry import TelemetryExporter
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock
from spool.record import AI_TELEMETRY

SIGNALS = {"traces": "/v1/traces", "metrics": "/v1/metrics"}


class OtlpEndpoint:
    """A base address, under which the signals hang as the OTLP specification says."""

    def __init__(self, settings: DestinationSettings, secret: SecretSource | None) -> None:
        self._base = settings.url.rstrip("/")
        self._headers = dict(settings.headers)
        self._secret = secret

    def url(self, stream: str) -> str:
        return self._base + SIGNALS[stream]

    def authorization(self, stream: str) -> str | None:
        return None if self._secret is None else self._secret.value()

    def headers(self) -> Mapping[str, str]:
        return self._headers


def build(settings: DestinationSettings, secret: SecretSource | None, clock: Clock) -> TelemetryExporter:
    return TelemetryExporter(Client(ClientSettings(), clock=clock), OtlpEndpoint(settings, secret))


TYPE = DestinationType(name="otlp", needs="url", build=build, topics=(AI_TELEMETRY,))
