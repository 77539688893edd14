"""Definitions of allocation, their versions and jobs."""

from __future__ import annotations

from gateway.addresses.managing import DELETE, LIST, SHOW, managed_by_people
from gateway.addresses.operator_call import call
from gateway.api.allocation import NAMESPACE
from gateway.api.lists import allocation as allocation_lists
from gateway.operator.money import allocation, allocation_diff
from spool.registry.permission_sets import MODIFY_DIMENSIONS, VIEW_COSTS

ROWS = (
    call("POST", "/allocation/diff", VIEW_COSTS, allocation_diff.diff_definition,
         "What a month would become under a definition", takes=allocation_diff.DefinitionDraft, in_turn=True),
    call("POST", "/allocation/validate", VIEW_COSTS, allocation.validate_definition,
         "What version a definition would become", takes=allocation.DraftToValidate, in_turn=True),
    call("POST", "/allocation/publish", MODIFY_DIMENSIONS, allocation.publish_definition, "Publish a definition",
         takes=allocation.DraftToPublish, status=201),
    call("GET", "/allocation/versions", VIEW_COSTS, allocation.list_versions, "List versions of definitions",
         lists=allocation_lists.ALL_VERSIONS),
    call("GET", "/allocation/versions/{version}", VIEW_COSTS, allocation.show_version,
         "Show a version of a definition, or the latest", optional=("namespace",)),
    *managed_by_people(NAMESPACE, "/allocation/namespaces", reads=VIEW_COSTS, changes=MODIFY_DIMENSIONS,
                       words={LIST: "List namespaces of definitions", SHOW: "Show a namespace and its definition",
                              DELETE: "Delete a namespace that defines nothing"}),
    call("GET", "/allocation/jobs", VIEW_COSTS, allocation.list_jobs, "List publish jobs",
         lists=allocation_lists.PUBLISH_JOBS),
    call("GET", "/allocation/jobs/{id}", VIEW_COSTS, allocation.show_job, "Show a publish job"),
    call("POST", "/allocation/jobs/{id}/cancel", MODIFY_DIMENSIONS, allocation.cancel_job,
         "Cancel a publish job that is not begun"),
)  # fmt: skip
