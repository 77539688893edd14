"""
Comparison of published operations that are not lists with Tollhouse's operations: their fields, parameters
and root keys.

Tollhouse has all published parts. Operations for which only the address is public are marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.http.address import ApiAddress
from gateway.http.answers import JSON
from gateway.service.addresses.table import FOR_SENDERS

_HEAD = """
## Requests

The public parts of all other operations: the fields of the body, the parameters, and the root key of the response.
Tollhouse has all of them. A test fails if a part is missing, or if a published operation is in no table.

| operation | published | more |
|---|---|---|
"""
_REST = """
For these operations, only the address is public, or their fields follow rules of their own.

| operation | why |
|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCall:
    """The public names of an operation. `root` is the key of the response, or "" if it has none."""

    fields: Sequence[str] = ()
    parameters: Sequence[str] = ()
    root: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCall:
    """A published operation and Tollhouse's operation."""

    operation: str
    published: PublishedCall
    missing: Sequence[str]
    more: Sequence[str]


_VIEW = ("name", "filter", "principal_dimension", "connections", "anomalies")
_BUDGET = ("name", "view", "planned_limits", "alerts", "cost_type", "granularity")
_CONNECTION = ("name", "cloud_provider", "expected_ingest_rate", "is_enabled", "s3_bucket_info")
_CLUSTER = ("cluster_name", "cloud_account_id", "region")
_AGENT = (*_CLUSTER, "count", "shipper_id", "expiration")
_CONNECTIONS, _VERSIONS = "/v2/connections/billing", "/v2/{group}/definition/versions"
PUBLISHED_CALLS: Mapping[str, PublishedCall] = {
    "POST /v2/views": PublishedCall(fields=_VIEW),
    "GET /v2/views/{view_id}": PublishedCall(root="view"),
    "PATCH /v2/views/{view_id}": PublishedCall(fields=_VIEW),
    "DELETE /v2/views/{view_id}": PublishedCall(root="view"),
    "POST /v2/budgets": PublishedCall(fields=_BUDGET, root="budget"),
    "GET /v2/budgets/{budget_id}": PublishedCall(parameters=("expand",), root="budget"),
    "PATCH /v2/budgets/{budget_id}": PublishedCall(fields=_BUDGET, root="budget"),
    "DELETE /v2/budgets/{budget_id}": PublishedCall(root="budget"),
    f"POST {_CONNECTIONS}": PublishedCall(fields=_CONNECTION, root="connection"),
    f"GET {_CONNECTIONS}/{{connection_id}}": PublishedCall(root="connection"),
    f"PATCH {_CONNECTIONS}/{{connection_id}}": PublishedCall(fields=_CONNECTION, root="connection"),
    f"DELETE {_CONNECTIONS}/{{connection_id}}": PublishedCall(root="connection"),
    f"POST {_VERSIONS}": PublishedCall(parameters=("validate_only",), root="version"),
    f"GET {_VERSIONS}/{{version}}": PublishedCall(root="version"),
    "POST /v1/container-metrics/upload": PublishedCall(fields=("shipperId", "files"), parameters=_AGENT),
    "POST /v1/container-metrics/abandon": PublishedCall(parameters=_AGENT),
    "POST /v1/container-metrics/status": PublishedCall(parameters=("type",)),
    "POST /v1/container-metrics": PublishedCall(parameters=_CLUSTER),
}
_ADDRESS = "only the address is public, no field"
_RECORDS = "records have their own rules: docs/reference/api/events.md"
_ROWS = "rows of billing files have their own rules: docs/bills/billing-connections.md"
_TELEMETRY = "/unit-cost/v1/telemetry"
# published operations that have no parts to compare
NOT_COMPARED: Mapping[str, str] = {
    **{
        f"{call} /v2/insights{path}": _ADDRESS
        for path, calls in (
            ("", ("POST",)),
            ("/{id}", ("GET", "PATCH", "DELETE")),
            ("/{id}/comments", ("GET", "POST")),
            ("/{id}/comments/{comment}", ("PATCH",)),
        )
        for call in calls
    },
    "POST /mcp": "the Model Context Protocol defines requests and responses",
    f"POST {_CONNECTIONS}/{{segment}}/{{connection_id}}/billing_drops": _ROWS,
    f"GET {_CONNECTIONS}/{{segment}}/{{connection_id}}/billing_drops/{{month}}": _ROWS,
    f"POST {_CONNECTIONS}/{{segment}}/validate_billing_drop": _ROWS,
    f"POST {_TELEMETRY}": _RECORDS,
    f"POST {_TELEMETRY}/{{type}}/{{stream}}": _RECORDS,
    f"POST {_TELEMETRY}/{{type}}/{{stream}}/{{operation}}": _RECORDS,
    f"PUT {_TELEMETRY}/{{type}}/{{stream}}": _RECORDS,
    f"DELETE {_TELEMETRY}/{{stream}}": _ADDRESS,
    f"GET {_TELEMETRY}/{{type}}/{{stream}}/records": _RECORDS,
    f"GET {_TELEMETRY}/{{stream}}/records": _RECORDS,
}


def compared_calls() -> Sequence[ComparedCall]:
    """Return every published operation with Tollhouse's operation, in the order of the table."""
    there = {
        f"{method} {address.documented_path}": address
        for address in FOR_SENDERS
        for method in address.operation_ids_by_method
    }
    return [_compared(name, there[name], published) for name, published in PUBLISHED_CALLS.items()]


def calls_section() -> str:
    return _HEAD + "".join(_lines()) + _REST + "".join(_others())


def _lines() -> Iterator[str]:
    for each in compared_calls():
        published = _names(_published_names(each.published))
        yield f"| `{each.operation}` | {published} | {_names(each.more)} |\n"


def _others() -> Iterator[str]:
    return (f"| `{operation}` | {why} |\n" for operation, why in NOT_COMPARED.items())


def _compared(operation: str, address: ApiAddress, published: PublishedCall) -> ComparedCall:
    fields = _fields(address.body)
    parameters = (*address.required, *address.optional, *address.repeated)
    roots = _roots(address) if published.root else ()
    found = (*fields, *parameters, *roots)
    published_names = _published_names(published)
    missing = [name for name in published_names if name not in found]
    more = [name for name in found if name not in published_names]
    return ComparedCall(operation=operation, published=published, missing=missing, more=more)


def _fields(body: Any) -> Sequence[str]:
    is_struct = isinstance(body, type) and issubclass(body, msgspec.Struct)
    return [each.encode_name for each in msgspec.structs.fields(body)] if is_struct else ()


def _roots(address: ApiAddress) -> Sequence[str]:
    answer: Any = address.gives[address.status][JSON]
    return _fields(answer) or list(answer.get("properties", {}))


def _published_names(published: PublishedCall) -> Sequence[str]:
    names = (*published.fields, *published.parameters, published.root)
    return [name for name in names if name]


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
