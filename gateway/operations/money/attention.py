"""
Operator API of everything that needs attention: open critical insights, and problems of the operation.

The number of causes is also shown in the overview's status line, in the console's menu and in the list of
insights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from gateway.configuration.certificates import certificate_troubles
from gateway.core.errors import Refusal
from gateway.core.fields import one_field_answer
from gateway.devices.fleet.coverage import FleetRow
from gateway.devices.fleet.severity import severity_of_machines
from gateway.devices.fleet.uses import LOSING
from gateway.devices.machine_state import AGENT_STOPPED
from gateway.http.requests import Result
from gateway.money.budgets.declared import BudgetTable
from gateway.money.budgets.judging import count_budgets_without_channel
from gateway.money.insights.findings import finding_key
from gateway.money.insights.key_troubles import key_troubles
from gateway.monitoring.channel_trouble import channel_trouble_title_and_text
from gateway.monitoring.route_trouble import group_by_cause, join_with_and, route_trouble_title_and_text
from gateway.operations.money.notifications import delivery_error_as_visible
from gateway.operations.money.published_insights import OPENED, insight_state, urgency_sort_key
from gateway.operations.money.reports.declared import (
    NO_CHANNEL,
    ScheduledReport,
    ScheduledReportTable,
    existing_channels,
    report_state,
)
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from gateway.operations.services import OperatorServices
from spool.listing import ASCENDING, ListQuery, SortField
from spool.loops import FailedItem
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.insights import IGNORED, IN_PROGRESS, MAX_INSIGHTS, NEW, ON_HOLD, STATUSES, Insight
from spool.registry.notices import (
    CRITICAL,
    INFO,
    NOT_ARRIVING,
    SEVERITIES,
    WARNING,
    ChannelState,
    insight_severity,
)
from spool.registry.permission_sets import VIEW_COSTS, VIEW_OPERATION

NEARLY_FULL = 0.9  # share of spool.max_bytes
MAX_NAMES = 3  # maximum laptops that a cause names
OPEN = (NEW, IN_PROGRESS)
_PUT_OFF = (ON_HOLD, IGNORED)  # statuses with which people decided to leave a problem as it is
# The categories of the critical insights, and of the findings that have the same cause as a problem of the operation.
# Only these insights are read, because an installation may have thousands of others.
_CATEGORIES = (NOT_ARRIVING, "reliability")
MAX_CAUSES = 200  # maximum causes in one response; `count` has the number of all critical causes


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCause:
    """
    Something that needs attention. `kind` and `subject` say where people can see it.

    `finding` is the key of the detector's finding about it, and `insight` the id of the open critical
    insight.
    """

    kind: str
    title: str
    text: str = ""
    subject: str | None = None
    severity: str = CRITICAL
    finding: str = ""
    insight: str | None = None


class AttentionState(msgspec.Struct, kw_only=True):
    count: Annotated[int, words("The number of critical causes."), example(2)]
    operation: Annotated[bool, words("Whether the person may see problems of the operation."), example(True)]
    planted: Annotated[
        list[str] | None, words("The problems that the demo planted, in words, or null."), example(None)
    ]
    causes: Annotated[
        list[dict[str, str | None]],
        words("At most 200 causes. `insight` is the id of the open critical insight, or null."),
        example(
            [
                {
                    "kind": "route",
                    "severity": "critical",
                    "title": "Forwarding of ai-telemetry to your cost service is paused",
                    "text": (
                        "Forwarding of ai-telemetry to your cost service is paused: your cost "
                        "service refuses Tollhouse's key costs (403). Nothing is lost."
                    ),
                    "subject": "upstream/ai-telemetry",
                    "insight": "7d5d1e2b0c0f4f6f9a55c2c0b3f1a9de",
                }
            ]
        ),
    ]


@operator_call(
    "GET",
    "/attention",
    VIEW_COSTS,
    "Show what needs attention",
    shows=SLICED,
    answers=one_field_answer(
        "OneAttention",
        attention=Annotated[
            AttentionState, words("The causes that the person may see, and the number of critical ones.")
        ],
    ),
)
async def show_attention(request: OperatorRequest[OperatorServices, None]) -> Result:
    """
    Return the causes that need attention, and the number of critical ones. An open critical insight and the
    problem that it describes are one cause. Stopped routes of one destination with the same reason are also
    one cause. A problem does not count while its insight is on hold or ignored.

    People who have limited data access, or may not see the operation, get only the insights that they may
    see. A damaged registry, which stores the insights, is a cause itself.
    """
    sees_operation = not request.has_limited_data_access and VIEW_OPERATION in request.rights.permission_sets
    problems = await _find_problems(request) if sees_operation else []
    try:
        insights = await visible_insights(request, (*OPEN, *_PUT_OFF), categories=_CATEGORIES)
    except Refusal as error:
        insights = []
        problems.insert(0, AttentionCause(kind="registry", title="Insights are unknown", text=error.message))
    causes = merge_causes(problems, insights)
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
                for cause in causes[:MAX_CAUSES]
            ],
        }
    }


async def visible_insights(
    request: OperatorRequest[Any, None],
    statuses: Collection[str] = STATUSES,
    *,
    categories: Collection[str] | None = None,
) -> Sequence[Insight]:
    """
    Return the visible insights with these statuses, of these categories or of all. Raises Refusal 503 while
    the registry is damaged.
    """
    filters = {"status": tuple(statuses)}
    if categories is not None:
        filters["category"] = tuple(categories)
    by_id = SortField("id")
    query = ListQuery(sort=by_id, order=ASCENDING, identity="id", limit=MAX_INSIGHTS, filters=filters)
    insights = (await request.registry.insights.page(query)).rows
    if not request.has_limited_data_access:
        return insights
    visible = await request.cost_reader.read_visibility()
    return [insight for insight in insights if insight.finding and visible.can_see_insight(insight)]


def merge_causes(problems: Sequence[AttentionCause], insights: Sequence[Insight]) -> Sequence[AttentionCause]:
    """
    Return one entry per cause: the problems whose insight nobody put on hold or ignored, then the other open
    critical insights.
    """
    put_off = {insight.finding for insight in insights if insight.status in _PUT_OFF}
    critical = [
        insight
        for insight in sorted(insights, key=lambda each: (urgency_sort_key(each), each.id), reverse=True)
        if insight_state(insight) == OPENED and insight_severity(insight) == CRITICAL
    ]
    ids = {insight.finding: insight.id for insight in critical if insight.finding}
    causes = [
        replace(cause, insight=ids.get(cause.finding)) for cause in problems if cause.finding not in put_off
    ]
    known = {cause.insight for cause in causes}
    return [
        *(cause for cause in causes if cause.severity == CRITICAL),
        *(
            AttentionCause(kind="insight", title=insight.title, subject=insight.id, insight=insight.id)
            for insight in critical
            if insight.id not in known
        ),
        *(cause for cause in causes if cause.severity != CRITICAL),
    ]


async def _find_problems(request: OperatorRequest[OperatorServices, None]) -> list[AttentionCause]:
    services = request.services
    stats = await services.spool.log.stats()
    problems = []
    if not stats.writable:
        text = stats.last_error or "See /readyz."
        problems.append(AttentionCause(kind="space", title="Tollhouse does not accept records", text=text))
    elif stats.bytes >= NEARLY_FULL * stats.max_bytes:
        title = f"The queue on disk is {100 * stats.bytes // stats.max_bytes} % full"
        problems.append(AttentionCause(kind="space", title=title))
    ledger = await services.money.ledger.state(counts_rows=False)
    if uncounted := ledger.missed + ledger.damaged + ledger.absurd:
        title = f"Tollhouse could not count {_count_phrase(uncounted, 'record')}"
        problems.append(AttentionCause(kind="ledger", title=title, finding=finding_key("missed_records", ())))
    problems += await _route_causes(services)
    problems += await _key_causes(services)
    problems += await _certificate_causes(services)
    problems += _failed_item_causes(services.spool.failed_items.all())
    if services.senders.fleet:
        problems += _laptop_causes(await services.senders.fleet.machine_rows_in_use())
    return [*problems, *await _channel_causes(request)]


async def _route_causes(services: OperatorServices) -> list[AttentionCause]:
    problems = []
    routes = await services.spool.deliveries.route_states()
    for alike in group_by_cause([*routes, *services.spool.syncs()]):
        if trouble := route_trouble_title_and_text(alike):
            title, text = trouble
            # name the first route, as the detector of stuck routes does, so that the link finds its insight; the
            # detector does not see syncs
            name = next((each.name for each in alike if each in routes), alike[0].name)
            key = finding_key("stuck_route", (name,))
            problems.append(AttentionCause(kind="route", title=title, text=text, subject=name, finding=key))
    for route in sorted(routes, key=lambda route: route.name):
        if route.dead:
            title = f"{_count_phrase(route.dead, 'rejected record')} of {route.name}"
            key = finding_key("dead_letters", (route.name,))
            problems.append(AttentionCause(kind="dead", title=title, subject=route.name, finding=key))
        if route.unknown:
            title = f"{_count_phrase(route.unknown, 'record')} sent to {route.name} without an answer"
            key = finding_key("unknown_arrival", (route.name,))
            problems.append(AttentionCause(kind="unknown", title=title, subject=route.name, finding=key))
    return problems


async def _key_causes(services: OperatorServices) -> list[AttentionCause]:
    access = services.senders.access
    troubles = key_troubles(access.keys(), await access.expired_tries(), now=services.senders.clock.now())
    return [
        AttentionCause(
            kind="key",
            title=trouble.title,
            text=trouble.text,
            subject=trouble.key.name,
            severity=trouble.severity,
            finding=trouble.key_of_finding,
        )
        for trouble in troubles
        if trouble.severity != INFO
    ]


async def _certificate_causes(services: OperatorServices) -> list[AttentionCause]:
    ends = await services.installation.read_certificate_ends()
    return [
        AttentionCause(
            kind="certificate",
            title=trouble.title,
            text=trouble.text,
            subject=trouble.setting,
            severity=trouble.severity,
            finding=finding_key("ending_certificate", (trouble.setting,)),
        )
        for trouble in certificate_troubles(ends, now=services.installation.clock.now())
    ]


async def _channel_causes(request: OperatorRequest[OperatorServices, None]) -> list[AttentionCause]:
    """
    Return the channels that cannot send, and the scheduled reports that do not reach everybody. Without any
    channel, return one warning with the number of budgets and reports that wait for it.
    """
    services = request.services.installation
    if services.registry is None:
        return []
    channels = await services.channels()
    reports = services.registry.declared_table(ScheduledReportTable).all()
    if not services.registry.notices.channels:
        title = "Nobody is notified: there is no channel"
        views = {view.id: view for view in services.registry.views.all()}
        budgets = count_budgets_without_channel(
            services.registry.declared_table(BudgetTable).all(), views, channels
        )
        waiting = [
            _count_phrase(number, one)
            for number, one in ((budgets, "budget"), (len(reports), "scheduled report"))
            if number
        ]
        verb = "reaches" if budgets + len(reports) == 1 else "reach"
        text = f"{title}. {join_with_and(waiting)} {verb} nobody." if waiting else ""
        return [AttentionCause(kind="no_channel", title=title, text=text, severity=WARNING)]
    shown = [
        replace(channel, reason=delivery_error_as_visible(request, channel.reason)) for channel in channels
    ]
    return [*_down_channel_causes(shown, request.now()), *_report_causes(reports, channels)]


def _down_channel_causes(channels: Iterable[ChannelState], now: float) -> Iterator[AttentionCause]:
    for channel in channels:
        if trouble := channel_trouble_title_and_text(channel, now):
            title, text = trouble
            key = finding_key("channel_down", (channel.name,))
            yield AttentionCause(kind="channel", title=title, text=text, subject=channel.name, finding=key)


def _report_causes(
    reports: Iterable[ScheduledReport], channels: Sequence[ChannelState]
) -> Iterator[AttentionCause]:
    for report in sorted(reports, key=lambda report: report.name):
        if report_state(report, channels) == NO_CHANNEL and not existing_channels(report, channels):
            title = f"The scheduled report {report.name} reaches nobody"
            text = f"{title}: its channels no longer exist"
            yield AttentionCause(kind="report", title=title, text=text, subject=report.name)
        elif report.problem:
            title = f"The scheduled report {report.name} did not reach everybody"
            text = f"{title}: {report.problem}"
            yield AttentionCause(kind="report", title=title, text=text, subject=report.name, severity=WARNING)


def _failed_item_causes(failed_items: Iterable[FailedItem]) -> Iterator[AttentionCause]:
    for failed in sorted(failed_items, key=lambda failed: (failed.task, failed.item)):
        title = f"{failed.task.capitalize()}: {failed.item} failed"
        text = f"{title}: {failed.reason}. The next attempt is at {utc_iso(failed.next_at)}."
        yield AttentionCause(kind="task", title=title, text=text, subject=title, severity=WARNING)


def _laptop_causes(rows: Sequence[FleetRow]) -> Iterator[AttentionCause]:
    for word, what in ((LOSING, "lost calls on {}"), (AGENT_STOPPED, "the agent stopped on {}")):
        alike = [row for row in rows if row.state == word]
        if alike:
            ids = sorted(row.id for row in alike)
            title = what.format(_count_phrase(len(ids), "laptop")).capitalize()
            text = f"{title}: {_join_names(ids)}"
            severity = max(WARNING, severity_of_machines(alike, rows), key=SEVERITIES.index)
            yield AttentionCause(kind="devices", title=title, text=text, subject=word, severity=severity)


def _join_names(names: Sequence[str]) -> str:
    return join_with_and(
        [*names[:MAX_NAMES], *([f"{len(names) - MAX_NAMES} more"] if names[MAX_NAMES:] else [])]
    )


def _count_phrase(count: int, singular: str) -> str:
    return f"1 {singular}" if count == 1 else f"{count:,} {singular}s"
