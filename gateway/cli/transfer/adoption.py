"""What `tollhouse lake adopt` does with the storage of a restored copy, which no server uses."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

from exporters.destinations.catalogue import secret_of
from exporters.lake.destination import USUAL_RECORDS, store_of
from exporters.lake.formats import FORMATS
from exporters.lake.past.adoption import Adopted, LakeAdoption
from exporters.lake.past.topic_records import RECORDS
from exporters.settings import DestinationSettings
from gateway.assembly.storage import open_storage
from gateway.configuration.local_operator import local_address
from gateway.configuration.sections import Config
from spool.clock import SystemClock
from spool.deliveries.protocols import LANDINGS
from spool.errors import NotAllowed, SpoolError
from spool.registry.operators import Actor


async def adopted(
    config: Config, settings: DestinationSettings, topic: str, *, leave: bool, dry_run: bool
) -> Adopted:
    """SpoolLocked while a server uses the data, NotAllowed while another gateway does."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="tollhouse-") as directory:
        async with open_storage(config, clock=clock) as storage:
            if storage.registry is None:
                raise SpoolError(storage.registry_problem)
            others = [node.name for node in await storage.leases.nodes() if node.is_live and not node.is_this]
            if others:
                raise NotAllowed(f"stop every gateway first: {', '.join(others)} runs")
            adoption = LakeAdoption(
                store=store_of(settings, secret_of(settings)),
                landings=storage.small.of(LANDINGS),
                deliveries=storage.deliveries,
                log=storage.log,
                reports=storage.partial_reports,
                clock=clock,
                destination=settings.name,
                writer=FORMATS[settings.format].writer,
                batch_records=settings.batch_records or USUAL_RECORDS,
                directory=Path(directory),
                records=RECORDS[topic],
            )
            done = await adoption.run(leave=leave, dry_run=dry_run)
            if not dry_run:
                actor = Actor(local_address(config), "command line")
                await storage.registry.note(
                    actor, "lake.adopt", settings.name, after={"topic": topic, **asdict(done)}
                )
    return done
