"""The `otlp` destination: any OTLP/HTTP endpoint, with headers of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from exporters.destinations.declaration import DestinationType
from exporters.errors import SendError
from exporters.http.client import Client, ClientSettings
from exporters.otlp.telemetry import TelemetryExporter
from exporters.probe import OK, Probe, failed, try_export
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

    def naming_key(self, stream: str) -> AbstractContextManager[None]:
        """Add nothing: the destination has one key."""
        return nullcontext()

    def headers(self) -> Mapping[str, str]:
        return self._headers


def build(settings: DestinationSettings, secret: SecretSource | None, clock: Clock) -> TelemetryExporter:
    return TelemetryExporter(
        Client(ClientSettings(may_take_and_fail=True), clock=clock), OtlpEndpoint(settings, secret)
    )


async def probe(settings: DestinationSettings, secret: SecretSource | None, clock: Clock) -> Probe:
    """An empty export of each signal; the first that is not taken speaks for both."""
    endpoint = OtlpEndpoint(settings, secret)
    async with Client(ClientSettings(), clock=clock) as client:
        for signal in SIGNALS:
            try:
                key = endpoint.authorization(signal)
            except SendError as error:
                return failed(error)
            found = await try_export(
                client, endpoint.url(signal), authorization=key, headers=endpoint.headers()
            )
            if found.status != OK:
                return Probe(status=found.status, words=f"{signal}: {found.words}")
    return Probe(status=OK)


TYPE = DestinationType(
    name="otlp", needs="url", build=build, probe=probe, topics=(AI_TELEMETRY,), reads_packed=True
)
