"""`python -m gateway.demo DIRECTORY DAYS RECORDS` fills a directory for the console, in a process of its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gateway.demo.filling import fill
from gateway.demo.month import Period
from spool.clock import SystemClock

SEED = 1


async def main(directory: Path, days: int, records: int) -> None:
    clock = SystemClock()
    period = Period(end=int(clock.now()), days=days, records=records)
    await fill(directory, period, seed=SEED, clock=clock)


if __name__ == "__main__":
    _, directory, days, records = sys.argv
    asyncio.run(main(Path(directory), int(days), int(records)))
