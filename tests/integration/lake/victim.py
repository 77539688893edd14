"""A process that fills a lake and kills itself at a place: `victim DATA LAKE PLACE`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exporters.lake import exporter
from exporters.lake.folder import Folder
from spool.deliveries.protocols import LANDINGS
from spool.record import AI_TELEMETRY
from tests.exporters.spools import calls
from tests.integration.lake.lakes import opened

RECORDS = 95
# Of the second delivery: before its mark is kept, then each step that follows.
PLACES = ("mark", "data", "written", "size", "manifest", "settle", "end")


def die(place: str, wanted: str) -> None:
    if place == wanted:
        os.kill(os.getpid(), signal.SIGKILL)


def before(method: Callable[..., Any], place: Callable[..., str], wanted: str) -> Callable[..., Any]:
    """The method, which kills the process before it at the place that is wanted."""

    async def wrapped(*arguments: Any, **options: Any) -> Any:
        die(place(*arguments), wanted)
        return await method(*arguments, **options)

    return wrapped


async def main(data: Path, lake: Path, wanted: str) -> None:
    async with opened(data) as house:
        if house.storage.log.closed_below(AI_TELEMETRY) == 1:
            await house.add(calls(1, RECORDS, cost="0.1", cost_source="reported"))
        deliveries: Any = house.storage.deliveries
        create, link = Folder.create, Path.hardlink_to
        landed = len(await house.storage.small.of(LANDINGS).landed(f"lake/{AI_TELEMETRY}", after=0, most=100))
        is_second = wanted == "end" or landed > 0

        def armed(place: str) -> str:
            return place if is_second else ""

        async def settle(*arguments: Any) -> None:
            nonlocal is_second
            die(armed("settle"), wanted)
            await type(deliveries).settle(deliveries, *arguments)
            is_second = True

        async def created(self: Folder, name: str, content: Any) -> bool:
            die(armed("manifest" if name.startswith("_manifest") else "data"), wanted)
            return await create(self, name, content)

        def linked(self: Path, target: Any) -> None:
            die(armed("written"), wanted)
            link(self, target)

        deliveries.mark = before(deliveries.mark, lambda *_: armed("mark"), wanted)
        deliveries.settle = settle
        Folder.create = created  # type: ignore[method-assign]
        Path.hardlink_to = linked  # type: ignore[method-assign]
        exporter.bring_manifest = before(exporter.bring_manifest, lambda *_: armed("size"), wanted)
        async with house.forwarding(path=lake):
            await house.until(queued=0)
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
