"""The calls of the operator API on definitions of allocation: the same values and rules as for keys."""

from __future__ import annotations

from gateway.api.allocation import (
    NAMESPACE,
    find_version,
    what_it_would_be,
    with_text,
)
from gateway.api.lists.allocation import (
    ALL_VERSIONS,
    PUBLISH_JOBS,
    add_state,
    describe_job,
    describe_version,
    job_rows,
    version_rows,
)
from gateway.http.holders.money import MoneyServices
from gateway.http.requests import Result
from gateway.operator.address import call
from gateway.operator.body import RequestBody
from gateway.operator.managed import managed_by_people
from gateway.operator.requests import OperatorRequest
from spool.registry.allocation import DEFAULT
from spool.registry.permission_sets import MODIFY_DIMENSIONS, VIEW_COSTS


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
    return {"publish_job": describe_job(request.registry.allocation.job(request.word("id")))}


@call("POST", "/allocation/jobs/{id}/cancel", MODIFY_DIMENSIONS, "Cancel a publish job that is not begun")
async def cancel_job(request: OperatorRequest[MoneyServices, None]) -> Result:
    job = await request.registry.allocation.cancel(request.word("id"), actor=request.actor)
    return {"publish_job": describe_job(job)}
