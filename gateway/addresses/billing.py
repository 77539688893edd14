"""Addresses of billing connections, and of the drops that are sent to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.api import connections
from gateway.api.connection_lists import CONNECTIONS, DROPS
from gateway.http.address import READ, WRITE, Address, Content
from gateway.http.answers import JSON
from gateway.http.lists import List
from gateway.http.requests import AddressHandler, check_json
from gateway.receivers import billing
from gateway.schemas import COUNT, OBJECT, TEXT, Schema, array, closed
from spool.registry.scopes import BILLING_DROP, VALIDATE_BILLING_DROP

_ALL = "/v2/connections/billing"
_ONE = _ALL + "/{connection_id}"
# Both names of the segment are accepted, independent of the upstream's.
_SEGMENT = _ALL + "/{segment:external|anycost}"
_DROPS = _SEGMENT + "/{connection_id}/billing_drops"

_DROP_KEPT = closed({"drop_id": TEXT, "month": {"type": ["string", "null"]}, "row_count": COUNT})
_DROP_VALIDATED = closed({"is_valid": {"type": "boolean"}, "errors": array(TEXT), "answered_by": TEXT})


def _drop(path: str, scope: str, handler: AddressHandler, endpoint: str, summary: str, gives: Schema) -> Address:
    return Address(
        methods=("POST",),
        path=path,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        endpoint=endpoint,
        scope=scope,
        body=bytes,
        takes={JSON: OBJECT},
        gives={200: {JSON: closed({"connection": gives})}},
        refusals=(*WRITE, 404, 409),
    )


def _managing(
    method: str,
    path: str,
    scope: str,
    handler: AddressHandler,
    summary: str,
    *,
    endpoint: str = "connections",
    takes: type | None = None,
    gives: Mapping[int, Content] | None = None,
    lists: List[Any] | None = None,
    item: type | Schema = OBJECT,
) -> Address:
    return Address(
        methods=("GET", "HEAD") if method == "GET" else (method,),
        path=path,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        endpoint=endpoint,
        scope=f"connections:{scope}",
        check=check_json if takes else None,
        body=takes,
        takes={JSON: takes} if takes else {},
        gives=gives or {},
        lists=lists,
        item=item,
        refusals=(*(WRITE if takes else READ), 404, 409),
    )


_SHOWN: Mapping[int, Content] = {200: {JSON: connections.OneConnection}}

BILLING = (
    _drop(
        _SEGMENT + "/validate_billing_drop",
        VALIDATE_BILLING_DROP,
        billing.validate_billing_drop,
        "billing/validate",
        "What would be wrong with a drop, and who says so; nothing is kept",
        _DROP_VALIDATED,
    ),
    _drop(
        _DROPS,
        BILLING_DROP,
        billing.create_billing_drop,
        "billing",
        "Billing data of one month for an established connection",
        _DROP_KEPT,
    ),
    _managing(
        "GET", _DROPS, "read_billing_external_billing_drops", connections.read_billing_drops,
        "The drops of a connection of which rows stand", endpoint="billing", lists=DROPS, item=_DROP_KEPT,
    ),
    _managing(
        "GET", _DROPS + "/{month}", "read_billing_external_billing_drops_month", connections.read_billing_drop,
        "The rows of a month, every operation applied in order", endpoint="billing/month",
        gives={200: {JSON: closed({"billing_drop": array(OBJECT)})}},
    ),
    _managing(
        "GET", _ALL, "read_billings", connections.read_billing_connections, "List billing connections",
        lists=CONNECTIONS, item=connections.ConnectionItem,
    ),
    _managing(
        "POST", _ALL, "create_billing", connections.create_billing_connection, "Create a billing connection",
        takes=connections.NewConnection, gives=_SHOWN,
    ),
    _managing(
        "GET", _ONE, "read_billing", connections.read_billing_connection, "A billing connection", gives=_SHOWN,
        endpoint="connections/one",
    ),
    _managing(
        "PATCH", _ONE, "update_billing", connections.update_billing_connection, "Change a billing connection",
        takes=connections.ConnectionChanges, gives=_SHOWN, endpoint="connections/one",
    ),
    _managing(
        "DELETE", _ONE, "delete_billing", connections.delete_billing_connection,
        "Delete a billing connection and its rows", endpoint="connections/one",
        gives={200: {JSON: closed({"connection": closed({"id": TEXT})})}},
    ),
)  # fmt: skip
