"""Devices and clusters that report less than they did, or run other settings than they should."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.clusters.clusters import UnappliedConfig
from gateway.devices.states import is_mute
from gateway.money.insights.facts import DAY_S, Facts
from gateway.money.insights.findings import MAX_FINDINGS, day, finding, named
from spool.clusters import Cluster
from spool.devices.device import ENROLLED, Device
from spool.registry.insights import LOW, Finding

ALIVE_S = 86_400.0


def mute_device(facts: Facts) -> Sequence[Finding]:
    """Find devices that are alive and say nothing of AI any more: their spend is missing, not gone."""
    mute = [
        device for device in facts.devices if _is_alive(device, facts.now) and is_mute(device, now=facts.now)
    ]
    return [_mute(device) for device in sorted(mute, key=lambda each: each.id)[:MAX_FINDINGS]]


def _is_alive(device: Device, now: float) -> bool:
    return device.state == ENROLLED and now - device.last_seen <= ALIVE_S


def _mute(device: Device) -> Finding:
    last = "never" if device.last_telemetry is None else f"on {day(device.last_telemetry)} for the last time"
    return finding(
        "mute_device",
        (device.id,),
        title=f"The device {named(device.id)} is alive and reports no AI calls",
        seen=f"Its heartbeats come; telemetry came {last}. It belongs to {named(device.user, 'nobody by name')}.",
        advice="See on the device whether its coding assistants still export to the local agent (`tollhouse doctor` "
        "there), or whether an update reset their settings.",
        category="coverage",
        effort=LOW,
    )


def silent_cluster(facts: Facts) -> Sequence[Finding]:
    """Find clusters whose agent reports no more: what runs there is missing from their bill, not gone."""
    silent = sorted(facts.silent_clusters, key=lambda each: (-each.last_seen, each.id))
    return [_silent(cluster) for cluster in silent[:MAX_FINDINGS]]


def _silent(cluster: Cluster) -> Finding:
    place = f"account {named(cluster.account, 'unknown')} in {named(cluster.region, 'unknown')}"
    return finding(
        "silent_cluster",
        (cluster.id,),
        title=f"The cluster {named(cluster.display_name or cluster.name)} reports no more",
        seen=f"Its agent was heard on {day(cluster.last_seen)} for the last time. It runs for {place}.",
        advice="See whether the agent's pods run and reach this Tollhouse under a valid key. If the cluster is gone, "
        f"forget it: `tollhouse clusters delete {cluster.id} --confirm {cluster.id}`.",
        category="coverage",
        effort=LOW,
        newest=cluster.last_seen,
    )


def unapplied_config(facts: Facts) -> Sequence[Finding]:
    """Find clusters whose agent does not run the configuration that was set for it a day ago."""
    waiting = [each for each in facts.unapplied_configs if facts.now - each.since >= DAY_S]
    waiting.sort(key=lambda each: (each.since, each.cluster.id))
    return [_unapplied(each) for each in waiting[:MAX_FINDINGS]]


def _unapplied(each: UnappliedConfig) -> Finding:
    cluster = each.cluster
    why = f" It says: {named(each.problem)}." if each.problem else ""
    return finding(
        "unapplied_config",
        (cluster.id,),
        title=f"The cluster {named(cluster.display_name or cluster.name)} does not run its configuration",
        seen=f"The configuration that was set is {each.state} since {day(each.since)}.{why}",
        advice="Nothing applies it by itself where the agent reads Helm values: apply it by hand or by your GitOps "
        f"(`tollhouse clusters config {cluster.id} --format configmap`), and let what applies it say so.",
        category="coverage",
        effort=LOW,
        newest=each.since,
    )
