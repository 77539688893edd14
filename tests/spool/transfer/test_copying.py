"""A copied storage has the same numbers, receipts, keys, deliveries and sums, or nothing at all."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spool.engines import load_engine
from spool.errors import NotAllowed, SpoolDamaged, SpoolUnavailable, UnfinishedCopy
from spool.identity import RecordIdentity
from spool.log.recent_senders import KEPT_S
from spool.postgres.address import open_database
from spool.postgres.administration import ADMINISTRATION
from spool.postgres.database import CommitUnknown, DatabaseConnectionPool
from spool.postgres.leases import PostgresLeases
from spool.postgres.log.confirmed import CONFIRMED_FILE
from spool.postgres.transfer import unfinished
from spool.record import AI_TELEMETRY, UNIT_COST, Inference, Record
from spool.storage import Storage, StorageOptions
from spool.transfer.copying import copy_storage
from tests.rounds import as_proof, part, some
from tests.spool.contract.disk import killed
from tests.spool.contract.examples import add, call, point
from tests.spool.transfer.places import ACTOR, CALLER, HEARD, HOLD_S, OTHER, ROUTE, Places


@pytest.mark.parametrize(
    "way",
    [
        ["files", "postgres", "other files"],
        as_proof(["files", "postgres", "other postgres"]),
        ["files", "other files"],
    ],
    ids=" to ".join,
)
async def test_a_copy_says_the_same(places: Places, receipt: str, way: Sequence[str]) -> None:
    """
    Every reading method returns the same at each stage. Open records stay open for their time and close then.
    """
    before = await places.said("files")
    assert [] == [name for name, said in before.items() if not said]
    assert before["records"] != before["closed"]
    for source, target in pairwise(way):
        copied = await places.copy(source, target)
        assert before["numbers"] == copied.numbers
        assert before == await places.said(target)
    storage = await places.open(way[-1])
    try:
        await _works(storage, places, receipt)
    finally:
        await storage.close()
    with pytest.raises(NotAllowed, match="not empty"):
        await places.copy("files", way[-1])


async def test_senders_of_calls_are_copied(places: Places, receipt: str) -> None:
    """A counter that arrives in the copy is recognized as a repeat of calls from before it."""
    for source, target in some([*pairwise(["files", "postgres", "other files"])], every=2):
        await places.copy(source, target)
        storage = await places.open(target)
        found = await storage.heard.find_senders_of_callers([CALLER])
        await storage.close()
        assert set(HEARD) == {sender for sender, _ in found}
        assert all(0 < places.clock.now() - at < KEPT_S for _, at in found)


async def test_a_series_that_was_forgotten_for_want_of_room_does_not_count_whole_in_a_copy(
    places: Places,
) -> None:
    """
    The copy also contains the time up to which series were forgotten, so a forgotten series does not count
    whole in it.
    """
    files = places.options["files"]
    places.options["files"] = replace(files, settings=replace(files.settings, max_series=1))
    began = places.clock.now()
    names = [bytes([name]) * 16 for name in b"tuv"]
    storage = await places.open("files")
    for name in names:
        await add(storage.log, points=[point(100, at=began + 1, since=began, series=name)])
        places.clock.move(10)
    await storage.log.run_retention()
    await storage.close()
    ways = some([*pairwise(["files", "postgres", "other files"])], every=2)
    for name, (source, target) in zip(names, ways, strict=False):
        await places.copy(source, target)
        storage = await places.open(target)
        before = storage.log.next_number(AI_TELEMETRY)
        await add(storage.log, points=[point(101, at=began + 50, since=began, series=name)])
        assert before == storage.log.next_number(AI_TELEMETRY)
        await storage.close()


async def _works(storage: Storage, places: Places, receipt: str) -> None:
    """
    Assert that known ids are known, an open record accepts reports, and numbers and deliveries continue.
    """
    log, deliveries, clock = storage.log, storage.deliveries, places.clock
    assert 3 == (await log.describe_receipt(receipt))["first_number"]
    start = clock.now()
    again = await add(
        log, call(1, at=start - HOLD_S - 1), call(5, at=start, team="search"), call(7, at=start)
    )
    view = await log.describe_receipt(again.id)
    assert view["new"] == 1
    assert view["duplicates"] == 2
    assert view["amended"] == 1
    clock.move(3600)
    due = await deliveries.take_due_delivery(ROUTE, now=clock.now(), max_records=9)
    assert due is not None
    assert due.first == 3
    assert places.idempotency_key == due.idempotency_key
    [unknown] = await deliveries.deliveries_with_unknown_outcome()
    assert OTHER == (await deliveries.settle_unknown(unknown.id, sent=False)).route
    [letter] = await deliveries.dead_letters()
    assert 1 == await deliveries.retry_dead_letters([letter.id])
    assert storage.registry is not None
    made, _ = await storage.registry.keys.create(name="new", use_cases=["Send AI Telemetry"], actor=ACTOR)
    assert 3 == made.id  # the number of a deleted key is not used again
    await storage.ledger.catch_up(log)
    [entry] = await log.read(AI_TELEMETRY, 7, 7)
    [record] = entry.records
    assert isinstance(record, Inference)
    assert "search" == record.team
    assert [] == list((await log.verify()).imbalances)


async def test_names_added_after_the_hold_are_copied(places: Places) -> None:
    """
    Names are copied from files after a kill, and from a database. A report with only such a name adds no
    record in the copy.
    """
    names = (b"told to files...", b"told to database")
    storage = await places.open("files")
    await add(storage.log, call(0))
    places.clock.move(HOLD_S + 1)
    await add(storage.log, named(0, names[0]))
    other = places.options["other files"].directory
    killed(places.options["files"].directory, other)
    await storage.close()
    await places.copy("other files", "postgres")
    shutil.rmtree(other)
    storage = await places.open("postgres")
    await add(storage.log, named(1, names[0]), named(0, names[1]))
    await storage.close()
    await places.copy("postgres", "other files")
    storage = await places.open("other files")
    await add(storage.log, named(2, names[0]), named(3, names[1]))
    assert 2 == storage.log.next_number(AI_TELEMETRY)
    await storage.close()


def named(number: int, name: bytes) -> tuple[Record, RecordIdentity]:
    record, known_as = call(number)
    return record, known_as._replace(also=(name,))


@pytest.mark.proof
async def test_what_a_database_did_itself_is_copied(places: Places, receipt: str) -> None:
    """
    A database's own records, ids and numbers are copied. Records that its retention deleted do not return.
    """
    await places.copy("files", "postgres")
    storage = await places.open("postgres")
    try:
        await _works(storage, places, receipt)
        log, deliveries = storage.log, storage.deliveries
        await deliveries.set_routes([])
        for route in (ROUTE, OTHER):
            await deliveries.delete_route_and_count_discarded(route)
        places.clock.move(8 * 86400)
        assert await log.run_retention()
        await add(log, call(9, at=places.clock.now()), call(9, at=places.clock.now(), source="kong"))
        assert 1 < (await log.books()).topics[AI_TELEMETRY]["expired"]
    finally:
        await storage.close()
    before = await places.said("postgres")
    assert 1 == len(before["records"][AI_TELEMETRY])
    await places.copy("postgres", "other files")
    assert before == await places.said("other files")
    storage = await places.open("other files")
    try:
        again = await storage.log.describe_receipt(
            (await add(storage.log, call(9, at=places.clock.now()))).id
        )
        assert again["new"] == 0
        assert again["duplicates"] == 1
    finally:
        await storage.close()
    node = places.options["postgres"].directory
    assert json.loads((node / CONFIRMED_FILE).read_text())["commits"]
    for source in ("other files", "postgres"):
        await places.copy(source, "other postgres")
        assert [] == list(await ADMINISTRATION.lost(places.options["other postgres"].storage, node))
        places.forget("other postgres")


async def test_settings_of_all_nodes_are_copied(
    places: Places, receipt: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The copy has the settings from `tollhouse storage set`, whatever the configuration says. Files have
    the configuration's settings.
    """
    await places.copy("files", "postgres")
    storage = places.options["postgres"].storage
    await ADMINISTRATION.change(storage, {"retention": 9 * 86400})
    await places.copy("postgres", "other postgres")
    other = await ADMINISTRATION.status(places.options["other postgres"].storage)
    assert (await ADMINISTRATION.status(storage))["settings"] == other["settings"]
    await places.copy("other postgres", "other files")
    assert (
        "spool.retention was 777600 in the copied storage; now 604800.0 from the configuration applies"
        in caplog.text
    )
    places.forget("postgres")
    await places.copy("other files", "postgres")
    assert 7 * 86400 == (await ADMINISTRATION.status(storage))["settings"]["retention"]  # type: ignore[index]


@pytest.mark.parametrize("is_heard", [as_proof(True), False])
async def test_an_answer_that_is_lost_at_the_end_discards_nothing(
    places: Places, receipt: str, monkeypatch: pytest.MonkeyPatch, is_heard: bool
) -> None:
    """
    If the last answer is lost, the copy may be complete and already in use. So the command queries the state
    again, and never deletes the copy.
    """
    monkeypatch.setattr("spool.postgres.transfer.unfinished.PAUSE_S", 0.0)
    transaction = DatabaseConnectionPool.transaction
    lost: list[object] = []

    async def losing(lane: DatabaseConnectionPool, work: Any, *, takes_long: bool = False) -> Any:
        answer = await transaction(lane, work, takes_long=takes_long)
        if getattr(work, "func", None) is unfinished._remove_unfinished_mark and not (is_heard and lost):
            lost.append(work)
            raise CommitUnknown("the connection was lost")
        return answer

    monkeypatch.setattr(DatabaseConnectionPool, "transaction", losing)
    if is_heard:
        await places.copy("files", "postgres")
    else:
        with pytest.raises(SpoolUnavailable, match="the copy is complete"):
            await places.copy("files", "postgres")
    assert lost
    assert await places.said("files") == await places.said("postgres")


async def test_nothing_is_copied_into_what_is_used(places: Places, receipt: str) -> None:
    """Any data prevents a copy: a name from telemetry, the size of streams, the times when keys were used."""
    options = places.options["postgres"]
    database = open_database(options.storage)
    assert options.storage.secret_file is not None
    options.storage.secret_file.write_bytes(places.secret("files"))
    await ADMINISTRATION.make(options.storage, options.settings)
    rows = {
        "unenrolled": "'name', 1, 1, 1, 'key'",
        "stream_sizes": "'calls', 'key', 1",
        "documents": "'kind', 'id', '{}'",
    }

    async def run(statement: str) -> None:
        await database.run(lambda connection: connection.execute(database.fill_in_table_names(statement)))

    for table, row in rows.items():
        await run(f"INSERT INTO {{schema}}.{table} VALUES ({row})")
        with pytest.raises(NotAllowed, match=f"is not empty: {table} has rows"):
            await places.copy("files", "postgres")
        await run(f"DELETE FROM {{schema}}.{table}")
    await database.close()
    await places.copy("files", "postgres")


async def test_numbers_of_deleted_records_are_not_used_again(places: Places, receipt: str) -> None:
    """Numbers are not used again even in topics without records, from files and from a database."""
    storage = await places.open("files")
    try:
        places.clock.move(8 * 86400)
        await add(storage.log, call(9, at=places.clock.now()))
        assert await storage.log.run_retention()
    finally:
        await storage.close()
    before = await places.said("files")
    assert not before["records"][UNIT_COST]
    assert before["numbers"][UNIT_COST] > 1
    for source, target in some([("files", "postgres"), ("postgres", "other postgres")], every=2):
        await places.copy(source, target)
        assert before == await places.said(target)


async def test_a_directory_without_a_storage_is_no_source(places: Places) -> None:
    """
    If the source directory has no storage, nothing is created for it, so a wrong directory name does not give an
    empty copy.
    """
    with pytest.raises(NotAllowed, match="contains no storage to copy"):
        await places.copy("files", "other files")
    assert not places.options["files"].directory.exists()


async def test_nothing_is_copied_under_another_secret(places: Places, receipt: str) -> None:
    """A storage is not copied under another secret, because every key and receipt would be unknown in the copy."""
    secret_file = places.options["postgres"].storage.secret_file
    assert secret_file is not None
    secret_file.write_bytes(b"x" * 32)
    with pytest.raises(NotAllowed, match="differs from the secret"):
        await places.copy("files", "postgres")
    secret_file.unlink()
    await places.copy("files", "postgres")


@pytest.mark.parametrize("target", part(["postgres", "other files"], every=2))
async def test_copy_that_differs_is_removed(places: Places, receipt: str, target: str) -> None:
    """If the copy differs, nothing of it remains, and the next attempt starts empty."""

    async def unreadable(options: StorageOptions) -> Storage:
        raise SpoolDamaged("it cannot be read")

    source, into = places.options["files"], places.options[target]
    engine = load_engine(into.storage.engine)
    with pytest.raises(SpoolDamaged, match="cannot be read"):
        await copy_storage(source, load_engine("sqlite"), into, replace(engine, open=unreadable))
    await places.copy("files", target)


async def test_nothing_is_copied_while_a_gateway_runs(places: Places, receipt: str) -> None:
    """The error names the running gateway on the source or target schema, and nothing changes."""
    await places.copy("files", "postgres")
    options = places.options["postgres"]
    database = open_database(options.storage, places.clock)
    node = PostgresLeases(database, places.clock, name="cellar", version="1")
    await node.set_routes([])
    with pytest.raises(NotAllowed, match=r"stop them first \(cellar\)"):
        await places.copy("postgres", "other files")
    with pytest.raises(NotAllowed, match="stop it first"):
        await places.copy("files", "postgres")
    await node.close()
    await database.close()
    await places.copy("postgres", "other files")


MOMENTS = ("entries", "recounting the copy")


@pytest.mark.proof
@pytest.mark.parametrize(("source", "target"), [("files", "postgres"), ("postgres", "other files")])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_killed_in_the_middle(
    places: Places, receipt: str, tmp_path: Path, source: str, target: str, moment: str
) -> None:
    """
    If a copy is killed in the middle, the partial copy cannot be used, the source is unchanged, and the copy
    can be started again.
    """
    if source == "postgres":
        await places.copy("files", "postgres")
    before = await places.said(source)
    program = [sys.executable, "-m", "tests.spool.transfer.killed_copy", moment, str(places.clock.now())]
    told = [places.described(name) for name in (source, target)]
    done = subprocess.run([*program, *told], cwd=Path(__file__).parents[3], check=False, timeout=120)
    assert -signal.SIGKILL == done.returncode
    with pytest.raises(UnfinishedCopy, match="Repeat the command that made it"):
        await places.open(target)
    assert before == await places.said(source)
    await places.copy(source, target)
    assert before == await places.said(target)
