"""Billing connections."""

from __future__ import annotations

from gateway.api.connections import CONNECTION
from gateway.api.managed import CHANGE, CREATE, DELETE, LIST, SHOW
from gateway.operator.managed import managed_by_people
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS

ROWS = managed_by_people(
    CONNECTION, "/connections", reads=VIEW_COSTS, changes=MODIFY_BILLING, is_confirmed=True,
    names={LIST: "list_connections", CREATE: "create_connection", SHOW: "show_connection",
           CHANGE: "edit_connection", DELETE: "delete_connection"},
    words={DELETE: "Delete a billing connection and its rows"},
)  # fmt: skip
