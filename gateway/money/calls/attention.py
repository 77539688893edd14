"""
Operator API of everything that needs attention: open critical insights, and problems of the operation.

The overview's line of status, the badge in the console's menu and the list of critical insights show this number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.devices.states import MUTE, SILENT
from gateway.http.operator.address import SLICED, call
from gateway.http.operator.requests import OperatorRequest
from gateway.http.requests import Result
from gateway.http.services import OperatorServices
from gateway.money.calls.notifications import shown_error
from gateway.money.calls.published_insights import OPENED, state_of, urgency
from gateway.money.insights.findings import finding_key
from gateway.service.errors import Refusal
from gateway.service.monitoring.route_trouble import trouble_of
from spool.listing import ASCENDING, ListQuery, SortField
from spool.registry.insights import (
    IGNORED,
    IN_PROGRESS,
    MAX_INSIGHTS,
    NEW,
    ON_HOLD,
    STATUSES,
    Insight,
)
from spool.registry.notices import CRITICAL, PARKED, WARNING, insight_severity
from spool.registry.permission_sets import VIEW_COSTS, VIEW_OPERATION

NEARLY_FULL = 0.9  # of spool.max_bytes
OPEN = (NEW, IN_PROGRESS)
_PUT_OFF = (ON_HOLD, IGNORED)  # with these statuses, people decided to leave the problem as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """
    One cause. `kind` and `subject` say where people can see it.

    `finding` is the key of the detector's finding with the same cause, and `insight` the id of the open critical
    insight.
    """

    kind: str
    title: str
    text: str = ""
    subject: str | None = None
    severity: str = CRITICAL
    finding: str = ""
    insight: str | None = None


@call("GET", "/attention", VIEW_COSTS, "Show what needs attention", shows=SLICED)
async def show_attention(request: OperatorRequest[OperatorServices, None]) -> Result:
    """
    Return the causes of trouble, and the number of those that are critical. An open critical insight and the
    problem that it describes are one cause. A problem does not count while its insight is on hold or ignored.

    `operation` is false for people who have limited data access or may not see the operation. They get only the
    insights that they may see. A damaged registry, which stores the insights, is a cause itself. `planted` are the
    problems that `tollhouse demo` planted, in words. It is null for real data.
    """
    sees_operation = not request.is_limited and VIEW_OPERATION in request.rights.permission_sets
    problems = await _problems(request) if sees_operation else []
    try:
        insights = await seen_insights(request, (*OPEN, *_PUT_OFF))
    except Refusal as error:
        insights = []
        problems.insert(0, Cause(kind="registry", title="Insights are unknown", text=error.message))
    causes = merged(problems, insights)
    return {
        "attention": {
            "count": sum(cause.severity == CRITICAL for cause in causes),
            "operation": sees_operation,
            "planted": request.services.installation.planted,
            "causes": [
                {
                    "kind": cause.kind,
                    "severity": cause.severity,
                    "title": cause.title,
                    "text": cause.text,
                    "subject": cause.subject,
                    "insight": cause.insight,
                }
                for cause in causes
            ],
        }
    }


async def seen_insights(
    request: OperatorRequest[Any, None], statuses: Collection[str] = STATUSES
) -> Sequence[Insight]:
    """
    Return the insights with these statuses that the person may see. Raises Refusal 503 while the registry is damaged.
    """
    table = request.registry.insights
    if request.is_limited:
        visible = await request.reads.visible()
        found = await table.found()
        return [insight for insight in found if insight.status in statuses and visible.insight(insight)]
    by_id = SortField("id")
    filters = {"status": tuple(statuses)}
    query = ListQuery(sort=by_id, order=ASCENDING, identity="id", limit=MAX_INSIGHTS, filters=filters)
    return (await table.page(query)).rows


def merged(problems: Sequence[Cause], insights: Sequence[Insight]) -> Sequence[Cause]:
    """Return one entry per cause: the problems that nobody put off, then the other open critical insights."""
    put_off = {insight.finding for insight in insights if insight.status in _PUT_OFF}
    critical = [
        insight
        for insight in sorted(insights, key=lambda each: (urgency(each), each.id), reverse=True)
        if state_of(insight) == OPENED and insight_severity(insight) == CRITICAL
    ]
    ids = {insight.finding: insight.id for insight in critical if insight.finding}
    causes = [
        replace(cause, insight=ids.get(cause.finding)) for cause in problems if cause.finding not in put_off
    ]
    known = {cause.insight for cause in causes}
    return [
        *(cause for cause in causes if cause.severity == CRITICAL),
        *(
            Cause(kind="insight", title=insight.title, subject=insight.id, insight=insight.id)
            for insight in critical
            if insight.id not in known
        ),
        *(cause for cause in causes if cause.severity != CRITICAL),
    ]


async def _problems(request: OperatorRequest[OperatorServices, None]) -> list[Cause]:
    services = request.services
    stats = await services.spool.log.stats()
    problems = []
    if not stats.writable:
        text = stats.last_error or "See /readyz."
        problems.append(Cause(kind="space", title="Tollhouse does not accept records", text=text))
    elif stats.bytes >= NEARLY_FULL * stats.max_bytes:
        title = f"The queue on disk is {100 * stats.bytes // stats.max_bytes} % full"
        problems.append(Cause(kind="space", title=title))
    ledger = await services.money.ledger.state(counts_rows=False)
    if uncounted := ledger.missed + ledger.damaged + ledger.absurd:
        title = f"Tollhouse could not count {_some(uncounted, 'record')}"
        problems.append(Cause(kind="ledger", title=title, finding=finding_key("missed_records", ())))
    problems += await _of_routes(services)
    if services.senders.devices:
        counts = services.senders.devices.counts()
        if silent := counts[SILENT] + counts[MUTE]:
            problems.append(Cause(kind="devices", title=f"{_some(silent, 'laptop')} stopped reporting"))
    return [*problems, *await _of_channels(request)]


async def _of_routes(services: OperatorServices) -> list[Cause]:
    problems = []
    for route in sorted(await services.spool.deliveries.routes(), key=lambda route: route.name):
        if trouble := trouble_of(route):
            title, text = trouble
            key = finding_key("stuck_route", (route.name,))
            problems.append(Cause(kind="route", title=title, text=text, subject=route.name, finding=key))
        if route.dead:
            title = f"{_some(route.dead, 'rejected record')} of {route.name}"
            key = finding_key("dead_letters", (route.name,))
            problems.append(Cause(kind="dead", title=title, subject=route.name, finding=key))
        if route.unknown:
            title = f"{_some(route.unknown, 'record')} sent to {route.name} without an answer"
            key = finding_key("unknown_arrival", (route.name,))
            problems.append(Cause(kind="unknown", title=title, subject=route.name, finding=key))
    return problems


async def _of_channels(request: OperatorRequest[OperatorServices, None]) -> list[Cause]:
    """Return the channels that cannot send, and a warning if there is no channel."""
    services = request.services.installation
    if services.registry is None:
        return []
    if not services.registry.notices.channels:
        title = "Nobody is notified: there is no channel"
        return [Cause(kind="no_channel", title=title, severity=WARNING)]
    return [
        Cause(
            kind="channel",
            title=f"The channel {channel.name} sends no notifications",
            text=shown_error(request, channel.reason),
            subject=channel.name,
        )
        for channel in await services.channels()
        if channel.state == PARKED
    ]


def _some(number: int, one: str) -> str:
    return f"1 {one}" if number == 1 else f"{number:,} {one}s"
