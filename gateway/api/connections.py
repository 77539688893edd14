"""
Billing connections and the drops that they took, for keys that manage them and for people.

The keys that send drops read nothing here: their scopes are write-only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol, TypeVar

import msgspec
from aiohttp import web
from msgspec import UNSET

from gateway.api.kept.drop_rows import MONTH_ROWS, MonthRows, whole_month
from gateway.api.lists.connections import CONNECTIONS, DROPS, connection_rows, describe_connection, drop_rows
from gateway.api.managed import Answer, Asker, ManagedResource
from gateway.errors import Refusal
from gateway.http.answers import JSON, send_pieces
from gateway.http.holders.money import MoneyServices
from gateway.http.inflight_bytes import Share
from gateway.http.lists import List, MemoryRows, Rows
from gateway.http.requests import KeyRequest, Result
from gateway.intake.billing_connections import BillingConnections, ShownConnection
from gateway.resources.connections import (
    BucketInfo,
    ConnectionChanges,
    ConnectionItem,
    NewConnection,
    OneConnection,
)
from gateway.resources.declaration import stated
from spool import providers
from spool.billing.drops import month_text
from spool.errors import NotThere
from spool.registry.connections import BillingConnection, ConnectionDraft, S3Bucket

Row = TypeVar("Row")


class MonthRequest(Protocol):
    """A request of a key or of a person."""

    http: web.Request

    async def list(self, listed: List[Row], rows: Rows[Row]) -> Mapping[str, object]: ...


_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")


async def _rows(asking: Asker) -> MemoryRows[ShownConnection]:
    return await connection_rows(_connections(asking))


async def _create(asking: Asker, given: NewConnection) -> Answer:
    connections = _connections(asking)
    draft = ConnectionDraft(**_fields(given))
    made = await connections.create(draft, id=given.connection_id, actor=asking.actor)
    reason = await _counted_twice(asking, made)
    wanted = not reason if given.in_costs is None else given.in_costs
    await connections.put_in_costs(made.id, wanted, actor=asking.actor)
    return await _one(connections, made, reason)


async def _show(asking: Asker, id: str) -> Answer:
    connections = _connections(asking)
    found = connections.table.get(id)
    return await _one(connections, found, await _counted_twice(asking, found))


async def _change(asking: Asker, id: str, given: Any) -> Answer:
    connections = _connections(asking)
    before = connections.table.get(id)
    fields = _fields(given)
    after = await connections.change(id, fields, actor=asking.actor) if fields else before
    if given.in_costs not in (UNSET, None):
        await connections.put_in_costs(id, given.in_costs, actor=asking.actor)
    return await _one(connections, after, await _counted_twice(asking, after))


async def _delete(asking: Asker, id: str) -> str:
    connections = _connections(asking)
    connections.table.get(id)
    asking.check_confirmed(id, "id of the connection")
    await connections.delete(id, actor=asking.actor)
    return id


CONNECTION = ManagedResource(
    noun="billing_connection",
    root="connection",
    lists=CONNECTIONS,
    new=NewConnection,
    changes=ConnectionChanges,
    item=ConnectionItem,
    one=OneConnection,
    rows=_rows,
    create=_create,
    show=_show,
    change=_change,
    delete=_delete,
)


async def read_billing_drops(request: KeyRequest[MoneyServices, None]) -> Result:
    connections = request.services.billing_connections
    return await request.list(DROPS, drop_rows(connections, request.word("connection_id")))


async def read_billing_drop(request: KeyRequest[MoneyServices, None]) -> Result:
    connections = request.services.billing_connections
    id = request.word("connection_id")
    month = request.word("month")
    return await send_month(request, connections, id, month, share=request.share)


async def send_month(
    request: MonthRequest,
    connections: BillingConnections,
    id: str,
    month: str,
    *,
    share: Share,
) -> Result:
    """
    The rows of a month as the operations left them; NotThere if there are none.

    A page of them for who asks for a part; else all, inflated while they are sent: a client that knows of no
    pages must not lose rows. What this holds counts in the share of the request. Refusal 503 if there is no room.
    """
    if not _MONTH.fullmatch(month):
        raise Refusal(400, "invalid_month", "A month is written YYYY-MM.")
    drops, id = connections.drops, connections.table.get(id).id
    share.take((await drops.size(id, month)).held)
    hours = await drops.month(id, month)
    # first, because it refuses unknown parameters
    page = await request.list(MONTH_ROWS, MonthRows(hours)) if request.http.query else None
    if not hours:
        raise NotThere("this connection has no rows of this month")
    if page is not None:
        return page
    behind = whole_month(sum(hour.rows for hour in hours))
    return await send_pieces(
        request.http, chain((b'{"billing_drop":',), month_text(hours), (behind,)), content_type=JSON
    )


def _connections(asking: Asker) -> BillingConnections:
    """Refusal 503 with the reason, to a person, while the registry cannot be read."""
    if asking.is_person:
        asking.services.require_registry()
    return asking.services.billing_connections


async def _one(connections: BillingConnections, connection: BillingConnection, reason: str | None) -> Answer:
    [row] = await connections.shown(connection)
    return {"connection": describe_connection(replace(row, in_costs_reason=reason))}


async def _counted_twice(asking: Asker, connection: BillingConnection) -> str | None:
    """Why rows of a connection would count twice in costs; None if nothing else tells of its provider."""
    name = providers.canonical(connection.cloud_provider)
    known = await asking.services.known_values()
    if name in map(providers.canonical, known.get("provider", ())):
        return f"calls of {connection.cloud_provider} are counted: with its bill they would count twice"
    statements = await asking.registry.statements.statements()
    if name in {info.provider for info in statements}:
        return f"statements tell the bill of {connection.cloud_provider}: with its rows it would count twice"
    return None


def _fields(given: Any) -> dict[str, Any]:
    """Return the stated fields by the names of a draft."""
    values = stated(given, s3_bucket_info=_bucket)
    values.pop("connection_id", None)
    values.pop("in_costs", None)
    names = {"s3_bucket_info": "s3_bucket", "upstream_connection_id": "upstream_id"}
    return {names.get(name, name): value for name, value in values.items()}


def _bucket(given: BucketInfo | None) -> S3Bucket | None:
    return None if given is None else S3Bucket(**msgspec.structs.asdict(given))
