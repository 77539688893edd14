"""
The resources by name, for the start, the addresses and the command line. Using the list imports no resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spool.registry.registry import DeclaredTable


@dataclass(frozen=True, slots=True)
class ResourceModules:
    """
    The module that declares a resource, and the module with its fields and its table. These differ if modules
    below `operations` use the fields. With `has_keys`, keys manage the resource at `/v2/` and its name.

    If the resource declares all its commands, `heading` and `line` are their place and text in `tollhouse
    --help`.
    """

    resource: str
    fields: str
    has_keys: bool = False
    heading: str = ""
    line: str = ""


def _resource_in_one_module(module: str, *, heading: str = "", line: str = "") -> ResourceModules:
    return ResourceModules(module, module, heading=heading, line=line)


# The modules by the word of the resource in commands and addresses.
RESOURCES: Mapping[str, ResourceModules] = {
    "budgets": ResourceModules(
        "gateway.operations.money.budgets", "gateway.money.budgets.declared", has_keys=True
    ),
    "allocation": ResourceModules(
        "gateway.operations.money.published_allocation", "gateway.money.allocation.declared"
    ),
    "annotations": _resource_in_one_module(
        "gateway.operations.money.annotations",
        heading="Costs and bills",
        line="Note on charts what happened on a day.",
    ),
    "plans": ResourceModules("gateway.operations.bills.plans", "gateway.bills.plans.declared"),
    "contracts": ResourceModules("gateway.operations.bills.contracts", "gateway.bills.contracts.declared"),
    "scheduled-reports": _resource_in_one_module("gateway.operations.money.reports.declared"),
    "prices": _resource_in_one_module("gateway.operations.money.own_prices"),
    "work": _resource_in_one_module("gateway.operations.money.work_links.declared"),
}


def declared_tables() -> Sequence[type[DeclaredTable]]:
    """Import the tables of the resources. The registry keeps them in memory from its start."""
    from spool.registry.document_table import DocumentTable

    field_modules = [import_module(modules.fields) for modules in RESOURCES.values()]
    return [
        value
        for module in field_modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, DocumentTable)
        and value.__module__ == module.__name__
    ]
