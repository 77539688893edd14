"""Operator API of insights: list them, change their status, comment, and run the detectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import msgspec

from gateway.bills.contracts.declared import all_contracts
from gateway.bills.enforcers.auditing import faults_with_enforcer_names
from gateway.bills.enforcers.faults import EnforcerFault
from gateway.bills.plans.declared import PlanTable
from gateway.bills.statements.arrivals import ReportArrival, report_arrivals
from gateway.core.fields import one_field_answer
from gateway.http.lists import MemoryRows, SearchableObject
from gateway.http.requests import Result
from gateway.money.insights.gathering import FactSources
from gateway.money.insights.inspector import InsightUpdater
from gateway.money.lost_calls import FleetLosses
from gateway.operations.answers import CommentOnInsight, DeletedItem, OperatorInsight, SearchResult
from gateway.operations.holders.operators import InstallationServices
from gateway.operations.money.attention import visible_insights
from gateway.operations.money.published_insights import (
    COMMENTS,
    INSIGHTS_OF_PEOPLE,
    comment_rows,
    count_insights,
    describe_comment,
    describe_insight_for_people,
    parse_comment_number,
)
from gateway.operations.money.unapplied_changes import find_unapplied_changes
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from gateway.operations.services import OperatorServices
from spool.errors import NotThere
from spool.registry.field_notes import words
from spool.registry.insights import Insight, check_effort, check_status
from spool.registry.permission_sets import VIEW_COSTS, WORK_ON_INSIGHTS


class InsightStatus(RequestBody):
    """Changes to an insight. Omitted fields stay as they are."""

    status: Annotated[str | None, words("The status of the insight.")] = None
    effort: Annotated[str | None, words("The effort to act on the insight.")] = None


class InsightComment(RequestBody):
    message: Annotated[str, words("The text of the comment.")]


class Inspection(RequestBody):
    """The request body, an empty JSON object."""


def _facts_of_optional_services(services: OperatorServices) -> dict[str, Any]:
    """Return the functions that find facts about parts which an installation may lack."""

    async def find_lost_calls() -> FleetLosses:
        losses = await services.senders.require_losses().losses_of_last_days()
        return losses.without_costs() if services.installation.require_registry().people.min_group else losses

    optional: dict[str, Any] = (
        {"reconciled": services.money.reconciler().reconcile_recent_months}
        if services.money.reconciler
        else {}
    )
    if services.senders.fleet is not None:
        optional["fleet"] = services.senders.fleet.machine_rows_in_use
        optional["losses"] = find_lost_calls
    if services.spool.sender_hours is not None:
        optional["sender_hours"] = services.spool.sender_hours.current_hours
    if services.spool.sender_fields is not None:
        optional["sender_fields"] = services.spool.sender_fields.store_and_read_recent
    if (auditor := services.money.enforcer_auditor) is not None:

        async def find_enforcer_faults() -> Sequence[EnforcerFault]:
            return faults_with_enforcer_names(await auditor().audit_limits())

        optional["enforcer_faults"] = find_enforcer_faults
    return optional


def make_insight_updater(services: OperatorServices) -> InsightUpdater:
    """
    Create the inspector over all services. Raises Refusal 503 while the registry is damaged, because the
    registry stores the findings.
    """
    registry = services.installation.require_registry()
    devices = services.senders.devices

    async def find_bill_arrivals() -> Sequence[ReportArrival]:
        pulls = (
            await services.money.statement_puller().pull_states() if services.money.statement_puller else ()
        )
        return report_arrivals(
            await registry.statements.statements(), pulls, settle_s=services.money.reconciliation().settle
        )

    sources = FactSources(
        ledger=services.money.ledger,
        log=services.spool.log,
        deliveries=services.spool.deliveries,
        keys=services.senders.access.keys,
        certificates=services.installation.read_certificate_ends,
        expired_tries=services.senders.access.expired_tries,
        devices=devices.table.all if devices else tuple,
        tokens=registry.enrolment_tokens.all,
        prices=services.money.prices,
        views=registry.views.all,
        shares=services.senders.shares,
        silent_clusters=services.senders.clusters.offline_clusters if services.senders.clusters else tuple,
        unapplied_configs=services.senders.clusters.unapplied_configs if services.senders.clusters else tuple,
        is_unmapped=services.spool.is_unmapped,
        late_reports=services.spool.late_reports,
        arrivals=find_bill_arrivals,
        contracts=partial(all_contracts, registry),
        plans=registry.declared_table(PlanTable).all,
        unapplied_changes=partial(find_unapplied_changes, registry, services.money.ledger),
        lakes=services.spool.lakes,
        channels=services.installation.channels,
        destination_types=services.spool.destination_types,
        leases=services.installation.leases,
        database=services.installation.database,
        **_facts_of_optional_services(services),
    )
    return InsightUpdater(sources, registry.insights, services.installation.clock)


class InsightAnswer(msgspec.Struct, kw_only=True):
    insight: Annotated[OperatorInsight, words("The insight, with the fields below.")]
    comments: Annotated[list[CommentOnInsight], words("The comments, each with the fields below.")]


async def _names_of_insights(
    request: OperatorRequest[InstallationServices, None],
) -> Iterator[SearchableObject]:
    return (SearchableObject(insight.id, (insight.title,)) for insight in await visible_insights(request))


@operator_call(
    "GET",
    "/insights",
    VIEW_COSTS,
    "List insights",
    names=_names_of_insights,
    lists=INSIGHTS_OF_PEOPLE,
    shows=SLICED,
    item=OperatorInsight,
)
async def list_insights(request: OperatorRequest[InstallationServices, None]) -> Result:
    """
    List the insights. By default, the open ones are first, by severity and then by cost impact.

    `counts` has the number of all insights by state, and the number of open insights by subject.
    """
    insights = await visible_insights(request)
    page = await request.list_page(INSIGHTS_OF_PEOPLE, MemoryRows(insights))
    return {**page, "counts": count_insights(insights)}


@operator_call(
    "POST",
    "/insights/run",
    WORK_ON_INSIGHTS,
    "Run all detectors now",
    answers=one_field_answer(
        "OneInspection", inspection=Annotated[SearchResult, words("The result of the detectors.")]
    ),
)
async def run_all_detectors(request: OperatorRequest[OperatorServices, Inspection]) -> Result:
    """
    Run all detectors before answering. Otherwise a command without a server would exit before they finish.
    """
    async with request.audited_change("insights.run", "insights", {}):
        done = await make_insight_updater(request.services).find_and_store_insights()
    return {"inspection": {**asdict(done.merged), "failed": list(done.failed)}}


@operator_call(
    "GET",
    "/insights/{id}",
    VIEW_COSTS,
    "Show an insight and its comments",
    shows=SLICED,
    answers=InsightAnswer,
)
async def show_insight(request: OperatorRequest[InstallationServices, None]) -> Result:
    insight = await _visible_insight(request)
    comments = await request.registry.insights.comments(insight.id)
    return {
        "insight": describe_insight_for_people(insight),
        "comments": [describe_comment(comment) for comment in comments],
    }


@operator_call(
    "PATCH",
    "/insights/{id}",
    WORK_ON_INSIGHTS,
    "Set an insight's status",
    shows=SLICED,
    answers=one_field_answer(
        "OneOperatorInsight", insight=Annotated[OperatorInsight, words("The changed insight.")]
    ),
)
async def set_insight(request: OperatorRequest[InstallationServices, InsightStatus]) -> Result:
    body = request.body
    # check the request first, so that an invalid request gives the same error for every insight
    if body.status is not None:
        check_status(body.status)
    changes: dict[str, Any] = {} if body.effort is None else {"effort": check_effort(body.effort)}
    id, table = (await _visible_insight(request)).id, request.registry.insights
    insight = await table.change(id, status=body.status, fields=changes, actor=request.actor)
    return {"insight": describe_insight_for_people(insight)}


@operator_call(
    "GET",
    "/insights/{id}/comments",
    VIEW_COSTS,
    "List the comments on an insight",
    lists=COMMENTS,
    shows=SLICED,
    item=CommentOnInsight,
)
async def list_comments(request: OperatorRequest[InstallationServices, None]) -> Result:
    id = (await _visible_insight(request)).id
    page = await request.list_page(COMMENTS, await comment_rows(request.registry, id))
    return {"insight": {"id": id}, **page}


@operator_call(
    "POST",
    "/insights/{id}/comments",
    WORK_ON_INSIGHTS,
    "Comment on an insight",
    shows=SLICED,
    answers=one_field_answer(
        "InsightCommentAnswer", comment=Annotated[CommentOnInsight, words("The added comment.")]
    ),
)
async def comment_insight(request: OperatorRequest[InstallationServices, InsightComment]) -> Result:
    insight, table = await _visible_insight(request), request.registry.insights
    comment = await table.add_comment(insight.id, request.body.message, actor=request.actor)
    return {"comment": describe_comment(comment)}


@operator_call(
    "DELETE",
    "/insights/{id}/comments/{comment}",
    WORK_ON_INSIGHTS,
    "Delete a comment on an insight",
    shows=SLICED,
    answers=DeletedItem,
)
async def delete_insight_comment(request: OperatorRequest[InstallationServices, None]) -> Result:
    number = parse_comment_number(request.path_parameter("comment"))
    insight = await _visible_insight(request)
    await request.registry.insights.delete_comment(insight.id, number, actor=request.actor)
    return {"deleted": str(number)}


async def _visible_insight(request: OperatorRequest[InstallationServices, Any]) -> Insight:
    insight = await request.registry.insights.get(request.path_parameter("id"))
    if not (await request.cost_reader.read_visibility()).can_see_insight(insight):
        raise NotThere("there is no insight with this id")
    return insight
