"""Keys in use that expire soon."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import DAY_S, Facts
from gateway.insights.findings import finding, named, ordered
from spool.record import moment
from spool.registry.insights import LOW, Finding
from spool.registry.keys import ENABLED, Key

NAME = "expiring_key"
SOON_S = 14 * DAY_S


def find(facts: Facts) -> Sequence[Finding]:
    return ordered(_finding(key, key.expires_at) for key in facts.keys if _expires_soon(key, facts.now))


def _expires_soon(key: Key, now: float) -> bool:
    at = key.expires_at
    return key.status == ENABLED and at is not None and now < at <= now + SOON_S


def _finding(key: Key, at: float | None) -> Finding:
    return finding(
        NAME,
        (str(key.id),),
        title=f"The API key {named(key.name)} expires soon",
        seen=f"It expires at {moment(at)}. From then on what comes with it is refused as under an unknown key.",
        advice="Give its senders another key, or move the date with `tollhouse keys edit --expires-at`.",
        category="keys",
        effort=LOW,
    )
