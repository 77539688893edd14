"""
Every operation of the published interface beside the one here: as published, or otherwise on purpose and why.

The scopes are published one by one. The addresses are published for some of them; for the others they were chosen
here, and what stands beside a published operation under its scope says why it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from docs.generate.published_calls import calls_section
from docs.generate.published_lists import section
from gateway.http.address import Address
from gateway.service.addresses.table import FOR_SENDERS
from spool.registry.scopes import GROUPS

SPECIFIED, CALLED, CHOSEN, OTHERWISE = "as specified", "as published", "chosen here", "otherwise"

# The one operation that is specified in detail.
_SPECIFIED = frozenset({"GET /v2/insights"})
# Scopes whose addresses are public: in the service's pages, its own clients, or its agent.
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
# Scopes that are published without an address.
_CHOSEN: Mapping[str, str] = {
    "ai-telemetry-ingest:ingest-ai-telemetry": "one scope for every way in: the addresses are those that senders use, "
    "of OpenTelemetry and of each gateway's own protocol",
    "billing:read_resource_tags": "in addition to the dimensions of costs",
    "container:get-clusters": "a list like every other, and one cluster",
    "container:update-cluster": "fields of one cluster, as of every other thing that is changed",
    "events_v1:create_event": "the version that the scope names, and the noun",
    "allocation:cancel_publish_job": "a word behind the job, because a job is changed in no other way",
    "allocation:create_definition_async": "in addition to the versions, answered with a job",
    "allocation:create_namespaced_definition_async": "below its namespace, answered with a job",
}
_OF_A_GROUP: Mapping[str, str] = {
    "optimize": "a list, its rows and their comments, as of insights",
    "allocation": "namespaces and jobs are things like every other",
    "access-control": "roles are things like every other, and permission sets a list that is read",
    "ai-control-plane": "one address for each of the three words",
}
# What stands under a scope beside what is published for it.
_BESIDE: Mapping[str, str] = {
    "GET /v2/budgets/{budget_id}/owners": "a budget here may be one of many owners",
    "GET /v2/budgets/{budget_id}/alerts": "which thresholds were passed, and who got a notice",
    "DELETE /v2/insights/{id}/comments/{comment}": "the catalogue has no scope to delete a comment, and stays as it is",
    "GET /v2/{group}/definition/versions/{version}/definition": "the text of a version, to be published again",
    "GET /v1/container-metrics/status": "whether the last report of this cluster was taken",
    "GET /v1/container-metrics/config": "the one read of the agent: the configuration of its own cluster",
    "POST /mcp/people": "an address of its own for people, where clients cannot hold a key and a sign-in apart",
    "GET /v1/events": "usage events are read with the scope of telemetry: their own is write-only",
    "GET /v1/events/types": "which types of usage events there are, with the scope of telemetry",
    "GET /unit-cost/v1/telemetry": "which streams there are",
    "GET /unit-cost/v1/telemetry/{type}/{stream}": "one stream, before its records are asked for",
}
# What asks for no key.
_SIGN_IN = "how a person signs an assistant in (RFC 9728), asked before there is a token"
WITHOUT_A_SCOPE: Mapping[str, str] = {
    "GET /api/public/health": "what Langfuse's clients ask first: the same answer for everybody",
    "PUT /v1/container-metrics/files/{token}": "the address is the key: it was given out to one, and ends with it",
    "GET /.well-known/oauth-protected-resource": _SIGN_IN,
    "OPTIONS /.well-known/oauth-protected-resource": _SIGN_IN,
    "GET /.well-known/oauth-protected-resource/{path}": _SIGN_IN,
    "OPTIONS /.well-known/oauth-protected-resource/{path}": _SIGN_IN,
}
_HEAD = """# The published interface

Every scope of the published interface with the operations that it opens here. Each is *as specified* (the list of
insights, whose request and answer are published), *as published* (its address and its fields are public), *chosen here*
(the scope is published and no address), or *otherwise*, on purpose and with the reason. The page is made from the
program; a test fails when an operation is in no row, or a row names an operation that is not there.
"""
_FREE = """
## Without a scope

These open no data of the organization and ask for no key.

| operation | why |
|---|---|
"""
_LISTS = """
## Lists

Each list has its root key with `pagination`, `filtering` and `sorting` beside it, also when it is empty.

| list | root key | sorted by | filters |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """`state` is one of the four words; `why` is empty for what is as specified or published."""

    category: str
    scope: str
    operation: str
    state: str
    why: str = ""


def rows() -> Sequence[PublishedRow]:
    """Every operation by its scope, in the order of the catalogue. LookupError for one without a reason."""
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
    """Every operation for senders that asks for no key."""
    return [operation for row in FOR_SENDERS if row.scope is None for operation in _operations(row)]


def declared() -> frozenset[str]:
    """The scopes and operations that the tables above name."""
    return frozenset((*_SPECIFIED, *_CALLED, *_CHOSEN, *_BESIDE))


def page() -> str:
    """Category by category, then the lists."""
    found = rows()
    counts = {
        state: sum(row.state == state for row in found) for state in (SPECIFIED, CALLED, CHOSEN, OTHERWISE)
    }
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    text = f"{_HEAD}\n{len(found)} operations of {sum(map(len, GROUPS.values()))} scopes: {told}.\n"
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


def _operations(address: Address) -> Iterator[str]:
    return (f"{method} {address.documented_path}" for method in address.operations)


def _free_lines() -> Iterator[str]:
    return (f"| `{operation}` | {WITHOUT_A_SCOPE[operation]} |\n" for operation in free())


def _lists() -> Iterator[str]:
    for address in FOR_SENDERS:
        listed = address.lists
        if listed is not None and address.scope is not None:
            sorts = ", ".join(f"`{name}`" for name in sorted(listed.sorts))
            filters = ", ".join(f"`{name}`" for name in listed.filters) or "none"
            yield f"| `{address.documented_path}` | `{listed.root}` | {sorts} | {filters} |\n"
