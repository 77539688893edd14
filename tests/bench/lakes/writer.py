"""
A process that receives calls and lands them in an object store: `writer DATA ADDRESS SECRET RECORDS LINE`.

It may be killed and restarted at any time, and resumes at the end of its log. At the end it prints a
line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from spool.record import AI_TELEMETRY, NS, Record
from tests.exporters.spools import call
from tests.integration.lake.lakes import House, opened
from tests.integration.lake.s3 import BUCKET

TOGETHER = 4000  # number of calls per commit
TICK_S = 0.005
AT_NS = 1_790_000_000 * NS


def some(first: int, last: int) -> list[Record]:
    """Make calls of three days with mostly different texts."""
    return [
        call(
            n,
            cost="0.001",
            cost_source="reported",
            provider="openai",
            response_model=f"gpt-{n % 5}",
            request_id=f"chatcmpl-{n:024d}",
            trace_id=f"{n:032x}",
            user=f"user-{n % 200}",
            team=f"team-{n % 20}",
            session=f"session-{n // 7}",
            output_tokens=n % 900,
            start_time=AT_NS + n % 3 * 24 * 3600 * NS + n,
            tags={"service": "checkout", "agent": f"agent-{n % 7}"},
        )
        for n in range(first, last + 1)
    ]


async def take_in(house: House, records: int) -> None:
    """
    Add the records that the log does not have yet. A killed commit is either stored whole or not at all.
    """
    there = house.storage.log.lowest_open_number(AI_TELEMETRY)
    for first in range(there, records + 1, TOGETHER):
        await house.add(some(first, min(records, first + TOGETHER - 1)))
        await asyncio.sleep(0)


async def watched(steps: list[float]) -> None:
    """Record the processor time between turns of the event loop."""
    last = time.process_time()
    while True:
        await asyncio.sleep(TICK_S)
        now = time.process_time()
        steps.append(now - last)
        last = now


async def main(data: Path, address: str, secret: Path, records: int, batch: int) -> None:
    async with opened(data) as house:
        await take_in(house, records)
        steps = [0.0]
        watch = asyncio.create_task(watched(steps))
        began, used, before = time.monotonic(), time.process_time(), _memory_kib()
        print("landing", flush=True)  # after this line, the test counts objects before it kills this process
        settings = {"type": "s3", "path": None, "url": f"s3://{BUCKET}/run", "endpoint": address}
        async with house.forwarding(**settings, secret_file=secret, batch_records=batch):
            while (await house.state()).queued:  # noqa: ASYNC110 - the spool tells nobody of routes
                await asyncio.sleep(0.01)
        watch.cancel()
        terms = await house.terms()
    print(
        json.dumps(
            {
                "books": {name: n for name, n in terms.items() if n > 0},
                "landed_s": time.monotonic() - began,
                "landed_cpu_s": time.process_time() - used,
                "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                "grown_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before,
                "longest_turn_s": max(steps),
            }
        ),
        flush=True,
    )


def _memory_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


if __name__ == "__main__":
    data, address, secret, records, batch = sys.argv[1:]
    asyncio.run(main(Path(data), address, Path(secret), int(records), int(batch)))
