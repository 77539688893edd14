"""The `otlp` destination: any OTLP/HTTP endpoint, with headers of its own."""

from __future__ import annotations

from collections.abc import Mapping

from exporters.secret import Secret
from exporters.settings import DestinationSettings

SIGNALS = {"traces": "/v1/traces", "metrics": "/v1/metrics"}


class Endpoint:
    """A base address, under which the signals hang as the OTLP specification says."""

    def __init__(self, settings: DestinationSettings) -> None:
        self._base = settings.url.rstrip("/")
        self._headers = dict(settings.headers)
        self.secret = secret_of(settings)

    def url(self, stream: str) -> str:
        return self._base + SIGNALS[stream]

    def authorization(self, stream: str) -> str | None:
        return None if self.secret is None else self.secret.value()

    def headers(self) -> Mapping[str, str]:
        return self._headers


def secret_of(settings: DestinationSettings) -> Secret | None:
    """The destination's secret, when it has one."""
    if settings.secret_file is None:
        return None
    return Secret(f"destination {settings.name}", file=settings.secret_file)
