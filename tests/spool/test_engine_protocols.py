"""
The documentation page for storage engines names every method that an engine requires, and no other method.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from spool.billing import BillingDrops, BillingHours, DropRows
from spool.clusters import ClusterRows
from spool.container_files.container_rows import ContainerContents, ContainerRows, ContentDraft
from spool.deliveries.protocols import Deliveries
from spool.devices.device import DeviceRows
from spool.leases import Leases
from spool.ledger.ledger_rows import LedgerRows, LedgerStore
from spool.log.heard import Heard
from spool.log.partial_reports import PartialReports
from spool.log.planning.plan import PlanReader
from spool.log.protocols import Log
from spool.registry.registry_rows import RegistryRows, RegistryStore
from spool.sql.billing import SqlBillingDrops, SqlBillingHours, SqlDropRows
from spool.sql.clusters import SqlClusters
from spool.sql.connection import SqlConnection, SqlTransactions
from spool.sql.container_files import SqlContainerRows
from spool.sql.ledger import SqlLedgerRows
from spool.sql.registry import SqlRegistryRows
from spool.sql.streams import SqlStreamRows, SqlStreams
from spool.storage import Engine, Storage
from spool.streams import StreamReader, StreamRows

PAGE = Path(__file__).parents[2] / "docs/storage-engines.md"
OWED = (
    Log, PlanReader, Deliveries, PartialReports, Heard, DeviceRows, ClusterRows, StreamRows, StreamReader, BillingHours,
    DropRows, BillingDrops, ContainerRows, ContainerContents, ContentDraft, Leases, RegistryStore, RegistryRows,
    LedgerStore, LedgerRows, SqlConnection, SqlTransactions,
)  # fmt: skip
# For each protocol, the class that the SQL engines share.
GIVEN: dict[type, type] = {
    ClusterRows: SqlClusters, StreamRows: SqlStreamRows, StreamReader: SqlStreams, BillingHours: SqlBillingHours,
    DropRows: SqlDropRows, BillingDrops: SqlBillingDrops, ContainerRows: SqlContainerRows,
    RegistryRows: SqlRegistryRows, LedgerRows: SqlLedgerRows,
}  # fmt: skip


def methods(protocol: type) -> list[str]:
    """Return the methods of a protocol and of those that it extends, in order of definition."""
    found: dict[str, None] = {}
    for each in reversed(protocol.__mro__):
        if getattr(each, "_is_protocol", False):
            found.update(
                {name: None for name, value in vars(each).items() if callable(value) and name[0] != "_"}
            )
    return list(found)


def given(protocol: type) -> str:
    """Return the name of the shared class for a protocol, and the methods that this class lacks."""
    shared = GIVEN.get(protocol)
    if shared is None:
        return ""
    lacking = [f"`{name}`" for name in methods(protocol) if not hasattr(shared, name)]
    return f"`{shared.__name__}`" + (f" except {', '.join(lacking)}" if lacking else "")


@pytest.mark.parametrize("protocol", OWED)
def test_the_page_names_what_an_engine_owes(protocol: type) -> None:
    """
    A method added to a protocol must be added to its row on the page, also if the shared SQL class has it.
    """
    names = ", ".join(f"`{name}`" for name in methods(protocol))
    path = protocol.__module__.replace(".", "/")
    assert (
        f"| `{protocol.__name__}` | `{path}.py` | {names} | {given(protocol)} |"
        in PAGE.read_text().splitlines()
    )


@pytest.mark.parametrize("parts", [Engine, Storage])
def test_the_page_names_the_parts(parts: type) -> None:
    """The documentation page lists the parts of an engine and of the storage that it opens."""
    names = ", ".join(f"`{each.name}`" for each in fields(parts))
    assert f"`{parts.__name__}` consists of {names}." in " ".join(PAGE.read_text().split())
