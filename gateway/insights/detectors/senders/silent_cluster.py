"""Clusters whose agent reports no more: what runs there is missing from their bill, not gone."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import Facts
from gateway.insights.findings import MAX_FINDINGS, day, finding, named
from spool.clusters import Cluster
from spool.registry.insights import LOW, Finding

NAME = "silent_cluster"


def find(facts: Facts) -> Sequence[Finding]:
    silent = sorted(facts.silent_clusters, key=lambda each: (-each.last_seen, each.id))
    return [_finding(cluster) for cluster in silent[:MAX_FINDINGS]]


def _finding(cluster: Cluster) -> Finding:
    place = f"account {named(cluster.account, 'unknown')} in {named(cluster.region, 'unknown')}"
    return finding(
        NAME,
        (cluster.id,),
        title=f"The cluster {named(cluster.display_name or cluster.name)} reports no more",
        seen=f"Its agent was heard on {day(cluster.last_seen)} for the last time. It runs for {place}.",
        advice="See whether the agent's pods run and reach this Tollhouse under a valid key. If the cluster is gone, "
        f"forget it: `tollhouse clusters delete {cluster.id} --confirm {cluster.id}`.",
        category="coverage",
        effort=LOW,
        newest=cluster.last_seen,
    )
