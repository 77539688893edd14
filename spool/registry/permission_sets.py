from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionSet:
    """
    A right that roles grant. It includes the rights in `includes`, such as the right to read what it lets
    people change.
    """

    id: str
    title: str
    description: str
    includes: tuple[str, ...] = ()


VIEW_RECOMMENDATIONS = "view_recommendations"
VIEW_STREAM_SETTINGS = "view_telemetry_stream_settings"
ORGANIZATION_ADMINISTRATION = "organization_administration"
MODIFY_DIMENSIONS = "modify_dimension_definitions"
API_KEY_MANAGEMENT = "api_key_management"
VIEW_COSTS = "view_costs"
VIEW_RECORDS = "view_records"
VIEW_OPERATION = "view_operation"
USE_ASSISTANTS = "use_assistants"
MODIFY_VIEWS_AND_BUDGETS = "modify_views_and_budgets"
WORK_ON_INSIGHTS = "work_on_insights"
MODIFY_BILLING = "modify_billing"
OPERATE_SPOOL = "operate_spool"
INSTALLATION_ADMINISTRATION = "installation_administration"
VIEW_NAMES = "view_names"
ANSWER_PRIVACY_REQUESTS = "answer_privacy_requests"

_CATALOGUE = (
    # the published interface names the first five sets
    PermissionSet(
        id=VIEW_RECOMMENDATIONS,
        title="View Recommendations",
        description=(
            "Read recommendations, their types and their comments, and check for savings without storing "
            "them."
        ),
    ),
    PermissionSet(
        id=VIEW_STREAM_SETTINGS,
        title="View Telemetry Stream Settings",
        description="Read unit-cost streams, usage events and unconfirmed deliveries.",
    ),
    PermissionSet(
        id=ORGANIZATION_ADMINISTRATION,
        title="Organization Administration",
        description="Manage operators, roles, sessions and console links, and read the audit list.",
    ),
    PermissionSet(
        id=MODIFY_DIMENSIONS,
        title="Modify Dimension Definitions",
        description="Publish definitions of dimensions and manage their namespaces.",
        includes=(VIEW_COSTS,),
    ),
    PermissionSet(
        id=API_KEY_MANAGEMENT,
        title="API key management",
        description="Create, edit, rotate, disable and delete API keys.",
        includes=(VIEW_OPERATION,),
    ),
    PermissionSet(
        id=VIEW_COSTS,
        title="View Costs",
        description="Read costs, views, budgets, annotations, plans, contracts, scheduled reports, insights,"
        " definitions, statements and billing.",
    ),
    PermissionSet(
        id=VIEW_RECORDS,
        title="View Records",
        description="Read single calls, receive them as they arrive, and read receipts.",
    ),
    PermissionSet(
        id=VIEW_OPERATION,
        title="View Operation",
        description=(
            "Read the state of the queue on disk: routes, deliveries, rejected records, accounting, "
            "devices, clusters, API keys and notifications."
        ),
    ),
    PermissionSet(
        id=USE_ASSISTANTS,
        title="Use Assistants",
        description="Use the tools for assistants (MCP), over the operator API or over HTTP with a sign-in.",
        includes=(VIEW_COSTS, VIEW_RECOMMENDATIONS, VIEW_STREAM_SETTINGS),
    ),
    PermissionSet(
        id=MODIFY_VIEWS_AND_BUDGETS,
        title="Modify Views and Budgets",
        description="Create, change and delete views, budgets, annotations, plans and scheduled reports.",
        includes=(VIEW_COSTS,),
    ),
    PermissionSet(
        id=WORK_ON_INSIGHTS,
        title="Work on Insights and Recommendations",
        description=(
            "Set status and assignee, comment, run detectors, and set the thresholds of recommendation types."
        ),
        includes=(VIEW_COSTS, VIEW_RECOMMENDATIONS),
    ),
    PermissionSet(
        id=MODIFY_BILLING,
        title="Modify Billing",
        description=(
            "Change billing connections, own prices and contracts, send hourly billing files, import provider "
            "bills, and recount or recalculate the totals."
        ),
        includes=(VIEW_COSTS,),
    ),
    PermissionSet(
        id=OPERATE_SPOOL,
        title="Operate the Spool",
        description=(
            "Act on routes, rejected records, notifications, devices, clusters and unconfirmed "
            "deliveries, and read the configuration."
        ),
        includes=(VIEW_OPERATION, VIEW_STREAM_SETTINGS),
    ),
    PermissionSet(
        id=INSTALLATION_ADMINISTRATION,
        title="Installation Administration",
        description="Reload the configuration and make backups.",
        includes=(VIEW_OPERATION,),
    ),
    PermissionSet(
        id=VIEW_NAMES,
        title="View Names of People",
        description="See the names of people whose e-mail addresses are stored as hashes, and figures of small groups.",
    ),
    PermissionSet(
        id=ANSWER_PRIVACY_REQUESTS,
        title="Answer Privacy Requests",
        description="Erase a person, and export what is stored about a person. No built-in role has it.",
    ),
)

PERMISSION_SETS: Mapping[str, PermissionSet] = {
    permission_set.id: permission_set for permission_set in _CATALOGUE
}

# all sets except the one that only a role can grant
ALL = frozenset(PERMISSION_SETS) - {ANSWER_PRIVACY_REQUESTS}
# sets that account roles give; an Admin has ALL
OF_MEMBER = frozenset(
    (VIEW_COSTS, VIEW_RECORDS, VIEW_OPERATION, VIEW_RECOMMENDATIONS, VIEW_STREAM_SETTINGS, USE_ASSISTANTS)
)
OF_OPERATOR = OF_MEMBER | {
    MODIFY_DIMENSIONS,
    MODIFY_VIEWS_AND_BUDGETS,
    WORK_ON_INSIGHTS,
    MODIFY_BILLING,
    OPERATE_SPOOL,
}


def resolve_permission_sets(ids: Iterable[str]) -> frozenset[str]:
    included: set[str] = set()
    waiting = [id for id in ids if id in PERMISSION_SETS]
    while waiting:
        id = waiting.pop()
        if id not in included:
            included.add(id)
            waiting.extend(PERMISSION_SETS[id].includes)
    return frozenset(included)
