"""Keys that hold nearly what they may of what is one for all keys: soon they are refused, the others are not."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import Facts
from gateway.insights.findings import MAX_FINDINGS, finding, named
from spool.registry.insights import LOW, Finding
from spool.settings import COUNTED_ITEMS, MAX_SENDERS
from spool.shares import KeyShare

NAME = "crowding_key"
_GIVES_WAY = {
    MAX_SENDERS: "beyond, its oldest are forgotten, and counters that come later count beside their calls",
    COUNTED_ITEMS: "beyond, its oldest stay counted, whatever calls come that they repeat",
}


def find(facts: Facts) -> Sequence[Finding]:
    shares = sorted(facts.shares, key=lambda each: (-each.held / each.most, each.limit, each.key))
    return [_finding(share) for share in shares[:MAX_FINDINGS]]


def _finding(share: KeyShare) -> Finding:
    rule = "no key gets more than it leaves free for others"
    if share.gives_way:
        rule = _GIVES_WAY.get(
            share.limit, "beyond, its oldest are put on record early, without what they wait for"
        )
    who = f"The key {named(share.key)}" if share.key else "What comes without a key"
    return finding(
        NAME,
        (share.limit, share.key),
        title=f"{who} nearly fills its share of {share.limit}",
        seen=f"It holds {share.held} of the {share.most} that it may: {rule}.",
        advice=f"See whether it should make that many. If so, raise {share.limit} where that is a setting, or give a "
        "part of its senders a key of their own; if not, delete what it made, and disable the key.",
        category="keys",
        effort=LOW,
    )
