"""
Processing modes (batch, flex, priority, ...), read from tags. The mode decides the price.

The totals sum each mode separately, so that sums can be priced again.
"""

from __future__ import annotations

from collections.abc import Mapping

STANDARD = ""
STANDARD_TIER = "standard"  # name of the standard tier in settings
PROVISIONED = "provisioned"  # capacity that is paid separately, so its tokens cost nothing
MODES = frozenset({"batch", "flex", "priority", "fast", PROVISIONED})
PRICED_TIERS = (STANDARD_TIER, *sorted(MODES - {PROVISIONED}))

# Tags with the tier that served the call. A requested tier, such as "auto", decides nothing.
_TIER_TAGS = ("service_tier", "openai.response.service_tier", "gen_ai.openai.response.service_tier")
MARKS = frozenset({*_TIER_TAGS, "processing", "speed"})


def processing_mode(tags: Mapping[str, str]) -> str:
    """
    Return the mode, STANDARD if no tag names one.

    Tags are free text, so unknown values are ignored.
    """
    if MARKS.isdisjoint(tags):
        return STANDARD
    if tags.get("processing") == "batch":
        return "batch"
    if tags.get("speed") == "fast":
        return "fast"
    tiers = (tags.get(name) for name in _TIER_TAGS)
    return next((tier for tier in tiers if tier in MODES), STANDARD)
