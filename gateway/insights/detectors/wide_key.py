"""Keys that send and may also read or change things, so that a leak from a client exposes data."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import Facts
from gateway.insights.findings import finding, named, ordered
from spool.registry.insights import LOW, Finding
from spool.registry.keys import ENABLED, Key
from spool.registry.scopes import (
    BILLING_DROP,
    CREATE_EVENT,
    ENROLL,
    GROUPS,
    HEARTBEAT,
    INGEST,
    PING,
    VALIDATE_BILLING_DROP,
)

NAME = "wide_key"
MAX_NAMES = 4

_AGENT = frozenset(GROUPS["Container agent"])
_STREAMS = frozenset({"unit-cost_v1:create_telemetry_stream", "unit-cost_v1:manage_telemetry_records"})
SENDING = (
    _AGENT | _STREAMS | {INGEST, BILLING_DROP, VALIDATE_BILLING_DROP, CREATE_EVENT, ENROLL, HEARTBEAT, PING}
)
AGENT_READS = "insights:read_insights"  # the container agent's check of its key at startup


def find(facts: Facts) -> Sequence[Finding]:
    open_keys = [key for key in facts.keys if key.status == ENABLED and not key.is_expired(facts.now)]
    sending = [key for key in open_keys if key.granted & SENDING]
    beyond = [(key, _beyond(key)) for key in sending]
    return ordered(_finding(key, scopes) for key, scopes in beyond if scopes)


def _beyond(key: Key) -> frozenset[str]:
    """Return the scopes that a key which sends does not need."""
    needed = SENDING | {AGENT_READS} if key.granted & _AGENT else SENDING
    return key.granted - needed


def _finding(key: Key, beyond: frozenset[str]) -> Finding:
    names = ", ".join(sorted(beyond)[:MAX_NAMES])
    more = f" and {len(beyond) - MAX_NAMES} more" if len(beyond) > MAX_NAMES else ""
    return finding(
        NAME,
        (str(key.id),),
        title=f"The API key {named(key.name)} sends, and may do {len(beyond)} other things",
        seen=f"Beside what it sends with, it opens {names}{more}.",
        advice="Give the sender a key of its own with a managed use case (`tollhouse keys create --use-case ...`), and "
        "take the scopes for sending from this one.",
        category="keys",
        effort=LOW,
    )
