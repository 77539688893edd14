"""A lake, a topic or a table that is not what its manifests and the books say."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import Facts
from gateway.insights.findings import finding, named, ordered
from spool.deliveries.lake_verdicts import LakeVerdict
from spool.registry.insights import MEDIUM, Finding

NAME = "lake_differs"


def find(facts: Facts) -> Sequence[Finding]:
    """Make one finding for a route whose newest look found a difference."""
    verdicts = [state.verdict for state in facts.lakes if state.verdict is not None]
    return ordered(_finding(verdict) for verdict in verdicts if verdict.differences)


def _finding(verdict: LakeVerdict) -> Finding:
    route = named(verdict.route)
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(verdict.differences.items()))
    return finding(
        NAME,
        (verdict.route,),
        title=f"The lake of {route} differs from what was sent",
        seen=f"{kinds}. The first: {named(verdict.words, most=300)}. Sums over the lake are not those of the reports.",
        advice="`tollhouse lake verify` names every difference. Put back what somebody removed or changed, and take "
        "away what is foreign. The lake is looked at again within an hour.",
        category="delivery",
        effort=MEDIUM,
        newest=verdict.at,
    )
