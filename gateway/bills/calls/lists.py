"""
Billing connections and their drops as every list and answer shows them, to keys and to operators alike.

Fields and sort keys are the published interface's; `state` and `upstream_connection_id` are Tollhouse's own.
"""

from __future__ import annotations

from functools import partial

from gateway.bills.connections.declared import ConnectionItem
from gateway.http.lists import Filter, List, MemoryRows, Sort, StoredRows, yes_no
from gateway.http.resources.declaration import answer
from gateway.intake.billing_connections import STATES, BillingConnections, ShownConnection
from gateway.money.costs.times import seconds
from spool.billing import StoredDrop
from spool.listing import SortField

CONNECTION_TYPE = "external"
CAPABILITIES = ("billing_drops",)


def describe_connection(row: ShownConnection) -> dict[str, object]:
    connection = row.connection
    return answer(
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
        upstream_connection_id=connection.id_upstream,
        created=seconds(connection.created),
        creation_date=seconds(connection.created),
        last_updated=seconds(connection.last_updated),
    )


def describe_drop(drop: StoredDrop) -> dict[str, object]:
    return {"drop_id": drop.id, "month": drop.month, "row_count": drop.rows}


CONNECTIONS: List[ShownConnection] = List(
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
        "is_enabled": yes_no(lambda row: row.connection.is_enabled),
        "state": Filter(values=lambda row: (row.state,), valid_values=STATES),
    },
)

DROPS: List[StoredDrop] = List(
    root="billing_drops",
    show=describe_drop,
    identity=Sort(field=SortField("number")),
    sorts={"month": Sort(field=SortField("month")), "row_count": Sort(field=SortField("rows"))},
    default_sort=("month", "asc"),
    filters={"month": Filter(field="month")},
)


async def connection_rows(connections: BillingConnections) -> MemoryRows[ShownConnection]:
    return MemoryRows(await connections.shown(*connections.table.all()))


def drop_rows(connections: BillingConnections, id: str) -> StoredRows[StoredDrop]:
    """NotThere when there is no such connection."""
    return StoredRows(partial(connections.drops.page, connections.table.get(id).id))
