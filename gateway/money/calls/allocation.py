"""The calls of the operator API for definitions: what a month would become, versions, namespaces and jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from gateway.http.holders.operators import MoneyServices
from gateway.http.operator.address import call
from gateway.http.operator.requests import OperatorRequest, RequestBody
from gateway.http.requests import Result
from gateway.money.allocation.declared import DEFAULT, AllocationTable
from gateway.money.allocation.difference import Difference, ElementSpend, difference, sources_of
from gateway.money.allocation.language import joined, parse
from gateway.money.allocation.published import border, describe
from gateway.money.calls.published_allocation import (
    ALL_VERSIONS,
    NAMESPACE,
    PUBLISH_JOBS,
    add_state,
    describe_job,
    describe_version,
    find_version,
    job_rows,
    version_rows,
    what_it_would_be,
    with_text,
)
from gateway.people.calls.managed import managed_by_people
from spool.errors import AskedTooMuch, Invalid
from spool.ledger import money
from spool.ledger.queries import TOTAL, CostQuery, end_of_hour, limit_of_question
from spool.record import moment
from spool.registry.permission_sets import MODIFY_DIMENSIONS, VIEW_COSTS

DECISIONS_OF_A_ROW = 10  # for each row that may be added up: some seconds of work
LEAST_ELEMENTS = 20  # of a dimension, however many there are


class DefinitionDraft(RequestBody):
    """
    `definition` is the YAML text. `namespace` is whose dimensions it replaces, "" the default one; `month` is
    YYYY-MM in UTC, by default the running one.
    """

    definition: str
    namespace: str = ""
    month: str = ""


@call("POST", "/allocation/diff", VIEW_COSTS, "What a month would become under a definition", in_turn=True)
async def diff_definition(request: OperatorRequest[MoneyServices, DefinitionDraft]) -> Result:
    """
    Compare a draft with the definition in force over all records closed by now: the ledger catches up first.
    Nothing is stored or published.

    Elements of a dimension add up to `total`, before and after: of too many the last is OTHER, of those that
    cost least. `border` says since when there is something to look at.
    """
    services = request.services
    draft = request.body
    ledger = services.ledger
    limits = services.allocation_limits()
    since, until = _month(draft.month, request.now())
    drafted = parse(draft.definition.encode(), ledger.own_dimensions(), limits)
    in_force = services.published.definition
    others = in_force.of_other_namespaces(draft.namespace)
    joined({**others, draft.namespace: drafted}, limits)
    before = in_force.of_namespace(draft.namespace)
    sources = sources_of(before, drafted)
    await ledger.catch_up(services.log)
    rows = await ledger.costs(
        CostQuery(since=since, until=until, granularity=TOTAL, group_by=sources, measures=("cost", "calls"))
    )
    section = request.shared.answers()
    decided = len(rows) * (len(before.dimensions) + len(drafted.dimensions))
    if decided > DECISIONS_OF_A_ROW * section.max_summed_rows:
        raise AskedTooMuch(
            f"{len(rows)} combinations of values in this month for {len(drafted.dimensions)} dimensions are "
            "more than "
            f"{DECISIONS_OF_A_ROW} times answers.max_summed_rows: try fewer dimensions at once, or an "
            "earlier month"
        )
    most = max(LEAST_ELEMENTS, section.max_rows // max(1, len(drafted.dimensions)))
    limit = limit_of_question()
    result = await asyncio.to_thread(
        difference,
        before,
        drafted,
        sources,
        rows,
        people=request.shared.people,
        most=most,
        check=limit.check_time if limit else lambda: None,
    )
    whole = await ledger.whole_since()
    return {
        "diff": {
            "from": since.isoformat(),
            "to": until.isoformat(),
            "namespace": draft.namespace,
            "version": services.published.version or None,
            "whole_since": moment(whole) if since.timestamp() < whole else None,
            "border": describe(await border(ledger, sources_of(drafted))),
            "truncated": any(each.element_count > len(each.elements) for each in result.dimensions),
        },
        "dimensions": _dimensions(result),
        "total": _spend(result.total),
    }


def _dimensions(found: Difference) -> list[Mapping[str, object]]:
    return [
        {
            "id": each.dimension.id,
            "name": each.dimension.name,
            "state": each.state,
            "element_count": each.element_count,
            "elements": [
                {
                    "element": element.element or None,
                    "before": element.before and _spend(element.before),
                    "after": element.after and _spend(element.after),
                }
                for element in each.elements
            ],
        }
        for each in found.dimensions
    ]


def _spend(spend: ElementSpend) -> Mapping[str, object]:
    return {"cost": money.text(spend.cost), "calls": spend.calls}


def _month(text: str, now: float) -> tuple[datetime, datetime]:
    """Its begin, and its end or that of the running hour, whichever is earlier."""
    running = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    try:
        since = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC) if text else running
    except ValueError:
        raise Invalid("month must be written YYYY-MM, such as 2026-11") from None
    if not 2000 <= since.year < 2200 or (text and len(text) != len("2026-11")):
        raise Invalid(
            "month must be written YYYY-MM, such as 2026-11, and lie between the years 2000 and 2200"
        )
    if since > running:
        raise Invalid(f"month is not begun; the running one is {running:%Y-%m}")
    end = (since + timedelta(days=32)).replace(day=1)
    return since, min(end, end_of_hour(now))


class DraftToValidate(RequestBody):
    """`definition` is the YAML text; `namespace` "" is the default one."""

    definition: str
    namespace: str = DEFAULT


class DraftToPublish(DraftToValidate):
    """`base` is the version that it was made from: null for whichever is in force, 0 where nothing was published."""

    base: int | None = None


@call("POST", "/allocation/validate", VIEW_COSTS, "What version a definition would become", in_turn=True)
async def validate_definition(request: OperatorRequest[MoneyServices, DraftToValidate]) -> Result:
    """Return the version that a definition would become; nothing is stored."""
    given = request.body
    text = given.definition.encode("utf-8", "replace")
    return {"version": await what_it_would_be(request.services, text, given.namespace, request.actor)}


@call("POST", "/allocation/publish", MODIFY_DIMENSIONS, "Publish a definition", status=201)
async def publish_definition(request: OperatorRequest[MoneyServices, DraftToPublish]) -> Result:
    services = request.services
    given = request.body
    job, version = await services.require_publishing().publish(
        given.definition.encode("utf-8", "replace"),
        namespace=given.namespace,
        base=given.base,
        actor=request.actor,
    )
    return {"version": describe_version(add_state(services, version)), "publish_job": describe_job(job)}


@call("GET", "/allocation/versions", VIEW_COSTS, "List versions of definitions", lists=ALL_VERSIONS)
async def list_versions(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list(ALL_VERSIONS, version_rows(request.services, None))


@call(
    "GET",
    "/allocation/versions/{version}",
    VIEW_COSTS,
    "Show a version of a definition, or the latest",
    optional=("namespace",),
)
async def show_version(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Show a version with its text. `namespace` is the one that the definition belongs to, by default the default one.
    """
    namespace = request.http.query.get("namespace", DEFAULT)
    version = find_version(request.services, namespace, request.word("version"))
    return {"version": await with_text(request.services, version)}


ROWS = tuple(managed_by_people(NAMESPACE))


@call("GET", "/allocation/jobs", VIEW_COSTS, "List publish jobs", lists=PUBLISH_JOBS)
async def list_jobs(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list(PUBLISH_JOBS, job_rows(request.services))


@call("GET", "/allocation/jobs/{id}", VIEW_COSTS, "Show a publish job")
async def show_job(request: OperatorRequest[MoneyServices, None]) -> Result:
    return {"publish_job": describe_job(request.registry.table(AllocationTable).job(request.word("id")))}


@call("POST", "/allocation/jobs/{id}/cancel", MODIFY_DIMENSIONS, "Cancel a publish job that is not begun")
async def cancel_job(request: OperatorRequest[MoneyServices, None]) -> Result:
    job = await request.registry.table(AllocationTable).cancel(request.word("id"), actor=request.actor)
    return {"publish_job": describe_job(job)}
