"""
The resources by name, for the start, the addresses and the command line. Using the list imports no resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spool.registry.registry import DeclaredTable

# The module with the fields and the table of each resource, by its word in commands and addresses.
RESOURCES: Mapping[str, str] = {
    "budgets": "gateway.money.budgets.declared",
    "allocation": "gateway.money.allocation.declared",
    "scheduled-reports": "gateway.operations.money.reports.declared",
    "annotations": "gateway.operations.money.annotations",
    "plans": "gateway.bills.plans.declared",
    "contracts": "gateway.bills.contracts.declared",
    "prices": "gateway.operations.money.own_prices",
    "work": "gateway.operations.money.work_links.declared",
    "event-mappings": "gateway.operations.records.event_mappings",
}


def declared_tables() -> Sequence[type[DeclaredTable]]:
    """Import the tables of the resources. The registry keeps them in memory from its start."""
    from spool.registry.document_table import DocumentTable

    modules = [import_module(name) for name in RESOURCES.values()]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, DocumentTable)
        and value.__module__ == module.__name__
    ]
