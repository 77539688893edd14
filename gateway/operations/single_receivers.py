"""What single receivers and the health addresses need. Each of them states its members in a protocol of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from gateway.clusters.clusters import Clusters
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.own_verdicts import OwnVerdicts
from gateway.intake.billing_connections import BillingConnections
from gateway.intake.deposits import NonTelemetryIntake
from gateway.intake.stream_admission import StreamAdmission
from gateway.monitoring.health import ServerHealth
from gateway.monitoring.metrics import Exposition
from spool.clusters import ClusterTable
from spool.container_files.files import ContainerFiles
from spool.devices.device import Device
from spool.ledger.ledger import Ledger
from spool.log.partial_reports import ExpectedVersion
from spool.log.protocols import RecordLog
from spool.streams import KnownStreams, StreamReader


@dataclass(kw_only=True)
class ServicesOfSingleReceivers:
    """They need no registry. `secret` is that of the installation."""

    ledger: Ledger
    log: RecordLog
    streams: StreamReader
    book: KnownStreams
    is_shared: bool
    reports: ClusterTable
    container_files: ContainerFiles
    secret: bytes
    upload_expectations_of_key: Callable[[int], Awaitable[Sequence[ExpectedVersion]]]
    devices: DeviceLifecycle
    clusters: Clusters
    deposits: NonTelemetryIntake
    stream_admission: StreamAdmission
    billing_connections: BillingConnections
    is_unmapped: Callable[[str], bool]
    own_verdicts: Callable[[Device], Awaitable[OwnVerdicts | None]]
    relay_addresses: Callable[[Sequence[bytes], Mapping[str, int]], Awaitable[Collection[str] | None]]
    health: ServerHealth
    exposition: Exposition
