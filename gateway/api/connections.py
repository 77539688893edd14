"""
Billing connections and the drops that they took, for keys that manage them. Each method has a scope of its own.

The keys that send drops read nothing here: their scopes are write-only.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import msgspec
from aiohttp import web

from gateway.api.connection_lists import CONNECTIONS, DROPS, connection_rows, drop_rows, shown_connection
from gateway.errors import Refusal
from gateway.http.answers import JSON, send_pieces
from gateway.http.budget import Lease
from gateway.http.requests import KeyRequest, Result
from gateway.intake.billing_connections import BillingConnections
from spool.billing.drops import month_text
from spool.errors import NotThere
from spool.registry.connections import BillingConnection, ConnectionDraft, S3Bucket

_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")


class BucketInfo(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    bucket_name: str
    bucket_path: str
    cloud_account_id: str


class NewConnection(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`connection_id` makes the id one that senders have already; `upstream_connection_id` is its id upstream."""

    name: str
    cloud_provider: str
    expected_ingest_rate: float | None = None
    is_enabled: bool = True
    s3_bucket_info: BucketInfo | None = None
    connection_id: str | None = None
    upstream_connection_id: str = ""


class ConnectionChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    cloud_provider: str | msgspec.UnsetType = msgspec.UNSET
    expected_ingest_rate: float | msgspec.UnsetType | None = msgspec.UNSET
    is_enabled: bool | msgspec.UnsetType = msgspec.UNSET
    s3_bucket_info: BucketInfo | msgspec.UnsetType | None = msgspec.UNSET
    upstream_connection_id: str | msgspec.UnsetType = msgspec.UNSET


class ConnectionItem(msgspec.Struct, kw_only=True):
    """A connection as it is answered; times are epoch seconds as text."""

    id: str
    connection_id: str
    name: str
    connection_name: str
    cloud_provider: str
    expected_ingest_rate: float | None
    is_enabled: bool
    s3_bucket_info: BucketInfo | None
    connection_type: str
    capabilities: list[str]
    is_draft: bool
    state: str
    upstream_connection_id: str
    created: str
    creation_date: str
    last_updated: str


class OneConnection(msgspec.Struct, kw_only=True):
    connection: ConnectionItem


async def read_billing_connections(request: KeyRequest[None]) -> Result:
    return await request.list(CONNECTIONS, await connection_rows(request.services.billing_connections))


async def create_billing_connection(request: KeyRequest[NewConnection]) -> Result:
    connections = request.services.billing_connections
    made = await connections.create(draft_of(request.body), id=request.body.connection_id, actor=request.actor)
    return await one(connections, made)


async def read_billing_connection(request: KeyRequest[None]) -> Result:
    connections = request.services.billing_connections
    return await one(connections, connections.table.get(request.word("connection_id")))


async def update_billing_connection(request: KeyRequest[ConnectionChanges]) -> Result:
    connections = request.services.billing_connections
    changes = changes_of(request.body)
    return await one(connections, await connections.change(request.word("connection_id"), changes, actor=request.actor))


async def delete_billing_connection(request: KeyRequest[None]) -> Result:
    id = request.word("connection_id")
    await request.services.billing_connections.delete(id, actor=request.actor)
    return {"connection": {"id": id}}


async def read_billing_drops(request: KeyRequest[None]) -> Result:
    connections = request.services.billing_connections
    return await request.list(DROPS, drop_rows(connections, request.word("connection_id")))


async def read_billing_drop(request: KeyRequest[None]) -> web.StreamResponse:
    connections = request.services.billing_connections
    id, month = request.word("connection_id"), request.word("month")
    return await send_month(request.http, connections, id, month, lease=request.lease)


async def send_month(
    request: web.Request, connections: BillingConnections, id: str, month: str, *, lease: Lease
) -> web.StreamResponse:
    """
    The rows of a month as the operations left them, inflated while they are sent; NotThere if there are none.

    What this holds counts in the lease. Refusal 503 if there is no room.
    """
    if not _MONTH.fullmatch(month):
        raise Refusal(400, "invalid_month", "A month is written YYYY-MM.")
    drops, id = connections.drops, connections.table.get(id).id
    lease.take((await drops.size(id, month)).held)
    hours = await drops.month(id, month)
    if not hours:
        raise NotThere("this connection has no rows of this month")
    return await send_pieces(request, chain((b'{"billing_drop":',), month_text(hours), (b"}",)), content_type=JSON)


def draft_of(given: NewConnection) -> ConnectionDraft:
    return ConnectionDraft(
        name=given.name,
        cloud_provider=given.cloud_provider,
        expected_ingest_rate=given.expected_ingest_rate,
        is_enabled=given.is_enabled,
        s3_bucket=_bucket(given.s3_bucket_info),
        upstream_id=given.upstream_connection_id,
    )


def changes_of(given: ConnectionChanges) -> dict[str, Any]:
    """By the names of a draft, what is given."""
    changes: dict[str, Any] = {
        "name": given.name,
        "cloud_provider": given.cloud_provider,
        "expected_ingest_rate": given.expected_ingest_rate,
        "is_enabled": given.is_enabled,
        "upstream_id": given.upstream_connection_id,
    }
    if given.s3_bucket_info is not msgspec.UNSET:
        changes["s3_bucket"] = _bucket(given.s3_bucket_info)
    return {name: value for name, value in changes.items() if value is not msgspec.UNSET}


async def one(connections: BillingConnections, connection: BillingConnection) -> Result:
    [row] = await connections.shown(connection)
    return {"connection": shown_connection(row)}


def _bucket(given: BucketInfo | None) -> S3Bucket | None:
    if given is None:
        return None
    return S3Bucket(
        bucket_name=given.bucket_name, bucket_path=given.bucket_path, cloud_account_id=given.cloud_account_id
    )
