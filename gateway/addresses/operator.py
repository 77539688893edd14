"""Addresses of the operator API: the role that each needs, what it takes, and its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from aiohttp import web

from gateway.api import (
    allocation_lists,
    budget_lists,
    cluster_lists,
    connection_lists,
    insight_lists,
    recommendation_lists,
    view_lists,
)
from gateway.api.allocation import NamespaceChanges
from gateway.api.budgets import BudgetChanges, NewBudget
from gateway.api.connections import ConnectionChanges, NewConnection
from gateway.api.recommendations import NewComments, OneMessage, RecommendationChanges, TypeChanges
from gateway.api.views import NewView, ViewChanges
from gateway.console import pages
from gateway.http.answers import JSON
from gateway.http.event_streams import EVENT_STREAM
from gateway.http.lists import List
from gateway.http.requests import Result
from gateway.mounts import CONSOLE, OPERATOR_API
from gateway.operator import (
    accounts,
    assistants,
    dead_letters,
    deliveries,
    events,
    findings,
    insights,
    keys,
    provider_sign_in,
    scopes,
    sign_in,
    spool,
    streams,
)
from gateway.operator.address import OperatorAddress
from gateway.operator.installation import backup, bundles, configuration
from gateway.operator.log import live, newest, record
from gateway.operator.money import (
    allocation,
    allocation_diff,
    billing,
    budgets,
    comparison,
    connections,
    ledger,
    notifications,
    recommendations,
    reconciliation,
    report,
    statements,
    views,
)
from gateway.operator.requests import OperatorRequest
from gateway.operator.senders import clusters, container_files, devices
from gateway.receivers import unit_cost
from gateway.schemas import OBJECT, TEXT, Schema
from spool.ledger.queries import DIMENSIONS
from spool.registry.operators import ADMIN, OPERATOR, VIEWER

Body = TypeVar("Body")

# The page itself, for browsers: it is no part of the API.
CONSOLE_PAGES: Mapping[str, Callable[[web.Request], Awaitable[web.Response]]] = {
    CONSOLE: pages.without_slash,
    CONSOLE + "/": pages.index,
    CONSOLE + "/files/{version}/{path:.*}": pages.file,
}


def _call(
    method: str,
    path: str,
    role: str | None,
    handler: Callable[[OperatorRequest[Body]], Awaitable[Result]],
    summary: str,
    *,
    takes: type[Body] | None = None,
    lists: List[Any] | None = None,
    required: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
    repeated: tuple[str, ...] = (),
    status: int = 200,
    gives: Mapping[str, Schema] | None = None,
    checks_query: bool = True,
) -> OperatorAddress:
    return OperatorAddress(
        methods=(method,),
        path=OPERATOR_API + path,
        role=role,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        body=takes,
        takes={JSON: takes} if takes else {},
        gives={} if lists else {status: {JSON: OBJECT} if gives is None else gives},
        lists=lists,
        required=required,
        optional=optional,
        repeated=repeated,
        checks_query=checks_query,
    )


# fmt: off
OPERATOR_ADDRESSES = (
    _call("POST", "/sessions", None, sign_in.sign_in, "Sign in", takes=sign_in.SignIn, status=201),
    _call("GET", "/session", VIEWER, sign_in.show_session, "Who is signed in"),
    _call("DELETE", "/session", VIEWER, sign_in.sign_out, "Sign out"),
    _call("GET", "/sessions", ADMIN, accounts.list_sessions, "List who is signed in", lists=accounts.SESSIONS),
    _call("DELETE", "/sessions/{id}", ADMIN, accounts.end_session, "End a session"),
    _call("POST", "/console-links", ADMIN, sign_in.make_link, "Make a one-time link",
          takes=sign_in.NewLink, status=201),

    _call("GET", "/sign-in-ways", None, provider_sign_in.show_ways, "How people sign in"),
    # Not in a folder of their own: their cookies are for the folder of the API.
    _call("GET", "/oidc", None, provider_sign_in.begin_sign_in, "Go to the OpenID provider to sign in", status=303,
          gives={}),
    _call("GET", "/oidc-callback", None, provider_sign_in.finish_sign_in, "Come back from the OpenID provider",
          status=303, gives={}, checks_query=False),
    _call("POST", "/oidc-logout", None, provider_sign_in.end_provider_sessions,
          "End sessions with a logout token of the OpenID provider"),

    _call("GET", "/changes", VIEWER, live.changes, "Hear what changes", gives={EVENT_STREAM: TEXT}),

    _call("GET", "/keys", VIEWER, keys.list_keys, "List API keys", lists=keys.KEYS),
    _call("POST", "/keys", ADMIN, keys.create_key, "Create an API key", takes=keys.NewKey, status=201),
    _call("GET", "/keys/{name}", VIEWER, keys.show_key, "Show an API key"),
    _call("PATCH", "/keys/{name}", ADMIN, keys.edit_key, "Edit an API key", takes=keys.KeyChanges),
    _call("POST", "/keys/{name}/rotate", ADMIN, keys.rotate_key, "Give a key a new secret",
          takes=keys.Rotation),
    _call("POST", "/keys/{name}/enable", ADMIN, keys.enable_key, "Enable an API key"),
    _call("POST", "/keys/{name}/disable", ADMIN, keys.disable_key, "Disable an API key"),
    _call("DELETE", "/keys/{name}", ADMIN, keys.delete_key, "Delete an API key", required=("confirm",)),

    _call("GET", "/scopes", VIEWER, scopes.list_scopes, "List the scopes of keys, with what each opens",
          lists=scopes.SCOPE_LIST),

    _call("GET", "/devices", VIEWER, devices.list_devices, "List devices", lists=devices.DEVICES),
    _call("GET", "/unenrolled", VIEWER, devices.list_unenrolled, "List names of devices that are not enrolled",
          lists=devices.UNENROLLED),
    _call("GET", "/devices/{id}", VIEWER, devices.show_device, "Show a device"),
    _call("POST", "/devices", OPERATOR, devices.admit_device, "Enrol a device before it reports",
          takes=devices.Admission, status=201),
    _call("DELETE", "/devices/{id}", OPERATOR, devices.delete_device, "Delete a device and end its key",
          required=("confirm",)),
    _call("POST", "/devices/{id}/approve", OPERATOR, devices.approve_device,
          "Enrol a pending or revoked device"),
    _call("POST", "/devices/{id}/revoke", OPERATOR, devices.revoke_device, "Refuse a device from now on"),
    _call("POST", "/devices/{id}/reset", OPERATOR, devices.reset_device,
          "Forget a device's fingerprint and key"),
    _call("PATCH", "/devices/{id}", OPERATOR, devices.label_device, "Label a device", takes=devices.Labels),

    _call("GET", "/clusters", VIEWER, clusters.list_clusters, "List clusters", lists=cluster_lists.CLUSTERS),
    _call("GET", "/clusters/{id}", VIEWER, clusters.show_cluster, "Show a cluster"),
    _call("PATCH", "/clusters/{id}", OPERATOR, clusters.change_cluster, "Name, label, enable or configure a cluster",
          takes=cluster_lists.ClusterChanges),
    _call("DELETE", "/clusters/{id}", OPERATOR, clusters.delete_cluster, "Forget a cluster until it reports again",
          required=("confirm",)),

    _call("GET", "/container-metrics", VIEWER, container_files.show_container_metrics,
          "The books of container metrics, and what waits of each cluster"),
    _call("GET", "/container-files", VIEWER, container_files.list_container_files, "List files of container metrics",
          lists=container_files.CONTAINER_FILES),
    _call("POST", "/container-files/{id}/discard", OPERATOR, container_files.discard_container_file,
          "Give up a file that waits for the upstream", takes=container_files.Discard),

    _call("GET", "/status", VIEWER, spool.status, "Topics, routes and space"),
    _call("GET", "/routes", VIEWER, spool.list_routes, "List routes", lists=spool.ROUTES),
    _call("DELETE", "/routes/{destination}/{topic}", OPERATOR, spool.drop_route, "Forget an orphaned route"),
    _call("GET", "/deliveries", VIEWER, deliveries.list_deliveries, "List deliveries that are not settled",
          lists=deliveries.DELIVERIES),
    _call("POST", "/replay", OPERATOR, spool.replay, "Send settled records again", takes=spool.Replay),
    _call("GET", "/configuration", OPERATOR, configuration.list_configuration, "List the settings in effect",
          lists=configuration.CONFIGURATION),
    _call("POST", "/reload", ADMIN, configuration.reload, "Take the configuration over",
          takes=configuration.ConfigReload),
    _call("POST", "/backup", ADMIN, backup.back_up, "Back the data up into a directory of the server's machine",
          takes=backup.BackupPlace, status=201),
    _call("POST", "/bundles/export", ADMIN, bundles.export_bundle, "Hand a backlog over in a sealed file",
          takes=bundles.BundleExport, status=201),
    _call("POST", "/bundles/import", ADMIN, bundles.import_bundle, "Take over the backlog of a sealed file",
          takes=bundles.BundleImport),
    _call("GET", "/clock", VIEWER, spool.show_clock, "The time that is used, and a step of the clock"),
    _call("POST", "/clock/accept", OPERATOR, spool.accept_clock, "Believe the clock after a step of it",
          takes=spool.AcceptClock),
    _call("GET", "/records", VIEWER, newest.list_records, "List the newest records, open ones too",
          lists=newest.RECORDS),
    _call("GET", "/rates", VIEWER, newest.show_rates, "Records of each source in the last minute"),
    _call("GET", "/tail", VIEWER, live.tail, "Hear of records as they are committed",
          repeated=tuple(newest.RECORDS.filters), gives={EVENT_STREAM: TEXT}),
    _call("GET", "/receipts/{id}", VIEWER, spool.receipt, "What became of a submission"),
    _call("GET", "/records/{id}", VIEWER, record.show_record, "What is kept of one record, and why",
          optional=("since",)),
    _call("GET", "/books", VIEWER, spool.show_running_books, "The running books"),
    _call("GET", "/verify", VIEWER, spool.verify, "Recount the books"),

    _call("GET", "/streams", VIEWER, streams.list_streams, "List unit-cost streams", lists=unit_cost.STREAMS),
    _call("GET", "/events", VIEWER, events.list_events, "List the newest usage events", lists=events.EVENTS),
    _call("GET", "/event-types", VIEWER, events.list_event_types, "List types of usage events", lists=events.TYPES),
    _call("GET", "/unknown", VIEWER, streams.list_unknown, "List deliveries of unknown fate",
          lists=streams.UNKNOWN),
    _call("POST", "/unknown/{id}/resolve", OPERATOR, streams.resolve, "Settle a delivery of unknown fate",
          takes=streams.Resolution),

    _call("GET", "/billing", VIEWER, billing.preview, "What hours come to as billing drops",
          required=("from", "to")),
    _call("POST", "/billing/push", OPERATOR, billing.push, "Send hours as billing drops", takes=billing.Push),

    _call("GET", "/connections", VIEWER, connections.list_connections, "List billing connections",
          lists=connection_lists.CONNECTIONS),
    _call("POST", "/connections", OPERATOR, connections.create_connection, "Create a billing connection",
          takes=NewConnection, status=201),
    _call("GET", "/connections/{id}", VIEWER, connections.show_connection, "Show a billing connection"),
    _call("PATCH", "/connections/{id}", OPERATOR, connections.edit_connection, "Change a billing connection",
          takes=ConnectionChanges),
    _call("DELETE", "/connections/{id}", OPERATOR, connections.delete_connection,
          "Delete a billing connection and its rows", required=("confirm",)),
    _call("GET", "/connections/{id}/drops", VIEWER, connections.list_drops, "List the drops of a connection",
          lists=connection_lists.DROPS),
    _call("GET", "/connections/{id}/drops/{month}", VIEWER, connections.show_month, "Show the rows of a month"),

    _call("POST", "/mcp", VIEWER, assistants.relay_mcp, "Answer a message of an assistant on stdio",
          takes=assistants.McpLine),

    _call("GET", "/views", VIEWER, views.list_views, "List views", lists=view_lists.VIEWS),
    _call("POST", "/views", OPERATOR, views.add_view, "Create a view", takes=NewView, status=201),
    _call("GET", "/views/{id}", VIEWER, views.show_view, "Show a view, by its id or its name"),
    _call("PATCH", "/views/{id}", OPERATOR, views.edit_view, "Change a view", takes=ViewChanges),
    _call("DELETE", "/views/{id}", OPERATOR, views.remove_view, "Delete a view"),

    _call("GET", "/budgets", VIEWER, budgets.list_budgets, "List budgets", lists=budget_lists.BUDGETS),
    _call("POST", "/budgets", OPERATOR, budgets.add_budget, "Create a budget", takes=NewBudget, status=201),
    _call("POST", "/budgets/evaluate", OPERATOR, budgets.evaluate, "Evaluate all budgets now",
          takes=budgets.BudgetEvaluation),
    _call("GET", "/budgets/{id}", VIEWER, budgets.show_budget, "Show a budget", repeated=("expand",)),
    _call("PATCH", "/budgets/{id}", OPERATOR, budgets.edit_budget, "Change a budget", takes=BudgetChanges),
    _call("DELETE", "/budgets/{id}", OPERATOR, budgets.remove_budget, "Delete a budget and its alerts",
          required=("confirm",)),
    _call("GET", "/budgets/{id}/owners", VIEWER, budgets.list_owners, "List the owners of a budget",
          lists=budget_lists.OWNERS),
    _call("GET", "/budgets/{id}/alerts", VIEWER, budgets.list_alerts, "List the alerts of a budget",
          lists=budget_lists.ALERTS),

    _call("GET", "/dead", VIEWER, dead_letters.list_dead, "List dead letters", lists=dead_letters.DEAD),
    _call("GET", "/dead/{id}", VIEWER, dead_letters.show_dead, "Show a dead letter's record"),
    _call("PATCH", "/dead/{id}", OPERATOR, dead_letters.edit_dead, "Send a dead letter again with other values",
          takes=dead_letters.Edit),
    _call("POST", "/dead/retry", OPERATOR, dead_letters.retry_dead, "Send dead letters again",
          takes=dead_letters.Letters),
    _call("POST", "/dead/discard", OPERATOR, dead_letters.discard_dead, "Give dead letters up",
          takes=dead_letters.Letters),
    _call("GET", "/partial-refusals", VIEWER, dead_letters.list_refusals, "List what partial successes refused",
          lists=dead_letters.REFUSALS),

    _call("GET", "/ignored", VIEWER, findings.list_ignored, "List unrecognised AI shapes",
          lists=findings.IGNORED),
    _call("GET", "/conflicts", VIEWER, findings.list_conflicts, "List reports that disagreed",
          lists=findings.CONFLICTS),

    _call("GET", "/ledger", VIEWER, ledger.state, "How far the ledger reaches"),
    _call("GET", "/report", VIEWER, report.report, "Costs by dimensions", optional=report.ONCE,
          repeated=report.REPEATED, gives={JSON: OBJECT, "text/csv": TEXT}),
    _call("GET", "/comparison", VIEWER, comparison.comparison, "What changed the costs", optional=comparison.ONCE,
          repeated=comparison.REPEATED),
    _call("POST", "/allocation/diff", VIEWER, allocation_diff.diff_definition,
          "What a month would become under a definition", takes=allocation_diff.DefinitionDraft),
    _call("POST", "/allocation/validate", VIEWER, allocation.validate_definition,
          "What version a definition would become", takes=allocation.DraftToValidate),
    _call("POST", "/allocation/publish", OPERATOR, allocation.publish_definition, "Publish a definition",
          takes=allocation.DraftToPublish, status=201),
    _call("GET", "/allocation/versions", VIEWER, allocation.list_versions, "List versions of definitions",
          lists=allocation_lists.ALL_VERSIONS),
    _call("GET", "/allocation/versions/{version}", VIEWER, allocation.show_version,
          "Show a version of a definition, or the latest", optional=("namespace",)),
    _call("GET", "/allocation/namespaces", VIEWER, allocation.list_namespaces, "List namespaces of definitions",
          lists=allocation_lists.NAMESPACES),
    _call("POST", "/allocation/namespaces", OPERATOR, allocation.add_namespace, "Create a namespace",
          takes=allocation.NewNamespaceOfId, status=201),
    _call("GET", "/allocation/namespaces/{id}", VIEWER, allocation.show_namespace,
          "Show a namespace and its definition"),
    _call("PATCH", "/allocation/namespaces/{id}", OPERATOR, allocation.edit_namespace, "Change a namespace",
          takes=NamespaceChanges),
    _call("DELETE", "/allocation/namespaces/{id}", OPERATOR, allocation.remove_namespace,
          "Delete a namespace that defines nothing"),
    _call("GET", "/allocation/jobs", VIEWER, allocation.list_jobs, "List publish jobs",
          lists=allocation_lists.PUBLISH_JOBS),
    _call("GET", "/allocation/jobs/{id}", VIEWER, allocation.show_job, "Show a publish job"),
    _call("POST", "/allocation/jobs/{id}/cancel", OPERATOR, allocation.cancel_job,
          "Cancel a publish job that is not begun"),
    _call("GET", "/statements", VIEWER, statements.list_statements, "List what providers billed, by source and month",
          lists=statements.STATEMENTS),
    _call("POST", "/statements", OPERATOR, statements.import_statements, "Import reports of providers",
          takes=statements.StatementFiles),
    _call("DELETE", "/statements/{id}", OPERATOR, statements.delete_statement, "Forget a month of a source"),

    _call("GET", "/statement-pulls", VIEWER, statements.list_pulls, "List the reports that are pulled",
          lists=statements.PULLS),
    _call("POST", "/statement-pulls", OPERATOR, statements.pull_statements, "Pull reports now",
          takes=statements.StatementPull),

    _call("GET", "/reconciliation", VIEWER, reconciliation.reconciliation, "What was billed against what was counted",
          optional=reconciliation.ONCE, gives={JSON: OBJECT, "text/csv": TEXT}),
    _call("POST", "/ledger/rebuild", OPERATOR, ledger.rebuild, "Count anew what is kept",
          takes=ledger.Rebuild),
    _call("POST", "/ledger/reprice", OPERATOR, ledger.reprice, "Price estimates again", takes=ledger.Reprice),

    _call("GET", "/insights", VIEWER, insights.list_insights, "List insights", lists=insight_lists.INSIGHTS),
    _call("POST", "/insights/run", OPERATOR, insights.inspect, "Look with every detector now",
          takes=insights.Inspection),
    _call("GET", "/insights/{id}", VIEWER, insights.show_insight, "Show an insight and its comments"),
    _call("PATCH", "/insights/{id}", OPERATOR, insights.set_insight, "Set an insight's status",
          takes=insights.InsightStatus),
    _call("GET", "/insights/{id}/comments", VIEWER, insights.list_comments, "List the comments on an insight",
          lists=insight_lists.COMMENTS),
    _call("POST", "/insights/{id}/comments", OPERATOR, insights.comment_insight, "Comment on an insight",
          takes=insights.InsightComment),

    _call("GET", "/recommendations", VIEWER, recommendations.list_recommendations, "List what would have cost less",
          lists=recommendation_lists.recommendation_list(DIMENSIONS)),
    _call("PATCH", "/recommendations", OPERATOR, recommendations.change_recommendations,
          "Set the status or the assignee of recommendations", takes=RecommendationChanges),
    _call("POST", "/recommendations/run", OPERATOR, recommendations.look_for_savings, "Look for savings now",
          takes=recommendations.SavingsLook),
    _call("GET", "/recommendations/{id}", VIEWER, recommendations.show_recommendation,
          "Show a recommendation and its comments"),
    _call("GET", "/recommendations/{id}/comments", VIEWER, recommendations.list_recommendation_comments,
          "List the comments on a recommendation", lists=recommendation_lists.RECOMMENDATION_COMMENTS),
    _call("POST", "/recommendations/{id}/comments", OPERATOR, recommendations.comment_recommendation,
          "Comment on a recommendation", takes=NewComments),
    _call("PATCH", "/recommendations/{id}/comments/{comment}", OPERATOR, recommendations.change_recommendation_comment,
          "Change a comment on a recommendation", takes=OneMessage),
    _call("DELETE", "/recommendations/{id}/comments/{comment}", OPERATOR,
          recommendations.delete_recommendation_comment, "Delete a comment on a recommendation"),
    _call("GET", "/recommendation-types", VIEWER, recommendations.list_recommendation_types,
          "List the types of recommendations", lists=recommendation_lists.RECOMMENDATION_TYPES),
    _call("GET", "/recommendation-types/{type}", VIEWER, recommendations.show_recommendation_type,
          "Show a type of recommendations"),
    _call("PATCH", "/recommendation-types/{type}", OPERATOR, recommendations.change_recommendation_type,
          "Switch a type of recommendations, or set the least that it tells", takes=TypeChanges),
    _call("GET", "/recommendation-dimensions", VIEWER, recommendations.list_recommendation_dimensions,
          "List what recommendations can be filtered by", lists=recommendation_lists.RECOMMENDATION_DIMENSIONS),
    _call("GET", "/recommendation-check", VIEWER, recommendations.check_savings,
          "Look for savings now, and keep nothing", optional=("type", "filter")),

    _call("GET", "/notifications", VIEWER, notifications.list_notifications, "List notifications",
          lists=notifications.NOTIFICATIONS),
    _call("GET", "/notifications/{id}", VIEWER, notifications.show_notification, "Show a notification"),
    _call("POST", "/notifications/retry", OPERATOR, notifications.retry_notifications, "Send notifications again",
          takes=notifications.ChosenNotifications),
    _call("POST", "/notifications/discard", OPERATOR, notifications.discard_notifications, "Give notifications up",
          takes=notifications.ChosenNotifications),
    _call("GET", "/notification-channels", VIEWER, notifications.list_channels,
          "List the channels that send notifications", lists=notifications.CHANNELS),
    _call("POST", "/notification-channels/{name}/test", OPERATOR, notifications.test_channel,
          "Send a notice that shows whether a channel works", takes=notifications.ChannelTest, status=201),

    _call("GET", "/operators", ADMIN, accounts.list_operators, "List operators", lists=accounts.OPERATORS),
    _call("POST", "/operators", ADMIN, accounts.add_operator, "Add an operator",
          takes=accounts.NewOperator, status=201),
    _call("PATCH", "/operators/{email}", ADMIN, accounts.edit_operator, "Change an operator's role or password",
          takes=accounts.OperatorChanges),
    _call("DELETE", "/operators/{email}", ADMIN, accounts.remove_operator, "Remove an operator"),
    _call("GET", "/audit", ADMIN, accounts.list_audit, "List every change", lists=accounts.AUDIT),
)
# fmt: on
