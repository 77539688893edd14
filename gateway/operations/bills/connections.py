"""Handlers for billing connections and their hourly files, for requests with keys and from people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, Protocol, TypeVar

import msgspec
from aiohttp import web
from msgspec import UNSET

from gateway.bills.connections.declared import (
    BucketInfo,
    ConnectionChanges,
    ConnectionItem,
    NewConnection,
    OneConnection,
)
from gateway.core.errors import Refusal
from gateway.core.fields import build_answer, given_fields
from gateway.http.address import READ, key_call
from gateway.http.answers import JSON, send_pieces
from gateway.http.inflight_bytes import RequestByteReservation
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Rows, Sort, StoredRows, yes_no_filter
from gateway.http.requests import Result
from gateway.intake.billing_connections import (
    STATES,
    BillingConnections,
    ShownConnection,
    draft_of_configured_connection,
)
from gateway.money.costs.times import format_seconds
from gateway.operations.answers import BillingDropItem
from gateway.operations.bills.drop_rows import (
    DROP_ROW,
    MONTH_ROWS,
    MonthBillingRows,
    closing_json_of_month_answer,
)
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.files.kinds import MoneyCaller, ObjectFields, ResourceFileHandler
from gateway.operations.files.text import to_json_form
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.managed import (
    CHANGE,
    CREATE,
    DELETE,
    LIST,
    SHOW,
    ByKeys,
    ByPeople,
    JsonAnswer,
    ManagedResource,
    OperationCaller,
)
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.operation_requests import OperationKeyRequest
from gateway.operations.requests.requests import OperatorRequest
from spool import providers
from spool.billing import StoredBillingFile, rows_of_month_json
from spool.errors import Invalid, NotThere
from spool.listing import SortField
from spool.registry.connections import BillingConnection, ConnectionDraft, S3Bucket
from spool.registry.document_table import draft_fields as stated_fields
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS
from spool.registry.registry import Registry
from spool.registry.tables.connections import ConnectionTable

Row = TypeVar("Row")
# key name that stands for people, so that they share one memory allowance; no real key has an empty name
OPERATORS = ""
CONNECTION_TYPE = "external"
CAPABILITIES = ("billing_drops",)


def describe_connection(row: ShownConnection) -> dict[str, object]:
    connection = row.connection
    return build_answer(
        ConnectionItem,
        connection,
        connection_id=connection.id,
        connection_name=connection.name,
        s3_bucket_info=connection.s3_bucket,
        connection_type=CONNECTION_TYPE,
        capabilities=CAPABILITIES,
        is_draft=False,
        state=row.state,
        in_costs=row.in_costs,
        in_costs_reason=row.in_costs_reason,
        upstream_connection_id=connection.connection_id_upstream,
        created=format_seconds(connection.created),
        creation_date=format_seconds(connection.created),
        last_updated=format_seconds(connection.last_updated),
    )


def describe_drop(billing_file: StoredBillingFile) -> dict[str, object]:
    return {"drop_id": billing_file.id, "month": billing_file.month, "row_count": billing_file.rows}


CONNECTIONS: ListDefinition[ShownConnection] = ListDefinition(
    root="connections",
    show=describe_connection,
    identity=Sort(value=lambda row: row.connection.id),
    sorts={
        "connection_name": Sort(value=lambda row: row.connection.name),
        "creation_date": Sort(value=lambda row: row.connection.created),
        "name": Sort(value=lambda row: row.connection.name),
        "cloud_provider": Sort(value=lambda row: row.connection.cloud_provider),
        "created": Sort(value=lambda row: row.connection.created),
        "last_updated": Sort(value=lambda row: row.connection.last_updated),
        "is_enabled": Sort(value=lambda row: int(row.connection.is_enabled)),
    },
    default_sort=("name", "asc"),
    filters={
        "cloud_provider": Filter(values=lambda row: (row.connection.cloud_provider,)),
        "is_enabled": yes_no_filter(lambda row: row.connection.is_enabled),
        "state": Filter(values=lambda row: (row.state,), valid_values=STATES),
    },
)

DROPS: ListDefinition[StoredBillingFile] = ListDefinition(
    root="billing_drops",
    show=describe_drop,
    identity=Sort(field=SortField("number")),
    sorts={"month": Sort(field=SortField("month")), "row_count": Sort(field=SortField("rows"))},
    default_sort=("month", "asc"),
    filters={"month": Filter(field="month")},
)


async def connection_rows(connections: BillingConnections) -> MemoryRows[ShownConnection]:
    return MemoryRows(await connections.to_shown_connections(*connections.table.all()))


def drop_rows(connections: BillingConnections, id: str) -> StoredRows[StoredBillingFile]:
    """Return the connection's hourly files. Raises NotThere if the connection does not exist."""
    return StoredRows(partial(connections.drops.page, connections.table.get(id).id))


class MonthRequest(Protocol):
    """The parts of a request that `send_month` needs, whether a key or a person sent it."""

    http: web.Request

    async def list_page(
        self, list_definition: ListDefinition[Row], rows: Rows[Row]
    ) -> Mapping[str, object]: ...


_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")


class ConnectionResource(ManagedResource[BillingConnection, MoneyServices]):
    noun = "billing_connection"
    root = "connection"
    lists = CONNECTIONS
    new = NewConnection
    changes = ConnectionChanges
    item = ConnectionItem
    one = OneConnection
    files = ResourceFiles(name="connections", key=("connection_id",), ignores_case=False)
    searched = ("name", "id")
    keys = ByKeys(
        path="/v2/connections/billing",
        id="connection_id",
        group="connections",
        endpoint="connections",
        one_endpoint="connections/one",
        scopes={
            LIST: "read_billings",
            CREATE: "create_billing",
            SHOW: "read_billing",
            CHANGE: "update_billing",
            DELETE: "delete_billing",
        },
        words={DELETE: "Delete a billing connection and its rows"},
    )
    people = ByPeople(
        path="/connections",
        reads=VIEW_COSTS,
        changes=MODIFY_BILLING,
        is_confirmed=True,
        names={
            LIST: "list_connections",
            CREATE: "create_connection",
            SHOW: "show_connection",
            CHANGE: "edit_connection",
            DELETE: "delete_connection",
        },
        words={DELETE: "Delete a billing connection and its rows"},
    )

    def table_in(self, registry: Registry) -> ConnectionTable:
        return registry.connections

    async def stored_rows(self, caller: OperationCaller[MoneyServices]) -> list[BillingConnection]:
        return list(_require_connections(caller).table.all())

    async def visible_rows(self, caller: OperationCaller[MoneyServices]) -> Rows[ShownConnection]:
        return await connection_rows(_require_connections(caller))

    async def create(self, caller: OperationCaller[MoneyServices], new_values: NewConnection) -> JsonAnswer:
        connections = _require_connections(caller)
        draft = ConnectionDraft(**_draft_fields(new_values))
        new_connection = await connections.create(draft, id=new_values.connection_id, actor=caller.actor)
        reason = await _double_count_reason(caller, new_connection)
        in_costs = not reason if new_values.in_costs is None else new_values.in_costs
        await connections.set_in_costs(new_connection.id, in_costs, actor=caller.actor)
        return await _connection_answer(connections, new_connection, reason)

    async def show(self, caller: OperationCaller[MoneyServices], id_or_name: str) -> JsonAnswer:
        connections = _require_connections(caller)
        connection = connections.table.get(id_or_name)
        return await _connection_answer(
            connections, connection, await _double_count_reason(caller, connection)
        )

    async def change(
        self, caller: OperationCaller[MoneyServices], id_or_name: str, new_values: Any
    ) -> JsonAnswer:
        connections = _require_connections(caller)
        before = connections.table.get(id_or_name)
        fields = _draft_fields(new_values)
        after = await connections.change(id_or_name, fields, actor=caller.actor) if fields else before
        if new_values.in_costs not in (UNSET, None):
            await connections.set_in_costs(id_or_name, new_values.in_costs, actor=caller.actor)
        return await _connection_answer(connections, after, await _double_count_reason(caller, after))

    async def delete(self, caller: OperationCaller[MoneyServices], id_or_name: str) -> str:
        connections = _require_connections(caller)
        connections.table.get(id_or_name)
        caller.check_confirmed(id_or_name, "id of the connection")
        await connections.delete(id_or_name, actor=caller.actor)
        return id_or_name


# Clients of cost services use either of the two names in the path, so both names are accepted.
_DROPS = "/v2/connections/billing/{segment:external|anycost}/{connection_id}/billing_drops"


@key_call(
    "GET",
    _DROPS,
    "connections:read_billing_external_billing_drops",
    "List a connection's hourly files (drops) that still have rows",
    endpoint="billing",
    lists=DROPS,
    item=BillingDropItem,
)
async def read_billing_drops(request: OperationKeyRequest[MoneyServices, None]) -> Result:
    connections = request.services.billing_connections
    return await request.list_page(DROPS, drop_rows(connections, request.path_parameter("connection_id")))


@key_call(
    "GET",
    _DROPS + "/{month}",
    "connections:read_billing_external_billing_drops_month",
    "Return a month's rows after all operations; without page parameters, all of them",
    endpoint="billing/month",
    lists=MONTH_ROWS,
    item=DROP_ROW,
    refusals=(*READ, 404, 410),
)
async def read_billing_drop(request: OperationKeyRequest[MoneyServices, None]) -> Result:
    connections = request.services.billing_connections
    id = request.path_parameter("connection_id")
    month = request.path_parameter("month")
    return await send_month(request, connections, id, month, reservation=request.share)


CONNECTION = ConnectionResource()


class ConnectionFileHandler(ResourceFileHandler):
    """
    Billing connections in files. Their rows appear in costs only if the file says so.

    The connection that the configuration declares appears only after people changed it.
    """

    def __init__(self) -> None:
        super().__init__(CONNECTION, CONNECTION.files)
        self.action = ConnectionTable.action

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        return {**super().defaults, "in_costs": False}

    async def rows_by_id(self, registry: Registry) -> Mapping[str, BillingConnection]:
        rows = await super().rows_by_id(registry)
        return {
            id: row
            for id, row in rows.items()
            if stated_fields(row, ConnectionDraft) != stated_fields(draft_of_configured_connection(row.id))
        }

    async def file_fields(self, registry: Registry, row: BillingConnection) -> ObjectFields:
        values = {
            "s3_bucket_info": row.s3_bucket,
            "connection_id": row.id,
            "in_costs": row.id in registry.connections_in_costs.all(),
            "upstream_connection_id": row.upstream_id,
        }
        fields = {name: values[name] if name in values else getattr(row, name) for name in self.field_names}
        return {name: to_json_form(value) for name, value in fields.items()}

    async def create(self, caller: MoneyCaller, new_values: NewConnection, secret: str | None) -> str:
        if new_values.connection_id is None:
            raise Invalid("connection_id is missing, because it identifies the connection in files")
        connections = caller.services.billing_connections
        created = await connections.create(
            ConnectionDraft(**_draft_fields(new_values)), id=new_values.connection_id, actor=caller.actor
        )
        await connections.set_in_costs(created.id, bool(new_values.in_costs), actor=caller.actor)
        return created.id

    async def change(
        self, caller: MoneyCaller, row: BillingConnection, new_values: NewConnection, secret: str | None
    ) -> None:
        connections = caller.services.billing_connections
        await connections.change(row.id, _draft_fields(new_values), actor=caller.actor)
        await connections.set_in_costs(row.id, bool(new_values.in_costs), actor=caller.actor)

    async def delete(self, caller: MoneyCaller, row: BillingConnection) -> None:
        await caller.services.billing_connections.delete_but_keep_rows(row.id, actor=caller.actor)


CONNECTION_KIND = ConnectionFileHandler()


async def send_month(
    request: MonthRequest,
    connections: BillingConnections,
    id: str,
    month: str,
    *,
    reservation: RequestByteReservation,
) -> Result:
    """
    Return a month's rows as they are after all its hourly files. Raises NotThere if there are none.

    A request with page parameters gets one page. Any other request gets all rows, because a client that does
    not know pages must not miss rows. The rows are decompressed while they are sent, and their memory counts
    toward `share`, the request's share of the memory. If no memory is free, the request is refused with 503.
    """
    if not _MONTH.fullmatch(month):
        raise Refusal(400, "invalid_month", "The month must be written YYYY-MM.")
    drops, id = connections.drops, connections.table.get(id).id
    reservation.reserve_bytes((await drops.month_size(id, month)).held)
    hours = await drops.month_hours(id, month)
    # list() runs before the check for rows, so that an unknown parameter is reported even if the month
    # has no rows.
    page = await request.list_page(MONTH_ROWS, MonthBillingRows(hours)) if request.http.query else None
    if not hours:
        raise NotThere("this connection has no rows for this month")
    if page is not None:
        return page
    behind = closing_json_of_month_answer(sum(hour.rows for hour in hours))
    return await send_pieces(
        request.http, chain((b'{"billing_drop":',), rows_of_month_json(hours), (behind,)), content_type=JSON
    )


def _require_connections(caller: OperationCaller[MoneyServices]) -> BillingConnections:
    """Return the connections. While the registry cannot be read, people get Refusal 503 with the reason."""
    if caller.is_person:
        caller.services.require_registry()
    return caller.services.billing_connections


async def _connection_answer(
    connections: BillingConnections, connection: BillingConnection, reason: str | None
) -> JsonAnswer:
    [row] = await connections.to_shown_connections(connection)
    return {"connection": describe_connection(replace(row, in_costs_reason=reason))}


async def _double_count_reason(
    caller: OperationCaller[MoneyServices], connection: BillingConnection
) -> str | None:
    name = providers.canonical_provider_name(connection.cloud_provider)
    known = await caller.services.known_dimension_values()
    if name in map(providers.canonical_provider_name, known.get("provider", ())):
        return f"calls of {connection.cloud_provider} are already counted, so its bill would count them twice"
    statements = await caller.registry.statements.statements()
    if name in {info.provider for info in statements}:
        return f"bills of {connection.cloud_provider} are already imported, so its rows would count twice"
    return None


def _draft_fields(body: Any) -> dict[str, Any]:
    values = given_fields(body, s3_bucket_info=_to_s3_bucket)
    values.pop("connection_id", None)
    values.pop("in_costs", None)
    names = {"s3_bucket_info": "s3_bucket", "upstream_connection_id": "upstream_id"}
    return {names.get(name, name): value for name, value in values.items()}


def _to_s3_bucket(bucket: BucketInfo | None) -> S3Bucket | None:
    return None if bucket is None else S3Bucket(**msgspec.structs.asdict(bucket))


@operator_call(
    "GET",
    "/connections/{id}/drops",
    VIEW_COSTS,
    "List the hourly files (drops) of a connection",
    lists=DROPS,
    item=BillingDropItem,
)
async def list_drops(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list_page(
        DROPS, drop_rows(_require_billing_connections(request), request.path_parameter("id"))
    )


@operator_call(
    "GET",
    "/connections/{id}/drops/{month}",
    VIEW_COSTS,
    "Show a month's rows of a connection",
    lists=MONTH_ROWS,
    item=DROP_ROW,
)
async def show_month(request: OperatorRequest[MoneyServices, None]) -> Result:
    connections = _require_billing_connections(request)
    id = request.path_parameter("id")
    month = request.path_parameter("month")
    with request.shared.inflight.new_share(OPERATORS) as share:
        return await send_month(request, connections, id, month, reservation=share)


def _require_billing_connections(request: OperatorRequest[MoneyServices, Any]) -> BillingConnections:
    request.shared.require_registry()
    return request.services.billing_connections
