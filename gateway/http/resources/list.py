"""
The resources by name, for the start, the addresses and the command line. Using the list imports no resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spool.registry.registry import DeclaredTable

# The package of each resource, by its word in commands and addresses. Its `declared.py` has the fields and
# the table, and `command.py` the command.
RESOURCES: Mapping[str, str] = {
    "budgets": "gateway.money.budgets",
    "allocation": "gateway.money.allocation",
    "scheduled-reports": "gateway.money.calls.reports",
    "annotations": "gateway.money.annotations",
    "plans": "gateway.bills.plans",
    "prices": "gateway.money.own_prices",
    "work": "gateway.money.work_links",
    "event-mappings": "gateway.records.event_mappings",
}


def declared_tables() -> Sequence[type[DeclaredTable]]:
    """Import the tables of the resources. The registry keeps them in memory from its start."""
    from spool.registry.document_table import DocumentTable

    modules = [import_module(f"{package}.declared") for package in RESOURCES.values()]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, DocumentTable)
        and value.__module__ == module.__name__
    ]
