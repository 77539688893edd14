"""
Evidence that a standby has a commit must be about that commit, however often the list of standbys changes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import psycopg
import pytest

from spool.errors import SpoolUnavailable
from spool.postgres.connections.standby import StandbyState
from spool.postgres.database import Database, PipelinedTransaction
from tests.faults.gateways.restarted_pooler import RestartedPooler
from tests.rounds import part
from tests.spool.postgres.append.round_trips import round_trips
from tests.spool.postgres_cluster import STANDBY, Pair, Server, confirming, folder

INSERT = b"INSERT INTO kept VALUES (%(n)s)"
FLAPS = 15  # number of setting changes for each length of pause
PAUSES_S = (0.0, 0.001, 0.005, 0.02)
SET_S = 0.02  # seconds between two changes of the setting


def state(
    names: str = "a", *, confirmed: list[int] | None, loaded_at: float = 1.0, settled: bool = True
) -> StandbyState:
    return StandbyState(names, loaded_at, settled, 10, confirmed)


@pytest.mark.parametrize(
    ("names", "confirmed", "is_confirmed"),
    [
        ("", [10], False),
        ("a", [], False),
        ("a", [9], False),
        ("a", [10], True),
        ("a, b", [9, 10], True),
        ("ANY 1 (a, b)", [9, 10], True),
        ("any 2 (a, b, c)", [9, 10], False),
        ("2 (a, b)", [9, 10], False),
        ("FIRST 2(a, b, c)", [11, 10], True),
    ],
)
def test_as_many_have_it_as_are_waited_for(names: str, confirmed: list[int], is_confirmed: bool) -> None:
    """
    A commit counts as confirmed if enough standbys have flushed its position, regardless of when the configuration
    was read.
    """
    before = state(confirmed=[], loaded_at=0.0, settled=False)
    assert is_confirmed == state(names, confirmed=confirmed).has_confirmed(before)
    assert is_confirmed == state(names, confirmed=confirmed).has_confirmed(before, position=10)
    assert not state(names, confirmed=confirmed).has_confirmed(before, position=12)


@pytest.mark.parametrize(
    ("before", "behind", "is_confirmed"),
    [
        (state(confirmed=None), state(confirmed=None), True),
        (state(confirmed=None), state("", confirmed=None), False),
        (state(confirmed=None, loaded_at=0.5), state(confirmed=None), False),
        (state(confirmed=None, settled=False), state(confirmed=None), False),
    ],
)
def test_configuration_decides_if_the_role_may_not_see_standbys(
    before: StandbyState, behind: StandbyState, is_confirmed: bool
) -> None:
    """
    If the role may not see standbys, the configuration decides about a confirmation: it names standbys, was read
    some time before, and not again since.
    """
    assert is_confirmed == behind.has_confirmed(before)


@contextmanager
def flapping(pair: Pair) -> Iterator[Callable[[], bool]]:
    """
    Empty and restore the names of standbys for some milliseconds until the test stops it. At the end they are
    empty, so that nothing waits.
    """
    over = threading.Event()

    def flap() -> None:
        with psycopg.connect(pair.primary.dsn, autocommit=True) as connection:
            for pause_s in PAUSES_S * FLAPS:
                name_standbys(connection, "")
                time.sleep(pause_s)
                name_standbys(connection, STANDBY)
                time.sleep(SET_S)
            over.set()
            name_standbys(connection, "")

    thread = threading.Thread(target=flap)
    thread.start()
    try:
        yield over.is_set
    finally:
        thread.join()


def name_standbys(connection: psycopg.Connection[tuple[object, ...]], names: str) -> None:
    connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
    connection.execute("SELECT pg_reload_conf()")


@pytest.mark.proves("standbys named for milliseconds")
@pytest.mark.parametrize(
    ("role", "pooled"),
    part([("seeing", False), ("seeing", True), ("blind", False), ("blind", True)], every=4),
)
async def test_names_that_come_and_go_confirm_nothing(pair: Pair, role: str, pooled: bool) -> None:
    """
    If names of standbys come and go, they confirm nothing. The standby here receives nothing, so no kind of commit
    may claim a confirmation, whether or not the role may see standbys.
    """
    pair.primary.execute("CREATE TABLE kept (n int)")
    pair.primary.execute("CREATE ROLE seeing LOGIN; CREATE ROLE blind LOGIN; GRANT pg_monitor TO seeing")
    pair.primary.execute("GRANT ALL ON kept TO seeing, blind")
    dsn = pair.primary.dsn.replace("user=tollhouse", f"user={role}")
    with folder() as place, ExitStack() as stack:
        if pooled:
            pooler = RestartedPooler(place, pair.primary, role=role)
            stack.callback(pooler.kill)
            pooler.start()
            dsn = pooler.dsn
        database = Database(dsn, pooled=pooled, commit_timeout_s=60.0, needs_standby=True)
        try:
            for commit in WAYS.values():
                await commit(database)  # this commit is confirmed, because the standby receives it
            pair.standby.freeze()
            try:
                with flapping(pair) as is_over:
                    confirmed = await asyncio.gather(*[commit_until(database, way, is_over) for way in WAYS])
            finally:
                pair.standby.thaw()
            assert dict.fromkeys(WAYS, 0) == dict(zip(WAYS, confirmed, strict=True))
            pair.primary.change(synchronous_standby_names=STANDBY)
            for commit in WAYS.values():
                await commit(database)
        finally:
            await database.close()


@pytest.mark.proof
def test_a_changed_setting_is_known_before_the_next_commit(pair: Pair) -> None:
    """
    A node knows a changed setting before its next commit. On a busy server, the process that decides whether
    commits wait reads its settings late.
    """
    pair.primary.execute("CREATE TABLE kept (n int)")
    pair.primary.change(synchronous_standby_names="")
    pair.standby.freeze()
    try:
        [(told,)] = pair.primary.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"
        )
        os.kill(int(str(told)), signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (told, signal.SIGCONT)).start()
        pair.primary.change(synchronous_standby_names=STANDBY)
        commit = threading.Thread(target=pair.primary.execute, args=("INSERT INTO kept VALUES (1)",))
        commit.start()
        while pair.primary.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'") != [(1,)]:
            assert commit.is_alive()
    finally:
        pair.standby.thaw()
    commit.join()


async def commit_until(database: Database, way: str, is_over: Callable[[], bool]) -> int:
    """Return the number of commits that were reported as confirmed."""
    confirmed = 0
    while not is_over():
        with suppress(SpoolUnavailable):
            await WAYS[way](database)
            confirmed += 1
    return confirmed


async def in_a_transaction(database: Database) -> None:
    await database.transaction(lambda one: one.execute(INSERT, {"n": 1}), needs_standby=lambda _: True)


async def joined(database: Database, *, in_two_steps: bool) -> None:
    await database.append.run_pipelined(partial(insert, in_two_steps=in_two_steps))


def insert(transaction: PipelinedTransaction, *, in_two_steps: bool) -> None:
    with transaction.begin_in_pipeline(needs_standby=True):
        transaction.connection.execute("SELECT 1")
    with transaction.commit_in_pipeline(releases_locks_early=in_two_steps, needs_standby=True):
        transaction.connection.execute(INSERT, {"n": 1})


async def alone(database: Database) -> None:
    await database.control.run_pipelined(
        lambda transaction: transaction.run_as_whole_transaction(INSERT, {"n": 1}, needs_standby=True)
    )


async def barrier(database: Database) -> None:
    await database.wait_until_confirmed()


WAYS = {
    "transaction": in_a_transaction,
    "one step": lambda database: joined(database, in_two_steps=False),
    "two steps": lambda database: joined(database, in_two_steps=True),
    "alone": alone,
    "barrier": barrier,
}


async def test_query_for_evidence_needs_no_extra_round_trip(
    database: Database, cluster: Server, waiting: asyncio.Task[object], tmp_path: Path
) -> None:
    """
    The query for evidence is sent with the commit that it is about, in one step or two, and with
    a single statement.
    """
    database.needs_standby = True
    with confirming(cluster):
        await waiting
        await database.run(lambda one: one.execute("CREATE TABLE IF NOT EXISTS public.kept (n int)"))
        for lane, work, expected in (
            (
                database.control,
                lambda one: one.run_as_whole_transaction(INSERT, {"n": 1}, needs_standby=True),
                1,
            ),
            (database.append, partial(insert, in_two_steps=True), 2),
        ):
            await lane.run_pipelined(work)  # this first job opens the connection
            with round_trips(lane, tmp_path) as taken:
                await lane.run_pipelined(work)
            assert expected == taken.count
        await database.run(lambda one: one.execute("DROP TABLE public.kept"))
