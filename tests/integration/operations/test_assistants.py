"""Assistants of people on the operator API: writing needs both the role and the setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.configuration.sections import McpSettings
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.spool.kept import audit_rows


def line(method: str, **params: Any) -> dict[str, str]:
    return {"line": json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})}


NOTES = line("tools/call", name="set_org_context", arguments={"text": "Search owns the index."})


async def answered(server: OperatorServer, body: object, headers: dict[str, str] | None = None) -> Any:
    """Send a message over the socket, or as a signed-in browser."""
    if headers is None:
        answer = await server.ask("POST", "/mcp", body)
    else:
        answer = await server.over_http("POST", "/mcp", body, headers=headers)
    assert 200 == answer.status, answer.payload
    return json.loads(answer.payload["line"])


@pytest.mark.parametrize(("role", "may_write"), [("viewer", False), ("operator", True)])
async def test_writing_requires_the_role_operator(tmp_path: Path, role: str, may_write: bool) -> None:
    """
    Even if the setting allows writing, a viewer neither sees nor may use the writing tools. Writes are
    audited under the person's name.
    """
    async with operator_server(tmp_path, mcp=lambda: McpSettings(writes=True)) as server:
        headers = await signed_in(server, role)
        listed = await answered(server, line("tools/list"), headers)
        assert may_write == ("set_org_context" in {tool["name"] for tool in listed["result"]["tools"]})
        found = await answered(server, NOTES, headers)
        assert may_write == (not found["result"]["isError"]), found
        assert may_write == ("permission set Work on Insights" not in json.dumps(found))
        kept = await server.registry.org_context.get()
        assert (ADA if may_write else None) == (None if kept is None else kept.set_by)
        rows = [row for row in await audit_rows(server.registry) if row.action == "org_context.set"]
        assert [ADA] * may_write == [row.actor for row in rows]


async def test_nobody_writes_by_default(tmp_path: Path) -> None:
    """
    Without the setting, nobody can write, not even the command line on the machine itself. The error
    names the setting.
    """
    async with operator_server(tmp_path) as server:
        found = await answered(server, NOTES)
        assert "mcp.writes" in found["error"]["message"]
        assert await server.registry.org_context.get() is None
