"""What is known of the lakes of the configuration: when something landed there, and what the newest look found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gateway.configuration.sections import Config
from spool.deliveries.protocols import LANDINGS
from spool.record import AI_TELEMETRY
from spool.storage import Storage

if TYPE_CHECKING:
    from spool.deliveries.lake_verdicts import LakeState
    from spool.deliveries.protocols import Landings

_ANY = 2**62  # above every number


async def lake_states(config: Config, storage: Storage) -> Sequence[LakeState]:
    """The lakes of files, by the names of their routes; none while the registry is damaged."""
    if not config.destinations or storage.registry is None:
        return ()
    from exporters.lake.destination import WITH_FILES
    from spool.deliveries.lake_verdicts import LakeState, kept_verdict

    landings, table = storage.small.of(LANDINGS), storage.registry.statements
    routes = sorted(f"{each.name}/{AI_TELEMETRY}" for each in config.destinations if each.type in WITH_FILES)
    return [
        LakeState(
            route=route,
            landed_at=await _landed_at(landings, route),
            verdict=await kept_verdict(table, route),
        )
        for route in routes
    ]


async def _landed_at(landings: Landings, route: str) -> float | None:
    from exporters.lake import manifest

    newest = await landings.before(route, _ANY)
    return (
        None if newest is None else datetime.fromisoformat(manifest.read(newest.body).landed_at).timestamp()
    )
