"""Records that are in no report: the ledger passed over their numbers, or differs from the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.insights.facts import Facts
from gateway.insights.findings import finding
from spool.registry.insights import LOW, Finding

NAME = "missed_records"


def find(facts: Facts) -> Sequence[Finding]:
    return list(_found(facts))


def _found(facts: Facts) -> Iterator[Finding]:
    if facts.missed_records:
        yield finding(
            NAME,
            (),
            title=f"{facts.missed_records:,} records are in no report",
            seen="The ledger has passed over their numbers, because there was no record under them when it counted. "
            "`tollhouse ledger status` says which hours may lack them (whole since).",
            advice="The ledger looks for them by itself, and counts what is kept; what is gone by then stays missing. "
            "`tollhouse spool verify` compares the two now.",
            category="reliability",
            effort=LOW,
        )
    if facts.differing_periods:
        yield finding(
            NAME,
            ("differing",),
            title=f"Reports of {facts.differing_periods:,} hours or days differ from the records that are kept",
            seen="The ledger was compared with the log. What it lacked and could count again it has counted; damaged "
            "or removed records may belong to the others, or they have more calls than are kept.",
            advice="Run `tollhouse spool verify`: it names them. `tollhouse ledger rebuild` counts them again from "
            "what is kept; then records that cannot be read any more are in no report.",
            category="reliability",
            effort=LOW,
        )
