"""The cost service as a target of OTLP: its paths, under the keys that cover them."""

from __future__ import annotations

from collections.abc import Mapping

from exporters.keyring import Keyring
from exporters.service.client import Client, ClientSettings
from exporters.service.paths import STREAMS, Paths
from exporters.settings import UpstreamSettings
from spool.clock import Clock


class Upstream:
    def __init__(self, paths: Paths, keyring: Keyring) -> None:
        self._paths = paths
        self._keyring = keyring

    def url(self, stream: str) -> str | None:
        return self._paths.url(stream)

    def authorization(self, stream: str) -> str:
        return self._keyring.secret_for(STREAMS[stream].scope)

    def headers(self) -> Mapping[str, str]:
        return {}


def client_of(settings: UpstreamSettings, *, clock: Clock) -> Client:
    """The service's client."""
    return Client(
        ClientSettings(
            proxy=settings.proxy,
            ca_file=settings.ca_file,
            timeout_s=settings.timeout_s,
            compression=settings.compression,
            idempotency_header=settings.idempotency_header,
        ),
        clock=clock,
    )
