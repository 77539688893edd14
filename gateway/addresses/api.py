"""Addresses that answer key holders: costs, insights and clusters."""

from __future__ import annotations

from typing import Any

from gateway.api import costs
from gateway.http.address import READ, Address
from gateway.http.lists import List
from gateway.http.requests import AddressHandler
from gateway.money.costs.measures import USAGE, USAGE_AMOUNT
from gateway.schemas import COUNT, OBJECT, TEXT, Schema, array, closed
from spool.ledger.queries import DIMENSIONS


def _costs(
    path: str,
    scope: str,
    handler: AddressHandler,
    endpoint: str,
    summary: str,
    *,
    lists: List[Any],
    item: Schema,
    required: tuple[str, ...] = (),
    in_turn: bool = False,
) -> Address:
    return Address(
        methods=("GET", "HEAD"),
        path=path,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        endpoint=endpoint,
        scope=scope,
        required=required,
        lists=lists,
        item=item,
        in_turn=in_turn,
        refusals=READ,
    )


_NAMED = {"id": TEXT, "name": TEXT}

_COST_ROW = {
    "usage_date": TEXT,
    "cost": TEXT,
    USAGE_AMOUNT: TEXT,
    **{name: {"type": "integer"} for name in USAGE},
}

COSTS = (
    _costs(
        "/v2/billing/costs",
        "billing:read_costs",
        costs.read_costs,
        "costs",
        "What AI costs and how much it is used, by period and dimension; tags of the configuration are "
        "dimensions, too",
        required=("start_date",),
        lists=costs.cost_list(DIMENSIONS),
        in_turn=True,
        item={**OBJECT, "properties": _COST_ROW, "additionalProperties": {"type": ["string", "null"]}},
    ),
    _costs(
        "/v2/billing/dimensions",
        "billing:read_dimensions",
        costs.read_dimensions,
        "dimensions",
        "What costs can be grouped and filtered by",
        lists=costs.DIMENSION_LIST,
        item=closed(_NAMED),
    ),
    _costs(
        "/v2/billing/resource_tags",
        "billing:read_resource_tags",
        costs.read_resource_tags,
        "resource_tags",
        "The tags among the dimensions, with their values in calls and in rows of billing connections",
        lists=costs.TAG_LIST,
        item=closed({**_NAMED, "values": array(TEXT), "more_values": COUNT, "sources": array(TEXT)}),
    ),
)


ROWS = COSTS
