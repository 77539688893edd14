"""
Commits that a node has followed and the database lost, because the promoted standby had not received them.
"""

from __future__ import annotations

import pytest

from spool.errors import NotClosed
from spool.ledger.ledger import Ledger
from spool.postgres.database import Connection
from spool.postgres.ledger import PostgresLedger
from spool.postgres.log.commit_findings import add_all_commits_to_accounting
from spool.postgres.log.log import PostgresLog
from spool.record import AI_TELEMETRY
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, everything
from tests.spool.postgres.logs import LogOpener
from tests.spool.postgres.logs import clock as clock
from tests.spool.postgres.logs import open_log as open_log
from tests.waiting import limited


async def lose_newest(log: PostgresLog) -> None:
    """Delete the newest commit and its entry without a trace."""

    def lose(connection: Connection) -> None:
        for statement in (
            "DELETE FROM {schema}.entries e USING (SELECT next FROM {schema}.commits ORDER BY id DESC OFFSET "
            "1 LIMIT 1)"
            " AS c WHERE e.topic = 0 AND e.first >= c.next[1]",
            "DELETE FROM {schema}.commits WHERE id = (SELECT max(id) FROM {schema}.commits)",
            "DELETE FROM {schema}.books",
            "UPDATE {schema}.marks SET booked = 0",
        ):
            connection.execute(log._database.fill_in_table_names(statement))

    await add_all_commits_to_accounting(log._database)
    await log._database.transaction(lose)


async def followed(open_log: LogOpener, clock: MovedClock, *, hold: int) -> PostgresLog:
    """
    Return a node that knows another node's commit, old enough to close, without proof that a standby has it.
    """
    makes, reads = await open_log(hold=hold), await open_log(hold=hold)
    for node in (makes, reads):
        await node._follower.close()
    await add(reads, call(1))
    clock.move(hold)
    await reads.close_due_records()
    await makes.read_foreign_commits()
    await add(makes, call(2))
    await reads.read_foreign_commits()
    clock.move(hold)
    return reads


@pytest.mark.proves("calls that vanish with a primary")
@pytest.mark.parametrize("hold", [10, 0])
async def test_records_under_a_vanished_number_are_counted(
    open_log: LogOpener, clock: MovedClock, hold: int
) -> None:
    """
    A record that was lost in a failover had not been closed, because it could still vanish. The records that
    then get its number are counted.
    """
    log = await followed(open_log, clock, hold=hold)
    ledger = await Ledger(PostgresLedger(log._database), clock=clock).load()
    assert 2 == await ledger.catch_up(log)
    closed = log.lowest_open_number(AI_TELEMETRY)
    await lose_newest(log)
    await add(log, call(3), call(4))
    clock.move(hold)
    assert 4 == await ledger.catch_up(log)
    assert (await ledger.state()).missed == 0
    assert (await ledger.state()).reach == 4
    assert [call(number)[0] for number in (1, 3, 4)] == await everything(log)
    assert 2 == closed


@pytest.mark.parametrize("hold", [10, 0])
async def test_proof_closes_what_another_node_committed(
    open_log: LogOpener, clock: MovedClock, hold: int
) -> None:
    """
    An empty commit proves that earlier commits are confirmed, so closing them does not depend on further records.
    """
    log = await followed(open_log, clock, hold=hold)
    assert 2 == log.lowest_open_number(AI_TELEMETRY)
    with pytest.raises(NotClosed):
        await log.read(AI_TELEMETRY, 1, 2, must_be_closed=True)
    await log.close_due_records()
    assert 3 == log.lowest_open_number(AI_TELEMETRY)
    assert [2] == [len(await everything(log))]


async def test_a_reader_hears_of_numbers_that_come_again(open_log: LogOpener, clock: MovedClock) -> None:
    """
    If the database loses confirmed commits, readers learn that the closed number falls, and new records use
    the same numbers.
    """
    log = await open_log(hold=10)
    await add(log, call(1))
    await add(log, call(2))
    clock.move(10)
    news = log.watermark_changes(AI_TELEMETRY)
    assert 3 == await anext(news)
    await log._follower.close()
    await lose_newest(log)
    await add(log, call(3))
    async with limited():
        assert 2 == await anext(news)
        with pytest.raises(NotClosed):
            await log.read(AI_TELEMETRY, 1, 2, must_be_closed=True)
        clock.move(10)
        assert 3 == await anext(news)
