"""The organization's choice of assistant tools applies at every gateway on one PostgreSQL."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from spool.registry.scopes import AI_HUB
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.test_two_gateways import shared_config
from tests.spool.postgres_cluster import Schema
from tests.waiting import until

LIST = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
TOOL = "get_budgets"
AGREE_S = 1.0  # limit in seconds on a quiet machine; on a busy machine some attempts may take longer


async def test_a_tool_is_off_at_every_gateway(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path
) -> None:
    """If the organization disables or enables a tool at one gateway, the other gateway follows within a second."""
    schema = new_schema()
    config = shared_config(schema.dsn, schema.name, tmp_path)
    one = await serve(config=config)
    other = await serve(config=config, key_name="another")
    key = await one.make_key("assistant", scopes=[AI_HUB])
    table = one.app.services.operators.installation.require_registry().assistant_tools

    async def has_tool(gateway: Serving) -> bool:
        answer = await gateway.send("/mcp", LIST, key=key)
        if answer.status != 200:  # the other gateway may not know such a new key yet
            return not enabled
        return TOOL in {each["name"] for each in json.loads(answer.body)["result"]["tools"]}

    enabled = True
    await until(lambda: has_tool(other))
    waits = []
    for enabled in (False, True, False, True, False, True):
        await table.set_enabled(TOOL, enabled=enabled, actor=ACTOR)
        decided = time.monotonic()
        assert enabled == await has_tool(one)

        async def agrees(enabled: bool = enabled) -> bool:
            return enabled == await has_tool(other)

        await until(agrees)
        waits.append(time.monotonic() - decided)
    print(f"the other gateway agreed after {', '.join(f'{wait:.2f}' for wait in waits)} s")
    assert min(waits) < AGREE_S
