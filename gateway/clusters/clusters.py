"""
The Kubernetes clusters that report, for keys and operators. Whether a cluster is offline follows from the
time of its last report.

A device with the label `kind` = `cluster` reports for a cluster. Its labels `account`, `region` and `cluster`
identify the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gateway.clusters.agent_config import APPLIED, FAILED, NONE, PENDING, config_state, hash_config
from gateway.configuration.sections import ClusterSettings
from gateway.core.errors import Refusal
from gateway.devices.fleet.heartbeat_facts import CLUSTER, has_cluster_label
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.machine_state import MISSED, OFFLINE, ONLINE
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.clock import Clock, elapsed_s
from spool.clusters import Cluster, ClusterTable, ReportedCluster
from spool.devices.device import ENROLLED, Device
from spool.errors import KeyEnded, SpoolError
from spool.registry.tables.cluster_configs import ClusterConfigTable, RunConfig

HEARD, SILENT, DISABLED = "heard", "silent", "disabled"
HEARD_EVERY_S = 60.0  # seconds; the precision of the time at which a cluster last sent data

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnappliedConfig:
    """
    A cluster whose agent does not run the wanted configuration.

    `state` is a state of `agent_config`, and `since` is in epoch seconds.
    """

    cluster: Cluster
    state: str
    since: float
    problem: str = ""


class Clusters:
    """The cluster table, together with the devices that report for clusters."""

    def __init__(
        self,
        table: ClusterTable,
        *,
        devices: DeviceLifecycle,
        settings: ClusterSettings,
        clock: Clock,
        configs: ClusterConfigTable | None = None,
    ) -> None:
        self.table = table
        self._configs = configs
        self._devices = devices
        self._clock = clock
        self.configure(settings)

    def configure(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self.table.max = settings.max

    def running_config(self, cluster: Cluster) -> RunConfig | None:
        return None if self._configs is None else self._configs.find(cluster.id)

    def unapplied_configs(self) -> Sequence[UnappliedConfig]:
        """Return the enabled clusters that do not run their wanted configuration."""
        unapplied = []
        for cluster in self.table.all():
            run = self.running_config(cluster)
            state = config_state(hash_config(cluster.config), run)
            if cluster.enabled and state not in (NONE, APPLIED):
                reported_at = run.since if run is not None and state != PENDING else 0.0
                problem = run.failed if run is not None and state == FAILED else ""
                since = max(reported_at, cluster.updated_at or cluster.first_seen)
                unapplied.append(UnappliedConfig(cluster=cluster, state=state, since=since, problem=problem))
        return unapplied

    async def store_config_report(self, cluster: Cluster, *, applied: str | None, failed: str) -> None:
        """Store the configuration that a cluster's agent runs. Do nothing while the registry is damaged."""
        if self._configs is not None:
            wanted_version = hash_config(cluster.config)
            cluster_ids = [known_cluster.id for known_cluster in self.table.all()]
            await self._configs.store_report(
                cluster.id,
                applied=applied,
                failed=failed,
                wanted=wanted_version,
                existing_clusters=cluster_ids,
            )

    def last_data_at(self, cluster: Cluster) -> float:
        device = self._reporting_device(cluster)
        return cluster.last_seen if device is None else max(cluster.last_seen, device.last_seen)

    def is_offline(self, cluster: Cluster) -> bool:
        """
        Return whether a cluster is offline: three of its reports are missing, and no online device reports
        for it.
        """
        # no report could arrive before this gateway started
        quiet_since = max(cluster.last_seen, self._devices.listening_since)
        if self._clock.now() - quiet_since <= MISSED * self._settings.report_interval:
            return False
        device = self._reporting_device(cluster)
        if device is None:
            return True
        link = self._devices.machine_state(device).link
        return link == OFFLINE or (device.last_heartbeat is None and link != ONLINE)

    def offline_clusters(self) -> Sequence[Cluster]:
        """
        Return the enabled clusters that are offline, with the time at which they or their device last sent data.
        """
        silent = (cluster for cluster in self.table.all() if cluster.enabled and self.is_offline(cluster))
        return [replace(cluster, last_seen=self.last_data_at(cluster)) for cluster in silent]

    def count_by_state(self) -> Mapping[str, int]:
        disabled = sum(not cluster.enabled for cluster in self.table.all())
        silent = len(self.offline_clusters())
        return {HEARD: len(self.table) - silent - disabled, SILENT: silent, DISABLED: disabled}

    async def store_device_cluster(self, device: Device, bearer: AuthenticatedKey) -> None:
        """
        Store the facts that a device reports about its cluster. Do nothing if the device reports for no cluster.

        A heartbeat without changes writes nothing, because the device row has its time. A device is never
        rejected because of its cluster.
        """
        if device.state != ENROLLED or not has_cluster_label(device.all_labels):
            return
        reported = _reported_cluster(device)
        cluster = self.table.find(reported.id)
        if cluster is not None and (cluster.device, cluster.agent_version) == (
            device.id,
            device.agent_version,
        ):
            return
        if cluster is not None and not self._may_report(cluster, device, bearer):
            return
        await self._store_report(reported, bearer)

    async def record_data_from_cluster(
        self, account: str, region: str, name: str, bearer: AuthenticatedKey
    ) -> None:
        """
        Record that a cluster sends data. Raises Refusal 403 if the cluster is disabled.

        If the row cannot be written, the data is still accepted.
        """
        cluster = self.table.find_by_name(account, region, name)
        if cluster is not None and not cluster.enabled:
            raise Refusal(403, "cluster_disabled", "this cluster is disabled; an operator can enable it")
        if cluster is None or elapsed_s(cluster.last_seen, self._clock.now()) >= HEARD_EVERY_S:
            await self._store_report(ReportedCluster(account=account, region=region, name=name), bearer)

    async def _store_report(self, reported: ReportedCluster, bearer: AuthenticatedKey) -> None:
        try:
            await self.table.store_report(reported, expected_versions=bearer.expects, key=bearer.name)
        except KeyEnded:
            raise
        except SpoolError as error:
            extra = {"action": "cluster_not_kept", "cluster": reported.id}
            _log.warning("a cluster could not be stored: %s", error, extra=extra)

    def _may_report(self, cluster: Cluster, device: Device, bearer: AuthenticatedKey) -> bool:
        """
        Return whether a device may report for the cluster. If the cluster's present device has used its own
        key, only a device with its own key or behind a gateway can replace that device.
        """
        reporting = self._reporting_device(cluster)
        if reporting is None or reporting.id == device.id or not reporting.key_used:
            return True
        return bearer.is_gateway or bearer.device == device.id

    def _reporting_device(self, cluster: Cluster) -> Device | None:
        device = self._devices.table.find(cluster.device) if cluster.device else None
        if device is None or device.state != ENROLLED or _reported_cluster(device).id != cluster.id:
            return None
        return device


def _reported_cluster(device: Device) -> ReportedCluster:
    labels = device.all_labels
    return ReportedCluster(
        account=labels.get("account", ""),
        region=labels.get("region", ""),
        name=labels.get(CLUSTER) or device.hostname or device.id,
        agent_version=device.agent_version,
        device=device.id,
    )
