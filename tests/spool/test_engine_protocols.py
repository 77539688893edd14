"""The documentation page for storage engines names every protocol that an engine implements."""

from __future__ import annotations

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


@pytest.mark.parametrize("protocol", OWED)
def test_the_page_names_each_protocol(protocol: type) -> None:
    """The row of a protocol has its module, and the class that SQL engines share."""
    path = protocol.__module__.replace(".", "/")
    shared = f"`{GIVEN[protocol].__name__}` " if protocol in GIVEN else ""
    assert f"| `{protocol.__name__}` | `{path}.py` | {shared}|" in PAGE.read_text().splitlines()
