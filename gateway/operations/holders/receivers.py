"""Service holders for receivers (HTTP and gRPC) and for the health addresses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.http.cors import Cors
from gateway.http.listening.forwarded import TrustedProxies
from gateway.http.listening.websocket import WebSockets
from gateway.http.pending_requests import ReceivingSlots, RequestsInHand
from gateway.http.turns import EventLoopJobBatch
from gateway.normalise.outcome import ReadOptions
from spool.turns.fair_turns import FairTurnScheduler

if TYPE_CHECKING:
    from gateway.clusters.clusters import Clusters
    from gateway.configuration.secret_file import SecretFile
    from gateway.core.first_use import LazyValue
    from gateway.devices.lifecycle import DeviceLifecycle
    from gateway.devices.opamp.instances import OpampInstances
    from gateway.devices.own_verdicts import OwnVerdicts
    from gateway.http.inflight_bytes import InflightBytes
    from gateway.http.listening.connections import OpenConnections
    from gateway.intake.billing_connections import BillingConnections
    from gateway.intake.deposits import NonTelemetryIntake
    from gateway.intake.merge_window import ReportMergeWindow, SharedMergeWindow
    from gateway.intake.stream_admission import StreamAdmission
    from gateway.monitoring.health import ServerHealth
    from gateway.monitoring.metrics import Exposition, ProcessMetrics
    from gateway.normalise.memory.spans import SpanMemory
    from gateway.people.authentication.access import KeyAccess
    from spool.clock import Clock
    from spool.devices.device import Device
    from spool.storage import Storage


async def no_verdicts(device: Device) -> OwnVerdicts | None:
    return None


async def relay_to_nobody(keys: Sequence[bytes], addresses: Mapping[str, int]) -> Collection[str] | None:
    return ()


@dataclass(kw_only=True)
class ReceiverServices:
    """
    The services that every address for key holders needs: admission, body limits and the intake.

    A reload replaces `min_upload_rate`, `options` and `signing_secret`.
    """

    access: KeyAccess
    intake: ReportMergeWindow | SharedMergeWindow
    metrics: ProcessMetrics
    clock: Clock
    inflight: InflightBytes
    max_body_bytes: int
    connections: OpenConnections  # connections of the listener for senders
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    min_upload_rate: int = 0  # minimum bytes per second of a large body; 0 sets no minimum
    options: ReadOptions = field(default_factory=ReadOptions)
    cors: Cors = field(default_factory=Cors)
    receiving: ReceivingSlots = field(default_factory=ReceivingSlots)
    in_hand: RequestsInHand = field(default_factory=RequestsInHand)
    websockets: WebSockets = field(default_factory=WebSockets)
    signing_secret: SecretFile | None = None  # secret with which Helicone's webhooks are verified
    memory: LazyValue[SpanMemory] | None = None  # memory of known spans, or None without the compiled module
    turns: FairTurnScheduler = field(default_factory=FairTurnScheduler)
    # decoder for small bodies that arrive together
    together: EventLoopJobBatch = field(default_factory=EventLoopJobBatch)


@dataclass(frozen=True, kw_only=True)
class TopicServices:
    """
    Services for devices, clusters, usage events, unit-cost streams and billing drops. They need no registry.

    `is_unmapped` returns whether a type of events is not sent because its line in [upstream.events] is missing.
    `own_verdicts` returns the verdicts that a device may know, or None. `relay_addresses` passes addresses of people
    on to the Tollhouse above, and returns those that wait there, or None if it cannot be reached.
    """

    storage: Storage
    devices: DeviceLifecycle
    opamp: LazyValue[OpampInstances]
    clusters: Clusters
    deposits: NonTelemetryIntake
    stream_admission: StreamAdmission
    billing_connections: BillingConnections
    is_unmapped: Callable[[str], bool] = lambda _: False
    own_verdicts: Callable[[Device], Awaitable[OwnVerdicts | None]] = no_verdicts
    relay_addresses: Callable[[Sequence[bytes], Mapping[str, int]], Awaitable[Collection[str] | None]] = (
        relay_to_nobody
    )


@dataclass(frozen=True, kw_only=True)
class StatusServices:
    """Health and metrics, readable without a key."""

    health: ServerHealth
    exposition: Exposition
