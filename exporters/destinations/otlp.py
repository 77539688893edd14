"""The destination type otlp: any OTLP/HTTP endpoint, with its own headers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from exporters.destinations.declaration import DestinationType
from exporters.errors import SendError
from exporters.http.client import ClientSettings, HttpClient
from exporters.marked_call import probe_with_test_call
from exporters.otlp.telemetry import METRICS, TRACES, TelemetryExporter
from exporters.probe import OK, Probe, error_probe, probe_with_empty_export
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock
from spool.record import AI_TELEMETRY

SIGNALS = {TRACES: "/v1/traces", METRICS: "/v1/metrics"}


class OtlpEndpoint:
    """The address, headers and secret of an OTLP receiver. Its paths follow the OTLP specification."""

    def __init__(self, settings: DestinationSettings, secret: SecretSource | None) -> None:
        self._base = settings.url.rstrip("/")
        self._headers = dict(settings.headers)
        self._secret = secret

    def url(self, stream: str) -> str:
        return self._base + SIGNALS[stream]

    def authorization(self, stream: str) -> str | None:
        return None if self._secret is None else self._secret.value()

    def name_refused_key_in_errors(self, stream: str) -> AbstractContextManager[None]:
        return nullcontext()

    def headers(self) -> Mapping[str, str]:
        return self._headers


def build_exporter(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock
) -> TelemetryExporter:
    return TelemetryExporter(
        HttpClient(ClientSettings(may_take_and_fail=True), clock=clock), OtlpEndpoint(settings, secret)
    )


async def probe_destination(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock
) -> Probe:
    """
    Send an empty export of each signal, and the test call if the receiver is a Tollhouse. Return the first
    failure.
    """
    return await _probe_signals(settings, secret, clock, send_call=False)


async def probe_destination_with_call(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock
) -> Probe:
    """Send the test call to any receiver."""
    return await _probe_signals(settings, secret, clock, send_call=True)


async def _probe_signals(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock, *, send_call: bool
) -> Probe:
    message = None
    endpoint = OtlpEndpoint(settings, secret)
    async with HttpClient(ClientSettings(), clock=clock) as client:
        for signal in SIGNALS:
            try:
                key = endpoint.authorization(signal)
            except SendError as error:
                return error_probe(error)
            url, headers = endpoint.url(signal), endpoint.headers()
            if signal == TRACES and AI_TELEMETRY in settings.topics:
                result = await probe_with_test_call(
                    client, url, clock=clock, authorization=key, headers=headers, send_call=send_call
                )
            else:  # telemetry about Tollhouse itself has no AI calls
                result = await probe_with_empty_export(client, url, authorization=key, headers=headers)
            if result.status != OK:
                return Probe(status=result.status, words=f"{signal}: {result.words}")
            message = message or result.words
    return Probe(status=OK, words=message)


TYPE = DestinationType(
    name="otlp",
    needs="url",
    build=build_exporter,
    probe=probe_destination,
    probe_by_call=probe_destination_with_call,
    topics=(AI_TELEMETRY,),
    reads_packed=True,
)
