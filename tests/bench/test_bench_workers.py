"""Server time to have a worker decode a body, compared with decoding it in the server."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from exporters.http.compression import gzipped
from exporters.otlp import encoding
from exporters.otlp.spans import SpanEncoder
from gateway.http.turns import drive
from gateway.intake.workers.jobs import SentBody
from gateway.intake.workers.pool import WorkerPool
from gateway.intake.workers.process import starter
from gateway.normalise.outcome import Options
from gateway.service.monitoring.metrics import Metrics
from spool.record import Inference
from spool.settings import MIB
from tests.bench.load import payloads

pytestmark = pytest.mark.bench

TOGETHER = 8  # number of bodies that wait for workers at the same time
FULL = os.environ.get("TOLLHOUSE_BENCH") == "full"
ROUNDS, SPANS = (7, 1500) if FULL else (3, 300)
LARGE_ENOUGH = (
    100  # from this number of spans per body on, a worker must save at least half of the server's time
)


async def least_us(work: Callable[[], Coroutine[Any, Any, object]], times: int) -> float:
    """Return this process's microseconds of processor time per call, the least of several rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(max(1, times // TOGETHER)):
            await asyncio.gather(*(work() for _ in range(TOGETHER)))
        found.append((time.process_time() - began) / max(1, times // TOGETHER) / TOGETHER * 1e6)
    return min(found)


async def test_what_a_worker_saves(record_property: Callable[[str, object], None]) -> None:
    """
    Measure microseconds of server time per body, by spans per body, and for a delivery of a thousand records.
    """
    start = starter("-m", "gateway.service.assembly.worker_process", "{socket}", str(512 * MIB))
    pool = WorkerPool(1, start, silent_s=30, observer=Metrics())
    pool.start()
    options = Options()
    try:
        await pool.complete()
        for count in (1, 5, 10, 100, 1000):
            body = SentBody.of_export(
                "traces", payloads.protobuf_spans(count, first=0, users=50, age_s=0), json=False
            )

            async def here(body: SentBody = body) -> object:
                return await drive(body.normalise(options, lambda _: None))

            async def there(body: SentBody = body) -> object:
                return await pool.decode(body, options, lambda _: None)

            times = max(TOGETHER, SPANS // count)
            own, saved = await least_us(here, times), await least_us(there, times)
            record_property(f"decode {count}", (own, saved))
            print(f"{count} spans, {len(body.content)} bytes: {own:.0f} us here, {saved:.0f} us for a worker")
            if count == LARGE_ENOUGH:
                assert saved < own / 2
        records = [(one, 1.0) for one in (await pool.decode(body, options, lambda _: None)).outcome.records]
        calls = [(one, at) for one, at in records if isinstance(one, Inference)]
        encoder = SpanEncoder()

        async def encode_here() -> object:
            return gzipped(encoder.request(calls))

        async def encode_there() -> Awaitable[object] | object:
            return await pool.encode(encoding.packed(calls, compresses=True))

        own, saved = await least_us(encode_here, TOGETHER), await least_us(encode_there, TOGETHER)
        record_property("encode", (own, saved))
        print(f"a delivery of {len(calls)}: {own:.0f} us here, {saved:.0f} us for a worker")
    finally:
        await pool.close()
