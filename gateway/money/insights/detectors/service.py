"""The state of the gateways themselves: ledger, clock, settings and database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from gateway.money.insights.facts import Facts
from gateway.money.insights.findings import finding, named
from spool.leases import NodeSettings
from spool.registry.insights import LOW, Finding

DIFFERENT_AFTER_S = 600.0  # a new configuration reaches all gateways before that
MOST_SETTINGS = 10
OLD_AFTER_S = 600.0  # as the alert TollhouseOldTransaction


def missed_records(facts: Facts) -> Sequence[Finding]:
    """Find records that are in no report: the ledger passed over their numbers, or differs from the log."""
    return list(_missed(facts))


def _missed(facts: Facts) -> Iterator[Finding]:
    if facts.missed_records:
        yield finding(
            "missed_records",
            (),
            title=f"{facts.missed_records:,} records are in no report",
            seen="The ledger has passed over their numbers, because there was no record under them when it counted. "
            "`tollhouse ledger status` says which hours may lack them (whole since).",
            advice="The ledger looks for them by itself, and counts what is kept; what is gone by then stays missing. "
            "`tollhouse spool verify` compares the two now.",
            category="reliability",
            effort=LOW,
        )
    if facts.differing_periods:
        yield finding(
            "missed_records",
            ("differing",),
            title=f"Reports of {facts.differing_periods:,} hours or days differ from the records that are kept",
            seen="The ledger was compared with the log. What it lacked and could count again it has counted; damaged "
            "or removed records may belong to the others, or they have more calls than are kept.",
            advice="Run `tollhouse spool verify`: it names them. `tollhouse ledger rebuild` counts them again from "
            "what is kept; then records that cannot be read any more are in no report.",
            category="reliability",
            effort=LOW,
        )


def moved_clock(facts: Facts) -> Sequence[Finding]:
    """Find a wall clock that was moved: until it is believed, time goes on as before."""
    if not facts.clock_step_s:
        return []
    way = "ahead of" if facts.clock_step_s > 0 else "behind"
    return [
        finding(
            "moved_clock",
            (),
            title="The clock of this machine was moved",
            seen=f"It is {abs(facts.clock_step_s):,.0f} s {way} the time at which records are kept. Until it has stood "
            "for an hour it is not followed, so that no record counts on a wrong day and nothing is removed "
            "too early.",
            advice="Look at the time service of the machine. If the new time is right, say so with "
            "`tollhouse spool accept-clock`.",
            category="reliability",
            effort=LOW,
        )
    ]


def different_settings(facts: Facts) -> Sequence[Finding]:
    """
    Find gateways on one storage that work with different settings: what becomes of a call depends on the gateway
    that it reaches.
    """
    since = _differing(facts.node_settings)
    old = sorted(name for name, at in since.items() if facts.now - at > DIFFERENT_AFTER_S)
    if not old:
        return []
    minutes = (facts.now - min(since[name] for name in old)) / 60
    shown = "; ".join(f"{name}: {_nodes_by_value(name, facts.node_settings)}" for name in old[:MOST_SETTINGS])
    more = f"; and {len(old) - MOST_SETTINGS} more" if len(old) > MOST_SETTINGS else ""
    return [
        finding(
            "different_settings",
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


def _nodes_by_value(setting: str, nodes: Sequence[NodeSettings]) -> str:
    """The gateways, those with the same value together."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        if setting in node.digests:
            groups.setdefault(node.digests[setting], []).append(_node_name(node, nodes))
    return " | ".join(", ".join(group) for group in groups.values())


def _node_name(node: NodeSettings, nodes: Sequence[NodeSettings]) -> str:
    has_namesake = sum(each.name == node.name for each in nodes) > 1
    return f"{named(node.name)} ({node.node[:8]})" if has_namesake else named(node.name)


def old_transaction(facts: Facts) -> Sequence[Finding]:
    """
    Find a transaction that somebody left open in the database of several gateways: small tables grow until it ends.
    """
    if facts.oldest_transaction_s is None or facts.oldest_transaction_s <= OLD_AFTER_S:
        return []
    return [
        finding(
            "old_transaction",
            (),
            title="A transaction in the database does not end",
            seen=f"The oldest one has been open for {facts.oldest_transaction_s / 60:,.0f} minutes; those of Tollhouse "
            "end within seconds. PostgreSQL keeps every row that was replaced since: small tables grow and "
            "get slow.",
            advice="Look for the oldest xact_start in pg_stat_activity, or in pg_prepared_xacts, and end it. "
            "The runbook of the alert TollhouseOldTransaction has the statements.",
            category="reliability",
            effort=LOW,
        )
    ]
