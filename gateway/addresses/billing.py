"""Addresses of billing connections, and of the drops that are sent to them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gateway.api import connections
from gateway.api.kept.drop_rows import MONTH_ROWS
from gateway.api.lists.connections import DROPS
from gateway.api.managed import managed_by_keys, managing
from gateway.http.address import READ
from gateway.schemas import COUNT, OBJECT, TEXT, array, closed

_ALL = "/v2/connections/billing"
# Both names of the segment are accepted, independent of the upstream's.
_SEGMENT = _ALL + "/{segment:external|anycost}"
_DROPS = _SEGMENT + "/{connection_id}/billing_drops"

_DROP_KEPT = closed({"drop_id": TEXT, "month": {"type": ["string", "null"]}, "row_count": COUNT})
_DROP_VALIDATED = closed({"is_valid": {"type": "boolean"}, "errors": array(TEXT), "answered_by": TEXT})


_drops = partial(managing, group="connections")

ROWS = (
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
    *managed_by_keys(connections.CONNECTION),
)
