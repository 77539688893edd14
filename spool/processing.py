"""
How the provider processed a call (batch, flex, priority, ...), as far as its tags say: it decides the price.

The price book asks it for one call, and the ledger keeps such calls apart so that sums can be priced again.
"""

from __future__ import annotations

from collections.abc import Mapping

STANDARD = ""

# The tags under which sources name the tier that served a call; a requested tier ("auto") says nothing.
_TIER_TAGS = ("service_tier", "openai.response.service_tier", "gen_ai.openai.response.service_tier")
_MODES = {
    "batch": "batch",
    "flex": "flex",
    "priority": "priority",
    "fast": "fast",
}
MARKS = frozenset({*_TIER_TAGS, "processing", "speed"})


def mode_of(tags: Mapping[str, str]) -> str:
    """
    The mode that the tags name, STANDARD when they name none.

    Tags are free metadata, so a word that no provider uses for this means nothing.
    """
    if MARKS.isdisjoint(tags):
        return STANDARD
    if tags.get("processing") == "batch":
        return "batch"
    if tags.get("speed") == "fast":
        return "fast"
    for name in _TIER_TAGS:
        mode = _MODES.get(tags.get(name, ""))
        if mode is not None:
            return mode
    return STANDARD
