"""
The lists whose fields, sort keys or parameters are published, beside the ones here.

What is published is all there; what is there besides is said with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gateway.http.address import Address
from gateway.service.addresses.table import FOR_SENDERS

_HEAD = """
## Fields

Of these lists the fields of a row, the sort keys or the parameters are public. All of them are there; a test fails when
one is not. *More* is what Tollhouse adds: readers that know the published fields alone do not miss anything.

| list | published | more | why |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedList:
    """Names of the fields, sort keys and parameters that are public; `why` there are more."""

    fields: Sequence[str]
    sorts: Sequence[str] = ()
    parameters: Sequence[str] = ()
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedList:
    """A published list and the one here: what is missing is a mistake, what is `more` is said."""

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
        why="a row is named by its `id`, and says what was seen; `hide_resolved` leaves ended ones out",
    ),
    "/v2/views": PublishedList(
        fields=(
            "id",
            "name",
            "filter",
            "principal_dimension",
            "connections",
            "anomalies",
            "last_updated",
        ),
        sorts=("last_updated",),
        why="a view is a whole question here, with its time, groups and money; `version` keeps two editors apart",
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
        why="budgets here repeat, may be one of many owners, tell a forecast, and count other things than money",
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
        why="its id upstream, whether rows have come, and whether they are in costs",
    ),
    "/v2/connections/billing/{segment}/{connection_id}/billing_drops": PublishedList(
        fields=("drop_id", "month", "row_count"),
        why="",
    ),
    "/v2/billing/costs": PublishedList(
        fields=("usage_date", "cost"),
        parameters=("start_date", "end_date", "granularity", "group_by", "filters", "cost_type"),
        why="usage stands beside money; every dimension is a filter, and `view` is a saved one",
    ),
    "/v2/billing/dimensions": PublishedList(
        fields=("id", "name"), sorts=("id", "name"), parameters=("include_hidden",), why=""
    ),
    "/v2/{group}/definition/versions": PublishedList(
        fields=("version", "last_updated", "last_updated_by", "uri"),
        sorts=("version",),
        why="versions are looked for by who published them",
    ),
}


def compared() -> Sequence[ComparedList]:
    """Every published list beside the one here, in the order of the table."""
    there = {address.documented_path: address for address in FOR_SENDERS if address.lists}
    return [_compared(there[path], published) for path, published in PUBLISHED.items()]


def section() -> str:
    return _HEAD + "".join(_lines())


def _lines() -> Iterator[str]:
    for each in compared():
        published = _names(_told(each.published))
        yield f"| `{each.path}` | {published} | {_names(each.more)} | {each.published.why} |\n"


def _compared(address: Address, published: PublishedList) -> ComparedList:
    listed = address.lists
    assert listed is not None
    fields = _fields(address)
    sorts = list(listed.sorts)
    filters = list(listed.filters)
    pairs = ((published.fields, fields), (published.sorts, sorts), (published.parameters, filters))
    missing = [name for wanted, found in pairs for name in wanted if name not in found]
    told = _told(published)
    more = dict.fromkeys(name for name in (*fields, *sorts, *filters) if name not in told)
    return ComparedList(path=address.documented_path, published=published, missing=missing, more=list(more))


def _fields(address: Address) -> Sequence[str]:
    """Return the names of a row's fields as they are answered."""
    item = address.item
    if isinstance(item, type):
        return [each.encode_name for each in msgspec.structs.fields(item)]
    properties = item.get("properties", {})
    return list(properties)


def _told(published: PublishedList) -> Sequence[str]:
    names = (*published.fields, *published.sorts, *published.parameters)
    return list(dict.fromkeys(names))


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
