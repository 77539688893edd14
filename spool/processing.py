"""
Processing modes of calls (batch, flex, priority, ...), read from tags. The mode decides the price.

Estimates use the mode of one call. The totals sum the calls of each mode separately, so that sums can
be priced again.
"""

from __future__ import annotations

from collections.abc import Mapping

STANDARD = ""
STANDARD_TIER = "standard"  # its name in settings
PROVISIONED = "provisioned"  # calls on capacity that is paid separately, so their tokens cost nothing
MODES = frozenset({"batch", "flex", "priority", "fast", PROVISIONED})
PRICED_TIERS = (STANDARD_TIER, *sorted(MODES - {PROVISIONED}))  # names of tiers that may have an own price

# Tags that name the tier that served a call. A requested tier, such as "auto", decides nothing.
_TIER_TAGS = ("service_tier", "openai.response.service_tier", "gen_ai.openai.response.service_tier")
MARKS = frozenset({*_TIER_TAGS, "processing", "speed"})


def processing_mode(tags: Mapping[str, str]) -> str:
    """
    Return the mode that the tags name, or STANDARD if they name none.

    Tags are free text, so values that no provider uses are ignored.
    """
    if MARKS.isdisjoint(tags):
        return STANDARD
    if tags.get("processing") == "batch":
        return "batch"
    if tags.get("speed") == "fast":
        return "fast"
    tiers = (tags.get(name) for name in _TIER_TAGS)
    return next((tier for tier in tiers if tier in MODES), STANDARD)
