"""
Records that come in and are not understood, are understood otherwise, or come too late; and those that do not arrive
where they are to go, or did not stay there.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from gateway.money.insights.facts import DAY_S, Facts, RouteDeadLetters, Spend, UnrecognisedShape
from gateway.money.insights.findings import MAX_FINDINGS, finding, named, ordered
from spool.deliveries.protocols import LakeVerdict
from spool.deliveries.values import ORPHANED, PARKED, REFUSING, RUNNING, RouteState
from spool.log.counted_names import EventType
from spool.registry.insights import HIGH, LOW, MEDIUM, Finding
from spool.settings import MAX_SERIES
from spool.shares import NEARLY_FULL

if TYPE_CHECKING:
    from gateway.normalise.memory.learning import ReadOtherwise
    from gateway.service.monitoring.late_reports import LateReports

RECENT_S = 7 * DAY_S
MAX_NAMES = 6
ADVICE = {
    PARKED: "The key or the address is wrong, the data is safe: `tollhouse check` says which key covers what. The "
    "route goes on by itself once the secret or the configuration is right.",
    REFUSING: "The destination refuses every record: look at its words in `tollhouse spool status`, and at one of "
    "the records with `tollhouse tail`.",
    ORPHANED: "Its destination left the configuration: put it back, or let go with `tollhouse spool route drop`.",
    RUNNING: "One record met server errors while others passed: tell the destination's operator which, from "
    "`tollhouse spool status`.",
}


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


def stuck_route(facts: Facts) -> Sequence[Finding]:
    """Find routes that deliver nothing now: parked, refusing, orphaned, or with a record that does not go through."""
    usual = _usual_cost(facts.week)
    return ordered(_stuck(route, usual) for route in facts.routes if route.state != RUNNING or route.stuck)


def _usual_cost(week: Sequence[Spend]) -> Decimal:
    """Return the mean cost of one call."""
    calls = sum(spend.calls for spend in week)
    return sum((spend.cost for spend in week), Decimal(0)) / calls if calls else Decimal(0)


def _stuck(route: RouteState, usual: Decimal) -> Finding:
    state = route.state if route.state != RUNNING else "stuck"
    reason = f" ({named(route.reason)})" if route.reason else ""
    return finding(
        "stuck_route",
        (route.name,),
        title=f"The route {named(route.name)} is {state}",
        seen=f"{route.queued:,} records wait for {named(route.name)}{reason}. The impact is about what they cost: "
        "spend that is not shown there yet.",
        advice=ADVICE[route.state],
        category="delivery",
        effort=MEDIUM if state == REFUSING else LOW,
        impact=route.queued * usual,
    )


def unknown_arrival(facts: Facts) -> Sequence[Finding]:
    """Find deliveries whose arrival is unknown: they wait for a person, whatever the route does now."""
    return ordered(_unknown(route) for route in facts.routes if route.unknown)


def _unknown(route: RouteState) -> Finding:
    return finding(
        "unknown_arrival",
        (route.name,),
        title=f"{named(route.name)} may or may not have {route.unknown:,} records",
        seen=f"{named(route.name)} gave no clear answer to requests with {route.unknown:,} records. They would be "
        "summed twice if they were sent again, so they wait.",
        advice="Compare the records of `tollhouse streams list --unknown` with those at the destination, then settle "
        "each delivery with `tollhouse streams resolve ID sent` or `unsent`.",
        category="delivery",
        effort=MEDIUM,
    )


def dead_letters(facts: Facts) -> Sequence[Finding]:
    """Find dead letters that grow: records that a destination refused, and that are missing there."""
    return ordered(_dead(dead) for dead in facts.dead if dead.recent)


def _dead(dead: RouteDeadLetters) -> Finding:
    return finding(
        "dead_letters",
        (dead.route,),
        title=f"{named(dead.route)} refused {dead.recent:,} records within a day",
        seen=f"{dead.count:,} dead letters wait there. The newest was refused with: {named(dead.words)}. The impact is "
        "what their calls cost.",
        advice="Look at them with `tollhouse spool dead list`, then retry or discard them.",
        category="delivery",
        effort=MEDIUM,
        impact=dead.cost,
        newest=dead.newest,
    )


def refused_records(facts: Facts) -> Sequence[Finding]:
    """
    Find records that a destination rejected in answers that accepted others: it lacks them, and they are
    not sent again.
    """
    return ordered(_refused(route) for route in facts.routes if route.refused_recently)


def _refused(route: RouteState) -> Finding:
    name = named(route.name)
    words = f" The newest reason: {named(route.refusal, most=300)}." if route.refusal else ""
    return finding(
        "refused_records",
        (route.name,),
        title=f"{name} rejected {route.refused_recently:,} records within a day",
        seen=f"The destination of {name} answered success, rejected {route.refused_recently:,} records within 24 hours "
        f"and accepted others.{words} It lacks the rejected records, and they are not sent again.",
        advice="List the requests with `tollhouse spool refused`. Repair the cause, then send the time range again "
        "with `tollhouse spool replay`.",
        category="delivery",
        effort=MEDIUM,
    )


def lake_differs(facts: Facts) -> Sequence[Finding]:
    """
    Find a lake, a topic or a table that is not what its manifests and the books say: one finding for each route.
    """
    verdicts = [state.verdict for state in facts.lakes if state.verdict is not None]
    return ordered(_differing(verdict) for verdict in verdicts if verdict.differences)


def _differing(verdict: LakeVerdict) -> Finding:
    route = named(verdict.route)
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(verdict.differences.items()))
    return finding(
        "lake_differs",
        (verdict.route,),
        title=f"The lake of {route} differs from what was sent",
        seen=f"{kinds}. The first: {named(verdict.words, most=300)}. Sums over the lake are not those of the reports.",
        advice="`tollhouse lake verify` names every difference. Put back what somebody removed or changed, and take "
        "away what is foreign. The lake is looked at again within an hour.",
        category="delivery",
        effort=MEDIUM,
        newest=verdict.at,
    )


def unmapped_events(facts: Facts) -> Sequence[Finding]:
    """Find usage events that stay here because the upstream takes no events and no stream is set for their type."""
    recent = [seen for seen in facts.unmapped if facts.now - seen.last_seen <= RECENT_S]
    recent.sort(key=lambda seen: (-seen.count, seen.type))
    return [_unmapped(seen) for seen in recent[:MAX_FINDINGS]]


def _unmapped(seen: EventType) -> Finding:
    return finding(
        "unmapped_events",
        (seen.type,),
        title=f"{seen.count:,} usage events of the type {named(seen.type)} are unmapped",
        seen="The upstream takes no usage events, and no unit-cost stream is set for this type: its events are kept "
        "here and not sent.",
        advice="Give the type a stream in [upstream.events], or mark this insight as ignored. "
        "`tollhouse events types` lists every type.",
        category="delivery",
        effort=LOW,
        newest=seen.last_seen,
    )
