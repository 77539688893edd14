"""What comes in and is not understood, is understood otherwise, or comes too late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.money.insights.facts import DAY_S, Facts, UnrecognisedShape
from gateway.money.insights.findings import MAX_FINDINGS, finding, named, ordered
from spool.registry.insights import HIGH, LOW, MEDIUM, Finding
from spool.settings import MAX_SERIES
from spool.shares import NEARLY_FULL

if TYPE_CHECKING:
    from gateway.normalise.memory.learning import ReadOtherwise
    from gateway.service.monitoring.late_reports import LateReports

RECENT_S = 7 * DAY_S
MAX_NAMES = 6


def unrecognised_shape(facts: Facts) -> Sequence[Finding]:
    """Find items that look like AI calls and that no dialect understands: their cost is in no sum."""
    recent = [shape for shape in facts.shapes if facts.now - shape.last_seen <= RECENT_S]
    return [_unrecognised(shape) for shape in sorted(recent, key=_most_first)[:MAX_FINDINGS]]


def _most_first(shape: UnrecognisedShape) -> tuple[int, Sequence[str]]:
    return -shape.count, shape.names


def _unrecognised(shape: UnrecognisedShape) -> Finding:
    names = ", ".join(named(name) for name in shape.names[:MAX_NAMES])
    more = f" and {len(shape.names) - MAX_NAMES} more" if len(shape.names) > MAX_NAMES else ""
    return finding(
        "unrecognised_shape",
        tuple(shape.names),
        title=f"{shape.count:,} items look like AI calls and are not understood",
        seen=f"Items with the attributes {names}{more} came in and were ignored; what they cost is not counted.",
        advice="Look at `tollhouse spool ignored`. Switch that instrumentation to the OpenTelemetry GenAI conventions, "
        "or report the shape so that a dialect can learn it.",
        category="coverage",
        effort=HIGH,
        newest=shape.last_seen,
    )


def read_otherwise(facts: Facts) -> Sequence[Finding]:
    """
    Find spans that the memory of the compiled module reads otherwise than the rules: one finding for each product
    and instrumentation. Fields are named, their values are not.
    """
    found = {(each.source, each.scope): each for each in facts.read_otherwise}
    return ordered(_otherwise(each) for each in found.values())


def _otherwise(each: ReadOtherwise) -> Finding:
    who = named(each.source, named(each.scope))
    fields = named(", ".join(each.fields), most=300)
    return finding(
        "read_otherwise",
        (each.source, each.scope),
        title=f"Spans of {who} were read otherwise with the compiled module than without it",
        seen=f"A span of {named(each.scope)} was read both ways, and these fields differ: {fields}. What the rules "
        "said is kept, and spans of this shape are the rules' alone until the next start. Earlier ones may be wrong.",
        advice="Set `server.native = false` and restart, until a release mends it. Please report the fields, the "
        "instrumentation and its version.",
        category="reliability",
        effort=LOW,
    )


def late_reports(facts: Facts) -> Sequence[Finding]:
    """Find reports that came too late for their calls: costs and owners lack what they would have added."""
    return ordered(_late(each) for each in facts.late_reports)


def _late(each: LateReports) -> Finding:
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
        "late_reports",
        (each.source,),
        title=f"{each.late + each.uncompared:,} reports of {named(each.source)} came too late for their calls",
        seen=f"In the last seven days. {' '.join(seen)}",
        advice="Set `spool.hold` to more than the time between a call and its later report. If records are removed "
        "before their reports come, raise `spool.late_window`, `spool.retention` or `spool.max_bytes`.",
        category="reliability",
        effort=MEDIUM,
    )


def many_series(facts: Facts) -> Sequence[Finding]:
    """Find cumulative counters that nearly fill their table: soon those that were silent longest are forgotten."""
    if not facts.max_series or facts.series < NEARLY_FULL * facts.max_series:
        return []
    return [
        finding(
            "many_series",
            (),
            title=f"{facts.series:,} cumulative counters nearly fill {MAX_SERIES}",
            seen=f"At most {facts.max_series:,} are known. Beyond, those that were silent longest are forgotten. If "
            "one is reported again, what it grew by meanwhile is not counted.",
            advice=f"Raise {MAX_SERIES}. If some senders make a counter for each request, such as one with an id among "
            "its attributes, let them send deltas or fewer attributes.",
            category="reliability",
            effort=LOW,
        )
    ]
