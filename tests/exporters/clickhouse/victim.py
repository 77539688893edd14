"""A process that exports its records to a table at each start and may be killed: `victim DATA URL`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from spool.record import AI_TELEMETRY
from tests.exporters.spools import calls
from tests.integration.lake.lakes import opened

RECORDS: Final = 100


async def main(data: Path, url: str) -> None:
    async with opened(data) as house:
        if house.storage.log.lowest_open_number(AI_TELEMETRY) == 1:
            await house.add(calls(1, RECORDS, cost="0.1", cost_source="reported"))
        async with house.forwarding(type="clickhouse", url=url):
            await house.until(queued=0)
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
