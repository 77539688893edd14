"""
Keys that nobody uses, that may do too much, that expire, or that nearly fill a bound; devices and clusters that report
less than they did, or run other settings than they should.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.clusters.clusters import UnappliedConfig
from gateway.devices.states import is_mute
from gateway.money.insights.facts import DAY_S, Facts
from gateway.money.insights.findings import MAX_FINDINGS, day, finding, named, ordered
from spool.clusters import Cluster
from spool.devices.device import ENROLLED, Device
from spool.record import moment
from spool.registry.insights import LOW, Finding
from spool.registry.keys import ENABLED, Key
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

ALIVE_S = 86_400.0
IDLE_S = 30 * DAY_S
MAX_SCOPES = 4
_AGENT = frozenset(GROUPS["Container agent"])
_STREAMS = frozenset({CREATE_STREAM, MANAGE_RECORDS})
SENDING = (
    _AGENT | _STREAMS | {INGEST, BILLING_DROP, VALIDATE_BILLING_DROP, CREATE_EVENT, ENROLL, HEARTBEAT, PING}
)
AGENT_READS = "insights:read_insights"  # the container agent's check of its key at startup
SOON_S = 14 * DAY_S
_GIVES_WAY = {
    MAX_SENDERS: "beyond, its oldest are forgotten, and counters that come later count beside their calls",
    COUNTED_ITEMS: "beyond, its oldest stay counted, whatever calls come that they repeat",
}


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


def idle_key(facts: Facts) -> Sequence[Finding]:
    """Find enabled keys that are not used."""
    open_keys = [key for key in facts.keys if key.status == ENABLED and not key.is_expired(facts.now)]
    return ordered(_idle(key) for key in open_keys if facts.now - _last(key) >= IDLE_S)


def _last(key: Key) -> float:
    """The last sign of life; a key that was changed may be about to be used."""
    return max(key.last_modified, key.last_accessed or 0.0)


def _idle(key: Key) -> Finding:
    since = "never" if key.last_accessed is None else f"last on {day(key.last_accessed)}"
    return finding(
        "idle_key",
        (str(key.id),),
        title=f"The API key {named(key.name)} is not in use",
        seen=f"It was used {since} and has {key.scope_count} scopes. Nobody would notice if it leaked.",
        advice=f"Ask {named(key.created_by)}, who made it; disable it with `tollhouse keys disable`, and delete it "
        "if it is not missed.",
        category="keys",
        effort=LOW,
    )


def wide_key(facts: Facts) -> Sequence[Finding]:
    """Find keys that send and may also read or change things, so that a leak from a client exposes data."""
    open_keys = [key for key in facts.keys if key.status == ENABLED and not key.is_expired(facts.now)]
    sending = [key for key in open_keys if key.granted & SENDING]
    beyond = [(key, _beyond(key)) for key in sending]
    return ordered(_wide(key, scopes) for key, scopes in beyond if scopes)


def _beyond(key: Key) -> frozenset[str]:
    """Return the scopes that a key which sends does not need."""
    needed = SENDING | {AGENT_READS} if key.granted & _AGENT else SENDING
    return key.granted - needed


def _wide(key: Key, beyond: frozenset[str]) -> Finding:
    names = ", ".join(sorted(beyond)[:MAX_SCOPES])
    more = f" and {len(beyond) - MAX_SCOPES} more" if len(beyond) > MAX_SCOPES else ""
    return finding(
        "wide_key",
        (str(key.id),),
        title=f"The API key {named(key.name)} sends, and may do {len(beyond)} other things",
        seen=f"Beside what it sends with, it opens {names}{more}.",
        advice="Give the sender a key of its own with a managed use case (`tollhouse keys create --use-case ...`), and "
        "take the scopes for sending from this one.",
        category="keys",
        effort=LOW,
    )


def expiring_key(facts: Facts) -> Sequence[Finding]:
    """Find keys in use that expire soon."""
    return ordered(_expiring(key, key.expires_at) for key in facts.keys if _expires_soon(key, facts.now))


def _expires_soon(key: Key, now: float) -> bool:
    at = key.expires_at
    return key.status == ENABLED and at is not None and now < at <= now + SOON_S


def _expiring(key: Key, at: float | None) -> Finding:
    return finding(
        "expiring_key",
        (str(key.id),),
        title=f"The API key {named(key.name)} expires soon",
        seen=f"It expires at {moment(at)}. From then on what comes with it is refused as under an unknown key.",
        advice="Give its senders another key, or move the date with `tollhouse keys edit --expires-at`.",
        category="keys",
        effort=LOW,
    )


def crowding_key(facts: Facts) -> Sequence[Finding]:
    """Find keys that hold nearly what they may of what all keys share: soon they are refused, and others are not."""
    shares = sorted(facts.shares, key=lambda each: (-each.held / each.most, each.limit, each.key))
    return [_crowding(share) for share in shares[:MAX_FINDINGS]]


def _crowding(share: KeyShare) -> Finding:
    rule = "no key gets more than it leaves free for others"
    if share.gives_way:
        rule = _GIVES_WAY.get(
            share.limit, "beyond, its oldest are put on record early, without what they wait for"
        )
    who = f"The key {named(share.key)}" if share.key else "What comes without a key"
    return finding(
        "crowding_key",
        (share.limit, share.key),
        title=f"{who} nearly fills its share of {share.limit}",
        seen=f"It holds {share.held} of the {share.most} that it may: {rule}.",
        advice=f"See whether it should make that many. If so, raise {share.limit} where that is a setting, or give a "
        "part of its senders a key of their own; if not, delete what it made, and disable the key.",
        category="keys",
        effort=LOW,
    )
