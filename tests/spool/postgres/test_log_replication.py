"""What a receipt stands for: the standby has it, and goes on with it when the primary is lost."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from spool.clock import SystemClock
from spool.errors import SpoolUnavailable
from spool.postgres.database import Database
from spool.postgres.log.log import PostgresLog
from spool.postgres.migrations import migrate
from spool.settings import LOCAL, REPLICATED, SpoolSettings
from tests.spool.contract.examples import add, assert_books_balance, call, everything
from tests.spool.postgres.logs import SECRET, NoRoutes
from tests.spool.postgres_cluster import Pair

pytestmark = pytest.mark.asyncio


async def test_a_receipt_outlives_the_primary(pair: Pair) -> None:
    """
    Without the standby nobody is told that anything was kept; what a sender repeats then is known. After the loss of
    the primary every node goes on with the standby, but keeps nothing for as long as that has none of its own.
    """
    async with AsyncExitStack() as stack:
        one, other = [await open_node(stack, pair, durability=REPLICATED) for _ in range(2)]
        receipt = await add(one, call(1))
        assert "replicated" == receipt.durability
        pair.standby.stop()
        with pytest.raises(SpoolUnavailable):
            await add(one, call(2))
        assert not (await one.stats()).writable
        pair.standby.start()
        assert [0, 1] == await terms_of(other, 2)  # whoever is told again

        pair.primary.stop()
        with pytest.raises(SpoolUnavailable):
            await add(one, call(3))
        pair.promote()
        while "the standby is gone" not in await refusal_of(one, 3):
            pass
        alone = await open_node(stack, pair, durability=LOCAL)
        assert [1, 0] == await terms_of(alone, 3)
        assert 1 == (await alone.receipt(receipt.id))["new"]
        assert [call(number)[0] for number in (1, 2, 3)] == await everything(alone)
        await assert_books_balance(alone)
        await one.follow()
        assert [call(number)[0] for number in (1, 2, 3)] == await everything(one)


async def open_node(stack: AsyncExitStack, pair: Pair, *, durability: str) -> PostgresLog:
    database = Database(pair.dsn, commit_timeout_s=0.3)
    stack.push_async_callback(database.close)
    await migrate(database)
    log = PostgresLog(
        database,
        settings=SpoolSettings(hold=0, commit_wait=1.0),
        clock=SystemClock(),
        secret=SECRET,
        routes=NoRoutes(),
        durability=durability,
    )
    await log.open()
    stack.push_async_callback(log.close)
    return log


async def terms_of(log: PostgresLog, number: int) -> list[object]:
    """How many new records and how many repeats a call makes, once it is taken."""
    while True:
        try:
            receipt = await add(log, call(number))
        except SpoolUnavailable:
            await asyncio.sleep(0.02)
        else:
            view = await log.receipt(receipt.id)
            return [view["new"], view["duplicates"]]


async def refusal_of(log: PostgresLog, number: int) -> str:
    await asyncio.sleep(0.02)
    try:
        await add(log, call(number))
    except SpoolUnavailable as error:
        return str(error)
    return ""
