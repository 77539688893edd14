"""Operator API of allocation: compare a month, and manage versions, namespaces and jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec

from gateway.http.requests import Result
from gateway.money.allocation.declared import DEFAULT, AllocationTable
from gateway.money.allocation.difference import (
    AllocationElementSpend,
    Difference,
    compare_definitions,
    sources_read_by,
)
from gateway.money.allocation.language import join_definitions, parse_definition
from gateway.money.allocation.published import describe_first_value_times, find_first_value_times
from gateway.operations.answers import CostAndCalls
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.published_allocation import (
    ALL_VERSIONS,
    NAMESPACE,
    PUBLISH_JOBS,
    OnePublishJob,
    OneVersion,
    PublishJobItem,
    VersionItem,
    describe_job,
    describe_version,
    describe_with_text,
    find_version,
    job_rows,
    preview_version,
    shown_definition_version,
    version_rows,
)
from gateway.operations.people.managed import build_people_rows
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool import money
from spool.errors import AskedTooMuch, Invalid
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery, next_full_hour
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import MODIFY_DIMENSIONS, VIEW_COSTS
from spool.turns.question_limit import limit_of_running_query

DECISIONS_OF_A_ROW = 10  # maximum decisions per row, so that the evaluation takes at most a few seconds
LEAST_ELEMENTS = 20  # minimum elements that are shown per dimension


class DraftToValidate(RequestBody):
    """A request to check a definition."""

    definition: Annotated[str, words("The text of the definition, as YAML.")]
    namespace: Annotated[str, words("The id of the namespace; empty for the default namespace.")] = DEFAULT


class DefinitionDraft(DraftToValidate):
    """A request to compare a draft with the definition in force of its namespace."""

    month: Annotated[str, words("The month to compare, such as `2026-10`, in UTC; default: this month.")] = ""


class DefinitionDiff(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    from_: Annotated[str, words("The start of the period."), example("2026-11-01T00:00:00+00:00")]
    to: Annotated[str, words("The end of the period."), example("2026-11-27T02:00:00+00:00")]
    namespace: Annotated[
        str, words("The id of the namespace; empty for the default definition."), example("")
    ]
    version: Annotated[str | None, words("The version in force, or null."), example("3")]
    whole_since: Annotated[
        str | None,
        words("Hours before this time may be incomplete. Null if all hours are complete."),
        example(None),
    ]
    border: Annotated[
        dict[str, Any],
        words("The time from which totals and tags of the definition have values."),
        example({"kept_since": "2026-10-28T01:00:00+00:00", "tags": {}}),
    ]
    truncated: Annotated[bool, words("Whether rows are missing because there are too many."), example(False)]


class ElementDiff(msgspec.Struct, kw_only=True):
    element: Annotated[
        str | None, words("The value of the dimension, or null for calls without one."), example("operations")
    ]
    before: Annotated[
        dict[str, Any] | None,
        words("The figures under the definition in force, or null for a new dimension."),
        example({"cost": "409.077643", "calls": 23573}),
    ]
    after: Annotated[
        dict[str, Any] | None,
        words("The figures under the draft, or null for a removed dimension."),
        example({"cost": "409.077643", "calls": 23573}),
    ]


class DimensionDiff(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the dimension."), example("User:Defined:Owner")]
    name: Annotated[str, words("The name of the dimension."), example("Who pays")]
    state: Annotated[
        str,
        words("Whether the figures are `new`, `changed`, `unchanged` or `gone` with the draft."),
        example("changed"),
    ]
    element_count: Annotated[int, words("The number of values."), example(16)]
    elements: Annotated[list[ElementDiff], words("The values of the dimension with their figures.")]


class DiffDefinitionAnswer(msgspec.Struct, kw_only=True):
    diff: Annotated[DefinitionDiff, words("The compared period and versions.")]
    dimensions: Annotated[list[DimensionDiff], words("The dimensions, each with the fields below.")]
    total: Annotated[CostAndCalls, words("The cost and calls of the period.")]


class PublishDefinitionAnswer(msgspec.Struct, kw_only=True):
    version: Annotated[VersionItem, words("The version, with the fields below.")]
    publish_job: Annotated[PublishJobItem, words("The job that puts the new version in force.")]


@operator_call(
    "POST",
    "/allocation/diff",
    VIEW_COSTS,
    "Compare a month with a definition",
    in_turn=True,
    answers=DiffDefinitionAnswer,
)
async def diff_definition(request: OperatorRequest[MoneyServices, DefinitionDraft]) -> Result:
    """
    Compare a draft with the definition in force, over all records that are closed by now. Nothing is stored.

    The elements of a dimension add up to `total`, both before and after. If there are too many elements, the
    cheapest ones are joined as OTHER.
    """
    services = request.services
    draft = request.body
    ledger = services.ledger
    limits = services.allocation_limits()
    since, until = _parse_month(draft.month, request.now())
    drafted = parse_definition(draft.definition.encode(), ledger.builtin_and_tag_dimensions(), limits)
    in_force = services.published.definition
    other_namespaces = in_force.parts_in_other_namespaces(draft.namespace)
    join_definitions({**other_namespaces, draft.namespace: drafted}, limits)
    before = in_force.part_in_namespace(draft.namespace)
    sources = sources_read_by(before, drafted)
    await ledger.require_complete_totals(services.log)
    query = CostQuery(
        since=since,
        until=until,
        granularity=TOTAL,
        group_by=sources,
        measures=("cost", "calls"),
        stated_names=True,
    )
    rows = await ledger.costs(query)
    section = request.shared.answers()
    decided = len(rows) * (len(before.dimensions) + len(drafted.dimensions))
    if decided > DECISIONS_OF_A_ROW * section.max_summed_rows:
        raise AskedTooMuch(
            f"this month has {len(rows)} combinations of values, which for {len(drafted.dimensions)} "
            f"dimensions is more than {DECISIONS_OF_A_ROW} times answers.max_summed_rows; compare "
            "fewer dimensions at once, or an earlier month"
        )
    element_limit = max(LEAST_ELEMENTS, section.max_rows // max(1, len(drafted.dimensions)))
    limit = limit_of_running_query()
    result = await asyncio.to_thread(
        compare_definitions,
        before,
        drafted,
        sources,
        rows,
        people=request.shared.people,
        max_elements=element_limit,
        check=limit.check_time if limit else lambda: None,
    )
    whole = await ledger.start_of_complete_hours()
    return {
        "diff": {
            "from": since.isoformat(),
            "to": until.isoformat(),
            "namespace": draft.namespace,
            "version": services.published.version or None,
            "whole_since": utc_iso(whole) if since.timestamp() < whole else None,
            "border": describe_first_value_times(
                await find_first_value_times(ledger, sources_read_by(drafted))
            ),
            "truncated": any(
                dimension.element_count > len(dimension.elements) for dimension in result.dimensions
            ),
        },
        "dimensions": _describe_dimensions(result),
        "total": _describe_spend(result.total),
    }


def _describe_dimensions(result: Difference) -> list[Mapping[str, object]]:
    return [
        {
            "id": dimension.dimension.id,
            "name": dimension.dimension.name,
            "state": dimension.state,
            "element_count": dimension.element_count,
            "elements": [
                {
                    "element": element.element or None,
                    "before": element.before and _describe_spend(element.before),
                    "after": element.after and _describe_spend(element.after),
                }
                for element in dimension.elements
            ],
        }
        for dimension in result.dimensions
    ]


def _describe_spend(spend: AllocationElementSpend) -> Mapping[str, object]:
    return {"cost": money.units_to_text(spend.cost), "calls": spend.calls}


def _parse_month(text: str, now: float) -> tuple[datetime, datetime]:
    running = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    try:
        since = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC) if text else running
    except ValueError:
        raise Invalid("month must be YYYY-MM, such as 2026-11") from None
    if not 2000 <= since.year < 2200 or (text and len(text) != len("2026-11")):
        raise Invalid("month must be YYYY-MM, such as 2026-11, between the years 2000 and 2200")
    if since > running:
        raise Invalid(f"month is in the future; the running month is {running:%Y-%m}")
    end = (since + timedelta(days=32)).replace(day=1)
    return since, min(end, next_full_hour(now))


class DraftToPublish(DraftToValidate):
    """A request to publish a definition."""

    base: Annotated[
        int | None,
        words(
            "The number of the version that the draft changes: null for the version in force, 0 if there was none."
        ),
    ] = None


@operator_call(
    "POST", "/allocation/validate", VIEW_COSTS, "Validate a definition", in_turn=True, answers=OneVersion
)
async def validate_definition(request: OperatorRequest[MoneyServices, DraftToValidate]) -> Result:
    body = request.body
    text = body.definition.encode("utf-8", "replace")
    return {"version": await preview_version(request.services, text, body.namespace, request.actor)}


@operator_call(
    "POST",
    "/allocation/publish",
    MODIFY_DIMENSIONS,
    "Publish a definition",
    status=201,
    answers=PublishDefinitionAnswer,
)
async def publish_definition(request: OperatorRequest[MoneyServices, DraftToPublish]) -> Result:
    services = request.services
    body = request.body
    job, version = await services.require_definition_publisher().publish(
        body.definition.encode("utf-8", "replace"),
        namespace=body.namespace,
        base=body.base,
        actor=request.actor,
    )
    return {
        "version": describe_version(shown_definition_version(services, version)),
        "publish_job": describe_job(job),
    }


@operator_call(
    "GET",
    "/allocation/versions",
    VIEW_COSTS,
    "List versions of definitions",
    lists=ALL_VERSIONS,
    item=VersionItem,
)
async def list_versions(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list_page(ALL_VERSIONS, version_rows(request.services, None))


@operator_call(
    "GET",
    "/allocation/versions/{version}",
    VIEW_COSTS,
    "Show a version of a definition, or the latest",
    optional=("namespace",),
    answers=OneVersion,
)
async def show_version(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Show a version with its text. `namespace` is that of the definition, by default the default namespace.
    """
    namespace = request.http.query.get("namespace", DEFAULT)
    version = find_version(request.services, namespace, request.path_parameter("version"))
    return {"version": await describe_with_text(request.services, version)}


ROWS = tuple(build_people_rows(NAMESPACE))


@operator_call(
    "GET", "/allocation/jobs", VIEW_COSTS, "List publish jobs", lists=PUBLISH_JOBS, item=PublishJobItem
)
async def list_jobs(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list_page(PUBLISH_JOBS, job_rows(request.services))


@operator_call("GET", "/allocation/jobs/{id}", VIEW_COSTS, "Show a publish job", answers=OnePublishJob)
async def show_job(request: OperatorRequest[MoneyServices, None]) -> Result:
    return {
        "publish_job": describe_job(
            request.registry.declared_table(AllocationTable).find_job(request.path_parameter("id"))
        )
    }


@operator_call(
    "POST",
    "/allocation/jobs/{id}/cancel",
    MODIFY_DIMENSIONS,
    "Cancel a publish job that has not started publishing",
    answers=OnePublishJob,
)
async def cancel_job(request: OperatorRequest[MoneyServices, None]) -> Result:
    job = await request.registry.declared_table(AllocationTable).cancel_job(
        request.path_parameter("id"), actor=request.actor
    )
    return {"publish_job": describe_job(job)}
