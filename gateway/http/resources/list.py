"""The resources, by name: what a start and the command line know of each before it is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from spool.registry.registry import DeclaredTable
from spool.registry.shared.document_table import DocumentTable

# The package of each has its fields, its table and its verbs in `declared.py`, and its command in `command.py`.
RESOURCES: Mapping[str, str] = {
    "budgets": "gateway.money.budgets",
    "allocation": "gateway.money.allocation",
    "scheduled-reports": "gateway.money.calls.reports",
    "annotations": "gateway.money.annotations",
    "plans": "gateway.bills.plans",
}


def declared_tables() -> Sequence[type[DeclaredTable]]:
    """Import the tables of the resources, which the registry keeps in memory from a start on."""
    modules = [import_module(f"{package}.declared") for package in RESOURCES.values()]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, DocumentTable)
        and value.__module__ == module.__name__
    ]
