"""The limits on `/metrics`, each with its current use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gateway.configuration.sections import Config, RoleSettings
from gateway.monitoring.snapshot import Limit
from gateway.operations.requests.receiver_services import ReceiverServices
from spool.container_files.files import ContainerFiles
from spool.deliveries.values import RouteState
from spool.devices.device import Device
from spool.log.values import LogStats
from spool.registry.document_table import INSIGHTS
from spool.registry.insights import MAX_INSIGHTS
from spool.registry.roles import RoleLimits
from spool.settings import MAX_SENDERS, MAX_SERIES
from spool.shares import HeldByKey, KeyShare, key_next_to_lose_entries, nearly_full_keys
from spool.storage import Storage
from spool.streams import StreamSize


def current_limits(
    config: Config,
    stats: LogStats,
    receivers: ReceiverServices,
    routes: Sequence[RouteState],
    streams: Sequence[StreamSize],
    devices: int,
    files: ContainerFiles,
) -> list[Limit]:
    server = config.server
    section = config.spool
    container = config.container
    inflight = receivers.inflight
    return [
        Limit("server.max_inflight_bytes", server.max_inflight_bytes, inflight.general.held),
        Limit("server.small_body_reserve", server.small_body_reserve, inflight.reserve.held),
        Limit("server.max_grpc_messages", server.max_grpc_messages, receivers.receiving.count),
        Limit("server.max_connections", receivers.connections.limit, receivers.connections.count),
        Limit("spool.max_bytes", section.max_bytes, stats.bytes),
        Limit(
            "spool.max_dead_letters",
            section.max_dead_letters,
            max((route.dead for route in routes), default=0),
        ),
        Limit("spool.max_streams", section.max_streams, len(streams)),
        Limit("spool.max_stream_bytes", section.max_stream_bytes, sum(stream.bytes for stream in streams)),
        Limit("spool.duplicate_ids", section.duplicate_ids, stats.duplicate_ids),
        Limit(MAX_SERIES, section.max_series, stats.series),
        Limit("spool.pending_spans", section.pending_spans, stats.pending_spans),
        Limit("spool.pending_items", section.pending_items, receivers.intake.waiting_count),
        Limit("devices.max", config.devices.max, devices),
        Limit("container.max_bytes", container.max_bytes, files.sums.total_bytes),
        Limit("container.max_files", container.max_files, files.sums.row_count),
    ]


async def nearly_used_shares(
    config: Config,
    devices: Iterable[Device],
    storage: Storage,
    waiting: Mapping[str, HeldByKey],
    senders: Mapping[str, int],
) -> list[KeyShare]:
    """
    Return the keys that use nearly all of their share of a common limit. `waiting` has the waiting items by
    kind of limit and key, and `senders` the number of known senders by key.
    """
    clusters_by_key = Counter(storage.clusters.first_reporting_keys())
    clusters_by_key[""] = len(storage.clusters) - clusters_by_key.total()
    limits = [
        *nearly_full_keys(
            "devices.max",
            # devices enrolled with a token do not count, because the token limits their number
            Counter("" if device.token else device.enrolled_by for device in devices if device.last_seen),
            config.devices.max,
        ),
        *nearly_full_keys("clusters.max", clusters_by_key, config.clusters.max),
        *nearly_full_keys(
            "container.max_files", storage.container_files.sums.open, config.container.max_files
        ),
        *nearly_full_keys(
            "container.max_bytes",
            storage.container_files.sums.waiting_bytes_by_key,
            config.container.max_bytes,
        ),
        *key_next_to_lose_entries(MAX_SENDERS, senders, config.spool.max_senders),
    ]
    streams = Counter[str]()
    stream_bytes = Counter[str]()
    for stream in await storage.streams.stream_sizes():
        streams[stream.created_by] += 1
        stream_bytes[stream.created_by] += stream.bytes
    limits += nearly_full_keys("spool.max_streams", streams, config.spool.max_streams)
    limits += nearly_full_keys("spool.max_stream_bytes", stream_bytes, config.spool.max_stream_bytes)
    for of, amount in waiting.items():
        limits += key_next_to_lose_entries(
            f"spool.pending_items{of}", amount.items, config.spool.pending_items
        )
        limits += key_next_to_lose_entries(
            f"spool.pending_bytes{of}", amount.bytes, config.spool.pending_bytes
        )
    if storage.registry is not None:
        held = await storage.registry.row_counts_by_limit_and_key()
        fixed = {INSIGHTS: MAX_INSIGHTS, **storage.registry.max_rows_by_limit()}
        for limit, counts_by_key in held.items():
            limits += nearly_full_keys(limit, counts_by_key, fixed.get(limit) or config.limit_value(limit))
    return limits


def role_limits(roles: RoleSettings) -> RoleLimits:
    return RoleLimits(
        most=roles.max, members=roles.max_members, filters=roles.max_filters, values=roles.max_values
    )
