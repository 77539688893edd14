"""Definitions of allocation, their versions and jobs."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.api.allocation import NAMESPACE
from gateway.api.lists import allocation as allocation_lists
from gateway.operator.allocation import definitions, difference
from gateway.operator.managed import managed_by_people
from spool.registry.permission_sets import MODIFY_DIMENSIONS, VIEW_COSTS

ROWS = (
    call("POST", "/allocation/diff", VIEW_COSTS, difference.diff_definition,
         "What a month would become under a definition", takes=difference.DefinitionDraft, in_turn=True),
    call("POST", "/allocation/validate", VIEW_COSTS, definitions.validate_definition,
         "What version a definition would become", takes=definitions.DraftToValidate, in_turn=True),
    call("POST", "/allocation/publish", MODIFY_DIMENSIONS, definitions.publish_definition, "Publish a definition",
         takes=definitions.DraftToPublish, status=201),
    call("GET", "/allocation/versions", VIEW_COSTS, definitions.list_versions, "List versions of definitions",
         lists=allocation_lists.ALL_VERSIONS),
    call("GET", "/allocation/versions/{version}", VIEW_COSTS, definitions.show_version,
         "Show a version of a definition, or the latest", optional=("namespace",)),
    *managed_by_people(NAMESPACE),
    call("GET", "/allocation/jobs", VIEW_COSTS, definitions.list_jobs, "List publish jobs",
         lists=allocation_lists.PUBLISH_JOBS),
    call("GET", "/allocation/jobs/{id}", VIEW_COSTS, definitions.show_job, "Show a publish job"),
    call("POST", "/allocation/jobs/{id}/cancel", MODIFY_DIMENSIONS, definitions.cancel_job,
         "Cancel a publish job that is not begun"),
)  # fmt: skip
