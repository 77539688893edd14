"""Clusters whose agent does not run the configuration that was set for it a day ago."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.devices.clusters import UnappliedConfig
from gateway.insights.facts import DAY_S, Facts
from gateway.insights.findings import MAX_FINDINGS, day, finding, named
from spool.registry.insights import LOW, Finding

NAME = "unapplied_config"


def find(facts: Facts) -> Sequence[Finding]:
    waiting = [each for each in facts.unapplied_configs if facts.now - each.since >= DAY_S]
    waiting.sort(key=lambda each: (each.since, each.cluster.id))
    return [_finding(each) for each in waiting[:MAX_FINDINGS]]


def _finding(each: UnappliedConfig) -> Finding:
    cluster = each.cluster
    why = f" It says: {named(each.problem)}." if each.problem else ""
    return finding(
        NAME,
        (cluster.id,),
        title=f"The cluster {named(cluster.display_name or cluster.name)} does not run its configuration",
        seen=f"The configuration that was set is {each.state} since {day(each.since)}.{why}",
        advice="Nothing applies it by itself where the agent reads Helm values: apply it by hand or by your GitOps "
        f"(`tollhouse clusters config {cluster.id} --format configmap`), and let what applies it say so.",
        category="coverage",
        effort=LOW,
        newest=each.since,
    )
