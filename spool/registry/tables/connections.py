"""Billing connections, all in memory, because every hourly file needs a lookup."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from spool.registry.connections import (
    BillingConnection,
    ConnectionDraft,
    check_connection,
    check_connection_id,
)
from spool.registry.document_table import ManagedTable, Sees, check_name_free
from spool.registry.following import CONNECTIONS, ChangedRowId
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows


class _BillingConnectionCollection:
    """The table of billing connections, with the methods of a document kind."""

    noun = "billing connection"
    row = BillingConnection
    announced_subject: ChangedRowId = (CONNECTIONS, "")

    def all(self, registry_rows: RegistryRows) -> dict[str, BillingConnection]:
        return {connection.id: connection for connection in registry_rows.all(BillingConnection)}

    def store_row(self, registry_rows: RegistryRows, row: BillingConnection) -> None:
        registry_rows.store_row(row)

    def delete(self, registry_rows: RegistryRows, id: str) -> None:
        registry_rows.delete(BillingConnection, id)


class ConnectionTable(ManagedTable[BillingConnection]):
    kind = _BillingConnectionCollection()
    draft = ConnectionDraft
    limit = "billing.max_connections"
    action = "connection"

    async def current_ids(self) -> Collection[str]:
        return (await self._changes.read(self.kind.all)).keys()

    def check_draft(self, draft: ConnectionDraft) -> ConnectionDraft:
        return check_connection(draft)

    def check_conflicts(
        self,
        registry_rows: RegistryRows,
        stored: Mapping[str, BillingConnection],
        row: BillingConnection,
        can_see_row: Sees[BillingConnection],
    ) -> None:
        check_name_free(stored.values(), row, noun=self.kind.noun)

    async def create(
        self, draft: ConnectionDraft, *, id: str | None = None, **options: Any
    ) -> BillingConnection:
        return await super().create(draft, id=None if id is None else check_connection_id(id), **options)

    async def add_configured(self, id: str, draft: ConnectionDraft, *, actor: Actor) -> None:
        """
        Add a connection from the configuration, without checking its id. Does nothing if the connection
        exists.
        """
        if self.find(id) is None:
            await super().create(draft, id=id, max_rows=None, actor=actor)
