"""Fill an installation while no server runs: records that wait for the upstream, keys, and devices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from gateway.configuration.sections import Config
from gateway.service.assembly.storage import open_storage
from spool.clock import Clock, SystemClock
from spool.devices.device import Device
from spool.identity import RecordIdentity
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, NS, Inference
from spool.registry.operators import Actor
from spool.registry.scopes import INGEST
from spool.settings import SpoolSettings
from spool.storage import Storage
from tests.bench.load.payloads import device_id

DATA = "tollhouse-data"
BATCH = 4096
FIRST_ID = 1 << 64  # the backlog's ids are above the ids of the load


def fill(directory: Path, records: int, *, users: int = 50, age_s: int = 0) -> None:
    """Add undelivered, different calls that the ledger has counted."""
    asyncio.run(_fill(directory, records, users, age_s))


async def _fill(directory: Path, records: int, users: int, age_s: int) -> None:
    async with opened_storage(directory) as storage:
        for first in range(0, records, BATCH):
            batch = [call(number, users, age_s) for number in range(first, min(records, first + BATCH))]
            identities = [RecordIdentity(record.id) for record in batch]
            await storage.log.append_submission(
                Submission(topic=AI_TELEMETRY, received=len(batch), records=batch, identities=identities)
            )
        await storage.ledger.catch_up(storage.log)


def add_keys(directory: Path, keys: int) -> list[str]:
    """Create keys that may send telemetry; return their secrets."""
    return asyncio.run(_add_keys(directory, keys))


async def _add_keys(directory: Path, keys: int) -> list[str]:
    async with opened_storage(directory) as storage:
        assert storage.registry is not None
        create = partial(storage.registry.keys.create, scopes=[INGEST], actor=Actor("bench", ""))
        return [(await create(name=f"key-{number:06d}"))[1] for number in range(keys)]


def add_devices(directory: Path, devices: int) -> None:
    """Enrol the devices whose heartbeats are sent, so that the server knows all of them."""
    asyncio.run(_add_devices(directory, devices))


async def _add_devices(directory: Path, devices: int) -> None:
    now = time.time()
    async with opened_storage(directory) as storage:
        rows = (
            Device(id=device_id(n), enrolled_at=now, enrolled_by="bench", last_seen=now)
            for n in range(devices)
        )
        await asyncio.gather(*map(storage.devices.replace_row, rows))


@asynccontextmanager
async def opened_storage(directory: Path, clock: Clock | None = None) -> AsyncIterator[Storage]:
    settings = SpoolSettings(hold=0.0)
    async with open_storage(
        Config(data_dir=directory / DATA, spool=settings), clock=clock or SystemClock()
    ) as storage:
        yield storage


def call(number: int, users: int, age_s: int) -> Inference:
    start = time.time_ns() - age_s * NS
    return Inference(
        id=(FIRST_ID + number).to_bytes(16, "big"),
        request_id=f"chatcmpl-{99_000_000 + number // 10**6:08d}{number:016d}",
        source="otel_genai",
        start_time=start,
        end_time=start + 900_000_000,
        provider="openai",
        operation="chat",
        request_model="gpt-4o",
        response_model="gpt-4o-2024-08-06",
        input_tokens=1200 + number % 777,
        output_tokens=80,
        cache_read_tokens=1024,
        user=f"user-{number % users}",
        session=f"conversation-{number // 50}",
        api_key="load",
        cost="0.0025",
        cost_source="reported",
        tags={"service": "shop"},
    )
