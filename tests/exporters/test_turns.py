from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from exporters.batch import TURN, map_with_pauses


@pytest.mark.parametrize("count", [0, 1, TURN, TURN + 1, 10 * TURN])
async def test_everybody_else_has_a_turn_in_between(count: int) -> None:
    """The work yields after every TURN items except after the last ones, and keeps the order of the items."""
    told: list[str] = []

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            told.append("others")

    beside = asyncio.create_task(others())
    await asyncio.sleep(0)

    def work(items: Sequence[int]) -> Sequence[int]:
        told.append("work")
        assert len(items) <= TURN
        return items

    made = await map_with_pauses(list(range(count)), work)
    beside.cancel()
    assert list(range(count)) == [item for part in made for item in part]
    works = -(-count // TURN)
    assert (["work", "others"] * works)[: 2 * works - 1 if works else 0] == told
