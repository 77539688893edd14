"""
Creates the routes of a Tollhouse: destinations with everything they need, and tables that are sent row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from exporters.destinations.catalogue import TYPES, build_routes
from exporters.exporter import RouteConfig
from exporters.forwarder import RouteForwarder, TableSync
from exporters.service.billing_sync import BillingSync
from exporters.service.paths import UPSTREAM
from exporters.service.upstream_client import UpstreamClient
from gateway.configuration.sections import Config
from gateway.configuration.values import ConfigError
from gateway.devices.fleet.forwarded_heartbeats import adjust_heartbeat_for_upstream
from gateway.service.assembly.demo import planted_routes
from gateway.service.assembly.parts import ServicePartsBuilder
from spool.deliveries.protocols import LANDINGS
from spool.installation import public_id
from spool.record import AI_TELEMETRY

if TYPE_CHECKING:
    from exporters.destinations.upstream import UpstreamContext
    from exporters.lake.exporter import LakeContext
    from spool.ledger.repricing import SumLine
    from spool.ledger.token_sums import TokenSum


def build_syncs(parts_builder: ServicePartsBuilder, config: Config, billing: BillingSync) -> list[TableSync]:
    upstream = config.upstream
    if not upstream.base_url:
        return []
    from exporters.service.container_metrics import ContainerFileSync
    from exporters.service.device_sync import DeviceSync

    client, clock = UpstreamClient.from_settings(upstream, clock=parts_builder.clock), parts_builder.clock

    async def waiting_since() -> float | None:
        routes = await parts_builder.storage.deliveries.route_states()
        ages = [route.oldest_age_s for route in routes if route.name == f"{UPSTREAM}/{AI_TELEMETRY}"]
        return next((clock.now() - age_s for age_s in ages if age_s is not None), None)

    devices = DeviceSync(
        parts_builder.storage.devices,
        client,
        clock=clock,
        in_flight=upstream.in_flight,
        tells_changes=upstream.kind == "tollhouse",
        waiting_since=waiting_since,
        state_what_waits=lambda heartbeat, device, since: adjust_heartbeat_for_upstream(
            heartbeat, device, since, record_hold_s=config.spool.hold, now=clock.now()
        ),
    )
    files = UpstreamClient.from_settings(upstream, clock=parts_builder.clock)
    containers = ContainerFileSync(parts_builder.storage.container_files, files, clock=parts_builder.clock)
    return [devices, containers, *([billing] if upstream.connection_id else [])]


def route_configs(parts_builder: ServicePartsBuilder, config: Config) -> list[RouteConfig]:
    """
    Return the routes of a configuration. Raises ConfigError for settings that a destination does not support.
    """
    context = _upstream_context(parts_builder, config) if config.upstream.base_url else None
    try:
        routes = build_routes(
            config.upstream,
            config.destinations,
            clock=parts_builder.clock,
            context=context,
            lake=_lake_context(parts_builder, config),
            price_lines=partial(_price_lines, parts_builder),
        )
    except ValueError as error:
        raise ConfigError([str(error)]) from error
    return [*routes, *planted_routes(parts_builder.demo_note)]


def _price_lines(parts_builder: ServicePartsBuilder, total: TokenSum) -> Sequence[SumLine]:
    # imported late, because the start does not need this module
    from gateway.intake.price_lines import price_lines_of_sum

    return price_lines_of_sum(parts_builder.prices(), total)


def _lake_context(parts_builder: ServicePartsBuilder, config: Config) -> LakeContext | None:
    if not any(TYPES[destination.type].build_lake for destination in config.destinations):
        return None
    from exporters.lake.exporter import LakeContext

    storage = parts_builder.storage
    return LakeContext(
        directory=config.data_dir / "lake",
        landings=storage.small.open_table(LANDINGS),
        installation=public_id(storage.secret),
        books=storage.log.books,
        routes=storage.deliveries.route_states,
        verdicts=None if storage.registry is None else storage.registry.statements,
    )


def _upstream_context(parts_builder: ServicePartsBuilder, config: Config) -> UpstreamContext:
    from exporters.destinations.upstream import UpstreamContext

    storage = parts_builder.storage
    return UpstreamContext(
        log=storage.log,
        streams=storage.streams,
        learn=storage.book.learn_streams,
        locks=parts_builder.locks,
        id_upstream=parts_builder.billing_connections.upstream_connection_id_of_drop,
        single_writer=frozenset(stream.name for stream in config.streams if stream.single_writer),
    )


async def start_routes(parts_builder: ServicePartsBuilder, syncs: Sequence[TableSync]) -> RouteForwarder:
    config, storage = parts_builder.config, parts_builder.storage
    configs = route_configs(parts_builder, config)
    max_dead_letters = config.spool.max_dead_letters
    routes = RouteForwarder(
        storage.deliveries,
        storage.log,
        parts_builder.clock,
        configs,
        syncs,
        max_dead_letters=max_dead_letters,
        leases=storage.leases,
        native=parts_builder.native.native,
    )
    parts_builder.stack.push_async_callback(routes.stop)
    await routes.start()
    return routes
