"""Numbers of the log that the ledger has passed over, because their records were gone before they were counted."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import Facts
from gateway.insights.findings import finding
from spool.registry.insights import LOW, Finding

NAME = "missed_records"


def find(facts: Facts) -> Sequence[Finding]:
    if not facts.missed_records:
        return []
    return [
        finding(
            NAME,
            (),
            title=f"{facts.missed_records:,} records are in no report",
            seen="The ledger has passed over their numbers, because there was no record under them when it counted. "
            "`tollhouse ledger status` says which hours may lack them (whole since).",
            advice="Run `tollhouse spool verify`: it compares the ledger with what is kept. `tollhouse ledger rebuild` "
            "counts again what is kept; what is gone by then stays missing.",
            category="reliability",
            effort=LOW,
        )
    ]
