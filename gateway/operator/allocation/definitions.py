"""The calls of the operator API on definitions of allocation: the same values and rules as for keys."""

from __future__ import annotations

from gateway.api.allocation import (
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
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest
from spool.registry.allocation import DEFAULT


class DraftToValidate(RequestBody):
    """`definition` is the YAML text; `namespace` "" is the default one."""

    definition: str
    namespace: str = DEFAULT


class DraftToPublish(DraftToValidate):
    """`base` is the version that it was made from: null for whichever is in force, 0 where nothing was published."""

    base: int | None = None


async def list_versions(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list(ALL_VERSIONS, version_rows(request.services, None))


async def show_version(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Show a version with its text. `namespace` is the one that the definition belongs to, by default the default one.
    """
    namespace = request.http.query.get("namespace", DEFAULT)
    version = find_version(request.services, namespace, request.word("version"))
    return {"version": await with_text(request.services, version)}


async def validate_definition(request: OperatorRequest[MoneyServices, DraftToValidate]) -> Result:
    """Return the version that a definition would become; nothing is stored."""
    given = request.body
    text = given.definition.encode("utf-8", "replace")
    return {"version": await what_it_would_be(request.services, text, given.namespace, request.actor)}


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


async def list_jobs(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list(PUBLISH_JOBS, job_rows(request.services))


async def show_job(request: OperatorRequest[MoneyServices, None]) -> Result:
    return {"publish_job": describe_job(request.registry.allocation.job(request.word("id")))}


async def cancel_job(request: OperatorRequest[MoneyServices, None]) -> Result:
    job = await request.registry.allocation.cancel(request.word("id"), actor=request.actor)
    return {"publish_job": describe_job(job)}
