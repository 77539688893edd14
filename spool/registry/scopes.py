"""
Scopes and managed use cases, as the published interface names them (part 5).

They apply to keys that Tollhouse accepts (gateway.people.authentication.access) and to keys that it uses
(exporters.service.upstream_client). A use case is resolved at each request, so a scope added to it here also
applies to existing keys.
"""

from __future__ import annotations

from collections.abc import Iterable

INGEST = "ai-telemetry-ingest:ingest-ai-telemetry"
ENROLL = "ai-control-plane:enroll-device"
HEARTBEAT = "ai-control-plane:heartbeat-device"
PING = "ai-control-plane:ping-device"
CREATE_STREAM = "unit-cost_v1:create_telemetry_stream"
DELETE_STREAM = "unit-cost_v1:delete_telemetry_stream"
MANAGE_RECORDS = "unit-cost_v1:manage_telemetry_records"
READ_TELEMETRY = "unit-cost_v1:read_telemetry"
CREATE_EVENT = "events_v1:create_event"
BILLING_DROP = "connections:create_billing_external_billing_drop"
VALIDATE_BILLING_DROP = "connections:create_billing_external_validate_billing_drop"
UPLOAD_CONTAINER_FILES = "container-metrics_v1:upload"
ABANDON_CONTAINER_FILES = "container-metrics_v1:abandon"
CONTAINER_STATUS = "container-metrics_v1:get-status"
AI_HUB = "ai-hub:mcp"
REMOTE_WRITE_CONTAINERS = "container-metrics_v1:legacy"


def _scopes_of_resource(noun: str) -> tuple[str, ...]:
    names = (f"create_{noun}", f"delete_{noun}", f"read_{noun}", f"read_{noun}s", f"update_{noun}")
    return tuple(f"{noun}s:{name}" for name in names)


GROUPS: dict[str, tuple[str, ...]] = {
    "Send AI Telemetry": ("ai-telemetry-ingest:ingest-ai-telemetry",),
    "Cost & Usage Data": ("billing:read_costs", "billing:read_dimensions", "billing:read_resource_tags"),
    "Views": _scopes_of_resource("view"),
    "Budgets": _scopes_of_resource("budget"),
    "Insights & Anomalies": (
        "insights:create_insight",
        "insights:create_insight_comment",
        "insights:delete_insight",
        "insights:read_insight",
        "insights:read_insight_comments",
        "insights:read_insights",
        "insights:update_insight",
        "insights:update_insight_comment",
    ),
    "Optimization & Savings": (
        "optimize:check",
        "optimize:create_comments",
        "optimize:delete_comment",
        "optimize:get_available_dimensions",
        "optimize:get_recommendation",
        "optimize:get_recommendation_type",
        "optimize:list_comments",
        "optimize:list_recommendation_types",
        "optimize:list_recommendations",
        "optimize:update_comment",
        "optimize:update_recommendation_type",
        "optimize:update_recommendations",
    ),
    "Cost Allocation": (
        "allocation:cancel_publish_job",
        "allocation:create_definition_async",
        "allocation:create_definition_version",
        "allocation:create_namespace",
        "allocation:create_namespaced_definition_async",
        "allocation:delete_namespace",
        "allocation:list_publish_jobs",
        "allocation:read_all_namespaces",
        "allocation:read_definition_version",
        "allocation:read_definition_versions",
        "allocation:read_namespace",
        "allocation:read_publish_job",
        "allocation:update_namespace",
    ),
    "Container agent": (
        "container-metrics_v1:abandon",
        "container-metrics_v1:get-status",
        "container-metrics_v1:legacy",
        "container-metrics_v1:upload",
    ),
    "Kubernetes Clusters": ("container:get-clusters", "container:update-cluster"),
    "Send Billing Data": (
        "connections:create_billing_external_billing_drop",
        "connections:create_billing_external_validate_billing_drop",
    ),
    "Manage Billing Connections": (
        "connections:create_billing",
        "connections:delete_billing",
        "connections:read_billing",
        "connections:read_billing_external_billing_drops",
        "connections:read_billing_external_billing_drops_month",
        "connections:read_billings",
        "connections:update_billing",
    ),
    "AI Hub (MCP)": ("ai-hub:mcp",),
    "AI Device Control Plane": (
        "ai-control-plane:enroll-device",
        "ai-control-plane:heartbeat-device",
        "ai-control-plane:ping-device",
    ),
    "Telemetry & Usage Streams": (
        "events_v1:create_event",
        "unit-cost_v1:create_telemetry_stream",
        "unit-cost_v1:delete_telemetry_stream",
        "unit-cost_v1:manage_telemetry_records",
        "unit-cost_v1:read_telemetry",
    ),
    "Roles & Access Control": (
        "access-control:create_role",
        "access-control:delete_role",
        "access-control:read_permission_sets",
        "access-control:read_role",
        "access-control:read_roles",
        "access-control:update_role",
    ),
}

# Scopes that give access to no figures of calls. Under `privacy.min_group`, keys may use only these.
WITHOUT_FIGURES = frozenset(
    (
        *GROUPS["Send AI Telemetry"],
        *GROUPS["Send Billing Data"],
        *GROUPS["AI Device Control Plane"],
        *GROUPS["Container agent"],
        *GROUPS["Kubernetes Clusters"],
        *GROUPS["Cost Allocation"],
        *GROUPS["Roles & Access Control"],
        CREATE_EVENT,
        CREATE_STREAM,
        DELETE_STREAM,
        MANAGE_RECORDS,
    )
)

SCOPES = frozenset(scope for group in GROUPS.values() for scope in group)

SEND_AI_TELEMETRY = "Send AI Telemetry"
SEND_BILLING_DATA = "Send Billing Data"

# Keys of these use cases only send data. Responses contain nothing about the organization.
USE_CASES: dict[str, frozenset[str]] = {
    SEND_AI_TELEMETRY: frozenset({INGEST}),
    SEND_BILLING_DATA: frozenset({BILLING_DROP, VALIDATE_BILLING_DROP}),
}


def resolve_scopes(*, scopes: Iterable[str] = (), use_cases: Iterable[str] = ()) -> frozenset[str]:
    return frozenset(scopes).union(*(USE_CASES.get(name, frozenset()) for name in use_cases))


def granting_use_case(scope: str) -> str | None:
    return next((name for name, scopes in USE_CASES.items() if scope in scopes), None)
