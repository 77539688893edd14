"""What [telemetry] must hold, and what it means as a destination."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from exporters.problems import headers, url
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings, TelemetrySettings

NAME = "own telemetry"  # no name of a destination: it has a space
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY = frozenset({"0.0.0.0", "::"})


def problems(settings: TelemetrySettings, listening: Mapping[str, str]) -> Iterator[str]:
    """
    Every reason why [telemetry] cannot work. `listening`: HOST:PORT of each setting that makes Tollhouse listen.
    """
    shown = "telemetry.otlp_endpoint"
    found = list(url(shown, settings.otlp_endpoint))
    yield from found
    yield from headers("telemetry.headers", settings.headers)
    if settings.otlp_endpoint and not found:
        for name, address in listening.items():
            if _is_same(settings.otlp_endpoint, address):
                yield f"{shown} is {name}, the address of this Tollhouse: it must not measure what it sends to itself"
                return


def secret_of(settings: TelemetrySettings) -> SecretSource | None:
    """The key that is sent, None if there is none."""
    return SecretSource("telemetry.secret_file", file=settings.secret_file) if settings.secret_file else None


def as_destination(settings: TelemetrySettings) -> DestinationSettings:
    """The same endpoint, key and headers."""
    return DestinationSettings(
        name=NAME,
        type="otlp",
        url=settings.otlp_endpoint,
        headers=settings.headers,
        secret_file=settings.secret_file,
        topics=("metrics", "traces"),
    )


def _is_same(endpoint: str, address: str) -> bool:
    """True if an endpoint leads to an address of this machine, as far as that is known without asking the network."""
    parts = urlsplit(endpoint)
    host, _, port = address.rpartition(":")
    to_port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    own = host.strip("[]").lower()
    to = parts.hostname or ""
    is_same_host = (
        own == to or {own, to} <= _LOOPBACK | _ANY or (own in _ANY and to == socket.gethostname().lower())
    )
    return is_same_host and port.isdecimal() and int(port) == to_port
