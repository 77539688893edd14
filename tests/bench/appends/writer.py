"""
A process that opens one log and appends to it on command: one line of JSON in, one line of JSON out.

`{"group": 100, "seconds": 2}` appends groups of 100 for 2 seconds. `{"follow": true}` reads the commits of
other writers. `{"fold": true}` writes every closed id into a stored run.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from spool.clock import SystemClock
from spool.engines import POSTGRES, open_storage
from spool.identity import RecordIdentity
from spool.log.values import Submission
from spool.postgres.log.log import PostgresLog
from spool.record import AI_TELEMETRY, NS, Inference
from spool.settings import SpoolSettings, StorageSettings
from spool.storage import Storage, StorageOptions

MODELS = ("gpt-4o-2024-08-06", "gpt-4o-mini", "claude-sonnet-4", "o3")
MADE_AHEAD_PER_S = 60_000  # number of ids per second of measurement that are generated before it starts


class Writer:
    """
    An open log that appends generated records. `number` is unique per writer, so no two writers make
    the same call.
    """

    def __init__(self, storage: Storage, number: int) -> None:
        self._log = storage.log
        self.close = storage.close
        self._ids = _ids(number)
        chance = random.Random(number)
        self._records = [_record(chance) for _ in range(4096)]

    async def obey(self, job: dict[str, Any]) -> dict[str, Any]:
        if "group" in job:
            return await self._append(job["group"], job["seconds"])
        assert isinstance(self._log, PostgresLog)
        if "fold" in job:
            await self._log.close_due_records()
            await self._log._upkeep._folds.compact_all_closed_ids()
            return {}
        before, used = self._log.next_number(AI_TELEMETRY), time.process_time()
        await self._log.read_foreign_commits()
        return {"cpu_s": time.process_time() - used, "records": self._log.next_number(AI_TELEMETRY) - before}

    async def _append(self, group: int, seconds: float) -> dict[str, Any]:
        ahead = [self._identities(group) for _ in range(max(1, int(seconds * MADE_AHEAD_PER_S) // group))]
        made = 0.0  # processor time for generating the input; in the server, this is the normaliser's work
        times: list[float] = []
        used, began = time.process_time(), time.perf_counter()
        while (now := time.perf_counter()) < began + seconds or not times:
            making = time.thread_time()
            identities = ahead.pop() if ahead else self._identities(group)
            records = self._records[:group]
            for record, identity in zip(records, identities, strict=True):
                record.id = identity.id
            one = Submission(topic=AI_TELEMETRY, received=group, records=records, identities=identities)
            made += time.thread_time() - making
            await self._log.append_submission(one)
            times.append(time.perf_counter() - now)
        took = time.perf_counter() - began
        return {
            "records": len(times) * group,
            "seconds": took,
            "cpu_s": time.process_time() - used - made,
            "p50_ms": sorted(times)[len(times) // 2] * 1000,
            "p99_ms": sorted(times)[len(times) * 99 // 100] * 1000,
        }

    def _identities(self, group: int) -> list[RecordIdentity]:
        return [RecordIdentity(next(self._ids)) for _ in range(group)]


def _ids(number: int) -> Iterator[bytes]:
    """Yield ids that are unique among all writers, including later writers on the same schema."""
    begin = f"{number} {time.time_ns()} ".encode()
    return (blake2b(begin + place.to_bytes(8), digest_size=16).digest() for place in range(2**62))


def _record(chance: random.Random) -> Inference:
    end = time.time_ns() - chance.randrange(NS)
    model = chance.choice(MODELS)
    return Inference(
        id=b"",
        source="otel",
        provider="openai",
        operation="chat",
        request_model=model,
        response_model=model,
        request_id=f"chatcmpl-{chance.randrange(2**96):024x}",
        trace_id=f"{chance.randrange(2**128):032x}",
        span_id=f"{chance.randrange(2**64):016x}",
        start_time=end - chance.randrange(10 * NS),
        end_time=end,
        input_tokens=chance.randrange(200, 5000),
        output_tokens=chance.randrange(1, 900),
        cache_read_tokens=1024,
        estimated_cost=f"0.{chance.randrange(10**6):06}",
        cost_source="estimated",
        user=f"user-{chance.randrange(50)}",
        session=f"conversation-{chance.randrange(10)}",
    )


async def open_writer(options: dict[str, Any]) -> Writer:
    directory = Path(options["directory"])
    storage = StorageSettings()
    if options["engine"] == POSTGRES:
        storage = StorageSettings(
            engine=POSTGRES,
            dsn_file=directory / "dsn",
            schema=options["schema"],
            secret_file=directory / "secret",
            durability=options["durability"],
        )
    settings = SpoolSettings(max_bytes=64 << 30, hold=0.5)
    opened = await open_storage(
        StorageOptions(
            directory=directory / options["name"], settings=settings, clock=SystemClock(), storage=storage
        ),
        engine=options["engine"],
    )
    if options["follows"]:
        assert isinstance(opened.log, PostgresLog)
        opened.log._follower._task.cancel()  # the writer reads other writers' commits only on command
    return Writer(opened, options["number"])


async def work(options: dict[str, Any]) -> None:
    writer = await open_writer(options)
    print(json.dumps({}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await writer.obey(json.loads(line))), flush=True)
    await writer.close()


if __name__ == "__main__":
    asyncio.run(work(json.loads(sys.argv[1])))
