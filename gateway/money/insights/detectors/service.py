"""Detectors for problems of the gateways themselves: totals, clock, settings and database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from gateway.configuration.certificates import certificate_troubles
from gateway.money.insights.detector_facts import (
    InsightFacts,
    mark_as_needing_only_states,
    mark_impossible_in_demo,
)
from gateway.money.insights.findings import CATEGORY_OF, build_finding, printable_name
from gateway.monitoring.channel_trouble import channel_trouble_title_and_text, strip_response_text
from spool.leases import NodeSettings
from spool.registry.insights import LOW, Finding
from spool.registry.notices import NOT_ARRIVING

# seconds for which settings may differ; by then, a new configuration has reached all gateways
DIFFERENT_AFTER_S = 600.0
MOST_SETTINGS = 10
# age of a transaction in seconds; the alert TollhouseOldTransaction has the same threshold
OLD_AFTER_S = 600.0


@mark_as_needing_only_states
@mark_impossible_in_demo("a demo month has no notification channels")
def channel_down(facts: InsightFacts) -> Sequence[Finding]:
    """Find channels that send nothing. Other channels send this insight."""
    return list(_channel_down_findings(facts))


def _channel_down_findings(facts: InsightFacts) -> Iterator[Finding]:
    for channel in facts.channels:
        # without the response text, because everybody who may view costs reads insights, and channels send
        # them
        shown = replace(channel, reason=strip_response_text(channel.reason))
        if trouble := channel_trouble_title_and_text(shown, facts.now):
            title, text = trouble
            yield build_finding(
                "channel_down",
                (channel.name,),
                title=title,
                seen=text,
                advice=(
                    "Correct the address or the secret of the channel, or repair its receiver. Then send a test with "
                    "`tollhouse notifications channels test NAME`. Waiting notices are sent by themselves."
                ),
                category=NOT_ARRIVING,
                effort=LOW,
            )


@mark_impossible_in_demo("the storage of a demo month is complete")
def missed_records(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find records that are missing from the reports, because the totals skipped their numbers or differ
    from the log.
    """
    return list(_missed_records_finding(facts))


def _missed_records_finding(facts: InsightFacts) -> Iterator[Finding]:
    if facts.missed_records:
        yield build_finding(
            "missed_records",
            (),
            title=f"{facts.missed_records:,} records are missing from all reports",
            seen=(
                "When the totals were counted, the log had no records with these numbers, so they were "
                "skipped. `tollhouse ledger status` shows which hours may be incomplete (whole since)."
            ),
            advice=(
                "Tollhouse looks for the records by itself and counts those that still exist. Records "
                "that were deleted by then stay missing. `tollhouse spool verify` compares the totals "
                "with the log now."
            ),
            category="reliability",
            effort=LOW,
        )
    if facts.differing_periods:
        yield build_finding(
            "missed_records",
            ("differing",),
            title=f"Reports of {facts.differing_periods:,} hours or days differ from the stored records",
            seen=(
                "The totals were compared with the log, and missing records were counted where possible. "
                "The periods that still differ may have damaged or deleted records, or more calls than "
                "are stored."
            ),
            advice=(
                "Run `tollhouse spool verify` to list these periods. `tollhouse ledger rebuild` counts "
                "them again from the stored records. After a rebuild, records that can no longer be read "
                "are missing from all reports."
            ),
            category="reliability",
            effort=LOW,
        )


@mark_as_needing_only_states
@mark_impossible_in_demo("a demo month has no certificates")
def ending_certificate(facts: InsightFacts) -> Sequence[Finding]:
    """Find certificates that cannot be read, have expired or expire within two weeks."""
    return [
        build_finding(
            "ending_certificate",
            (trouble.setting,),
            title=trouble.title,
            seen=trouble.seen,
            advice="Replace the file. `tollhouse check` reads it again.",
            category=CATEGORY_OF[trouble.severity],
            effort=LOW,
            newest=trouble.newest,
            severity=trouble.severity,
        )
        for trouble in certificate_troubles(facts.certificates, now=facts.now)
    ]


@mark_impossible_in_demo("a demo month cannot change the clock of the machine")
def moved_clock(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find a wall clock that was set to another time. Until Tollhouse accepts the new time, its own clock
    continues from the old time.
    """
    if not facts.clock_step_s:
        return []
    way = "ahead of" if facts.clock_step_s > 0 else "behind"
    return [
        build_finding(
            "moved_clock",
            (),
            title="The clock of this machine was changed",
            seen=(
                f"It is {abs(facts.clock_step_s):,.0f} s {way} the time that Tollhouse uses. Tollhouse "
                "follows the new time only after an hour. Until then, no record counts on a wrong day "
                "and nothing is deleted too early."
            ),
            advice=(
                "Check the time service of the machine. If the new time is right, accept it with "
                "`tollhouse spool accept-clock`."
            ),
            category="reliability",
            effort=LOW,
        )
    ]


@mark_impossible_in_demo("a demo month has only one gateway")
def different_settings(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find gateways that share storage but use different settings. With different settings, the result of a call
    depends on the gateway that receives it.
    """
    since = _differing_settings(facts.node_settings)
    old = sorted(name for name, at in since.items() if facts.now - at > DIFFERENT_AFTER_S)
    if not old:
        return []
    minutes = (facts.now - min(since[name] for name in old)) / 60
    shown = "; ".join(f"{name}: {_nodes_by_value(name, facts.node_settings)}" for name in old[:MOST_SETTINGS])
    suffix = f"; and {len(old) - MOST_SETTINGS} more" if len(old) > MOST_SETTINGS else ""
    return [
        build_finding(
            "different_settings",
            (),
            title="Gateways use different settings",
            seen=(
                f"Settings have differed for {minutes:,.0f} minutes. `|` separates gateways with "
                f"different values: {shown}{suffix}."
            ),
            advice=(
                "Give all gateways the same configuration file and price file, then run `tollhouse "
                "reload` or restart the outdated gateways. Until then, the cost and the owner of a call "
                "depend on the gateway that receives it."
            ),
            category="reliability",
            effort=LOW,
        )
    ]


def _differing_settings(nodes: Sequence[NodeSettings]) -> Mapping[str, float]:
    """Return since when each setting differs. A setting that one of the gateways lacks is not compared."""
    since: dict[str, float] = {}
    for first_node, other_node in combinations(nodes, 2):
        at = max(first_node.since, other_node.since)
        for name in first_node.digests.keys() & other_node.digests.keys():
            if first_node.digests[name] != other_node.digests[name]:
                since[name] = min(at, since.get(name, at))
    return since


def _nodes_by_value(setting: str, nodes: Sequence[NodeSettings]) -> str:
    groups: dict[str, list[str]] = {}
    for node in nodes:
        if setting in node.digests:
            groups.setdefault(node.digests[setting], []).append(_node_name(node, nodes))
    return " | ".join(", ".join(group) for group in groups.values())


def _node_name(node: NodeSettings, nodes: Sequence[NodeSettings]) -> str:
    has_namesake = sum(other_node.name == node.name for other_node in nodes) > 1
    return f"{printable_name(node.name)} ({node.node[:8]})" if has_namesake else printable_name(node.name)


@mark_impossible_in_demo("a demo month has no PostgreSQL")
def old_transaction(facts: InsightFacts) -> Sequence[Finding]:
    """Find a long transaction in the shared PostgreSQL database, because small tables grow until it ends."""
    if facts.oldest_transaction_s is None or facts.oldest_transaction_s <= OLD_AFTER_S:
        return []
    return [
        build_finding(
            "old_transaction",
            (),
            title="A transaction in the database does not end",
            seen=(
                f"The oldest transaction has been open for {facts.oldest_transaction_s / 60:,.0f} "
                "minutes. Transactions of Tollhouse end within seconds. Until it ends, PostgreSQL cannot "
                "delete replaced rows, so small tables grow and become slow."
            ),
            advice=(
                "Find the oldest xact_start in pg_stat_activity, or the transaction in "
                "pg_prepared_xacts, and end it. The runbook of the alert TollhouseOldTransaction has the "
                "statements."
            ),
            category="reliability",
            effort=LOW,
        )
    ]
