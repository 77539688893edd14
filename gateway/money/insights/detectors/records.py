"""
Detectors for records that are not understood, that arrive too late, or that are missing at a destination.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from gateway.money.insights.detector_facts import (
    DAY_S,
    InsightFacts,
    PeriodSpend,
    RouteDeadLetters,
    UnrecognisedShape,
    mark_as_needing_only_states,
    mark_impossible_in_demo,
)
from gateway.money.insights.findings import MAX_FINDINGS, build_finding, printable_name, sort_by_impact
from gateway.monitoring.route_trouble import group_by_cause, how_to_resume, join_with_and
from spool.deliveries.protocols import LakeVerdict
from spool.deliveries.values import ORPHANED, PARKED, REFUSING, RUNNING, RouteState
from spool.log.counted_names import EventType
from spool.registry.insights import HIGH, LOW, MEDIUM, Finding
from spool.settings import MAX_SERIES
from spool.shares import NEARLY_FULL

if TYPE_CHECKING:
    from gateway.monitoring.late_reports import LateReports

RECENT_S = 7 * DAY_S
MAX_NAMES = 6
MAX_REASON = 300  # maximum characters of a reason; a path may be long, and the cause follows it
STATES = {PARKED: "paused", REFUSING: "rejected", ORPHANED: "without a destination", RUNNING: "stuck"}
ADVICE = {
    REFUSING: (
        "The destination rejects every record. See its response in `tollhouse spool status`, and look at "
        "one of the records with `tollhouse tail`."
    ),
    ORPHANED: (
        "The destination of this route is no longer configured. Add it to the configuration again, or "
        "delete the route with `tollhouse spool route delete`."
    ),
    RUNNING: (
        "The destination answered one record with server errors and accepted others. Report this record "
        "to the operator of the destination. `tollhouse spool status` shows which one it is."
    ),
}


def unrecognised_shape(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find telemetry that looks like AI calls but that no dialect reads. Its cost is missing from every total.
    """
    recent = [shape for shape in facts.shapes if facts.now - shape.last_seen <= RECENT_S]
    return [
        _unrecognised_shape_finding(shape)
        for shape in sorted(recent, key=lambda shape: (-shape.count, shape.names))[:MAX_FINDINGS]
    ]


def _unrecognised_shape_finding(shape: UnrecognisedShape) -> Finding:
    names = ", ".join(printable_name(name) for name in shape.names[:MAX_NAMES])
    suffix = f" and {len(shape.names) - MAX_NAMES} more" if len(shape.names) > MAX_NAMES else ""
    return build_finding(
        "unrecognised_shape",
        tuple(shape.names),
        title=f"{shape.count:,} items look like AI calls but are unrecognized",
        seen=f"Items with the attributes {names}{suffix} were received and ignored. Their cost is not counted.",
        advice=(
            "Look at the items with `tollhouse spool ignored`. Switch the instrumentation to the "
            "OpenTelemetry GenAI conventions, or report the shape to the Tollhouse project so that a "
            "dialect can be added."
        ),
        category="coverage",
        effort=HIGH,
        newest=shape.last_seen,
    )


@mark_impossible_in_demo("in a demo month, all reports of a call arrive at once")
def late_reports(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find reports that arrived after the records of their calls were closed, so that their costs or
    owners are missing.
    """
    return sort_by_impact(_late_reports_finding(report) for report in facts.late_reports)


def _late_reports_finding(report: LateReports) -> Finding:
    seen = []
    if report.late:
        seen.append(
            f"{report.late:,} of them would have added values to a call whose record was already "
            "closed. A closed record can still get a correction of a cost, a count, a status or a run, but "
            "not a user, a team or a tag alone."
        )
    if report.uncompared:
        seen.append(
            f"{report.uncompared:,} of them repeat calls whose records are deleted or too old to "
            "compare. They may be plain duplicates. Any values they add to a call are not counted."
        )
    return build_finding(
        "late_reports",
        (report.source,),
        title=(
            f"{report.late + report.uncompared:,} reports of {printable_name(report.source)} came too "
            "late for their calls"
        ),
        seen=f"This happened in the last seven days. {' '.join(seen)}",
        advice=(
            "Set `spool.hold` to more than the time between a call and its later report. If records are "
            "deleted before their reports arrive, raise `spool.late_window`, `spool.retention` or "
            "`spool.max_bytes`."
        ),
        category="reliability",
        effort=MEDIUM,
    )


@mark_impossible_in_demo("a demo month has no cumulative counters")
def many_series(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find out whether the table of cumulative counters is nearly full. If it becomes full, the counters that
    were idle longest are forgotten.
    """
    if not facts.max_series or facts.series < NEARLY_FULL * facts.max_series:
        return []
    return [
        build_finding(
            "many_series",
            (),
            title=f"{facts.series:,} cumulative counters nearly reach the limit {MAX_SERIES}",
            seen=(
                f"At most {facts.max_series:,} counters are remembered. Above the limit, the counters "
                "that were idle longest are forgotten. If a forgotten counter is reported again, its "
                "increase in the meantime is not counted."
            ),
            advice=(
                f"Raise {MAX_SERIES}. If some senders create a counter per request, for example with an "
                "id among its attributes, have them send deltas or fewer attributes."
            ),
            category="reliability",
            effort=LOW,
        )
    ]


@mark_as_needing_only_states
def stuck_route(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find routes that deliver nothing now, because they are paused, rejected by the destination, without a
    destination, or stuck at one record.
    """
    usual = _usual_cost_per_call(facts.week)
    stopped = [route for route in facts.routes if route.state != RUNNING or route.stuck]
    return sort_by_impact(
        _stuck_routes_finding(routes, usual, facts.destination_types) for routes in group_by_cause(stopped)
    )


def _usual_cost_per_call(week: Sequence[PeriodSpend]) -> Decimal:
    calls = sum(spend.calls for spend in week)
    return sum((spend.cost for spend in week), Decimal(0)) / calls if calls else Decimal(0)


def _stuck_routes_finding(routes: Sequence[RouteState], usual: Decimal, types: Mapping[str, str]) -> Finding:
    """Return one finding for routes with the same cause. The name of the first identifies it."""
    route = routes[0]
    reason = f" ({printable_name(route.reason, max_characters=MAX_REASON)})" if route.reason else ""
    names = join_with_and([printable_name(each.name) for each in routes])
    queued = sum(each.queued for each in routes)
    return build_finding(
        "stuck_route",
        (route.name,),
        title=f"{'The route' if len(routes) == 1 else 'The routes'} {names} {'is' if len(routes) == 1 else 'are'} "
        f"{STATES[route.state]}",
        seen=(
            f"{queued:,} records wait for {names}{reason}. The impact is their "
            "approximate cost, which the destination does not show yet."
        ),
        advice=how_to_resume(route, types) if route.state == PARKED else ADVICE[route.state],
        category="delivery",
        effort=MEDIUM if route.state == REFUSING else LOW,
        impact=queued * usual,
    )


@mark_as_needing_only_states
def unknown_arrival(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find deliveries sent without a clear answer. They wait for a decision, even if the route is running.
    """
    return sort_by_impact(_unknown_delivery_outcome_finding(route) for route in facts.routes if route.unknown)


def _unknown_delivery_outcome_finding(route: RouteState) -> Finding:
    return build_finding(
        "unknown_arrival",
        (route.name,),
        title=f"{printable_name(route.name)} may or may not have {route.unknown:,} records",
        seen=(
            f"{printable_name(route.name)} gave no clear answer to requests with {route.unknown:,} records. The "
            "records wait, because a second delivery might count them twice."
        ),
        advice=(
            "Compare the records of `tollhouse streams list --unknown` with those at the destination. "
            "Then resolve each delivery with `tollhouse streams resolve ID sent` or `unsent`."
        ),
        category="delivery",
        effort=MEDIUM,
    )


def dead_letters(facts: InsightFacts) -> Sequence[Finding]:
    """Find routes with new dead letters. These are records that a destination rejected and does not have."""
    return sort_by_impact(_dead_letters_finding(dead) for dead in facts.dead if dead.recent)


def _dead_letters_finding(dead: RouteDeadLetters) -> Finding:
    return build_finding(
        "dead_letters",
        (dead.route,),
        title=f"{printable_name(dead.route)} rejected {dead.recent:,} records within a day",
        seen=(
            f"{dead.count:,} rejected records (dead letters) are set aside. The destination rejected the "
            f"newest one with: {printable_name(dead.newest_error)}. The impact is the cost of their calls."
        ),
        advice="Look at the records with `tollhouse spool dead list`, then retry or discard them.",
        category="delivery",
        effort=MEDIUM,
        impact=dead.cost,
        newest=dead.newest,
    )


@mark_impossible_in_demo("a demo month has no destination that answers")
def refused_records(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find records that a destination rejected while it accepted others in the same request.

    The destination does not have these records, and they are not sent again.
    """
    return sort_by_impact(_refused_records_finding(route) for route in facts.routes if route.refused_recently)


def _refused_records_finding(route: RouteState) -> Finding:
    name = printable_name(route.name)
    reason = (
        f" The newest reason: {printable_name(route.refusal, max_characters=300)}." if route.refusal else ""
    )
    return build_finding(
        "refused_records",
        (route.name,),
        title=f"{name} rejected {route.refused_recently:,} records within a day",
        seen=(
            f"The destination of {name} answered with success, but rejected {route.refused_recently:,} "
            f"records within 24 hours and accepted the others.{reason} The destination does not have the "
            "rejected records, and they are not sent again."
        ),
        advice=(
            "List the requests with `tollhouse spool refused`. Fix the cause, then send the time range "
            "again with `tollhouse spool replay`."
        ),
        category="delivery",
        effort=MEDIUM,
    )


@mark_impossible_in_demo("a demo month has no data lake")
def lake_differs(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find routes whose data lake, Kafka topic or table differs from its manifests or the counts of delivered
    records. There is one finding per route.
    """
    verdicts = [state.verdict for state in facts.lakes if state.verdict is not None]
    return sort_by_impact(_lake_differs_finding(verdict) for verdict in verdicts if verdict.differences)


def _lake_differs_finding(verdict: LakeVerdict) -> Finding:
    route = printable_name(verdict.route)
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(verdict.differences.items()))
    return build_finding(
        "lake_differs",
        (verdict.route,),
        title=f"The lake of {route} differs from what was sent",
        seen=(
            f"Differences: {kinds}. The first one: {printable_name(verdict.words, max_characters=300)}. "
            "Totals over the lake differ from the reports."
        ),
        advice=(
            "Run `tollhouse lake verify` to list every difference. Restore files or rows that were "
            "removed or changed, and remove those that Tollhouse did not write. Tollhouse checks the "
            "lake again within an hour."
        ),
        category="delivery",
        effort=MEDIUM,
        newest=verdict.at,
    )


@mark_impossible_in_demo("a demo month has no usage events")
def unmapped_events(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find usage events that are not delivered, because the cost service accepts no events and their type has no stream.
    """
    recent = [seen for seen in facts.unmapped if facts.now - seen.last_seen <= RECENT_S]
    recent.sort(key=lambda seen: (-seen.count, seen.type))
    return [_unmapped_events_finding(seen) for seen in recent[:MAX_FINDINGS]]


def _unmapped_events_finding(seen: EventType) -> Finding:
    return build_finding(
        "unmapped_events",
        (seen.type,),
        title=f"{seen.count:,} usage events of the type {printable_name(seen.type)} have no stream",
        seen=(
            "Your cost service accepts no usage events, and no unit-cost stream is set for this type. "
            "The events are stored here and not sent."
        ),
        advice="Map the type to a stream in [upstream.events]. Otherwise mark this insight as ignored.",
        category="delivery",
        effort=LOW,
        newest=seen.last_seen,
    )
