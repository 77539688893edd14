"""The calls of the operator API on billing connections: the same values and rules as for keys."""

from __future__ import annotations

from typing import Any

from gateway.api.connection_lists import CONNECTIONS, DROPS, connection_rows, drop_rows
from gateway.api.connections import ConnectionChanges, NewConnection, changes_of, draft_of, one, send_month
from gateway.http.requests import Result
from gateway.intake.billing_connections import BillingConnections
from gateway.operator.requests import OperatorRequest
from spool.errors import Invalid

OPERATORS = ""  # no key has this name: all of them share what one key may hold


async def list_connections(request: OperatorRequest[None]) -> Result:
    return await request.list(CONNECTIONS, await connection_rows(_connections(request)))


async def create_connection(request: OperatorRequest[NewConnection]) -> Result:
    connections, given = _connections(request), request.body
    made = await connections.create(draft_of(given), id=given.connection_id, actor=request.actor)
    return await one(connections, made)


async def show_connection(request: OperatorRequest[None]) -> Result:
    connections = _connections(request)
    return await one(connections, connections.table.get(request.word("id")))


async def edit_connection(request: OperatorRequest[ConnectionChanges]) -> Result:
    connections, changes = _connections(request), changes_of(request.body)
    return await one(connections, await connections.change(request.word("id"), changes, actor=request.actor))


async def delete_connection(request: OperatorRequest[None]) -> Result:
    """Delete a connection; `confirm` is its exact id."""
    connections, id = _connections(request), request.word("id")
    connections.table.get(id)
    if request.http.query.get("confirm", "") != id:
        raise Invalid("confirm must be the exact id of the connection")
    await connections.delete(id, actor=request.actor)
    return {"deleted": id}


async def list_drops(request: OperatorRequest[None]) -> Result:
    return await request.list(DROPS, drop_rows(_connections(request), request.word("id")))


async def show_month(request: OperatorRequest[None]) -> Result:
    connections, id, month = _connections(request), request.word("id"), request.word("month")
    with request.services.budget.lease(OPERATORS) as lease:
        return await send_month(request.http, connections, id, month, lease=lease)


def _connections(request: OperatorRequest[Any]) -> BillingConnections:
    request.services.require_registry()
    return request.services.billing_connections
