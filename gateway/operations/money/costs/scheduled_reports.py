"""Operator API of scheduled reports: preview a report, and send it now."""

from __future__ import annotations

import secrets

from gateway.http.requests import Result
from gateway.operations.money.reports.declared import SCHEDULED_REPORT, ScheduledReport, ScheduledReportTable
from gateway.operations.money.reports.readers import NotReadable
from gateway.operations.money.reports.sender import ReportSender
from gateway.operations.people.managed import asking_person
from gateway.operations.requests.address import SLICED, call
from gateway.operations.requests.requests import OperatorRequest, RequestBody, is_default
from gateway.operations.services import OperatorServices
from spool.errors import NotAllowed
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS


class SendReport(RequestBody):
    """An empty JSON object."""


def make_report_sender(services: OperatorServices) -> ReportSender:
    people = services.people
    installation = services.installation
    return ReportSender(
        services=services.money,
        clock=installation.clock,
        console=lambda: installation.urls().shared,
        is_default=lambda issuer, groups: is_default(people, issuer, groups),
    )


@call(
    "GET",
    "/scheduled-reports/{id}/preview",
    VIEW_COSTS,
    "Preview a scheduled report of the last whole period",
    shows=SLICED,
    in_turn=True,
)
async def preview_scheduled_report(request: OperatorRequest[OperatorServices, None]) -> Result:
    """
    Return the report of the last whole period, with the data that the requester may see. Nothing is sent.
    """
    report = await _find_report(request)
    await request.ledger.catch_up(request.services.money.log)
    due = report.latest(request.now())
    try:
        notice = await make_report_sender(request.services).notice(report, request.rights, due, id=report.id)
    except NotReadable as error:
        raise NotAllowed(str(error)) from error
    return {"preview": {"title": notice.title, "text": notice.text, "link": notice.link or None}}


@call(
    "POST",
    "/scheduled-reports/{id}/send",
    MODIFY_VIEWS_AND_BUDGETS,
    "Send a scheduled report now",
    shows=SLICED,
    status=201,
)
async def send_scheduled_report(request: OperatorRequest[OperatorServices, SendReport]) -> Result:
    """Send the report of the last whole period to all its recipients. The schedule does not change."""
    report, writer = await _find_report(request), make_report_sender(request.services)
    await request.ledger.catch_up(request.services.money.log)
    due = report.latest(request.now())
    addressed, problem = await writer.written(report, due, id=f"{report.id}-now-{secrets.token_hex(8)}")
    if not addressed:
        raise NotAllowed(problem or "the report has no recipients")
    await request.registry.table(ScheduledReportTable).send(report, addressed, actor=request.actor)
    ids = [f"{channel}:{notice.id}" for notice, channel in addressed]
    return {"notifications": ids, "problem": problem or None}


async def _find_report(
    request: OperatorRequest[OperatorServices, None] | OperatorRequest[OperatorServices, SendReport],
) -> ScheduledReport:
    return await SCHEDULED_REPORT.find(asking_person(request, request.services.money), request.word("id"))
