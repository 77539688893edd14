"""What receivers work with, over HTTP and gRPC, and the addresses of health."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.http.cors import Cors
from gateway.http.in_hand import ReceivingSlots, RequestsInHand
from gateway.http.listening.forwarded import TrustedProxies
from gateway.normalise.outcome import Options
from spool.turns.fair_turns import FairTurns

if TYPE_CHECKING:
    from gateway.clusters.clusters import Clusters
    from gateway.devices.lifecycle import DeviceLifecycle
    from gateway.http.inflight_bytes import InflightBytes
    from gateway.http.listening.connections import Connections
    from gateway.intake.billing_connections import BillingConnections
    from gateway.intake.deposits import Deposits
    from gateway.intake.merge_window import MergeWindow, SharedMergeWindow
    from gateway.intake.stream_admission import StreamAdmission
    from gateway.intake.workers.pool import WorkerPool
    from gateway.normalise.memory.spans import SpanMemory
    from gateway.people.authentication.access import Access
    from gateway.service.configuration.secret_file import SecretFile
    from gateway.service.first_use import Once
    from gateway.service.monitoring.health import Health
    from gateway.service.monitoring.metrics import Exposition, Metrics
    from spool.clock import Clock
    from spool.storage import Storage


@dataclass(kw_only=True)
class ReceiverServices:
    """
    What every address for key holders needs, over HTTP and gRPC: admission, body limits and the intake.

    A reload exchanges `min_upload_rate`, `options` and `signing_secret`.
    """

    access: Access
    intake: MergeWindow | SharedMergeWindow
    metrics: Metrics
    clock: Clock
    inflight: InflightBytes
    max_body_bytes: int
    connections: Connections  # of the listener for senders
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    min_upload_rate: int = 0  # bytes a second of a large body, 0 for any
    options: Options = field(default_factory=Options)
    cors: Cors = field(default_factory=Cors)
    receiving: ReceivingSlots = field(default_factory=ReceivingSlots)
    in_hand: RequestsInHand = field(default_factory=RequestsInHand)
    signing_secret: SecretFile | None = None  # of Helicone's webhooks
    memory: Once[SpanMemory] | None = None  # None: there is no compiled module
    workers: WorkerPool | None = None  # None: this process decodes
    turns: FairTurns = field(default_factory=FairTurns)


@dataclass(frozen=True, kw_only=True)
class TopicServices:
    """
    Devices, clusters with their files, usage events, streams of unit costs and billing drops, which
    need no registry.
    """

    storage: Storage
    devices: DeviceLifecycle
    clusters: Clusters
    deposits: Deposits
    stream_admission: StreamAdmission
    billing_connections: BillingConnections


@dataclass(frozen=True, kw_only=True)
class StatusServices:
    """Health and figures, which anybody may ask."""

    health: Health
    exposition: Exposition
