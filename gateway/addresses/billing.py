"""Addresses of billing connections, and of the drops that are sent to them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gateway.api import connections
from gateway.api.kept.drop_rows import MONTH_ROWS
from gateway.api.lists.connections import DROPS
from gateway.api.managed import CHANGE, CREATE, DELETE, LIST, SHOW, managed_by_keys, managing
from gateway.http.address import READ, WRITE, Address
from gateway.http.answers import JSON
from gateway.http.requests import AddressHandler
from gateway.receivers import billing
from gateway.schemas import COUNT, OBJECT, TEXT, Schema, array, closed
from spool.registry.scopes import BILLING_DROP, VALIDATE_BILLING_DROP

_ALL = "/v2/connections/billing"
# Both names of the segment are accepted, independent of the upstream's.
_SEGMENT = _ALL + "/{segment:external|anycost}"
_DROPS = _SEGMENT + "/{connection_id}/billing_drops"

_DROP_KEPT = closed({"drop_id": TEXT, "month": {"type": ["string", "null"]}, "row_count": COUNT})
_DROP_VALIDATED = closed({"is_valid": {"type": "boolean"}, "errors": array(TEXT), "answered_by": TEXT})


def _drop(
    path: str,
    scope: str,
    handler: AddressHandler,
    endpoint: str,
    summary: str,
    gives: Schema,
    *,
    takes_idempotency_key: bool = False,
) -> Address:
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
        takes_idempotency_key=takes_idempotency_key,
    )


_drops = partial(managing, group="connections")

ROWS = (
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
        takes_idempotency_key=True,
    ),
    _drops(
        "GET",
        _DROPS,
        connections.read_billing_drops,
        "The drops of a connection of which rows stand",
        scope="read_billing_external_billing_drops",
        endpoint="billing",
        lists=DROPS,
        item=_DROP_KEPT,
    ),
    replace(
        _drops(
            "GET",
            _DROPS + "/{month}",
            connections.read_billing_drop,
            "The rows of a month, every operation applied in order; all of them where no page is asked for",
            scope="read_billing_external_billing_drops_month",
            endpoint="billing/month",
            lists=MONTH_ROWS,
            item=OBJECT,
        ),
        refusals=(*READ, 404, 410),
    ),
    *managed_by_keys(
        connections.CONNECTION,
        _ALL,
        "connection_id",
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
    ),
)
