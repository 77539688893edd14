"""
A process that fills a lake and kills itself at a place: `victim DATA PLACE SETTINGS`. The settings are the
destination's as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from exporters.lake import exporter, formats
from exporters.lake.stores import FolderStore
from spool.deliveries.protocols import LANDINGS
from spool.record import AI_TELEMETRY
from tests.exporters.spools import calls
from tests.integration.lake.lakes import opened
from tests.processes.copied import start_process

RECORDS = 95
# The first place is before the owner file is written. The others are steps of the second delivery, from
# creating its files to its settlement.
PLACES = (
    "owner", "rows", "mark", "data", "within", "written", "size", "manifest", "settle", "settled", "end",
)  # fmt: skip
_BEGIN_S = 0.002  # seconds after which a request is certainly under way


def kill_at_each_place(data: Path, places: Sequence[str] = PLACES, **settings: object) -> None:
    """Fill a lake with processes that are killed at each place in turn. The last process ends normally."""
    given = json.dumps({name: str(value) for name, value in settings.items()})
    for place in places:
        words = ("-m", "tests.integration.lake.victim", str(data), place, given)
        process = start_process([sys.executable, *words], cwd=data.parent, is_read=True)
        assert process.stdout is not None and process.stderr is not None
        with process.stdout as stdout, process.stderr as stderr:
            said, errors = stdout.read(), stderr.read()
            process.wait()
        assert ("done\n" if place == "end" else "") == said, errors


def settings_of(text: str) -> dict[str, Any]:
    given = json.loads(text)
    paths = {name: Path(given[name]) for name in ("path", "secret_file") if name in given}
    return {"path": None, **given, **paths}


def die(place: str, wanted: str) -> None:
    if place == wanted:
        os.kill(os.getpid(), signal.SIGKILL)


class Victim:
    """Kills this process before or after a step of the second delivery."""

    def __init__(self, wanted: str, *, is_second: bool) -> None:
        self._wanted = wanted
        self.is_second = is_second

    def die(self, place: str) -> None:
        die(place if self.is_second or place == "owner" else "", self._wanted)

    def before(self, method: Callable[..., Any], place: str) -> Callable[..., Any]:
        async def wrapped(*arguments: Any, **options: Any) -> Any:
            self.die(place)
            return await method(*arguments, **options)

        return wrapped

    def creating(self, create: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the creation of objects: kill before it, while it is under way, or after it."""

        async def wrapped(store: Any, name: str, content: Any) -> bool:
            is_data = not name.startswith("_")
            self.die("data" if is_data else "manifest" if name.startswith("_manifest") else "owner")
            work = asyncio.ensure_future(create(store, name, content))
            if is_data:
                await asyncio.wait([work], timeout=_BEGIN_S)
                self.die("within")
            done = bool(await work)
            if is_data:
                self.die("written")
            return done

        return wrapped

    def making(self, files_of: Callable[..., Any]) -> Callable[..., Any]:
        """
        Wrap the creation of a delivery's files: kill when the rows are written but the files are not complete.
        """

        def wrapped(*arguments: Any, **options: Any) -> Any:
            files = files_of(*arguments, **options)
            finish = files.finish_and_describe

            def finished() -> Any:
                self.die("rows")
                return finish()

            files.finish_and_describe = finished
            return files

        return wrapped


async def main(data: Path, wanted: str, settings: dict[str, Any]) -> None:
    async with opened(data) as house:
        if house.storage.log.lowest_open_number(AI_TELEMETRY) == 1:
            await house.add(calls(1, RECORDS, cost="0.1", cost_source="reported"))
        landed = len(
            await house.storage.small.open_table(LANDINGS).lake_deliveries_after(
                f"lake/{AI_TELEMETRY}", after_number=0, max_deliveries=100
            )
        )
        victim = Victim(wanted, is_second=landed > 0)
        deliveries: Any = house.storage.deliveries
        settle = victim.before(deliveries.store_settlement, "settle")

        async def settled(*arguments: Any) -> None:
            await settle(*arguments)
            victim.die("settled")
            victim.is_second = True

        deliveries.store_delivery_mark = victim.before(deliveries.store_delivery_mark, "mark")
        deliveries.store_settlement = settled
        for store in _stores():
            store.create_object = victim.creating(store.create_object)
        exporter.new_delivery_files = victim.making(formats.new_delivery_files)  # type: ignore[attr-defined]
        exporter.store_manifest = victim.before(exporter.store_manifest, "size")
        async with house.forwarding(**settings):
            await house.until(queued=0)
    print("done", flush=True)


def _stores() -> list[Any]:
    from exporters.lake.object_store import ObjectStore

    return [FolderStore, ObjectStore]


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], settings_of(sys.argv[3])))
