"""Addresses that answer key holders: costs, insights and clusters."""

from __future__ import annotations

from typing import Any

from gateway.api import clusters, costs, insights
from gateway.api.lists.clusters import CLUSTERS, ClusterChanges, ClusterItem, OneCluster
from gateway.api.lists.insights import COMMENTS, INSIGHTS
from gateway.api.measures import USAGE, USAGE_AMOUNT
from gateway.http.address import READ, WRITE, Address
from gateway.http.answers import JSON
from gateway.http.lists import List
from gateway.http.requests import AddressHandler, check_json
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


def _insights(
    method: str,
    path: str,
    scope: str,
    handler: AddressHandler,
    name: str,
    *,
    takes: type | None = None,
    gives: type,
    lists: List[Any] | None = None,
) -> Address:
    """`gives` is what is answered, or with `lists` a row of the page."""
    return Address(
        methods=("GET", "HEAD") if method == "GET" else (method,),
        path=path,
        name=f"insights_{name}",
        summary=name.replace("_", " ").capitalize(),
        handler=handler,
        endpoint="insights",
        scope=scope,
        check=check_json if takes else None,
        body=takes,
        takes={JSON: takes} if takes else {},
        gives={} if lists else {200: {JSON: gives}},
        lists=lists,
        item=gives,
        refusals=(*(WRITE if takes else READ), 404, 409),
    )


_ALL = "/v2/insights"
_ONE = _ALL + "/{id}"
_COMMENTS = _ONE + "/comments"

INSIGHT_ROWS = (
    _insights(
        "GET", _ALL, "insights:read_insights", insights.read_insights, "read_all",
        lists=INSIGHTS, gives=insights.InsightItem,
    ),
    _insights(
        "POST", _ALL, "insights:create_insight", insights.create_insight, "create",
        takes=insights.NewInsight, gives=insights.OneInsight,
    ),
    _insights(
        "GET", _ONE, "insights:read_insight", insights.read_insight, "read_one",
        gives=insights.OneInsight,
    ),
    _insights(
        "PATCH", _ONE, "insights:update_insight", insights.update_insight, "update",
        takes=insights.InsightChanges, gives=insights.OneInsight,
    ),
    _insights(
        "DELETE", _ONE, "insights:delete_insight", insights.delete_insight, "delete",
        gives=insights.Deleted,
    ),
    _insights(
        "GET", _COMMENTS, "insights:read_insight_comments", insights.read_comments, "read_comments",
        lists=COMMENTS, gives=insights.CommentItem,
    ),
    _insights(
        "POST", _COMMENTS, "insights:create_insight_comment", insights.create_comment, "create_comment",
        takes=insights.NewComment, gives=insights.OneComment,
    ),
    _insights(
        "PATCH", _COMMENTS + "/{comment}", "insights:update_insight_comment", insights.update_comment,
        "update_comment", takes=insights.NewComment, gives=insights.OneComment,
    ),
    _insights(  # the catalogue has no scope of its own for this
        "DELETE", _COMMENTS + "/{comment}", "insights:update_insight_comment", insights.delete_comment,
        "delete_comment", gives=insights.DeletedComment,
    ),
)  # fmt: skip


def _clusters(
    method: str,
    path: str,
    scope: str,
    handler: AddressHandler,
    summary: str,
    *,
    refusals: tuple[int, ...],
    takes: type | None = None,
    lists: List[Any] | None = None,
) -> Address:
    return Address(
        methods=("GET", "HEAD") if method == "GET" else (method,),
        path=path,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        endpoint="clusters",
        scope=scope,
        check=check_json if takes else None,
        checks_query=lists is None,
        body=takes,
        takes={JSON: takes} if takes else {},
        gives={} if lists else {200: {JSON: OneCluster}},
        lists=lists,
        item=ClusterItem,
        refusals=refusals,
    )


_CLUSTERS = "/v2/container/clusters"
_CLUSTER = _CLUSTERS + "/{id}"

CLUSTER_ROWS = (
    _clusters("GET", _CLUSTERS, "container:get-clusters", clusters.get_clusters, "List clusters",
              lists=CLUSTERS, refusals=READ),
    _clusters("GET", _CLUSTER, "container:get-clusters", clusters.get_cluster, "Read a cluster", refusals=(*READ, 404)),
    _clusters("PATCH", _CLUSTER, "container:update-cluster", clusters.update_cluster, "Update a cluster",
              takes=ClusterChanges, refusals=(*WRITE, 404)),
)  # fmt: skip

ROWS = (*COSTS, *INSIGHT_ROWS, *CLUSTER_ROWS)
