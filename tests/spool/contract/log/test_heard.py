"""Senders of calls on every engine: stored in the commit of their calls, found by caller, deleted by age."""

from __future__ import annotations

from pathlib import Path

import pytest

from spool.errors import Stale
from spool.log.partial_reports import ExpectedVersion
from spool.log.recent_senders import (
    FACT_BYTES,
    KEPT_S,
    call_kind_digest,
    call_kind_digests_of_sender_key,
    caller_digest,
    pack_senders,
    unpack_sender_keys,
)
from spool.settings import SpoolSettings
from spool.sqlite.partial_reports import STEP
from spool.sqlite.spool import SqliteSpool
from spool.sqlite.spool import open_spool as open_sqlite
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import NOON, add, call, senders_of

ALICE, BOB = caller_digest("session", "alice"), caller_digest("session", "bob")
[OF_ALICE] = senders_of(ALICE, [call_kind_digest("source", "codex"), call_kind_digest("model", "gpt-4o")])
[AGAIN] = senders_of(ALICE, [call_kind_digest("source", "otel")])
[OF_BOB] = senders_of(BOB, [b"\xff" * FACT_BYTES])


async def open_files(directory: Path, clock: MovedClock, **changes: int) -> SqliteSpool:
    return await open_sqlite(directory, settings=SpoolSettings(hold=0, **changes), clock=clock)


async def test_sender_of_a_call_is_stored_in_its_commit(
    open_spool: Opener, clock: MovedClock, tmp_path: Path
) -> None:
    """
    The sender of a call is stored in the commit of the call, and all its facts are found with the newest
    time. A refused submission stores no facts.
    """
    spool = await open_spool()
    with pytest.raises(Stale):
        await add(spool.log, heard=[OF_ALICE], expects=[ExpectedVersion(b"gone", 7)])
    await add(spool.log, call(1), heard=[OF_ALICE, OF_BOB], heard_by="team-a")
    first = clock.now()
    clock.move(60)
    await add(spool.log, call(2), heard=[OF_ALICE, AGAIN], heard_by="team-b")
    # The SQLite spool reads the stored senders only at its start, so the test reads them again as after a kill.
    if isinstance(spool, SqliteSpool):
        assert not spool.heard.has_any_sender
        await spool.heard.open()
    assert spool.heard.has_any_sender
    found = dict(await spool.heard.find_senders_of_callers([ALICE]))
    assert {OF_ALICE: clock.now(), AGAIN: clock.now()} == found
    assert {OF_BOB: first} == dict(
        await spool.heard.find_senders_of_callers([BOB, caller_digest("session", "carol")])
    )

    assert 0 == await spool.heard.delete_old(first)
    assert 0 < await spool.heard.delete_old(clock.now())
    assert {OF_ALICE: clock.now(), AGAIN: clock.now()} == dict(
        await spool.heard.find_senders_of_callers([ALICE])
    )
    assert 0 < await spool.heard.delete_old(clock.now() + 1)
    assert not await spool.heard.find_senders_of_callers([ALICE, BOB])


async def test_start_reads_all_stored_senders(tmp_path: Path) -> None:
    """
    A start reads all senders within the time limit of queries, however the process ended. A damaged row loses
    only its own senders.
    """
    clock = MovedClock(NOON)
    spool = await open_files(tmp_path, clock)
    await add(spool.log, heard=[OF_ALICE])
    await spool.database.transaction(
        lambda connection: connection.execute("INSERT INTO heard VALUES (9, ?, '', 1, x'01')", (clock.now(),))
    )
    await spool.close()
    clock.move(KEPT_S)
    spool = await open_files(tmp_path, clock)
    assert [(OF_ALICE, NOON)] == list(await spool.heard.find_senders_of_callers([ALICE]))
    await spool.close()
    clock.move(1)
    spool = await open_files(tmp_path, clock)
    assert not spool.heard.has_any_sender
    await spool.close()


async def test_a_key_that_makes_up_senders_pushes_out_its_own(tmp_path: Path) -> None:
    """
    If a key invents senders, its own oldest rows are deleted, because it has the most. This happens in short
    transactions, also after a restart.
    """
    clock = MovedClock(NOON)
    spool = await open_files(tmp_path, clock, max_senders=100)
    await add(spool.log, heard=[OF_ALICE], heard_by="team-a")
    rows = [(NOON, "flood", 1, pack_senders([caller_digest("session", str(n))])) for n in range(2 * STEP)]
    await spool.database.transaction(
        lambda connection: connection.executemany(
            "INSERT INTO heard (at, key, count, senders) VALUES (?, ?, ?, ?)", rows
        )
    )
    assert 2 * STEP + 1 - 100 == await spool.heard.delete_old(NOON)
    await spool.close()
    spool = await open_files(tmp_path, clock)
    newest = caller_digest("session", str(2 * STEP - 1))
    assert {OF_ALICE, newest} == {
        sender for sender, _ in await spool.heard.find_senders_of_callers([ALICE, newest])
    }
    assert not await spool.heard.find_senders_of_callers([caller_digest("session", "0")])
    await spool.close()


def test_senders_are_packed_and_unpacked() -> None:
    """A caller with very many kinds of calls has several keys, so that no index key is too long."""
    facts = [call_kind_digest("model", str(number)) for number in range(100)]
    senders = list(senders_of(ALICE, facts))
    assert len(senders) == 4
    assert set(facts) == set().union(*map(call_kind_digests_of_sender_key, senders))
    assert max(map(len, senders)) < 256
    assert senders == list(unpack_sender_keys(pack_senders(senders)))
    with pytest.raises(ValueError, match="ends within a sender"):
        list(unpack_sender_keys(pack_senders(senders)[:-1]))
