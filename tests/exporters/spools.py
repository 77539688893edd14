"""A spool with records, on disk or in memory, for tests of exporters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from spool.clock import Clock
from spool.deliveries.protocols import Deliveries
from spool.deliveries.values import RouteSpec, RouteState
from spool.identity import RecordIdentity
from spool.log.protocols import RecordLog
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, Inference, Record, UsageMetric
from spool.settings import SpoolSettings
from spool.sqlite.in_memory import open_spool as open_in_memory
from spool.sqlite.spool import open_spool as open_on_disk

ROUTE = "upstream/ai-telemetry"
SPEC = RouteSpec(name=ROUTE, topic=AI_TELEMETRY)
OPEN_AT_ONCE = SpoolSettings(hold=0)


@dataclass
class StoppedClock:
    """A clock that only a test moves. The wall clock can be moved separately."""

    at: float = 1_790_000_000.0
    passed: float = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.passed

    def move(self, seconds: float) -> None:
        self.at += seconds
        self.passed += seconds


@dataclass
class Spooled:
    log: RecordLog
    deliveries: Deliveries
    clock: Clock

    async def add(self, records: Sequence[Record], *, topic: str = AI_TELEMETRY) -> None:
        await self.log.append_submission(
            Submission(
                topic=topic,
                received=len(records),
                records=list(records),
                identities=[RecordIdentity(record.id) for record in records],
            )
        )

    async def state(self, route: str = ROUTE) -> RouteState:
        return next(state for state in await self.deliveries.route_states() if state.name == route)

    async def terms(self, route: str = ROUTE) -> dict[str, int]:
        """Return the route's accounting terms that are not zero."""
        return {term: n for term, n in (await self.log.books()).routes[route].items() if n}


@asynccontextmanager
async def spooled(
    kind: str, directory: Path, clock: Clock, settings: SpoolSettings = OPEN_AT_ONCE
) -> AsyncIterator[Spooled]:
    """Yield a spool. `kind` is sqlite or memory."""
    if kind == "sqlite":
        on_disk = await open_on_disk(directory, settings=settings, clock=clock)
        spooled, close = Spooled(log=on_disk.log, deliveries=on_disk.deliveries, clock=clock), on_disk.close
    else:
        in_memory = await open_in_memory(settings=settings, clock=clock)
        spooled, close = (
            Spooled(log=in_memory.log, deliveries=in_memory.deliveries, clock=clock),
            in_memory.close,
        )
    try:
        yield spooled
    finally:
        await close()


def record_id(n: int) -> bytes:
    return blake2b(str(n).encode(), digest_size=16).digest()


def call(n: int, **fields: Any) -> Inference:
    """Return an AI call that its number distinguishes from all others."""
    return Inference(
        id=record_id(n), source="test", **{"input_tokens": n, "request_model": "gpt-4o", **fields}
    )


def calls(first: int, last: int, **fields: Any) -> list[Record]:
    return [call(n, **fields) for n in range(first, last + 1)]


def counter(n: int, **fields: Any) -> UsageMetric:
    """Return a counter's increase that its number distinguishes from all others."""
    said: dict[str, Any] = {"name": "test.token.usage", "value": n + 1, "model": "m", **fields}
    return UsageMetric(id=record_id(1_000_000 + n), source="test", **said)
