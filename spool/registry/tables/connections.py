"""
The billing connections of a registry: every change with its audit row, and all of them in memory for those
that ask on every drop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from spool.registry.connections import (
    BillingConnection,
    ConnectionDraft,
    check_connection,
    check_connection_id,
    new_connection_id,
)
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.shared import makers
from spool.registry.shared.document_table import DocumentTable, check_name, stated
from spool.registry.shared.following import CONNECTIONS, Subject


class _ConnectionRows:
    """They have a table of their own; the rules are those of documents."""

    noun = "billing connection"
    about: Subject = (CONNECTIONS, "")

    def all(self, rows: RegistryRows) -> dict[str, BillingConnection]:
        return {each.id: each for each in rows.all(BillingConnection)}

    def put(self, rows: RegistryRows, row: BillingConnection) -> None:
        rows.put(row)

    def delete(self, rows: RegistryRows, id: str) -> None:
        rows.delete(BillingConnection, id)


class ConnectionTable(DocumentTable[BillingConnection]):
    """Create, change and delete connections. A method that raises (Invalid, NotAllowed, NotThere) changes nothing."""

    kind = _ConnectionRows()
    draft = ConnectionDraft
    limit = makers.CONNECTIONS
    action = "connection"

    async def ids(self) -> Collection[str]:
        """Return the ids of the connections that exist now, whichever process made them."""
        return (await self._changes.read(self.kind.all)).keys()

    async def create(
        self, draft: ConnectionDraft, *, id: str | None = None, most: int, actor: Actor
    ) -> BillingConnection:
        """
        A new connection under its own new id or a given one.

        NotAllowed when there are `most`, or a key made as many as it leaves free.
        """
        id = new_connection_id() if id is None else check_connection_id(id)
        return await self._make(id, draft, most=most, actor=actor)

    async def establish(self, id: str, draft: ConnectionDraft, *, actor: Actor) -> None:
        """Add a connection that the configuration names, whatever its id looks like; nothing if it is there."""
        if self.find(id) is None:
            await self._make(id, draft, most=None, actor=actor)

    async def change(self, id: str, changes: Mapping[str, Any], *, actor: Actor) -> BillingConnection:
        """Set the fields of a draft that are given."""

        def edit(before: BillingConnection) -> BillingConnection:
            return replace(before, **stated(check_connection(self._redrafted(before, changes))))

        return await self._edit(id, edit, check=_check, actor=actor)

    async def delete(self, id: str, *, actor: Actor) -> None:
        """Its drops are forgotten where they are kept."""
        await self._remove(id, actor=actor)

    async def _make(
        self, id: str, draft: ConnectionDraft, *, most: int | None, actor: Actor
    ) -> BillingConnection:
        now = self._changes.now()
        connection = BillingConnection(
            id=id, created=now, last_updated=now, **stated(check_connection(draft))
        )
        return await self._add(connection, check=_check, most=most, actor=actor)


def _check(rows: RegistryRows, kept: Mapping[str, BillingConnection], connection: BillingConnection) -> None:
    check_name(kept.values(), connection, noun="billing connection")
