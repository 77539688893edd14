"""Assistants as the official SDK of the Model Context Protocol makes them: both eras, over HTTP and stdio."""

from __future__ import annotations

import json

import pytest

from gateway.mcp.tools.list import TOOLS
from spool.registry.scopes import AI_HUB
from tests.acceptance.conftest import COMMAND
from tests.clients.conftest import Stand

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_the_official_sdk(stand: Stand, transport: str, mode: str) -> None:
    """It takes the tools and their answers, whose content it holds against the output schema itself."""
    key = stand.tollhouse.key(f"assistant {transport} {mode}", "--scope", AI_HUB)
    command = [str(COMMAND), "mcp", "--config", str(stand.tollhouse.config)]
    said = stand.run(
        "mcp", "with_mcp.py", transport, mode,
        MCP_URL=f"{stand.url}/mcp", MCP_KEY=key, MCP_COMMAND=json.dumps(command),
    )  # fmt: skip
    told = json.loads(said)
    assert (list(TOOLS), False) == (told["tools"], told["is_error"])
    assert told["calls"] == stand.tollhouse.json("report", "--range", "last_30d")["total"]["calls"]
    assert [True, True] == [told["wrong"][0], "did you mean model" in told["wrong"][1]]
