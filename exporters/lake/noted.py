"""Writes down when a delivery of a topic or a table landed, which keep no manifests that would say it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Final

from exporters.exporter import KeepMark, LandingExporter
from spool.clock import Clock
from spool.deliveries.lake_verdicts import keep_landed
from spool.deliveries.values import Delivery, Settlement
from spool.errors import SpoolError
from spool.log.values import Entry
from spool.statements.protocols import Statements

EVERY_S: Final = 60.0  # at most once in this time: deliveries may land several times a second

_log = logging.getLogger(__name__)


class NotedLandings:
    """An exporter that lands as another one does, and writes down when."""

    def __init__(self, exporter: LandingExporter, verdicts: Statements, route: str, clock: Clock) -> None:
        self.in_flight, self.max_records = exporter.in_flight, exporter.max_records
        self._exporter = exporter
        self._verdicts = verdicts
        self._route = route
        self._clock = clock
        self._noted_at: float | None = None  # by the monotonic clock

    async def land(
        self, delivery: Delivery, entries: AsyncIterator[Entry], keep_mark: KeepMark
    ) -> Settlement:
        settlement = await self._exporter.land(delivery, entries, keep_mark)
        now = self._clock.monotonic()
        if self._noted_at is None or now >= self._noted_at + EVERY_S:
            self._noted_at = now
            await self._note()
        return settlement

    async def close(self) -> None:
        await self._exporter.close()

    async def _note(self) -> None:
        try:
            await keep_landed(self._verdicts, self._route, self._clock.now())
        except SpoolError as error:  # it landed all the same
            extra = {"action": "landing_not_noted", "route": self._route}
            _log.warning("when %s landed was not written down: %s", self._route, error, extra=extra)
