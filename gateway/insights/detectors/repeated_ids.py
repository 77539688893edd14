"""
Calls whose ids came again later than any lookup covers: a cache that answers with the first call's id and
does not say so, or a sender that repeats what is hours old under a new time.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from gateway.insights.facts import Facts
from gateway.insights.findings import finding
from spool.registry.insights import MEDIUM, Finding

NAME = "repeated_ids"
LEAST = 10  # ids


def find(facts: Facts) -> Sequence[Finding]:
    if facts.repeated_ids < LEAST:
        return []
    calls = sum(spend.calls for spend in facts.week)
    cost = sum((spend.cost for spend in facts.week), Decimal(0))
    return [
        finding(
            NAME,
            (),
            title=f"{facts.repeated_ids:,} calls came again hours later under the id of an earlier one",
            seen="The ids of providers' answers are in the duplicate window more than once, at times too far apart to "
            "be taken for a repeat. They count each time; the impact is what as many calls usually cost.",
            advice="Look for a cache between client and provider that repeats whole answers, and have it report them "
            "with status cached; or for an importer that sends old calls with the time of the import.",
            category="duplicates",
            effort=MEDIUM,
            impact=facts.repeated_ids * cost / calls if calls else Decimal(0),
        )
    ]
