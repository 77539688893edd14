"""
Once a process commits the end of a key, no other process stores anything under it, whatever its memory says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack
from dataclasses import replace

import psycopg
import pytest

from spool.devices.device import Device, change_for_existing_device
from spool.errors import KeyEnded
from spool.identity import RecordIdentity
from spool.log.partial_reports import ExpectedVersion
from spool.log.values import Receipt, Submission
from spool.postgres.database import Connection
from spool.postgres.log.queries import LOCK_HEAD
from spool.postgres.registry import key_checks, store
from spool.postgres.registry.key_checks import expected_versions_of_keys_no_longer_valid, lock_keys
from spool.postgres.registry.store import PostgresRegistry, PostgresRegistryRows
from spool.postgres.storage import PostgresSpool
from spool.record import AI_TELEMETRY
from spool.registry.key_expectations import current_device_expectation
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.scopes import INGEST
from spool.settings import SpoolSettings
from tests.exporters.spools import record_id
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import SECRET, open_node
from tests.spool.contract.examples import NOON, Observed
from tests.spool.ledger_log import call
from tests.spool.postgres_cluster import Schema, Server
from tests.waiting import limited

ACTOR = Actor("ada@example.com", "127.0.0.1")


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock(NOON)


@pytest.fixture
async def node(fresh_schema: Schema, clock: MovedClock) -> AsyncIterator[PostgresSpool]:
    async with AsyncExitStack() as stack:
        opened = await open_node(stack, fresh_schema, SpoolSettings(hold=0), clock, Observed())
        stack.push_async_callback(opened.close)
        yield opened


@pytest.fixture
async def registries(node: PostgresSpool, clock: MovedClock) -> tuple[Registry, Registry]:
    """The registry in two processes that do not follow each other."""
    here = await Registry.open(PostgresRegistry(node.database), secret=SECRET, clock=clock)
    return here, await Registry.open(PostgresRegistry(node.database), secret=SECRET, clock=clock)


def submission(n: int, *expects: ExpectedVersion) -> Submission:
    identity = RecordIdentity(record_id(n))
    return Submission(
        topic=AI_TELEMETRY, received=1, records=[call(id=identity.id)], identities=[identity], expects=expects
    )


def expected(registry: Registry, secret: str) -> ExpectedVersion:
    found = registry.keys.valid_secret_expectation(secret)
    assert found is not None
    return found


@pytest.mark.parametrize("end", ["delete", "disable", "rotate"])
async def test_only_submissions_under_an_ended_key_are_refused(
    node: PostgresSpool, registries: tuple[Registry, Registry], end: str
) -> None:
    """A submission under an ended key is refused, and other submissions in the same commit are stored."""
    here, there = registries
    _, secret = await here.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    good = expected(there, secret)
    assert isinstance(await node.log.append_submission(submission(1, good)), Receipt)
    if end == "delete":
        await here.keys.delete("one", confirm="one", actor=ACTOR)
    elif end == "disable":
        await here.keys.disable("one", actor=ACTOR)
    else:
        await here.keys.rotate("one", overlap_s=0, actor=ACTOR)
    sent = [node.log.append_submission(one) for one in (submission(2), submission(3, good), submission(4))]
    answers = await asyncio.gather(*sent, return_exceptions=True)
    assert [Receipt, KeyEnded, Receipt] == [type(answer) for answer in answers]
    assert 4 == node.log.next_number(AI_TELEMETRY)


async def test_a_secret_that_still_overlaps_is_good(
    node: PostgresSpool, registries: tuple[Registry, Registry], clock: MovedClock
) -> None:
    here, there = registries
    _, secret = await here.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    await here.keys.rotate("one", overlap_s=60, actor=ACTOR)
    good = expected(there, secret)
    assert isinstance(await node.log.append_submission(submission(1, good)), Receipt)
    clock.move(61)
    with pytest.raises(KeyEnded):
        await node.log.append_submission(submission(2, good))


WAITING = """
    SELECT count(*) FROM pg_stat_activity
     WHERE wait_event_type = 'Lock' AND pid <> pg_backend_pid() AND %s = ANY (pg_blocking_pids(pid))"""


@pytest.mark.parametrize("holds", ["a commit of the log", "another transaction"])
async def test_key_ends_after_its_running_commits(
    node: PostgresSpool, registries: tuple[Registry, Registry], cluster: Server, holds: str
) -> None:
    """
    The call that ends a key returns only when no commit under the key is running, including commits
    that started later.
    """
    here, there = registries
    _, secret = await here.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    good, sql = expected(there, secret), node.database.fill_in_table_names
    with psycopg.connect(cluster.dsn) as keeping, psycopg.connect(cluster.dsn, autocommit=True) as looking:
        if holds == "another transaction":
            lock_keys(keeping, sql, [good])
            assert () == tuple(expected_versions_of_keys_no_longer_valid(keeping, sql, [good], now=None))
        else:
            keeping.execute(sql(LOCK_HEAD))
        ending = asyncio.create_task(here.keys.delete("one", confirm="one", actor=ACTOR))
        while looking.execute(WAITING, (keeping.info.backend_pid,)).fetchone() == (0,):
            assert not ending.done()
            await asyncio.sleep(0)
        keeping.commit()
        await ending
        assert {good} == expected_versions_of_keys_no_longer_valid(looking, sql, [good], now=None)
    with pytest.raises(KeyEnded):
        await node.log.append_submission(submission(1, good))


@pytest.mark.parametrize("what", ["a key", "a device"])
async def test_who_ends_one_holds_up_nobody_here(
    node: PostgresSpool,
    registries: tuple[Registry, Registry],
    cluster: Server,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    """
    Ending a key waits for another gateway's commit. Meanwhile this gateway still follows changes of others.
    """
    monkeypatch.setattr(key_checks, "WAITS", 1000)
    here, _ = registries
    await here.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    device = Device(id="d", enrolled_at=1.0, enrolled_by="fleet", last_seen=1.0, has_key=True)
    await node.devices.replace_row(device)
    with psycopg.connect(cluster.dsn) as keeping:
        keeping.execute(node.database.fill_in_table_names(LOCK_HEAD))
        if what == "a key":
            ended = node.database.fill_in_table_names("SELECT 1 WHERE NOT EXISTS (SELECT FROM {schema}.keys)")
            ending: asyncio.Task[object] = asyncio.create_task(
                here.keys.delete("one", confirm="one", actor=ACTOR)
            )
        else:
            ended = node.database.fill_in_table_names(
                "SELECT 1 FROM {schema}.devices WHERE state = 'revoked'"
            )
            ending = asyncio.create_task(node.devices.replace_row(replace(device, state="revoked")))
        async with limited():
            while (1,) not in await node.database.read(
                lambda connection: connection.execute(ended).fetchall()
            ):
                assert not ending.done()
            await here.catch_up()
            await node.devices.read_changes_of_other_processes(["d"])
        assert not ending.done()
        keeping.commit()
        await ending


async def test_many_who_end_keys_wait_on_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    All callers that end keys share one wait on one connection. Otherwise each caller would occupy a connection for
    readers. No caller relies on a wait that started before its key ended.
    """
    begun, goes_on = 0, asyncio.Semaphore(0)

    async def outlast(database: object) -> None:
        nonlocal begun
        begun += 1
        await goes_on.acquire()

    monkeypatch.setattr(store, "wait_for_running_commits", outlast)
    registry = PostgresRegistry(None)  # type: ignore[arg-type]
    waiting = [asyncio.create_task(registry.wait_for_running_commits()) for _ in range(5)]
    await asyncio.sleep(0)
    assert 1 == begun
    goes_on.release()
    await waiting[0]
    while begun == 1:  # noqa: ASYNC110 - the next one begins
        await asyncio.sleep(0)
    assert not any(task.done() for task in waiting[1:])
    goes_on.release()
    await asyncio.gather(*waiting)
    assert 2 == begun


async def test_a_key_that_was_only_edited_is_good(
    node: PostgresSpool, registries: tuple[Registry, Registry], cluster: Server
) -> None:
    """
    A key that was only edited stays valid: an edit does not end a key, even for a statement that started before the
    edit's commit.
    """
    here, there = registries
    _, secret = await here.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    good, database = expected(there, secret), node.database
    with psycopg.connect(cluster.dsn) as editing, psycopg.connect(cluster.dsn, autocommit=True) as looking:
        rows = PostgresRegistryRows(editing, database.fill_in_table_names)
        key = rows.find_key_by_name("one")
        assert key is not None
        rows.put_key(replace(key, description="new"))

        def keeps(connection: Connection) -> Collection[ExpectedVersion]:
            lock_keys(connection, database.fill_in_table_names, [good])
            return expected_versions_of_keys_no_longer_valid(
                connection, database.fill_in_table_names, [good], now=database.now_unless_database_clock()
            )

        keeping = asyncio.create_task(database.transaction(keeps))
        while looking.execute(WAITING, (editing.info.backend_pid,)).fetchone() == (0,):
            assert not keeping.done()
            await asyncio.sleep(0)
        editing.commit()
        assert not await keeping


async def test_a_device_that_is_revoked_or_reset(node: PostgresSpool) -> None:
    """The key of a device ends when the device is revoked, or reset, which starts a new generation."""
    device = Device(
        id="a/b:c", enrolled_at=1.0, enrolled_by="fleet", last_seen=1.0, has_key=True, generation=3
    )
    await node.devices.replace_row(device)
    good = current_device_expectation("a/b:c", 3)
    assert isinstance(await node.log.append_submission(submission(1, good)), Receipt)
    await node.devices.update("a/b:c", change_for_existing_device(lambda known: replace(known, generation=4)))
    with pytest.raises(KeyEnded):
        await node.log.append_submission(submission(2, good))
    await node.devices.update(
        "a/b:c", change_for_existing_device(lambda known: replace(known, state="revoked"))
    )
    with pytest.raises(KeyEnded):
        await node.log.append_submission(submission(3, current_device_expectation("a/b:c", 4)))
