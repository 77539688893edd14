"""A receipt means that the standby has the records, and still has them after the loss of the primary."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from spool.clock import SystemClock
from spool.errors import SpoolUnavailable
from spool.postgres.database import Database
from spool.postgres.log.log import PostgresLog
from spool.postgres.migrations import migrate_schema
from spool.record import AI_TELEMETRY
from spool.settings import LOCAL, REPLICATED, SpoolSettings
from tests.spool.contract.examples import add, assert_books_balance, call, everything
from tests.spool.postgres.logs import SECRET, NoRoutes
from tests.spool.postgres.test_replication import WAITING
from tests.spool.postgres_cluster import STANDBY, Pair, Server

pytestmark = pytest.mark.proof
PATIENT = {"commit_timeout_s": 300.0, "commit_wait": 300.0}


async def test_a_receipt_outlives_the_primary(pair: Pair) -> None:
    """
    Without the standby no sender gets a receipt, and repeated records are recognized. After the loss of the
    primary every node continues on the standby, but stores nothing while that server has no standby itself.
    """
    async with AsyncExitStack() as stack:
        patient = await open_node(stack, pair, durability=REPLICATED, **PATIENT)
        one, other = [await open_node(stack, pair, durability=REPLICATED) for _ in range(2)]
        receipt = await add(patient, call(1))
        assert "replicated" == receipt.durability
        pair.standby.stop()
        await _let_go(pair, patient)
        # The node may have read its state while the server named no standby, so read it again.
        while not (await one.stats()).writable:
            await one.read_foreign_commits()
        pair.standby.stop()
        with pytest.raises(SpoolUnavailable):
            await add(one, call(2))
        # wait, because the sender may get its error before the server has stopped
        while (await one.stats()).writable:
            pass
        pair.standby.start()
        assert [0, 1] == await terms_of(other, 2)  # the sender's repeat is recognized as a duplicate

        pair.primary.stop()
        with pytest.raises(SpoolUnavailable):
            await add(one, call(3))
        pair.promote()
        while "the standby is gone" not in await refusal_of(one, 3):
            pass
        alone = await open_node(stack, pair, durability=LOCAL, **PATIENT)
        assert [1, 0] == await terms_of(alone, 3)
        assert 1 == (await alone.describe_receipt(receipt.id))["new"]
        assert [call(number)[0] for number in (1, 0, 2, 3)] == await everything(alone)
        await assert_books_balance(alone)
        await one.read_foreign_commits()
        # This node cannot know yet whether the standby has the newest record.
        assert 4 == one.lowest_open_number(AI_TELEMETRY)
        found = await one.read(AI_TELEMETRY, 1, 4, includes_open_records=True)
        assert [call(number)[0] for number in (1, 0, 2, 3)] == [
            each for entry in found for each in entry.records
        ]


async def _let_go(pair: Pair, patient: PostgresLog) -> None:
    """
    Make the server stop waiting for standbys while a commit waits. This must not count as a confirmation.
    """
    waiting = asyncio.create_task(add(patient, call(0)))
    while not await asyncio.to_thread(pair.primary.execute, WAITING):
        pass
    await asyncio.to_thread(pair.primary.change, synchronous_standby_names="")
    while "the standby is gone" not in (patient._commits.last_error or ""):
        assert not waiting.done()
        await asyncio.sleep(0.02)
    pair.standby.start()
    await asyncio.to_thread(pair.primary.change, synchronous_standby_names=STANDBY)
    receipt = await waiting
    assert receipt.records == 1
    assert receipt.durability == "replicated"


async def test_a_commit_that_waits_for_the_standby_holds_up_nobody(pair: Pair) -> None:
    """
    Other nodes commit after a waiting commit and build on it. All are answered once the standby has
    confirmed. If the primary is killed meanwhile, no acknowledged record is lost.
    """
    async with AsyncExitStack() as stack:
        plain, one, other = [await open_node(stack, pair, durability=REPLICATED, **PATIENT) for _ in range(3)]
        plain._commits._writer._in_two_steps = False
        for number, node in enumerate((plain, one, other)):
            # without a follower, each node finds the others' commits only when it has the head
            node._follower._task.cancel()
            await add(node, call(number))
        pair.standby.stop()
        waiting = [asyncio.create_task(add(one, call(3)))]
        await until_known(plain, 4)
        waiting.append(asyncio.create_task(add(other, call(4), call(3))))
        await until_known(plain, 5)
        assert not any(task.done() for task in waiting)
        pair.standby.start()
        receipts = await asyncio.gather(*waiting)
        assert [1, 1] == [
            (await plain.describe_receipt(receipts[1].id))[term] for term in ("new", "duplicates")
        ]

        # These nodes have no practical time limit for commits, but all commits end soon once the primary is lost.
        nodes = [
            await open_node(stack, pair, durability=REPLICATED, commit_timeout_s=300.0) for _ in range(3)
        ]
        nodes[0]._commits._writer._in_two_steps = False
        kept: dict[PostgresLog, list[int]] = {node: [] for node in nodes}
        sending = [
            asyncio.create_task(send(node, begin, kept[node])) for begin, node in enumerate(kept, start=1)
        ]
        while min(map(len, kept.values())) < 20:  # noqa: ASYNC110 - each of them counts
            await asyncio.sleep(0.01)
        await asyncio.to_thread(pair.primary.stop)
        await asyncio.to_thread(pair.promote)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        answered = [*range(5), *(number for numbers in kept.values() for number in numbers)]
        alone = await open_node(stack, pair, durability=LOCAL, **PATIENT)
        ids = [record.id for record in await everything(alone) if record is not None]
        assert {call(number)[1].id for number in answered} <= set(ids)
        assert len(ids) == len(set(ids))
        await assert_books_balance(alone)


async def until_known(log: PostgresLog, count: int) -> None:
    while log.next_number(AI_TELEMETRY) <= count:
        await log.read_foreign_commits()


async def send(log: PostgresLog, begin: int, answered: list[int]) -> None:
    """Send one call after another, with numbers that no other sender uses."""
    for number in range(begin * 1_000_000, (begin + 1) * 1_000_000):
        try:
            await add(log, call(number))
        except SpoolUnavailable:
            await asyncio.sleep(0.01)
        else:
            answered.append(number)


async def open_node(
    stack: AsyncExitStack,
    pair: Pair | Server,
    *,
    durability: str,
    commit_timeout_s: float = 0.3,
    commit_wait: float = 1.0,
) -> PostgresLog:
    database = Database(pair.dsn, commit_timeout_s=commit_timeout_s)
    stack.push_async_callback(database.close)
    await migrate_schema(database)
    log = PostgresLog(
        database,
        settings=SpoolSettings(hold=0, commit_wait=commit_wait),
        clock=SystemClock(),
        secret=SECRET,
        routes=NoRoutes(),
        durability=durability,
    )
    await log.open()
    stack.push_async_callback(log.close)
    return log


async def terms_of(log: PostgresLog, number: int) -> list[object]:
    """Repeat a call until it is accepted and return its numbers of new and repeated records."""
    while True:
        try:
            receipt = await add(log, call(number))
        except SpoolUnavailable:
            await asyncio.sleep(0.02)
        else:
            view = await log.describe_receipt(receipt.id)
            return [view["new"], view["duplicates"]]


async def refusal_of(log: PostgresLog, number: int) -> str:
    await asyncio.sleep(0.02)
    try:
        await add(log, call(number))
    except SpoolUnavailable as error:
        return str(error)
    return ""
