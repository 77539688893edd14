"""
Comparison with the published interface: every operation, its scope, and the reason for each difference.

All scopes are published, but only some of their addresses. The other addresses were chosen for Tollhouse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from docs.generate.published_calls import calls_section
from docs.generate.published_lists import section
from gateway.http.address import ApiAddress
from gateway.operations.list import RESOURCES
from gateway.service.addresses.table import FOR_SENDERS
from spool.registry.scopes import GROUPS

SPECIFIED, CALLED, CHOSEN, OTHERWISE = "as specified", "as published", "chosen here", "otherwise"

# the only operation with a detailed public specification
_SPECIFIED = frozenset({"GET /v2/insights"})
# scopes whose addresses are public, from the service's pages, clients or agent
_CALLED = frozenset({
    "billing:read_costs", "billing:read_dimensions",
    "views:create_view", "views:delete_view", "views:read_view", "views:read_views", "views:update_view",
    "budgets:create_budget", "budgets:delete_budget", "budgets:read_budget", "budgets:read_budgets",
    "budgets:update_budget",
    "insights:create_insight", "insights:create_insight_comment", "insights:delete_insight", "insights:read_insight",
    "insights:read_insight_comments", "insights:read_insights", "insights:update_insight",
    "insights:update_insight_comment",
    "allocation:create_definition_version", "allocation:read_definition_version",
    "allocation:read_definition_versions",
    "container-metrics_v1:abandon", "container-metrics_v1:get-status", "container-metrics_v1:legacy",
    "container-metrics_v1:upload",
    "connections:create_billing_external_billing_drop", "connections:create_billing_external_validate_billing_drop",
    "connections:create_billing", "connections:delete_billing", "connections:read_billing",
    "connections:read_billing_external_billing_drops", "connections:read_billing_external_billing_drops_month",
    "connections:read_billings", "connections:update_billing",
    "ai-hub:mcp",
    "unit-cost_v1:create_telemetry_stream", "unit-cost_v1:delete_telemetry_stream",
    "unit-cost_v1:manage_telemetry_records", "unit-cost_v1:read_telemetry",
})  # fmt: skip
# scopes that are published without an address, with the reason for the address chosen here
_CHOSEN: Mapping[str, str] = {
    "ai-telemetry-ingest:ingest-ai-telemetry": "the address that its senders use",
    "billing:read_resource_tags": "in addition to the dimensions of costs",
    "container:get-clusters": "a list with the common rules, and a single cluster",
    "container:update-cluster": "changes fields of one cluster, as for all other resources",
    "events_v1:create_event": "the version in the scope's name, and a noun",
    "allocation:cancel_publish_job": "a verb after the job, because a job cannot be changed in another way",
    "allocation:create_definition_async": "in addition to the versions; the response is a job",
    "allocation:create_namespaced_definition_async": "below its namespace; the response is a job",
}
_OF_A_GROUP: Mapping[str, str] = {
    **dict.fromkeys(RESOURCES, "follows the common rules for resources"),
    "optimize": "a list, its rows and their comments, as for insights",
    "allocation": "namespaces and jobs follow the common rules for resources",
    "access-control": "roles follow the common rules for resources; permission sets are a read-only list",
    "ai-control-plane": "one address for each of the three operations",
}
# unpublished operations that have a published scope
_BESIDE: Mapping[str, str] = {
    "GET /v2/budgets/{budget_id}/owners": "a budget here may have many owners",
    "GET /v2/budgets/{budget_id}/alerts": "the thresholds that were crossed, and who was notified",
    "GET /v2/budgets/verdicts": "the table that gateways pull, to refuse calls themselves",
    "GET /v2/budgets/verdicts/bundle.tar.gz": "the same table for Open Policy Agent",
    "DELETE /v2/insights/{id}/comments/{comment}": (
        "no published scope deletes a comment, and the list of scopes does not change"
    ),
    "GET /v2/{group}/definition/versions/{version}/definition": "the text of a version, for publishing it again",
    "GET /v1/container-metrics/status": "whether the cluster's last report was accepted",
    "GET /v1/container-metrics/config": "the only read operation of the agent: the configuration of its own cluster",
    "POST /mcp/people": "a separate address for people, for clients that cannot have both a key and a sign-in",
    "GET /v1/events": "usage events are read with the telemetry scope, because their own scope only writes",
    "GET /v1/events/types": "the types of usage events, with the telemetry scope",
    "GET /unit-cost/v1/telemetry": "the list of streams",
    "GET /unit-cost/v1/telemetry/{type}/{stream}": "a single stream",
}
# reasons for operations that need no key
_SIGN_IN = "how a person signs an assistant in (RFC 9728); clients request it before they have a token"
WITHOUT_A_SCOPE: Mapping[str, str] = {
    "GET /api/public/health": "the first request of Langfuse's clients; the response is the same for everybody",
    "PUT /v1/container-metrics/files/{token}": (
        "the address itself is a secret: it was given to one client and is valid once"
    ),
    "GET /.well-known/oauth-protected-resource": _SIGN_IN,
    "OPTIONS /.well-known/oauth-protected-resource": _SIGN_IN,
    "GET /.well-known/oauth-protected-resource/{path}": _SIGN_IN,
    "OPTIONS /.well-known/oauth-protected-resource/{path}": _SIGN_IN,
}
_HEAD = """# The published interface

Every scope of the published interface, with the operations that need it in Tollhouse. An operation is in one of four
states:

- *as specified*: its request and response are published (only the list of insights),
- *as published*: its address and its fields are public,
- *chosen here*: the scope is published, but no address,
- *otherwise*: it differs on purpose, for the reason given.

This page is generated from the code, and a test checks that no operation is missing.
"""
_FREE = """
## Without a scope

These operations need no key and give no access to data of the organization.

| operation | why |
|---|---|
"""
_LISTS = """
## Lists

The response of each list has its root key, `pagination`, `filtering` and `sorting`, even if the list is empty.

| list | root key | sorted by | filters |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """One operation in the comparison. `why` is empty if the operation is as specified or published."""

    category: str
    scope: str
    operation: str
    state: str
    why: str = ""


def rows() -> Sequence[PublishedRow]:
    """
    Return every operation by scope, in catalogue order. Raises LookupError for an operation without a reason.
    """
    opened: dict[str, list[str]] = {}
    for address in FOR_SENDERS:
        if address.scope is not None:
            opened.setdefault(address.scope, []).extend(_operations(address))
    return [
        _row(category, scope, operation)
        for category, scopes in GROUPS.items()
        for scope in scopes
        for operation in opened[scope]
    ]


def free() -> Sequence[str]:
    return [operation for row in FOR_SENDERS if row.scope is None for operation in _operations(row)]


def declared() -> frozenset[str]:
    return frozenset((*_SPECIFIED, *_CALLED, *_CHOSEN, *_BESIDE))


def page() -> str:
    """Return the page: operations by category, then lists."""
    found = rows()
    counts = {
        state: sum(row.state == state for row in found) for state in (SPECIFIED, CALLED, CHOSEN, OTHERWISE)
    }
    counts_by_state = ", ".join(f"{count} {state}" for state, count in counts.items())
    text = (
        f"{_HEAD}\n{len(found)} operations of {sum(map(len, GROUPS.values()))} scopes: {counts_by_state}.\n"
    )
    for category in GROUPS:
        text += f"\n## {category}\n\n| operation | scope | state | why |\n|---|---|---|---|\n"
        text += "".join(
            f"| `{row.operation}` | `{row.scope}` | {row.state} | {row.why} |\n"
            for row in found
            if row.category == category
        )
    return text + _FREE + "".join(_free_lines()) + section() + calls_section() + _LISTS + "".join(_lists())


def _row(category: str, scope: str, operation: str) -> PublishedRow:
    group = scope.partition(":")[0]
    state, why = CALLED, ""
    if operation in _BESIDE:
        state, why = OTHERWISE, _BESIDE[operation]
    elif operation in _SPECIFIED:
        state = SPECIFIED
    elif scope not in _CALLED:
        state = CHOSEN
        why = _CHOSEN.get(scope) or _OF_A_GROUP[group]
    return PublishedRow(category=category, scope=scope, operation=operation, state=state, why=why)


def _operations(address: ApiAddress) -> Iterator[str]:
    return (f"{method} {address.documented_path}" for method in address.operation_ids_by_method)


def _free_lines() -> Iterator[str]:
    return (f"| `{operation}` | {WITHOUT_A_SCOPE[operation]} |\n" for operation in free())


def _lists() -> Iterator[str]:
    for address in FOR_SENDERS:
        listed = address.lists
        if listed is not None and address.scope is not None:
            sorts = ", ".join(f"`{name}`" for name in sorted(listed.sorts))
            filters = ", ".join(f"`{name}`" for name in listed.filters) or "none"
            yield f"| `{address.documented_path}` | `{listed.root}` | {sorts} | {filters} |\n"
