"""
Detectors for keys, devices and clusters.

They find sources and keys that stopped sending, and keys that are unused, have unneeded scopes, expire soon or nearly
fill a limit. They also find devices and clusters that stopped reporting or use outdated settings.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.clusters.clusters import UnappliedConfig
from gateway.money.insights.detector_facts import (
    DAY_S,
    InsightFacts,
    mark_as_needing_only_states,
    mark_impossible_in_demo,
)
from gateway.money.insights.findings import (
    CATEGORY_OF,
    MAX_FINDINGS,
    MAX_ROWS,
    build_finding,
    format_day,
    printable_name,
    sort_by_impact,
)
from gateway.money.insights.key_troubles import EXPIRING_KEY, IDLE_S, KeyTrouble, key_troubles
from gateway.money.insights.rhythms import SOURCE, SenderStop, stopped_senders
from spool.clusters import Cluster
from spool.record import utc_iso
from spool.registry.insights import LOW, CallFilter, Finding
from spool.registry.keys import ENABLED, ApiKey
from spool.registry.scopes import (
    BILLING_DROP,
    CREATE_EVENT,
    CREATE_STREAM,
    ENROLL,
    GROUPS,
    HEARTBEAT,
    INGEST,
    MANAGE_RECORDS,
    PING,
    VALIDATE_BILLING_DROP,
)
from spool.settings import COUNTED_ITEMS, MAX_SENDERS
from spool.shares import KeyShare

MAX_SCOPES = 4
_AGENT = frozenset(GROUPS["Container agent"])
_STREAMS = frozenset({CREATE_STREAM, MANAGE_RECORDS})
SENDING = (
    _AGENT | _STREAMS | {INGEST, BILLING_DROP, VALIDATE_BILLING_DROP, CREATE_EVENT, ENROLL, HEARTBEAT, PING}
)
# scope that the container agent needs when it checks its key at startup
AGENT_READS = "insights:read_insights"
_GIVES_WAY = {
    MAX_SENDERS: (
        "above the limit, its oldest senders are forgotten, and counters that they send later may be "
        "counted in addition to their calls"
    ),
    COUNTED_ITEMS: "above the limit, its oldest counters stay counted, even if they repeat calls that arrive later",
}


@mark_as_needing_only_states
def stopped_sender(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find sources and keys that stopped sending, judged by their own rhythm. Their spend may be missing from now on.
    """
    found = stopped_senders(facts.sender_hours, facts.keys, now=facts.now)
    return [_stopped_sender_finding(stop) for stop in found.reported[:MAX_FINDINGS]]


def _stopped_sender_finding(stop: SenderStop) -> Finding:
    is_source = stop.kind == SOURCE
    subject = f"source {printable_name(stop.name)}" if is_source else f"API key {printable_name(stop.name)}"
    others = ", ".join(printable_name(other, "requests without a key") for other in stop.others[:MAX_ROWS])
    other_kind = "API keys" if is_source else "sources"
    usual = f"{stop.rhythm.usual:.0f}" if stop.rhythm.usual >= 0.5 else "less than 1"
    return build_finding(
        "stopped_sender",
        (stop.kind, stop.name),
        title=f"The {subject} has stopped sending",
        seen=(
            f"Its last records arrived at {utc_iso(stop.last)}. Since then, it has been silent for "
            f"{stop.rhythm.patience:.0f} or more of the hours in which it usually sends. In the six weeks before, its "
            f"longest usual silence was {usual} of these hours. It sent with these {other_kind}: {others}."
        ),
        advice=(
            "Check whether the sender runs, exports its telemetry, and reaches this Tollhouse. The log has a line for "
            "each refused request. When records arrive again, this insight ends by itself. If the sender was removed "
            "on purpose, disable its API key."
        ),
        category="reliability",
        effort=LOW,
        newest=stop.last,
        concerns=CallFilter(include={"source" if is_source else "sender": (stop.name,)}),
    )


@mark_as_needing_only_states
@mark_impossible_in_demo("a demo month has no clusters")
def silent_cluster(facts: InsightFacts) -> Sequence[Finding]:
    """Find clusters whose agent stopped reporting, so that their cost is missing from the bill."""
    silent = sorted(facts.silent_clusters, key=lambda item: (-item.last_seen, item.id))
    return [_silent_cluster_finding(cluster) for cluster in silent[:MAX_FINDINGS]]


def _silent_cluster_finding(cluster: Cluster) -> Finding:
    location = (
        f"account {printable_name(cluster.account, 'unknown')} in {printable_name(cluster.region, 'unknown')}"
    )
    return build_finding(
        "silent_cluster",
        (cluster.id,),
        title=f"The cluster {printable_name(cluster.display_name or cluster.name)} has stopped reporting",
        seen=f"Its agent last reported on {format_day(cluster.last_seen)}. The cluster runs for {location}.",
        advice=(
            "Check whether the agent's pods run and reach this Tollhouse with a valid key. If the "
            f"cluster no longer exists, delete it: `tollhouse clusters delete {cluster.id} --confirm "
            f"{cluster.id}`."
        ),
        category="coverage",
        effort=LOW,
        newest=cluster.last_seen,
    )


@mark_as_needing_only_states
@mark_impossible_in_demo("a demo month has no clusters")
def unapplied_config(facts: InsightFacts) -> Sequence[Finding]:
    """Find clusters whose agent has not run its assigned configuration for at least a day."""
    waiting = [config for config in facts.unapplied_configs if facts.now - config.since >= DAY_S]
    waiting.sort(key=lambda config: (config.since, config.cluster.id))
    return [_unapplied_config_finding(config) for config in waiting[:MAX_FINDINGS]]


def _unapplied_config_finding(config: UnappliedConfig) -> Finding:
    cluster = config.cluster
    why = f" It says: {printable_name(config.problem)}." if config.problem else ""
    return build_finding(
        "unapplied_config",
        (cluster.id,),
        title=f"The cluster {printable_name(cluster.display_name or cluster.name)} does not run its configuration",
        seen=f"The assigned configuration has had the state {config.state} since {format_day(config.since)}.{why}",
        advice=(
            "If the agent reads Helm values, apply the configuration by hand or with your GitOps tool "
            f"(`tollhouse clusters config {cluster.id} --format configmap`), and have that tool report "
            "the result."
        ),
        category="coverage",
        effort=LOW,
        newest=config.since,
    )


@mark_as_needing_only_states
def idle_key(facts: InsightFacts) -> Sequence[Finding]:
    """Find keys that were never used, or not for a month. Keys that stopped sending have their own detector."""
    stopped = stopped_senders(facts.sender_hours, facts.keys, now=facts.now).keys
    open_keys = [key for key in facts.keys if key.state(facts.now) == ENABLED and key.name not in stopped]
    return sort_by_impact(
        _idle_key_finding(key) for key in open_keys if facts.now - _last_use_or_change(key) >= IDLE_S
    )


def _last_use_or_change(key: ApiKey) -> float:
    """Return when the key was last used or changed. A key that was changed recently may soon be used."""
    return max(key.last_modified, key.last_accessed or 0.0)


def _idle_key_finding(key: ApiKey) -> Finding:
    since = "never" if key.last_accessed is None else f"last on {format_day(key.last_accessed)}"
    return build_finding(
        "idle_key",
        (str(key.id),),
        title=f"The API key {printable_name(key.name)} is not in use",
        seen=f"It was used {since} and has {key.scope_count} scopes. A leak of this key would go unnoticed.",
        advice=(
            f"Ask {printable_name(key.created_by)}, who created the key. Disable it with `tollhouse keys disable`, "
            "and delete it if nobody misses it."
        ),
        category="keys",
        effort=LOW,
    )


@mark_as_needing_only_states
def wide_key(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find keys that can both send telemetry and read or change data. If such a key leaks from a client, the
    data is exposed.
    """
    open_keys = [key for key in facts.keys if key.state(facts.now) == ENABLED]
    sending = [key for key in open_keys if key.current_scopes & SENDING]
    beyond = [(key, _unneeded_scopes(key)) for key in sending]
    return sort_by_impact(_wide_key_finding(key, scopes) for key, scopes in beyond if scopes)


def _unneeded_scopes(key: ApiKey) -> frozenset[str]:
    needed = SENDING | {AGENT_READS} if key.current_scopes & _AGENT else SENDING
    return key.current_scopes - needed


def _wide_key_finding(key: ApiKey, unneeded_scopes: frozenset[str]) -> Finding:
    names = ", ".join(sorted(unneeded_scopes)[:MAX_SCOPES])
    suffix = f" and {len(unneeded_scopes) - MAX_SCOPES} more" if len(unneeded_scopes) > MAX_SCOPES else ""
    others = "1 other scope" if len(unneeded_scopes) == 1 else f"{len(unneeded_scopes)} other scopes"
    return build_finding(
        "wide_key",
        (str(key.id),),
        title=f"The API key {printable_name(key.name)} sends telemetry and has {others}",
        seen=f"Besides the scopes for sending, it has {names}{suffix}.",
        advice=(
            "Give the sender its own key with a managed use case (`tollhouse keys create --use-case "
            "...`), and remove the scopes for sending from this key."
        ),
        category="keys",
        effort=LOW,
    )


@mark_as_needing_only_states
@mark_impossible_in_demo("keys of a demo month have no expiry date")
def expiring_key(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find keys that expire within two weeks, and keys that have expired and are still used, so that the records of
    their senders are missing.
    """
    troubles = key_troubles(facts.keys, facts.expired_tries, now=facts.now)
    return [_key_expiry_finding(trouble) for trouble in troubles][:MAX_FINDINGS]


def _key_expiry_finding(trouble: KeyTrouble) -> Finding:
    return build_finding(
        EXPIRING_KEY,
        (str(trouble.key.id),),
        title=trouble.title,
        seen=trouble.seen,
        advice="Give its senders another key, or change the date with `tollhouse keys edit --expires-at`.",
        category=CATEGORY_OF[trouble.severity],
        effort=LOW,
        newest=trouble.newest,
        severity=trouble.severity,
    )


@mark_impossible_in_demo("a demo month causes no load")
def crowding_key(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find keys that nearly use up their share of a limit that all keys have in common.

    Above its share, requests of the key are refused, or the limit's oldest entries of this key are dropped.
    """
    shares = sorted(
        facts.shares, key=lambda key_use: (-key_use.held / key_use.most, key_use.limit, key_use.key)
    )
    return [_crowding_key_finding(share) for share in shares[:MAX_FINDINGS]]


def _crowding_key_finding(share: KeyShare) -> Finding:
    rule = "a key gets at most half of the space that the other keys leave free"
    if share.gives_way:
        rule = _GIVES_WAY.get(
            share.limit,
            ("above the limit, its oldest records are closed early, before the reports they wait for arrive"),
        )
    who = f"The key {printable_name(share.key)}" if share.key else "The group of senders without a key"
    return build_finding(
        "crowding_key",
        (share.limit, share.key),
        title=f"{who} nearly fills its share of {share.limit}",
        seen=f"It uses {share.held} of at most {share.most}: {rule}.",
        advice=(
            f"Check whether this amount is expected. If so, raise {share.limit} if it is a setting, or "
            "give some of its senders their own key. Otherwise, delete the items that the key created, "
            "and disable the key."
        ),
        category="keys",
        effort=LOW,
    )
