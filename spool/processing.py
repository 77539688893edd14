"""
How the provider processed a call (batch, flex, priority, ...), as far as its tags state it: it decides the price.

Prices ask it for one call, and the ledger sums calls of each mode apart so that sums can be priced again.
"""

from __future__ import annotations

from collections.abc import Mapping

STANDARD = ""
PROVISIONED = "provisioned"  # on capacity that is paid apart: tokens cost nothing by themselves
MODES = frozenset({"batch", "flex", "priority", "fast", PROVISIONED})

# The tags under which sources name the tier that served a call; a requested tier ("auto") decides nothing.
_TIER_TAGS = ("service_tier", "openai.response.service_tier", "gen_ai.openai.response.service_tier")
MARKS = frozenset({*_TIER_TAGS, "processing", "speed"})


def mode_of(tags: Mapping[str, str]) -> str:
    """
    The mode that the tags name, STANDARD if they name none.

    Tags are free metadata, so a word that no provider uses for this is ignored.
    """
    if MARKS.isdisjoint(tags):
        return STANDARD
    if tags.get("processing") == "batch":
        return "batch"
    if tags.get("speed") == "fast":
        return "fast"
    tiers = (tags.get(name) for name in _TIER_TAGS)
    return next((tier for tier in tiers if tier in MODES), STANDARD)
