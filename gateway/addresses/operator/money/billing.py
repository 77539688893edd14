"""Billing drops, billing connections, statements and reconciliation."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.api.connections import CONNECTION
from gateway.api.kept.drop_rows import MONTH_ROWS
from gateway.api.lists import connections as connection_lists
from gateway.api.managed import CHANGE, CREATE, DELETE, LIST, SHOW
from gateway.http.answers import JSON
from gateway.operator.billing import connections, hours, reconciliation, statements
from gateway.operator.managed import managed_by_people
from gateway.schemas import OBJECT, TEXT
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS

ROWS = (
    call("GET", "/billing", VIEW_COSTS, hours.preview, "What hours come to as billing drops",
         required=("from", "to"), in_turn=True),
    call("POST", "/billing/push", MODIFY_BILLING, hours.push, "Send hours as billing drops", takes=hours.Push),
    *managed_by_people(CONNECTION, "/connections", reads=VIEW_COSTS, changes=MODIFY_BILLING, is_confirmed=True,
                       names={LIST: "list_connections", CREATE: "create_connection", SHOW: "show_connection",
                             CHANGE: "edit_connection", DELETE: "delete_connection"},
                       words={DELETE: "Delete a billing connection and its rows"}),
    call("GET", "/connections/{id}/drops", VIEW_COSTS, connections.list_drops, "List the drops of a connection",
         lists=connection_lists.DROPS),
    call("GET", "/connections/{id}/drops/{month}", VIEW_COSTS, connections.show_month, "Show the rows of a month",
         lists=MONTH_ROWS),
    call("GET", "/statements", VIEW_COSTS, statements.list_statements,
         "List what providers billed, by source and month", lists=statements.STATEMENTS),
    call("POST", "/statements", MODIFY_BILLING, statements.import_statements, "Import reports of providers",
         takes=statements.StatementFiles),
    call("DELETE", "/statements/{id}", MODIFY_BILLING, statements.delete_statement, "Forget a month of a source"),
    call("GET", "/statement-pulls", VIEW_COSTS, statements.list_pulls, "List the reports that are pulled",
         lists=statements.PULLS),
    call("POST", "/statement-pulls", MODIFY_BILLING, statements.pull_statements, "Pull reports now",
         takes=statements.StatementPull),
    call("GET", "/reconciliation", VIEW_COSTS, reconciliation.reconciliation,
         "What was billed against what was counted",
         optional=reconciliation.ONCE, gives={JSON: OBJECT, "text/csv": TEXT}, in_turn=True,
         asks_closed=reconciliation.asks_closed_month),
)  # fmt: skip
