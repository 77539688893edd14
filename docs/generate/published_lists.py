"""
Comparison of published lists with Tollhouse's lists: their fields, sort keys and parameters.

Tollhouse has all published parts. Each additional part has a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gateway.http.address import ApiAddress
from gateway.service.addresses.table import FOR_SENDERS

_HEAD = """
## Fields

The lists with public row fields, sort keys or parameters. Tollhouse has all of them; a test fails if one is missing.
*More* is what Tollhouse adds. Clients that know only the published fields still get everything they expect.

| list | published | more | why |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedList:
    """The public fields, sort keys and parameters of a list. `why` is the reason for additional parts."""

    fields: Sequence[str]
    sorts: Sequence[str] = ()
    parameters: Sequence[str] = ()
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedList:
    """A published list and Tollhouse's list. A missing part is an error; `more` are additional parts."""

    path: str
    published: PublishedList
    missing: Sequence[str]
    more: Sequence[str]


_INSIGHT = ("category", "cost_impact", "effort", "last_updated", "status", "title")
PUBLISHED: Mapping[str, PublishedList] = {
    "/v2/insights": PublishedList(
        fields=_INSIGHT,
        sorts=_INSIGHT,
        parameters=("status",),
        why=(
            "a row is named by its `id` and describes the evidence; `hide_resolved` hides insights that "
            "have ended"
        ),
    ),
    "/v2/views": PublishedList(
        fields=("id", "name", "filter", "principal_dimension", "connections", "anomalies", "last_updated"),
        sorts=("last_updated",),
        why=(
            "a view here is a complete query with time range, groups and cost type; `version` prevents "
            "lost updates by two editors"
        ),
    ),
    "/v2/budgets": PublishedList(
        fields=(
            "id",
            "name",
            "planned_limits",
            "view",
            "alerts",
            "cost_type",
            "granularity",
            "created",
            "last_updated",
            "current",
            "history",
            "burnup",
        ),
        sorts=("last_updated", "name"),
        parameters=("expand",),
        why=(
            "budgets here repeat, may have many owners, have a forecast, and may count other things than "
            "money"
        ),
    ),
    "/v2/connections/billing": PublishedList(
        fields=(
            "id",
            "connection_id",
            "name",
            "cloud_provider",
            "expected_ingest_rate",
            "is_enabled",
            "s3_bucket_info",
            "connection_type",
            "capabilities",
            "is_draft",
            "created",
            "last_updated",
        ),
        sorts=(
            "connection_name",
            "creation_date",
            "name",
            "cloud_provider",
            "created",
            "last_updated",
            "is_enabled",
        ),
        why="the upstream id, whether rows have arrived, and whether the rows are part of costs",
    ),
    "/v2/connections/billing/{segment}/{connection_id}/billing_drops": PublishedList(
        fields=("drop_id", "month", "row_count"), why=""
    ),
    "/v2/billing/costs": PublishedList(
        fields=("usage_date", "cost"),
        parameters=("start_date", "end_date", "granularity", "group_by", "filters", "cost_type"),
        why="usage is shown next to money; every dimension is a filter, and `view` names a saved filter",
    ),
    "/v2/billing/dimensions": PublishedList(
        fields=("id", "name"), sorts=("id", "name"), parameters=("include_hidden",), why=""
    ),
    "/v2/{group}/definition/versions": PublishedList(
        fields=("version", "last_updated", "last_updated_by", "uri"),
        sorts=("version",),
        why="versions can be filtered by their publisher",
    ),
}


def compared() -> Sequence[ComparedList]:
    """Return every published list with Tollhouse's list, in the order of the table."""
    there = {address.documented_path: address for address in FOR_SENDERS if address.lists}
    return [_compared(there[path], published) for path, published in PUBLISHED.items()]


def section() -> str:
    return _HEAD + "".join(_lines())


def _lines() -> Iterator[str]:
    for each in compared():
        published = _names(_published_names(each.published))
        yield f"| `{each.path}` | {published} | {_names(each.more)} | {each.published.why} |\n"


def _compared(address: ApiAddress, published: PublishedList) -> ComparedList:
    listed = address.lists
    assert listed is not None
    fields = _fields(address)
    sorts = list(listed.sorts)
    filters = list(listed.filters)
    pairs = ((published.fields, fields), (published.sorts, sorts), (published.parameters, filters))
    missing = [name for wanted, found in pairs for name in wanted if name not in found]
    published_names = _published_names(published)
    more = dict.fromkeys(name for name in (*fields, *sorts, *filters) if name not in published_names)
    return ComparedList(path=address.documented_path, published=published, missing=missing, more=list(more))


def _fields(address: ApiAddress) -> Sequence[str]:
    item = address.item
    if isinstance(item, type):
        return [each.encode_name for each in msgspec.structs.fields(item)]
    properties = item.get("properties", {})
    return list(properties)


def _published_names(published: PublishedList) -> Sequence[str]:
    names = (*published.fields, *published.sorts, *published.parameters)
    return list(dict.fromkeys(names))


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
