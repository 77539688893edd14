"""The operations that each scope opens, as operators see them, and keys whose scopes open nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from gateway.service.addresses.table import FOR_SENDERS
from spool.registry.scopes import BILLING_DROP, INGEST, SCOPES, SEND_BILLING_DATA
from tests.integration.operations.server import OperatorServer, operator_server


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as server:
        yield server


async def test_every_published_scope_is_listed(server: OperatorServer) -> None:
    """
    Each scope is listed with its category, the use case that grants it, and its operations from the address table.
    """
    rows = {row["scope"]: row for row in (await server.ask("GET", "/scopes")).payload["scopes"]}
    assert set(SCOPES) == set(rows)
    opened = {scope: set(row["opens"]) for scope, row in rows.items() if row["opens"]}
    assert {row.scope for row in FOR_SENDERS if row.scope} == set(opened)
    assert {"POST /v2/connections/billing/{segment}/{connection_id}/billing_drops"} == opened[BILLING_DROP]
    assert rows[BILLING_DROP]["category"] == "Send Billing Data"
    assert rows[BILLING_DROP]["use_case"] == SEND_BILLING_DATA
    assert "POST /v1/traces" in opened[INGEST]
    empty = (await server.ask("GET", "/scopes", opens_nothing="yes")).payload["scopes"]
    assert set(SCOPES) - set(opened) == {row["scope"] for row in empty}
    assert "opens_nothing" not in await server.create("one", scopes=[INGEST])
