"""Operator API of scheduled reports: preview a report, and send it now."""

from __future__ import annotations

import secrets
from typing import Annotated

import msgspec

from gateway.core.fields import one_field_answer
from gateway.http.requests import Result
from gateway.operations.money.reports.declared import SCHEDULED_REPORT, ScheduledReport, ScheduledReportTable
from gateway.operations.money.reports.readers import NotReadable
from gateway.operations.money.reports.sender import ReportSender
from gateway.operations.people.managed import operation_caller_for_person
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody, is_given_default_role
from gateway.operations.services import OperatorServices
from spool.errors import NotAllowed
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS


class SendReport(RequestBody):
    """The request body, an empty JSON object."""


def make_report_sender(services: OperatorServices) -> ReportSender:
    people = services.people
    installation = services.installation
    return ReportSender(
        services=services.money,
        clock=installation.clock,
        console=lambda: installation.urls().console_url_for_links,
        is_default=lambda issuer, groups: is_given_default_role(people, issuer, groups),
        failed_items=services.spool.failed_items,
    )


class ReportPreview(msgspec.Struct, kw_only=True):
    title: Annotated[
        str,
        words("The title of the report."),
        example("AI costs of Search, 16 to 22 November 2026: $6.19 (-2 %)"),
    ]
    text: Annotated[
        str,
        words("The text of the report."),
        example(
            "16 to 22 Nov against 9 to 15 Nov: $0.0987 less: gpt-4.1 -$0.0994, "
            "because its calls used 2 % fewer tokens each.  17 calls have no price "
            "and are missing from the total.  Mon 16 Nov  ████████████████████ "
            "$1.00 Tue 17 Nov  ..."
        ),
    ]
    link: Annotated[
        str | None,
        words("The address of the report in the console, or null."),
        example(
            "http://127.0.0.1:4318/console/#/costs?view=93cb8e3f3fbec5f69aab677ca66"
            "e7b3e&from=2026-11-16&to=2026-11-22"
        ),
    ]


class SendScheduledReportAnswer(msgspec.Struct, kw_only=True):
    notifications: Annotated[
        list[str],
        words("The ids of the notifications."),
        example(["finops:report-11ca70dffc17dc3c9a0f88d738f54bbd-now-00c9d927c775d3bb"]),
    ]
    problem: Annotated[
        str | None, words("Why some recipients do not get the report, or null."), example(None)
    ]


@operator_call(
    "GET",
    "/scheduled-reports/{id}/preview",
    VIEW_COSTS,
    "Preview a scheduled report of the last whole period",
    shows=SLICED,
    in_turn=True,
    answers=one_field_answer(
        "ReportPreviewAnswer", preview=Annotated[ReportPreview, words("What the report would send now.")]
    ),
)
async def preview_scheduled_report(request: OperatorRequest[OperatorServices, None]) -> Result:
    """
    Return the report of the last whole period, with the data that the requester may see. Nothing is sent.
    """
    report = await _find_report(request)
    await request.ledger.require_complete_totals(request.services.money.log)
    due = report.latest_scheduled_at(request.now())
    try:
        notice = await make_report_sender(request.services).build_notice(
            report, request.rights, due, id=report.id
        )
    except NotReadable as error:
        raise NotAllowed(str(error)) from error
    return {"preview": {"title": notice.title, "text": notice.text, "link": notice.link or None}}


@operator_call(
    "POST",
    "/scheduled-reports/{id}/send",
    MODIFY_VIEWS_AND_BUDGETS,
    "Send a scheduled report now",
    shows=SLICED,
    status=201,
    answers=SendScheduledReportAnswer,
)
async def send_scheduled_report(request: OperatorRequest[OperatorServices, SendReport]) -> Result:
    """Send the report of the last whole period to all its recipients. The schedule does not change."""
    report, writer = await _find_report(request), make_report_sender(request.services)
    await request.ledger.require_complete_totals(request.services.money.log)
    due = report.latest_scheduled_at(request.now())
    addressed, problem = await writer.build_notices(report, due, id=f"{report.id}-now-{secrets.token_hex(8)}")
    if not addressed:
        raise NotAllowed(problem or "the report has no recipients")
    await request.registry.declared_table(ScheduledReportTable).store_notices(
        report, addressed, actor=request.actor
    )
    ids = [f"{channel}:{notice.id}" for notice, channel in addressed]
    return {"notifications": ids, "problem": problem or None}


async def _find_report(
    request: OperatorRequest[OperatorServices, None] | OperatorRequest[OperatorServices, SendReport],
) -> ScheduledReport:
    return await SCHEDULED_REPORT.find(
        operation_caller_for_person(request, request.services.money), request.path_parameter("id")
    )
