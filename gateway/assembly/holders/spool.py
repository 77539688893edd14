"""Makes what handlers of the spool work with."""

from __future__ import annotations

from exporters.forwarder import Forwarder
from exporters.settings import UpstreamSettings
from gateway.assembly.lakes import lake_states, past_records, recount_lake, repair_lake
from gateway.assembly.parts import Assembler
from gateway.http.holders.spool import SpoolServices
from spool.leases import lease_of


def spool_services(parts: Assembler, routes: Forwarder) -> SpoolServices:
    storage = parts.storage
    return SpoolServices(
        log=storage.log,
        deliveries=storage.deliveries,
        streams=storage.streams,
        clock=parts.clock,
        wake=lambda route: storage.leases.wake(lease_of(route)),
        syncs=routes.syncs,
        events_sent_as=lambda type: _sent_as(parts.config.upstream, type),
        is_unmapped=lambda type: _is_unmapped(parts.config.upstream, type),
        event_amount=parts.amount_of,
        partial_reports=storage.partial_reports,
        max_listed_records=lambda: parts.config.server.max_listed_records,
        hold_s=lambda: parts.config.spool.hold,
        native=parts.native,
        memory=parts.memory,
        late_reports=parts.late_reports,
        lakes=lambda: lake_states(parts.config, storage),
        past=lambda: past_records(parts.config, storage),
        repair_lake=lambda name, *, dry_run: repair_lake(
            parts.config, storage, parts.clock, name, dry_run=dry_run
        ),
        recount_lake=lambda name, topic, after: recount_lake(
            parts.config, storage, name, topic=topic, after=after
        ),
    )


def _sent_as(upstream: UpstreamSettings, type: str) -> str | None:
    from exporters.service.events import sent_as  # no start needs it

    return sent_as(upstream, type)


def _is_unmapped(upstream: UpstreamSettings, type: str) -> bool:
    from exporters.service.events import is_unmapped

    return is_unmapped(upstream, type)
