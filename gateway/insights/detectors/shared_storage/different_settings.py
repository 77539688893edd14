"""
Gateways on one storage that work with different settings: what becomes of a call depends on which one it reaches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from gateway.insights.facts import Facts
from gateway.insights.findings import finding, named
from spool.leases import NodeSettings
from spool.registry.insights import LOW, Finding

NAME = "different_settings"
AFTER_S = 600.0  # a new configuration reaches all gateways before that
MOST_SETTINGS = 10


def find(facts: Facts) -> Sequence[Finding]:
    since = _differing(facts.node_settings)
    old = sorted(name for name, at in since.items() if facts.now - at > AFTER_S)
    if not old:
        return []
    minutes = (facts.now - min(since[name] for name in old)) / 60
    shown = "; ".join(f"{name}: {_groups(name, facts.node_settings)}" for name in old[:MOST_SETTINGS])
    more = f"; and {len(old) - MOST_SETTINGS} more" if len(old) > MOST_SETTINGS else ""
    return [
        finding(
            NAME,
            (),
            title="Gateways work with different settings",
            seen=f"For {minutes:,.0f} minutes settings have differed (gateways with the same value stand together): "
            f"{shown}{more}.",
            advice="Give all gateways the same configuration file and price file, then `tollhouse reload` or restart "
            "those that are behind. Until then what a call costs, or whose it is, depends on the gateway it "
            "reaches.",
            category="reliability",
            effort=LOW,
        )
    ]


def _differing(nodes: Sequence[NodeSettings]) -> Mapping[str, float]:
    """
    Return since when each setting differs between two gateways; a setting that one of them lacks does not differ.
    """
    since: dict[str, float] = {}
    for one, other in combinations(nodes, 2):
        at = max(one.since, other.since)
        for name in one.digests.keys() & other.digests.keys():
            if one.digests[name] != other.digests[name]:
                since[name] = min(at, since.get(name, at))
    return since


def _groups(setting: str, nodes: Sequence[NodeSettings]) -> str:
    """The gateways, those with the same value together."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        if setting in node.digests:
            groups.setdefault(node.digests[setting], []).append(_name(node, nodes))
    return " | ".join(", ".join(group) for group in groups.values())


def _name(node: NodeSettings, nodes: Sequence[NodeSettings]) -> str:
    has_namesake = sum(each.name == node.name for each in nodes) > 1
    return f"{named(node.name)} ({node.node[:8]})" if has_namesake else named(node.name)
