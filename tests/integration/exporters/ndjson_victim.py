"""A process that writes an archive and is killed meanwhile: `ndjson_victim DATA ARCHIVE`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from exporters.destinations.ndjson import encode_delivery
from exporters.exporter import RouteConfig
from exporters.forwarder import RouteForwarder
from exporters.record_file import FileExporter
from spool.clock import SystemClock
from spool.deliveries.values import RouteSpec
from spool.record import AI_TELEMETRY
from tests.exporters.spools import calls, spooled

RECORDS = 3000
ROUTE = f"archive/{AI_TELEMETRY}"


async def main(data: Path, archive: Path) -> None:
    async with spooled("sqlite", data, SystemClock()) as server:
        if server.log.lowest_open_number(AI_TELEMETRY) == 1:
            await server.add(calls(1, RECORDS))
        spec = RouteSpec(name=ROUTE, topic=AI_TELEMETRY)
        config = RouteConfig(
            spec=spec,
            compared_settings=archive,
            exporter=FileExporter(archive, write=encode_delivery, max_records=7),
        )
        routes = RouteForwarder(server.deliveries, server.log, server.clock, [config])
        await routes.start()
        print("writing", flush=True)
        while (await server.state(ROUTE)).queued:  # noqa: ASYNC110 - the spool tells nobody of routes
            await asyncio.sleep(0.01)
        await routes.stop()
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
