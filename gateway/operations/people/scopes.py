"""
The scopes that a key can have, with the operations that each allows. They come from the table of addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from gateway.http.address import ApiAddress
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import InstallationServices
from gateway.operations.requests.address import NOTHING, OPENED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_OPERATION
from spool.registry.scopes import GROUPS, SCOPES, granting_use_case


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedScope:
    """A scope. `use_case` is the managed use case that grants it, or None."""

    scope: str
    category: str
    use_case: str | None
    opens: tuple[str, ...]


SCOPE_LIST: ListDefinition[PublishedScope] = ListDefinition(
    root="scopes",
    show=lambda row: {
        "scope": row.scope,
        "category": row.category,
        "use_case": row.use_case,
        "opens": list(row.opens),
    },
    identity=Sort(value=lambda row: row.scope),
    sorts={"category": Sort(value=lambda row: row.category), "scope": Sort(value=lambda row: row.scope)},
    default_sort=("category", "asc"),
    filters={
        "scope": Filter(values=lambda row: (row.scope,), valid_values=tuple(sorted(SCOPES))),
        "category": Filter(values=lambda row: (row.category,), valid_values=tuple(GROUPS)),
        "opens_nothing": Filter(
            values=lambda row: ("no" if row.opens else "yes",), valid_values=("yes", "no")
        ),
    },
    default_limit=100,
)


def list_operations_by_scope(addresses: Iterable[ApiAddress]) -> Mapping[str, tuple[str, ...]]:
    operations_by_scope: dict[str, list[str]] = {}
    for address in addresses:
        if address.scope is not None:
            operations = [f"{method} {address.documented_path}" for method in address.operation_ids_by_method]
            operations_by_scope.setdefault(address.scope, []).extend(operations)
    return {scope: tuple(operations) for scope, operations in operations_by_scope.items()}


async def scopes_without_operations(request: OperatorRequest[Any, Any], scopes: Iterable[str]) -> list[str]:
    opened = await request.http.app[OPENED]()
    return [scope for scope in scopes if scope not in opened]


class ScopeItem(msgspec.Struct, kw_only=True):
    scope: Annotated[str, words("The name of the scope."), example("ai-control-plane:enroll-device")]
    category: Annotated[str, words("The category of the scope."), example("AI Device Control Plane")]
    use_case: Annotated[str | None, words("The use case that contains the scope, or null."), example(None)]
    opens: Annotated[
        list[str],
        words("The operations that require the scope."),
        example(["POST /v1/ai-control-plane/enroll"]),
    ]


@operator_call(
    "GET",
    "/scopes",
    VIEW_OPERATION,
    "List the scopes of keys, with the operations that each allows",
    lists=SCOPE_LIST,
    shows=NOTHING,
    item=ScopeItem,
)
async def list_scopes(request: OperatorRequest[InstallationServices, None]) -> Result:
    opened = await request.http.app[OPENED]()
    rows = [
        PublishedScope(
            scope=scope, category=category, use_case=granting_use_case(scope), opens=opened.get(scope, ())
        )
        for category, scopes in GROUPS.items()
        for scope in scopes
    ]
    return await request.list_page(SCOPE_LIST, MemoryRows(rows))
