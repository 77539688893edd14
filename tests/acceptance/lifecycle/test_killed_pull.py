"""
If a server is killed while it pulls a report, the next pull continues with the first page that was not stored.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

from aiohttp.test_utils import TestServer

from tests.acceptance.conftest import Tollhouse
from tests.integration.statements.providers import KEY, VALUE, OpenAICosts
from tests.waiting import limited

DAYS = 3


async def test_killed_pull_continues_and_counts_each_page_once(installations: Any) -> None:
    """
    A killed pull continues and counts each page once, because each page is stored before the next one is requested.
    """
    provider = OpenAICosts()
    provider.hang_at = 2
    async with TestServer(provider.application()) as server:
        more = f"""
[[reconciliation.pull]]
name = "costs"
source = "openai_costs"
key_file = "admin-key"
base_url = "{server.make_url("/")}"
days = {DAYS}
"""
        tollhouse: Tollhouse = installations(more=more)
        (tollhouse.directory / "admin-key").write_text(KEY)
        await asyncio.to_thread(tollhouse.start)
        async with limited():
            await provider.hung.wait()
        tollhouse.kill()
        await asyncio.to_thread(tollhouse.start)
        async with limited():
            await provider.until_asked(3)
        shown = await asyncio.to_thread(tollhouse.json, "reconcile", "pull")
        assert ["done"] == [each["state"] for each in shown["statement_pulls"]]
        [first, second, again, *rest] = provider.asked
        assert second == again != first
        assert [first, second] == rest  # the pull that the command started requested both pages again
        months = (await asyncio.to_thread(tollhouse.json, "reconcile", "statements", "list"))["statements"]
        assert DAYS * VALUE == sum(Decimal(month["billed"]) for month in months)
        assert DAYS == sum(month["days"] for month in months)
