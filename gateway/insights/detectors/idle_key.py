"""Enabled keys that are not used."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import DAY_S, Facts
from gateway.insights.findings import day, finding, named, ordered
from spool.registry.insights import LOW, Finding
from spool.registry.keys import ENABLED, Key

NAME = "idle_key"
IDLE_S = 30 * DAY_S


def find(facts: Facts) -> Sequence[Finding]:
    open_keys = [key for key in facts.keys if key.status == ENABLED and not key.is_expired(facts.now)]
    return ordered(_finding(key) for key in open_keys if facts.now - _last(key) >= IDLE_S)


def _last(key: Key) -> float:
    """The last sign of life; a key that was changed may be about to be used."""
    return max(key.last_modified, key.last_accessed or 0.0)


def _finding(key: Key) -> Finding:
    since = "never" if key.last_accessed is None else f"last on {day(key.last_accessed)}"
    return finding(
        NAME,
        (str(key.id),),
        title=f"The API key {named(key.name)} is not in use",
        seen=f"It was used {since} and has {key.scope_count} scopes. Nobody would notice if it leaked.",
        advice=f"Ask {named(key.created_by)}, who made it; disable it with `tollhouse keys disable`, and delete it "
        "if it is not missed.",
        category="keys",
        effort=LOW,
    )
