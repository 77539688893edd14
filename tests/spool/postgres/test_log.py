"""Several nodes append to one log: each number and each call exists once, on whichever node."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from spool.errors import SpoolFull, SpoolUnavailable
from spool.identity import RecordIdentity, build_nested_report
from spool.log.commits.following import CommitRow, FollowedLogState, unpack_new_ids
from spool.log.protocols import RecordLog
from spool.log.values import Submission
from spool.postgres.database import CommitUnknown, Connection, PipelinedTransaction, Unconfirmed
from spool.postgres.log import store
from spool.postgres.log.commit_findings import add_all_commits_to_accounting
from spool.postgres.log.log import PostgresLog
from spool.postgres.log.memory import apply_commit_rows
from spool.postgres.log.queries import LOCK_HEAD
from spool.postgres.log.recount import RecountRange, read_counters_and_recount_range
from spool.postgres.log.retention import PERIOD_S
from spool.record import AI_TELEMETRY, NS, Inference, Record
from spool.settings import PLATFORM, REPLICATED, SpoolSettings
from spool.sqlite.in_memory import open_spool as open_in_memory
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import (
    NOON,
    add,
    assert_books_balance,
    call,
    everything,
    point,
    submission,
    topic_terms,
)
from tests.spool.postgres.logs import LogOpener, clock, open_log
from tests.waiting import limited, until

__all__ = ["clock", "open_log"]


async def test_nodes_share_numbers_and_ids(open_log: LogOpener, clock: MovedClock) -> None:
    """A call that two nodes receive is one record with both reports, and both nodes read it."""
    one, other = await open_log(), await open_log()
    await add(one, call(1), call(2))
    await add(other, call(3), call(1, user="ada"))
    await add(one, call(3, team="search"))
    clock.move(11)

    expected = [call(1, user="ada")[0], call(2)[0], call(3, team="search")[0]]
    for log in (one, other):
        await log.read_foreign_commits()
        assert expected == await everything(log)
        terms = await topic_terms(log)
        assert terms["accepted"] == 3
        assert terms["duplicates"] == 2
        assert terms["amended"] == 2
        await assert_books_balance(log)


async def test_a_reader_at_rest_hears_of_what_another_node_committed(
    open_log: LogOpener, clock: MovedClock
) -> None:
    """A waiting reader wakes even if this node learns of the other node's commit during its own append."""
    one, other = await open_log(hold=10), await open_log(hold=10)
    news = other.watermark_changes(AI_TELEMETRY)
    assert 1 == await anext(news)

    async def following() -> int:
        return await anext(news)

    waiting = asyncio.create_task(following())
    await asyncio.sleep(0)
    await add(one, call(1))
    await add(other, call(2))
    clock.move(11)
    async with limited():
        assert 3 == await waiting


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(2))
async def test_verbs_dealt_to_two_nodes_do_what_one_log_does(
    open_log: LogOpener, clock: MovedClock, seed: int
) -> None:
    """Each call goes to a random node. Both nodes return the same as one log in memory."""
    chance = random.Random(seed)
    # In this test, only retention moves ids into runs, because the contract does not state which ids still
    # know their record number.
    settings = {"hold": 10, "retention": 3600}
    nodes = [await open_log(**settings), await open_log(**settings)]
    in_memory = await open_in_memory(settings=SpoolSettings(**settings), clock=clock)
    memory = in_memory.log
    for turn in range(120):
        node = chance.choice(nodes)
        action = chance.random()
        if action < 0.65:
            receipts = []
            one = _report(chance, clock.now())
            for log in (node, memory):
                receipt = await log.append_submission(one)
                receipts.append(dict(await log.describe_receipt(receipt.id)) | {"id": None})
            assert receipts[0] == receipts[1]
        elif action < 0.85:
            clock.move(chance.choice([1, 11, 1900, 4000]))
        elif action < 0.92:
            await node.close_due_records()
        else:
            if action < 0.96:
                assert await memory.run_retention() == await node.run_retention()
            for node in list(nodes):  # all processes end, and new processes replace them
                await node.close()
                nodes.remove(node)
                nodes.append(await open_log(**settings))
        for node in nodes:  # a real node follows the others ten times a second
            await node.read_foreign_commits()
        if turn % 4 == 0:
            await _answer_alike(nodes, memory)
    await _answer_alike(nodes, memory)
    for node in nodes:
        await assert_books_balance(node)
    await in_memory.close()


async def _answer_alike(nodes: Sequence[PostgresLog], memory: RecordLog) -> None:
    """Assert equal results, after each node has confirmed commits of other nodes."""
    for node in nodes:
        await node.close_due_records()
    logs: Sequence[RecordLog] = [*nodes, memory]
    assert 1 == len({log.next_number(AI_TELEMETRY) for log in logs})
    answers = [
        [
            await everything(log),
            await log.books(),
            await log.list_conflicts(),
            log.lowest_open_number(AI_TELEMETRY),
        ]
        for log in logs
    ]
    for answer in answers[1:]:
        assert answers[0] == answer


def _report(chance: random.Random, now: float) -> Submission:
    calls: list[tuple[Record, RecordIdentity]] = []
    for _ in range(chance.randrange(5)):
        facts = {"user": chance.choice([None, "ada", "bob"]), "input_tokens": chance.choice([100, 100, 7])}
        record, known_as = call(chance.randrange(60), at=NOON + chance.randrange(3) * 900, **facts)
        if chance.random() < 0.1:
            known_as = RecordIdentity(record.id, certain=False)
        elif chance.random() < 0.2:
            known_as = known_as._replace(
                also=tuple(bytes([each]) * 16 for each in chance.sample(range(8), 2))
            )
        calls.append((record, known_as))
    points = [point(chance.randrange(1000), at=now + 1) for _ in range(chance.randrange(2))]
    return submission(calls, points=points, ignored={"not_ai": chance.randrange(2)})


async def test_nodes_append_at_once(open_log: LogOpener) -> None:
    """
    Numbers have no gap and no call is stored twice, although all three nodes receive every call at the same time.
    """
    nodes = [await open_log(hold=0) for _ in range(3)]
    await asyncio.gather(
        *[add(node, call(number), call(number + 1)) for number in range(30) for node in nodes]
    )
    found = [record for record in await everything(nodes[0]) if record is not None]
    assert 31 == len(found) == len({record.id for record in found})
    await nodes[1].read_foreign_commits()
    assert found == await everything(nodes[1])
    await assert_books_balance(nodes[2])


# -- commits with a lost answer ------------------------------------------------------------------------------


class LostAnswers:
    """Lose the answer to some commits of a node, which were either made or not."""

    def __init__(self, log: PostgresLog, monkeypatch: pytest.MonkeyPatch) -> None:
        lane = log._database.append
        self._joined = lane.run_pipelined
        self.next: list[Exception] = []
        self.stands = True
        monkeypatch.setattr(lane, "run_pipelined", self.joined)

    async def joined(self, work):  # type: ignore[no-untyped-def]
        error = self.next.pop(0) if self.next else None
        if error is None:
            return await self._joined(work)

        def undone(transaction: PipelinedTransaction) -> None:
            committed = transaction.commit_in_pipeline

            @contextmanager
            def commit_and_raise(
                *, releases_locks_early: bool = False, needs_standby: bool = False
            ) -> Iterator[None]:
                with committed(releases_locks_early=releases_locks_early, needs_standby=needs_standby):
                    yield
                    raise error

            transaction.commit_in_pipeline = commit_and_raise  # type: ignore[method-assign]
            work(transaction)

        if self.stands:
            await self._joined(work)
        else:
            with pytest.raises(type(error)):
                await self._joined(undone)
        raise error


@pytest.mark.parametrize("stands", [True, False])
@pytest.mark.parametrize("error", [CommitUnknown("lost"), Unconfirmed("not confirmed")])
async def test_a_lost_answer_is_looked_up(
    open_log: LogOpener, monkeypatch: pytest.MonkeyPatch, error: Exception, stands: bool
) -> None:
    """
    Whether or not a commit with a lost answer was made, a record without identity is stored once, and its
    sender gets a receipt.
    """
    log, other = await open_log(hold=0), await open_log(hold=0)
    lost = LostAnswers(log, monkeypatch)
    lost.next, lost.stands = [error, error], stands
    record, _ = call(1)

    receipt = await add(log, (record, RecordIdentity(record.id, certain=False)), call(2))

    assert receipt.records == 2
    assert (await log.describe_receipt(receipt.id))["new"] == 2
    await other.read_foreign_commits()
    await other.close_due_records()
    for node in (log, other):
        assert [record, call(2)[0]] == await everything(node)
        await assert_books_balance(node)


async def is_writable(log: PostgresLog) -> bool:
    return (await log.stats()).writable


async def test_missing_answer_to_a_commit_is_no_receipt(
    open_log: LogOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the answer to a commit never comes, the sender repeats its request. If the commit was made, the
    repeat is recognized.
    """
    log = await open_log(hold=0)
    monkeypatch.setattr(log._commits, "_wait_s", 0.0)
    lost = LostAnswers(log, monkeypatch)
    lost.next = [CommitUnknown("lost")]
    with pytest.raises(SpoolUnavailable):
        await add(log, call(1))
    while True:  # retry, because the log refuses appends while it checks whether commits work again
        try:
            await add(log, call(1))
        except SpoolUnavailable:
            await asyncio.sleep(0.01)
        else:
            break
    assert [call(1)[0]] == await everything(log)


async def test_a_node_that_is_ahead_of_the_database_reads_everything_again(open_log: LogOpener) -> None:
    """
    An older state of the database was restored. Numbers continue from there, and lost records can be sent again.
    """
    log = await open_log(hold=0)
    await add(log, call(1))
    await add(log, call(2))
    await log.read_foreign_commits()

    def lose(connection: Connection) -> None:
        for statement in (
            "DELETE FROM {schema}.commits WHERE id = 2", "DELETE FROM {schema}.entries WHERE first = 2",
            "DELETE FROM {schema}.books", "UPDATE {schema}.marks SET booked = 0",
        ):  # fmt: skip
            connection.execute(log._database.fill_in_table_names(statement))

    await add_all_commits_to_accounting(log._database)
    await log._database.transaction(lose)

    await add(log, call(2), call(3))

    assert [call(number)[0] for number in (1, 2, 3)] == await everything(log)
    await assert_books_balance(log)


async def test_damaged_terms_do_not_stop_the_accounting(
    open_log: LogOpener, caplog: pytest.LogCaptureFixture
) -> None:
    """The log reports that the counts of a damaged commit are missing, and counts later commits."""
    log = await open_log(hold=0)
    # stop the follower, because otherwise it could count the commit at any moment
    await log._follower.close()
    await add(log, call(1))
    await log._database.run(
        lambda one: one.execute(
            log._database.fill_in_table_names("UPDATE {schema}.commits SET terms = 'x' WHERE id = 1")
        )
    )
    await add(log, call(2), call(3))
    await add_all_commits_to_accounting(log._database)
    assert 2 == (await topic_terms(log))["accepted"]
    assert "the terms of a commit are damaged" in caplog.text
    assert "commit 1: its row is damaged" in (await log.verify()).imbalances
    await assert_books_balance(log)  # this recount includes the records themselves
    assert 3 == (await topic_terms(log))["accepted"]
    await log._database.run(
        lambda one: one.execute(
            log._database.fill_in_table_names("UPDATE {schema}.commits SET terms = 'x' WHERE id = 2")
        )
    )
    assert "commit 2: its row is damaged" in (await log.verify()).imbalances
    await assert_books_balance(log)
    assert 3 == (await topic_terms(log))["accepted"]


@pytest.mark.parametrize("is_counted", [True, False])
async def test_damaged_row_that_nobody_recounted_is_set_aside_by_retention(
    open_log: LogOpener, clock: MovedClock, is_counted: bool
) -> None:
    """
    Retention sets the damaged row aside before it carries the counts forward, so the accounting balances
    whether or not the counts include it.
    """
    log = await open_log(hold=0, retention=100, late_window=0)
    # stop the follower, because otherwise it could count the commit at any moment
    await log._follower.close()
    await add(log, call(1), call(2), ignored={"not_ai": 1})
    if is_counted:
        await add_all_commits_to_accounting(log._database)
    await log._database.run(
        lambda one: one.execute(
            log._database.fill_in_table_names("UPDATE {schema}.commits SET terms = 'x' WHERE id = 1")
        )
    )
    clock.move(1000)
    await add(log, call(3))
    await log.run_retention()
    await assert_books_balance(log)
    assert (await topic_terms(log))["accepted"] == 3
    assert (await topic_terms(log))["expired"] == 2


async def test_nothing_is_stored_without_a_standby(open_log: LogOpener) -> None:
    """With `replicated`, a commit fails if the server would wait for no standby."""
    log = await open_log(durability=REPLICATED)
    with pytest.raises(SpoolUnavailable, match="the standby is gone"):
        await add(log, call(1))
    assert 1 == log.next_number(AI_TELEMETRY)


async def test_a_platform_that_replicates_itself_needs_no_standby(open_log: LogOpener) -> None:
    """If the storage of a platform is already replicated, the server waits for no standby."""
    log = await open_log(durability=PLATFORM)
    receipt = await add(log, call(1))
    assert "replicated" == receipt.durability


async def test_lagging_node_follows_in_parts(open_log: LogOpener, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A node that is far behind follows in parts. Even for an append, it does so without the lock on the head,
    for which others wait.
    """
    monkeypatch.setattr("spool.postgres.log.store.FOLLOWED_AT_ONCE", 3)
    parts: list[int] = []

    def noted(log_state: FollowedLogState, rows: Sequence[CommitRow]) -> None:
        parts.append(len(rows))
        apply_commit_rows(log_state, rows)

    for module in ("commits", "memory"):
        monkeypatch.setattr(f"spool.postgres.log.{module}.apply_commit_rows", noted)
    one, appends, follows = [await open_log(hold=0) for _ in range(3)]
    for node in (appends, follows):
        await node._follower.close()
    for number in range(10):
        await add(one, call(number))
    await add(appends, call(3), call(10))
    await follows.read_foreign_commits()
    await follows.close_due_records()
    assert 3 == max(parts)
    for node in (appends, follows):
        assert [call(number)[0] for number in range(11)] == await everything(node)
    again = await follows.describe_receipt((await add(follows, call(9), call(10))).id)
    assert again["new"] == 0
    assert again["duplicates"] == 2


async def test_append_waits_while_the_standby_does_not_confirm(
    open_log: LogOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append first waits for the standby. While the standby does not confirm, nothing more is stored."""
    monkeypatch.setattr("spool.postgres.log.commits.UNCONFIRMED_BYTES", 0)
    one, other = await open_log(hold=0), await open_log(hold=0)
    waits = []
    confirm = one._database.append.wait_until_confirmed

    async def confirmed(*, needs_standby: bool) -> None:
        waits.append(one.next_number(AI_TELEMETRY))
        if len(waits) == 1:
            raise Unconfirmed("the standby is away")
        await confirm(needs_standby=needs_standby)

    monkeypatch.setattr(one._database.append, "wait_until_confirmed", confirmed)
    await add(one, call(1))
    for number in (2, 3):
        await add(other, call(number))
    with pytest.raises(SpoolUnavailable, match="does not confirm"):
        await add(one, call(4))
    assert 4 == other.next_number(AI_TELEMETRY)
    await until(partial(is_writable, one))
    await add(one, call(4))
    assert [4, 4] == waits
    assert [call(number)[0] for number in (1, 2, 3, 4)] == await everything(one)


async def test_a_start_knows_what_is_open(open_log: LogOpener, clock: MovedClock) -> None:
    """A node that starts later can still add reports to open records for the rest of their time."""
    one = await open_log()
    await add(one, call(1))
    clock.move(6)
    other = await open_log()
    await add(other, call(1, user="ada"))
    clock.move(5)
    assert 2 == other.lowest_open_number(AI_TELEMETRY)
    assert [call(1, user="ada")[0]] == await everything(other)
    await add(other, call(1, team="search"))
    assert 1 == (await topic_terms(one))["amended_late"]


async def test_reports_at_several_nodes_are_bridged(open_log: LogOpener, clock: MovedClock) -> None:
    """
    Two nodes each store a record of one call, and a third gets a report with both names. All nodes then use
    the first record.
    """
    nodes = [await open_log() for _ in range(3)]
    names = (b"trace-and-moment", b"call-and-moment-")
    for number, node in enumerate(nodes[:2]):
        record, known_as = call(number)
        await add(node, (record, known_as._replace(also=(names[number],))))
    record, known_as = call(2, user="ada")
    await add(nodes[2], (record, known_as._replace(also=names)))
    for number, team in enumerate(["search", "other"]):
        # the id of the shadow shows that this call is a duplicate
        await add(nodes[number], call(1, team=team))
    clock.move(11)
    for node in nodes:
        await node.read_foreign_commits()
        first, second = await everything(node)
        assert call(0, user="ada", team="search", also=names[0] + call(2)[0].id)[0] == first
        assert isinstance(second, Inference)
        assert call(0)[0].id == second.counted_by
        assert second.shadow is True
    await assert_books_balance(nodes[0])


@pytest.mark.parametrize("is_inner_first", [False, True])
async def test_nested_reports_at_two_nodes_are_one_call(
    open_log: LogOpener, clock: MovedClock, is_inner_first: bool
) -> None:
    """
    Nested reports of one call at two nodes are one call. Both nodes then know that the call has both reports, so a
    second report of an SDK is another call.
    """
    one, other = await open_log(), await open_log()
    start, reports = int(NOON * NS), []
    for number, (begin, end) in enumerate([(0.1, 0.9), (0, 1), (0.2, 0.8)]):
        times = start + int(begin * NS), start + int(end * NS)
        record, known_as = call(
            number, request_model="claude-haiku-4-5", start_time=times[0], end_time=times[1]
        )
        nesting = build_nested_report(record, ["desk"], *times, is_inner=number != 1)
        reports.append((record, known_as._replace(nesting=nesting)))
    inner, outer, stranger = reports
    first, second = (inner, outer) if is_inner_first else (outer, inner)
    for node, report in [(one, first), (other, second), (one, stranger), (other, first), (one, second)]:
        await add(node, report)
    clock.move(11)
    for node in (one, other):
        await node.read_foreign_commits()
        assert [first[0].id, stranger[0].id] == [record.id for record in await everything(node) if record]
    await assert_books_balance(one)


@pytest.mark.parametrize("is_folded", [False, True])
async def test_name_added_after_the_hold_is_known_to_every_node(
    open_log: LogOpener, clock: MovedClock, is_folded: bool
) -> None:
    """
    One node stored the call and another one a further name of it. A third node that starts later knows the name.
    """
    one, other = await open_log(), await open_log()
    record, known_as = call(1)
    await add(one, (record, known_as))
    clock.move(11)
    await one.close_due_records()
    if is_folded:
        await one._folds.compact_all_closed_ids()
    await add(other, (record, known_as._replace(also=(b"told later......",))))
    started = await open_log()
    for number, node in enumerate((started, one), start=2):
        later, own = call(number)
        await add(node, (later, own._replace(also=(b"told later......",))))
    clock.move(11)
    await started.read_foreign_commits()
    assert [record] == await everything(started)
    assert 3 == (await topic_terms(started))["duplicates"]
    await assert_books_balance(started)


async def test_start_knows_calls_of_a_period_deleted_meanwhile(
    open_log: LogOpener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If a period is deleted while a node starts, the node still knows the period's calls. Here, after the start read
    the runs, the calls' ids became part of runs and their commit rows were deleted.
    """
    settings = {"hold": 0, "retention": 60}
    log = await open_log(**settings)
    await add(log, call(1), call(2))
    assert await log._retention.begin_partitions_if_full(time.time() + 2 * PERIOD_S)
    await add(log, call(3))
    loop, follow_all = asyncio.get_running_loop(), store._load_commits_and_describe_gap
    removed: list[int] = []

    async def remove() -> None:
        clock.move(100_000)
        removed.append(await log.run_retention())

    def after_removal(*arguments: Any) -> str:
        if not removed:
            asyncio.run_coroutine_threadsafe(remove(), loop).result()
        return follow_all(*arguments)

    monkeypatch.setattr(store, "_load_commits_and_describe_gap", after_removal)
    other = await open_log(**settings)
    assert removed
    again = await other.describe_receipt((await add(other, call(1), call(2), call(3), call(4))).id)
    assert again["new"] == 1
    assert again["duplicates"] == 3


async def test_the_head_of_a_node_that_stopped_is_freed(
    open_log: LogOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A node that waits for the head of the log ends the session of the stopped node that holds it. A session
    that waits for a standby is not ended.
    """
    monkeypatch.setattr("spool.postgres.log.commits.STOPPED_S", 0.5)
    log, stopped = await open_log(hold=0, commit_wait=60), await open_log(hold=0)
    has_it = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(connection: Connection) -> None:
        if not has_it.is_set():
            connection.execute(stopped._database.fill_in_table_names(LOCK_HEAD))
            loop.call_soon_threadsafe(has_it.set)
            connection.execute("SELECT pg_sleep(90)")

    holder = asyncio.create_task(stopped._database.append.transaction(stop))
    await has_it.wait()

    await add(log, call(1))

    assert [call(1)[0]] == await everything(log)
    await asyncio.gather(holder, return_exceptions=True)


async def test_ids_that_were_damaged_stop_nobody(
    open_log: LogOpener, caplog: pytest.LogCaptureFixture
) -> None:
    """A commit row with damaged ids is followed without them, whichever byte changed."""
    log = await open_log(hold=0)
    await add(log, call(1))
    read, write = (
        log._database.fill_in_table_names(text)
        for text in ("SELECT ids FROM {schema}.commits", "UPDATE {schema}.commits SET ids = %s WHERE id = 1")
    )
    ((ids,),) = await log._database.read(lambda one: one.execute(read).fetchall())
    for place in range(len(ids)):
        with pytest.raises(ValueError, match="the ids of a commit are damaged"):
            unpack_new_ids(ids[:place] + bytes([ids[place] ^ 0x40]) + ids[place + 1 :])
    await log._database.run(lambda one: one.execute(write, (b"\x00" + ids[1:],)))

    other = await open_log(hold=0)
    await add(other, call(2))

    assert [call(1)[0], call(2)[0]] == await everything(other)
    assert "ids of a commit are damaged" in caplog.text


async def test_a_reader_at_rest_hears_of_what_a_refused_append_followed(
    open_log: LogOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed append has already read the earlier commits of other nodes."""
    one, other = await open_log(hold=0), await open_log(hold=0)
    other._follower._task.cancel()
    news = other.watermark_changes(AI_TELEMETRY)
    assert 1 == await anext(news)

    async def following() -> int:
        return await anext(news)

    def full(connection: Connection, size: int) -> None:
        raise SpoolFull("no room", retry_after_s=1)

    monkeypatch.setattr(other._upkeep._room, "require_room", full)
    waiting = asyncio.create_task(following())
    await asyncio.sleep(0)
    await add(one, call(1))
    with pytest.raises(SpoolFull):
        await add(other, call(2))
    async with limited():
        assert 2 == await waiting


async def test_a_node_at_rest_finds_out_that_commits_work_again(
    open_log: LogOpener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A node whose commits failed refuses requests. It checks by itself whether commits work again, because
    without requests it makes none.
    """
    monkeypatch.setattr("spool.postgres.log.upkeep.TICK_S", 0.0)
    log, other = await open_log(hold=10), await open_log(hold=10)
    await add(log, call(1))
    clock.move(11)

    async def fail(work: object) -> None:
        raise SpoolUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(log._database.append, "run_pipelined", fail)
        with pytest.raises(SpoolUnavailable):
            await log.close_due_records()
        assert not (await log.stats()).writable
        await other.read_foreign_commits()
        await other.close_due_records()
        await log.read_foreign_commits()
    await until(partial(is_writable, log))


FULL = """
    CREATE FUNCTION {schema}.full() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'could not extend file'; END $$;
    CREATE TRIGGER disk BEFORE INSERT ON {schema}.commits FOR EACH ROW EXECUTE FUNCTION {schema}.full()"""
ROOM = "DROP TRIGGER disk ON {schema}.commits; DROP FUNCTION {schema}.full()"


async def test_full_disk_refuses_a_commit_at_once_with_a_retry_time(open_log: LogOpener) -> None:
    """
    A commit on a full disk stores nothing, so there is nothing to look up. The sender learns when to retry.
    """
    log = await open_log(hold=0)
    await add(log, call(1))
    full, room = log._database.fill_in_table_names(FULL), log._database.fill_in_table_names(ROOM)
    await log._database.transaction(lambda one: one.execute(full))
    with pytest.raises(SpoolFull, match="the disk of the database is full"):
        await add(log, call(2))
    assert not (await log.stats()).writable
    await log._database.transaction(lambda one: one.execute(room))
    await add(log, call(2))
    assert [call(number)[0] for number in (1, 2)] == await everything(log)
    await assert_books_balance(log)


async def test_retention_outlives_a_full_disk(open_log: LogOpener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention continues on a full disk, because it frees space. The next run finds the same work."""
    log = await open_log(hold=0)

    async def full(now: float, limits: object) -> int:
        raise SpoolFull("the disk of the database is full", retry_after_s=60)

    with monkeypatch.context() as patch:
        patch.setattr(log._retention, "delete_expired_or_excess_entries", full)
        assert 0 == await log.run_retention()


async def test_a_count_under_which_records_go_says_nothing_wrong(
    open_log: LogOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Another node deletes records during every attempt to recount. This is not reported as damage, and the
    caller repeats the recount.
    """
    log = await open_log(hold=0)
    await add(log, call(1))
    numbers = itertools.count(1)

    def moving(*args: Any, **named: Any) -> RecountRange:
        found = read_counters_and_recount_range(*args, **named)
        found.kept_from = {**found.kept_from, AI_TELEMETRY: next(numbers)}
        return found

    monkeypatch.setattr("spool.postgres.log.recount.read_counters_and_recount_range", moving)
    with pytest.raises(SpoolUnavailable, match="try again"):
        await log.verify()
