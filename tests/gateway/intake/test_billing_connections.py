"""Billing connections at a start: rows whose connection is gone are removed, and no others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.configuration.sections import BillingSettings
from gateway.intake.billing_connections import BillingConnections
from spool.memory.registry import MemoryRegistry
from spool.registry.connections import ConnectionDraft
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from tests.moved_clock import MovedClock


class Rows:
    """The drops of some connections."""

    def __init__(self, *ids: str) -> None:
        self.ids = set(ids)

    async def newest(self) -> dict[str, float]:
        return dict.fromkeys(self.ids, 1.0)

    async def forget(self, connection: str) -> None:
        self.ids.remove(connection)


@pytest.mark.asyncio
async def test_a_connection_that_another_gateway_has_just_made_keeps_its_rows() -> None:
    """The registry is asked, not what is in memory of it."""
    store, clock = MemoryRegistry(), MovedClock()
    here, there = [await Registry.open(store, secret=b"i" * 32, clock=clock) for _ in range(2)]
    draft = ConnectionDraft(name="bill", cloud_provider="MongoDB")
    await there.connections.create(draft, id="new", most=9, actor=Actor("ada@example.com", "127.0.0.1"))
    rows = Rows("new", "gone")
    await BillingConnections(here, cast(Any, rows), clock, BillingSettings()).establish()
    assert {"new"} == rows.ids
