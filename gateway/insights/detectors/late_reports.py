"""Reports that came too late for their calls: costs and owners lack what they would have added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.insights.facts import Facts
from gateway.insights.findings import finding, named, ordered
from spool.registry.insights import MEDIUM, Finding

if TYPE_CHECKING:
    from gateway.monitoring.late_reports import LateReports

NAME = "late_reports"


def find(facts: Facts) -> Sequence[Finding]:
    return ordered(_finding(each) for each in facts.late_reports)


def _finding(each: LateReports) -> Finding:
    seen = []
    if each.late:
        seen.append(
            f"{each.late:,} of them would have added to a call after its record closed. Only a cost or a count can "
            "still be corrected then, not a user, a team, a status or a tag."
        )
    if each.uncompared:
        seen.append(
            f"{each.uncompared:,} of them repeat calls whose records are out of reach. They may be plain repeats; what "
            "they add to a call is not counted."
        )
    return finding(
        NAME,
        (each.source,),
        title=f"{each.late + each.uncompared:,} reports of {named(each.source)} came too late for their calls",
        seen=f"In the last seven days. {' '.join(seen)}",
        advice="Set `spool.hold` to more than the time between a call and its later report. If records are removed "
        "before their reports come, raise `spool.late_window`, `spool.retention` or `spool.max_bytes`.",
        category="reliability",
        effort=MEDIUM,
    )
