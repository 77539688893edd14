"""Addresses of allocation: definitions, their versions, namespaces and publish jobs."""

from __future__ import annotations

from functools import partial

from gateway.api import allocation
from gateway.api.lists.allocation import PUBLISH_JOBS, VERSIONS
from gateway.api.managed import managed_by_keys, managing
from gateway.http.address import WRITE, Address, BodyLimit
from gateway.http.answers import JSON
from gateway.http.requests import AddressHandler
from gateway.http.services import Services
from gateway.resources.namespaces import NewNamespace, OneNamespace
from gateway.schemas import TEXT

# The service's own clients name the group by its older word.
_BASE = "/v2/{group:allocation|costformation}"
_VERSIONS = _BASE + "/definition/versions"
_VERSION = _VERSIONS + "/{version}"
_DEFINITIONS = _BASE + "/definitions"
_NAMESPACE = _BASE + "/namespaces/{namespace}"
_JOBS = _BASE + "/publish_jobs"
_JOB = _JOBS + "/{job}"


def _most_bytes(services: Services) -> int:
    return services.operators.money.allocation().max_definition_bytes + allocation.SLACK_BYTES


_LIMIT = BodyLimit(setting="allocation.max_definition_bytes and the envelope", bytes=_most_bytes)


_managing = partial(managing, group="allocation", endpoint="allocation")


def _publishing(
    path: str,
    handler: AddressHandler,
    summary: str,
    status: int,
    gives: type,
    *,
    optional: tuple[str, ...] = (),
) -> Address:
    return Address(
        methods=("POST",),
        path=path,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        endpoint="allocation",
        scope=f"allocation:{handler.__name__}",
        check=allocation.check_definition,
        body=bytes,
        limit=_LIMIT,
        takes=dict.fromkeys((*allocation.YAML, allocation.FORM), TEXT),
        gives={status: {JSON: gives}},
        refusals=(*WRITE, 404, 409, 422),
        optional=("base_version", *optional),
    )


ROWS = (
    _managing("GET", _VERSIONS, allocation.read_definition_versions, "List the versions of the default definition",
              lists=VERSIONS, item=allocation.VersionItem),
    _publishing(_VERSIONS, allocation.create_definition_version, "Publish the default definition, or only validate it",
                200, allocation.OneVersion, optional=("validate_only",)),
    _managing("GET", _VERSION, allocation.read_definition_version, "A version of the default definition, or the latest",
              gives={JSON: allocation.OneVersion}),
    _managing("GET", _VERSION + "/definition", allocation.read_definition_text, "The text of a version, as it was sent",
              scope="read_definition_version", gives={"text/plain": TEXT}),
    _publishing(_DEFINITIONS, allocation.create_definition_async, "Let a job publish the default definition",
                202, allocation.OnePublishJob),
    *managed_by_keys(allocation.NAMESPACE),
    _managing("POST", _NAMESPACE, allocation.create_namespace, "Create a namespace", takes=NewNamespace,
              gives={JSON: OneNamespace}, may_be_empty=True),
    _publishing(_NAMESPACE + "/definitions", allocation.create_namespaced_definition_async,
                "Let a job publish the definition of a namespace", 202, allocation.OnePublishJob),
    _managing("GET", _JOBS, allocation.list_publish_jobs, "List publish jobs", lists=PUBLISH_JOBS,
              item=allocation.PublishJobItem),
    _managing("GET", _JOB, allocation.read_publish_job, "A publish job", gives={JSON: allocation.OnePublishJob}),
    _managing("POST", _JOB + "/cancel", allocation.cancel_publish_job, "Cancel a publish job that is not begun",
              gives={JSON: allocation.OnePublishJob}),
)  # fmt: skip
