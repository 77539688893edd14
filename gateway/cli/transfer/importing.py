"""`tollhouse lake import`: brings the records of a file into a lake."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from exporters.destinations.catalogue import secret_of
from exporters.lake.destination import store_of
from exporters.lake.formats import FORMATS
from exporters.lake.past.importing import LakeImport
from exporters.lake.past.topic_records import RECORDS
from exporters.settings import DestinationSettings
from spool.clock import SystemClock


async def imported(settings: DestinationSettings, topic: str, source: Path) -> dict[str, Any]:
    """Return what a file brought."""
    with tempfile.TemporaryDirectory(prefix="tollhouse-") as directory:
        work = LakeImport(
            store=store_of(settings, secret_of(settings)),
            clock=SystemClock(),
            destination=settings.name,
            format=FORMATS[settings.format],
            directory=Path(directory),
            leave_out=settings.leave_out,
            records=RECORDS[topic],
        )
        parts = await work.run(source)
    brought = [part.imported for part in parts if part.imported is not None]
    return {
        "source": source.name,
        "rows": sum(part.numbers.rows for part in parts),
        "known": sum(each.known for each in brought),
        "left_out": sum(each.left_out for each in brought),
        "files": [file.key for part in parts for file in part.files],
    }
