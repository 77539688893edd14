"""Addresses of the operator API: the role that each needs, what it takes, and its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from aiohttp import web

from gateway.api import insight_lists
from gateway.console import pages
from gateway.http.answers import JSON
from gateway.http.lists import List
from gateway.http.requests import Result
from gateway.mounts import CONSOLE, OPERATOR_API
from gateway.operator import (
    accounts,
    billing,
    dead_letters,
    deliveries,
    devices,
    findings,
    insights,
    keys,
    ledger,
    records,
    sign_in,
    spool,
    streams,
)
from gateway.operator.address import OperatorAddress
from gateway.operator.requests import OperatorRequest
from gateway.schemas import OBJECT
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
) -> OperatorAddress:
    # Lists and reports check the query themselves; a call with a body ignores it.
    ignores_query = takes is not None or lists is not None or bool(repeated)
    return OperatorAddress(
        methods=(method,),
        path=OPERATOR_API + path,
        role=role,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        body=takes,
        takes={JSON: takes} if takes else {},
        gives={} if lists else {status: {JSON: OBJECT}},
        lists=lists,
        required=required,
        optional=optional,
        repeated=repeated,
        checks_query=not ignores_query,
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

    _call("GET", "/keys", VIEWER, keys.list_keys, "List API keys", lists=keys.KEYS),
    _call("POST", "/keys", ADMIN, keys.create_key, "Create an API key", takes=keys.NewKey, status=201),
    _call("GET", "/keys/{name}", VIEWER, keys.show_key, "Show an API key"),
    _call("PATCH", "/keys/{name}", ADMIN, keys.edit_key, "Edit an API key", takes=keys.KeyChanges),
    _call("POST", "/keys/{name}/rotate", ADMIN, keys.rotate_key, "Give a key a new secret",
          takes=keys.Rotation),
    _call("POST", "/keys/{name}/enable", ADMIN, keys.enable_key, "Enable an API key"),
    _call("POST", "/keys/{name}/disable", ADMIN, keys.disable_key, "Disable an API key"),
    _call("DELETE", "/keys/{name}", ADMIN, keys.delete_key, "Delete an API key", required=("confirm",)),

    _call("GET", "/devices", VIEWER, devices.list_devices, "List devices", lists=devices.DEVICES),
    _call("GET", "/unenrolled", VIEWER, devices.list_unenrolled, "List names of devices that are not enrolled",
          lists=devices.UNENROLLED),
    _call("GET", "/devices/{id}", VIEWER, devices.show_device, "Show a device"),
    _call("POST", "/devices/{id}/approve", OPERATOR, devices.approve_device,
          "Enrol a pending or revoked device"),
    _call("POST", "/devices/{id}/revoke", OPERATOR, devices.revoke_device, "Refuse a device from now on"),
    _call("POST", "/devices/{id}/reset", OPERATOR, devices.reset_device,
          "Forget a device's fingerprint and key"),
    _call("PATCH", "/devices/{id}", OPERATOR, devices.label_device, "Label a device", takes=devices.Labels),

    _call("GET", "/status", VIEWER, spool.status, "Topics, routes and space"),
    _call("GET", "/routes", VIEWER, spool.list_routes, "List routes", lists=spool.ROUTES),
    _call("DELETE", "/routes/{destination}/{topic}", OPERATOR, spool.drop_route, "Forget an orphaned route"),
    _call("GET", "/deliveries", VIEWER, deliveries.list_deliveries, "List deliveries that are not settled",
          lists=deliveries.DELIVERIES),
    _call("POST", "/replay", OPERATOR, spool.replay, "Send settled records again", takes=spool.Replay),
    _call("GET", "/clock", VIEWER, spool.show_clock, "The time that is used, and a step of the clock"),
    _call("POST", "/clock/accept", OPERATOR, spool.accept_clock, "Believe the clock after a step of it",
          takes=spool.AcceptClock),
    _call("GET", "/receipts/{id}", VIEWER, spool.receipt, "What became of a submission"),
    _call("GET", "/records/{id}", VIEWER, records.show_record, "What is kept of one record, and why",
          optional=("since",)),
    _call("GET", "/books", VIEWER, spool.show_running_books, "The running books"),
    _call("GET", "/verify", VIEWER, spool.verify, "Recount the books"),

    _call("GET", "/streams", VIEWER, streams.list_streams, "List unit-cost streams", lists=streams.STREAMS),
    _call("GET", "/event-types", VIEWER, streams.list_event_types, "List types of usage events",
          lists=streams.EVENT_TYPES),
    _call("GET", "/unknown", VIEWER, streams.list_unknown, "List deliveries of unknown fate",
          lists=streams.UNKNOWN),
    _call("POST", "/unknown/{id}/resolve", OPERATOR, streams.resolve, "Settle a delivery of unknown fate",
          takes=streams.Resolution),

    _call("GET", "/billing", VIEWER, billing.preview, "What hours come to as billing drops",
          required=("from", "to")),
    _call("POST", "/billing/push", OPERATOR, billing.push, "Send hours as billing drops", takes=billing.Push),

    _call("GET", "/dead", VIEWER, dead_letters.list_dead, "List dead letters", lists=dead_letters.DEAD),
    _call("GET", "/dead/{id}", VIEWER, dead_letters.show_dead, "Show a dead letter's record"),
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
    _call("GET", "/report", VIEWER, ledger.report, "Costs by dimensions",
          optional=ledger.ONCE, repeated=ledger.REPEATED),
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

    _call("GET", "/operators", ADMIN, accounts.list_operators, "List operators", lists=accounts.OPERATORS),
    _call("POST", "/operators", ADMIN, accounts.add_operator, "Add an operator",
          takes=accounts.NewOperator, status=201),
    _call("PATCH", "/operators/{email}", ADMIN, accounts.edit_operator, "Change an operator's role or password",
          takes=accounts.OperatorChanges),
    _call("DELETE", "/operators/{email}", ADMIN, accounts.remove_operator, "Remove an operator"),
    _call("GET", "/audit", ADMIN, accounts.list_audit, "List every change", lists=accounts.AUDIT),
)
# fmt: on
