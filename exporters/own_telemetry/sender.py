"""Sends Tollhouse's own metrics and traces to an OTLP/HTTP endpoint. Nothing waits for it or is kept for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from exporters.errors import SendError
from exporters.http.client import PROTOBUF, Client, ClientSettings
from exporters.own_telemetry.settings import as_destination, secret_of
from exporters.own_telemetry.sources import OwnMetric, Tracer
from exporters.settings import TelemetrySettings
from spool.clock import Clock
from spool.errors import SpoolError
from spool.record import NS

if TYPE_CHECKING:
    from exporters.destinations.otlp import OtlpEndpoint

TIMEOUT_S = 10.0

_log = logging.getLogger(__name__)


class OwnTelemetry:
    """`read` gives the metrics of now; `failed` is called for every export that did not arrive."""

    def __init__(
        self,
        settings: TelemetrySettings,
        *,
        read: Callable[[], Awaitable[Iterable[OwnMetric]]],
        traces: Tracer,
        failed: Callable[[], None],
        resource: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._read = read
        self._traces = traces
        self._failed = failed
        self._resource = resource
        self._clock = clock
        self._client = Client(ClientSettings(timeout_s=TIMEOUT_S), clock=clock)
        self._began = int(clock.now() * NS)
        self._fails = False
        self._changed = asyncio.Event()
        self._configure(settings)

    def configure(self, settings: TelemetrySettings) -> None:
        """Send there from now on; an empty endpoint ends it."""
        if settings != self._settings:
            self._configure(settings)
            self._changed.set()

    def _configure(self, settings: TelemetrySettings) -> None:
        self._settings = settings
        self._endpoint = _endpoint(settings) if settings.otlp_endpoint else None
        self._fails = False
        self._traces.is_on = bool(settings.otlp_endpoint)
        self._traces.take()

    async def run(self) -> None:
        """Send in every interval until cancelled; without an endpoint it only waits for one."""
        while True:
            interval_s = self._settings.interval if self._settings.otlp_endpoint else None
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._changed.wait()
                self._changed.clear()
                continue
            await self.send_once()

    async def send_once(self) -> None:
        """
        Send metrics and traces once. A failure is counted and not repeated: counters go on, and the next
        export has them.
        """
        from exporters.otlp.telemetry import METRICS, TRACES
        from exporters.own_telemetry.encoding import metrics_request, traces_request

        try:
            now = int(self._clock.now() * NS)
            metrics = metrics_request(await self._read(), self._resource, began=self._began, now=now)
            await self._send(METRICS, metrics)
            steps = self._traces.take()
            if steps:
                await self._send(TRACES, traces_request(steps, self._resource))
        except (SendError, SpoolError) as error:
            self._failed()
            self._note(str(error))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the gateway goes on
            self._failed()
            self._note(type(error).__name__)
        else:
            self._note("")

    async def close(self) -> None:
        await self._client.close()

    async def _send(self, signal: str, body: bytes) -> None:
        endpoint = self._endpoint or _endpoint(self._settings)
        await self._client.send(
            endpoint.url(signal),
            body,
            content_type=PROTOBUF,
            authorization=endpoint.authorization(signal),
            headers=endpoint.headers(),
        )

    def _note(self, reason: str) -> None:
        """Log one line when sending begins to fail, and one when it works again."""
        if bool(reason) == self._fails:
            return
        self._fails = bool(reason)
        if reason:
            _log.warning(
                "own telemetry does not arrive: %s", reason, extra={"action": "own_telemetry_failed"}
            )
        else:
            _log.info("own telemetry arrives again", extra={"action": "own_telemetry_sent"})


def _endpoint(settings: TelemetrySettings) -> OtlpEndpoint:
    """Make the endpoint, and import the encoder only where something is sent."""
    from exporters.destinations.otlp import OtlpEndpoint

    return OtlpEndpoint(as_destination(settings), secret_of(settings))
