"""The work of `tollhouse lake adopt` and `tollhouse lake import`."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from exporters.destinations.catalogue import destination_secret
from exporters.lake.destination import USUAL_RECORDS, open_store
from exporters.lake.formats import FORMATS
from exporters.lake.past.adoption import AdoptionResult, LakeAdoption
from exporters.lake.past.importing import LakeImport
from exporters.lake.past.records import RECORDS
from exporters.settings import DestinationSettings
from gateway.configuration.local_operator import local_address
from gateway.configuration.sections import Config
from gateway.service.assembly.storage import open_storage
from spool.clock import SystemClock
from spool.deliveries.protocols import LANDINGS
from spool.errors import NotAllowed, SpoolError
from spool.registry.operators import Actor


async def adopt_lake(
    config: Config,
    settings: DestinationSettings,
    topic: str,
    *,
    leaves_records_only_in_lake: bool,
    dry_run: bool,
) -> AdoptionResult:
    """
    In a restored storage, mark records that the lake has as delivered, and import records that exist only in
    the lake.

    Raises SpoolLocked while a server uses the data, NotAllowed while another gateway runs.
    """
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="tollhouse-") as directory:
        async with open_storage(config, clock=clock) as storage:
            if storage.registry is None:
                raise SpoolError(storage.registry_problem)
            running = [
                node.name for node in await storage.leases.node_states() if node.is_live and not node.is_this
            ]
            if running:
                raise NotAllowed(f"stop every gateway first; still running: {', '.join(running)}")
            adoption = LakeAdoption(
                store=open_store(settings, destination_secret(settings)),
                landings=storage.small.open_table(LANDINGS),
                deliveries=storage.deliveries,
                log=storage.log,
                reports=storage.partial_reports,
                clock=clock,
                destination=settings.name,
                writer=FORMATS[settings.format].writer,
                batch_records=settings.batch_records or USUAL_RECORDS,
                directory=Path(directory),
                records=RECORDS[topic],
                renaming=storage.registry.people.pseudonym,
            )
            result = await adoption.adopt_records(leaves_in_lake=leaves_records_only_in_lake, dry_run=dry_run)
            if not dry_run:
                actor = Actor(local_address(config), "command line")
                await storage.registry.audit_change(
                    actor, "lake.adopt", settings.name, after={"topic": topic, **asdict(result)}
                )
    return result


async def import_file_into_lake(settings: DestinationSettings, topic: str, source: Path) -> dict[str, Any]:
    """Import the records of a file into a lake; return the counts and the written files."""
    with tempfile.TemporaryDirectory(prefix="tollhouse-") as directory:
        work = LakeImport(
            store=open_store(settings, destination_secret(settings)),
            clock=SystemClock(),
            destination=settings.name,
            format=FORMATS[settings.format],
            directory=Path(directory),
            leave_out=settings.leave_out,
            records=RECORDS[topic],
        )
        parts = await work.import_file(source)
    imports = [part.imported for part in parts if part.imported is not None]
    return {
        "source": source.name,
        "rows": sum(part.numbers.rows for part in parts),
        "known": sum(lake_import.known for lake_import in imports),
        "left_out": sum(lake_import.left_out for lake_import in imports),
        "files": [file.key for part in parts for file in part.files],
    }
