"""The state of the configured data lakes, and reading records back from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gateway.configuration.sections import Config
from spool.clock import Clock
from spool.deliveries.protocols import LANDINGS
from spool.errors import NotThere, SpoolUnavailable
from spool.record import AI_TELEMETRY
from spool.storage import Storage

if TYPE_CHECKING:
    from exporters.settings import DestinationSettings
    from spool.deliveries.protocols import LakeDeliveries, LakeRecount, LakeRepairs, LakeState, PastRecords

_ANY = 2**62  # larger than any record number


async def lake_states(config: Config, storage: Storage) -> Sequence[LakeState]:
    """
    Return the state of each data lake, with its topics and tables, by route name. Empty while the
    registry is damaged.
    """
    if not config.destinations or storage.registry is None:
        return ()
    from exporters.destinations.catalogue import TYPES
    from spool.deliveries.protocols import LakeState, read_lake_verdict, read_last_lake_write_at

    landings = storage.small.open_table(LANDINGS)
    table = storage.registry.statements
    lakes = [destination for destination in config.destinations if TYPES[destination.type].build_lake]
    routes = sorted(f"{lake.name}/{topic}" for lake in lakes for topic in lake.topics)
    return [
        LakeState(
            route=route,
            landed_at=await _newest_landing_at(landings, route)
            or await read_last_lake_write_at(table, route),
            verdict=await read_lake_verdict(table, route),
        )
        for route in routes
    ]


def past_records(config: Config, storage: Storage) -> PastRecords | None:
    """Return the reader of the first data lake that consists of files, or None."""
    if not config.destinations:
        return None
    from exporters.lake.destination import WITH_FILES, has_focus_format

    lakes = [
        destination
        for destination in config.destinations
        if destination.type in WITH_FILES and not has_focus_format(destination)
    ]
    settings = next((lake for lake in lakes if AI_TELEMETRY in lake.topics), None)
    if settings is None:
        return None
    from exporters.destinations.catalogue import destination_secret
    from exporters.lake.destination import open_store
    from exporters.lake.past.history import LakeHistory

    return LakeHistory(
        store=open_store(settings, destination_secret(settings)),
        landings=storage.small.open_table(LANDINGS),
        route=f"{settings.name}/{AI_TELEMETRY}",
        directory=config.data_dir / "lake",
        leave_out=settings.leave_out,
    )


async def repair_lake(
    config: Config, storage: Storage, clock: Clock, destination: str, *, dry_run: bool
) -> LakeRepairs:
    """
    Write missing files of a data lake again. Raises NotThere if there is no such data lake of files, and
    SpoolUnavailable if its store is unreachable.
    """
    settings = _file_lake_settings(config, destination)
    from exporters.destinations.catalogue import destination_secret
    from exporters.errors import SendError
    from exporters.lake.destination import open_store
    from exporters.lake.repair import LakeRepair
    from spool.deliveries.protocols import LakeRepairs

    uploaded = list[str]()
    lost = dict[str, str]()
    try:
        for topic in settings.topics:
            repair = LakeRepair(
                store=open_store(settings, destination_secret(settings)),
                landings=storage.small.open_table(LANDINGS),
                log=storage.log,
                clock=clock,
                destination=settings.name,
                topic=topic,
                directory=config.data_dir / "lake",
                leave_out=settings.leave_out,
            )
            repairs = await repair.repair_files(dry_run=dry_run)
            uploaded += repairs.put
            lost.update(repairs.lost)
        return LakeRepairs(put=uploaded, lost=lost)
    except (SendError, ValueError) as error:
        raise SpoolUnavailable(f"the data lake {destination} is unreachable: {error}") from error


async def recount_lake(
    config: Config, storage: Storage, destination: str, *, topic: str, after_number: int
) -> LakeRecount:
    """
    Compare the deliveries to a data lake with the log. Raises NotThere if there is no such data lake of files.
    """
    settings = _file_lake_settings(config, destination)
    from exporters.lake.past.log_recount import LogRecount

    landings = storage.small.open_table(LANDINGS)
    recount = LogRecount(landings=landings, log=storage.log, destination=settings.name, topic=topic)
    try:
        return await recount.compare_deliveries(after_number)
    except ValueError as error:
        raise SpoolUnavailable(f"the data lake {destination} is unreachable: {error}") from error


def _file_lake_settings(config: Config, destination: str) -> DestinationSettings:
    from exporters.lake.destination import WITH_FILES

    lakes = [destination for destination in config.destinations if destination.type in WITH_FILES]
    settings = next((lake for lake in lakes if lake.name == destination), None)
    if settings is None:
        raise NotThere(f"no destination named {destination!r} is a data lake that consists of files")
    return settings


async def _newest_landing_at(landings: LakeDeliveries, route: str) -> float | None:
    from exporters.lake import manifest

    newest = await landings.lake_delivery_before(route, _ANY)
    return (
        None
        if newest is None
        else datetime.fromisoformat(manifest.decode_manifest(newest.body).landed_at).timestamp()
    )
