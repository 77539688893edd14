"""
Stored data of billing connections that are deleted: their rows at the next start, and the decision to use
them in costs.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.configuration.sections import BillingSettings
from gateway.intake.billing_connections import BillingConnections
from spool.errors import SpoolUnavailable
from spool.registry.connections import ConnectionDraft
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.tables.connections import ConnectionTable
from spool.sqlite.in_memory import new_in_memory_registry
from tests.moved_clock import MovedClock

ADA = Actor("ada@example.com", "127.0.0.1")


class Rows:
    """The hourly files of some connections."""

    def __init__(self, *ids: str) -> None:
        self.ids = set(ids)

    async def last_billing_drop_at_by_connection(self) -> dict[str, float]:
        return dict.fromkeys(self.ids, 1.0)

    async def delete_connection(self, connection: str) -> None:
        self.ids.remove(connection)


async def test_a_connection_that_another_gateway_has_just_made_keeps_its_rows() -> None:
    """
    Rows of a connection that another gateway has just created stay, because the check reads the stored rows
    of the registry, not its memory.
    """
    store, clock = new_in_memory_registry(), MovedClock()
    here, there = [await Registry.open(store, secret=b"i" * 32, clock=clock) for _ in range(2)]
    draft = ConnectionDraft(name="bill", cloud_provider="MongoDB")
    await there.connections.create(draft, id="new", max_rows=9, actor=ADA)
    rows = Rows("new", "gone")
    await BillingConnections(here, cast(Any, rows), clock, BillingSettings()).create_configured_and_clean_up()
    assert {"new"} == rows.ids


async def test_a_deletion_that_was_not_confirmed_leaves_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The decision to use a connection in costs is deleted before the connection. If the deletion is not
    confirmed, its repeat finds no connection, so the decision would stay.
    """
    registry = await Registry.open(new_in_memory_registry(), secret=b"i" * 32, clock=MovedClock())
    connections = BillingConnections(registry, cast(Any, Rows("new")), MovedClock(), BillingSettings())
    draft = ConnectionDraft(name="bill", cloud_provider="MongoDB")
    await connections.create(draft, id="new", actor=ADA)
    await connections.set_in_costs("new", True, actor=ADA)
    delete = ConnectionTable.delete

    async def unconfirmed(self: ConnectionTable, id: str, *, actor: Actor) -> None:
        await delete(self, id, actor=actor)
        raise SpoolUnavailable("the standby did not confirm what was kept")

    monkeypatch.setattr(ConnectionTable, "delete", unconfirmed)
    with pytest.raises(SpoolUnavailable):
        await connections.delete("new", actor=ADA)
    assert not registry.connections.all()
    assert not registry.connections_in_costs.all()
