"""After a restart or a kill, all acknowledged records and their known ids are there."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from spool.clock import SteadyClock
from spool.deliveries.values import RouteSpec
from spool.errors import SpoolLocked
from spool.log import duplicates
from spool.record import AI_TELEMETRY, UsageMetric
from spool.settings import SpoolSettings
from spool.sqlite.directory import lock_directory
from spool.sqlite.migrations import migrate, version_numbers
from spool.sqlite.spool import SqliteSpool, open_spool
from tests.integration.spool.conftest import Starter
from tests.moved_clock import MovedClock
from tests.spool.contract.disk import killed
from tests.spool.contract.examples import (
    NOON,
    Observed,
    add,
    assert_books_balance,
    call,
    everything,
    point,
    topic_terms,
)


@pytest.fixture(params=["restarted", "killed"])
def again(request: pytest.FixtureRequest, start: Starter, tmp_path: Path) -> Starter:
    """
    Return a function that starts again with the files of the first start, after a clean close or a kill.
    """

    async def starter(first, **changes):  # type: ignore[no-untyped-def]
        if request.param == "killed":
            return await start(killed(first.directory, tmp_path / "killed"), **changes)
        await first.close()
        return await start(first.directory, **changes)

    return starter


async def test_records_and_numbers_go_on(start: Starter, again: Starter) -> None:
    """After a restart, all acknowledged records exist, and numbering continues."""
    first = await start()
    await add(first.log, call(1), call(2))

    second = await again(first)
    await add(second.log, call(3))

    assert [call(number)[0] for number in (1, 2, 3)] == await everything(second.log)
    await assert_books_balance(second.log)


@pytest.fixture
def few_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let small batches of ids form runs. test_more_ids_than_a_batch_are_known_after_a_stop uses the real size.
    """
    monkeypatch.setattr(duplicates, "BATCH", 1000)


@pytest.mark.usefixtures("few_in_a_run")
@pytest.mark.parametrize(("hours", "ids"), [(0.0, 1), (1.7, 1), (23.0, 1), (1.7, 1500)])
async def test_a_call_known_without_a_time_is_known_with_one(
    start: Starter, again: Starter, hours: float, ids: int
) -> None:
    """
    A call whose first report has no time is stored under the hour of its arrival. After a start, the report with a
    time is still recognized, even if its call was in an earlier hour. This holds with ids inside and outside of
    runs.
    """
    first = await start()
    await add(first.log, *(call(number, start_time=None) for number in range(ids)))

    second = await again(first)
    await add(second.log, *(call(number, at=NOON - hours * 3600) for number in range(ids)))

    assert ids == (await topic_terms(second.log))["accepted"]


async def test_an_open_record_stays_open(start: Starter, again: Starter, clock: MovedClock) -> None:
    """
    After a start, an open record stays open for the rest of its time and keeps earlier added reports. A
    report after that time is late.
    """
    first = await start(hold=10)
    await add(first.log, call(1))
    await add(first.log, call(1, source="kong", user="ada"))
    clock.move(4)

    second = await again(first, hold=10)
    assert 1 == second.log.lowest_open_number(AI_TELEMETRY)
    clock.move(5)
    await add(second.log, call(1, source="kong", team="search"))
    assert [] == await everything(second.log)
    clock.move(2)
    assert [call(1, user="ada", team="search")[0]] == await everything(second.log)
    await add(second.log, call(1, source="kong", session="s-1"))
    assert [call(1, user="ada", team="search")[0]] == await everything(second.log)
    terms = await topic_terms(second.log)
    assert terms["amended"] == 2
    assert terms["duplicates"] == 3
    await assert_books_balance(second.log)


async def test_records_close_at_their_own_times_after_a_start(
    start: Starter, again: Starter, clock: MovedClock
) -> None:
    """
    Each record closes `hold` after its own commit. Records that were closed before the start stay closed.
    """
    first = await start(hold=10)
    for number in (1, 2, 3):
        await add(first.log, call(number), call(number + 10))
        clock.move(6)

    second = await again(first, hold=10)
    await add(second.log, call(4))
    seen = [second.log.lowest_open_number(AI_TELEMETRY)]
    for _ in range(3):
        clock.move(4)
        seen.append(second.log.lowest_open_number(AI_TELEMETRY))
    assert [5, 7, 7, 8] == seen


async def test_what_was_read_is_closed_whatever_the_clock_says(
    start: Starter, again: Starter, clock: MovedClock
) -> None:
    """
    If a delivery or the totals already used a record, it counts as closed. If the clock was set back
    meanwhile, the record only looks young.
    """
    first = await start(hold=10)
    await first.deliveries.set_routes([RouteSpec(name="archive/ai-telemetry", topic=AI_TELEMETRY)])
    await add(first.log, call(1))
    clock.move(11)
    assert await first.deliveries.take_due_delivery("archive/ai-telemetry", now=clock.now(), max_records=10)
    for number in (2, 3):
        await add(first.log, call(number))
    clock.set_back(8)

    second = await again(first, hold=10)
    assert 2 == second.log.lowest_open_number(AI_TELEMETRY)
    second.log.add_reader({AI_TELEMETRY: 3}.get)
    assert 3 == second.log.lowest_open_number(AI_TELEMETRY)
    # This reader's position is beyond the end, because its log was lost. The reader itself must find that out.
    second.log.add_reader({AI_TELEMETRY: 99}.get)
    assert 4 == second.log.lowest_open_number(AI_TELEMETRY)


async def test_a_clock_set_back_for_long_opens_nothing(
    start: Starter, again: Starter, clock: MovedClock
) -> None:
    """
    If the clock was set back for long, every record looks younger than is possible. So all are closed without
    reading the log.
    """
    first = await start(hold=10)
    for number in (1, 2):
        await add(first.log, call(number))
    clock.set_back(3600)

    second = await again(first, hold=10)
    assert 3 == second.log.lowest_open_number(AI_TELEMETRY)


async def test_counters_go_on_where_they_stood(start: Starter, again: Starter) -> None:
    """
    A start is not a reset of the sender's counter. The next point adds its difference, and a repeated
    point adds nothing.
    """
    first = await start()
    await add(first.log, points=[point(100, at=NOON + 60)])

    second = await again(first)
    await add(second.log, points=[point(100, at=NOON + 60), point(130, at=NOON + 120)])

    assert [100, 30] == [
        record.value for record in await everything(second.log) if isinstance(record, UsageMetric)
    ]


async def test_receipts_conflicts_and_shapes_stay(start: Starter, again: Starter) -> None:
    """
    Receipts, conflicts, and shapes of unrecognized data, which an operator could query before a restart, are still
    there afterwards.
    """
    first = await start()
    receipt = await add(first.log, call(1), unrecognised=[("llm.x",)])
    await add(first.log, call(1, source="kong", input_tokens=7))
    shown = (
        await first.log.describe_receipt(receipt.id),
        await first.log.list_conflicts(),
        await first.log.unrecognised_items(),
    )

    second = await again(first)

    after = (
        await second.log.describe_receipt(receipt.id),
        await second.log.list_conflicts(),
        await second.log.unrecognised_items(),
    )
    assert shown == after
    assert first.incarnation == second.incarnation


@pytest.mark.usefixtures("flushed")
async def test_one_flush_for_everybody_who_waits(start: Starter, observed: Observed) -> None:
    """64 requests that wait together share a few commits. A single request waits for no other."""
    log = (await start()).log
    await add(log, call(0))
    assert 1 == len(observed.commits)

    await asyncio.gather(*[add(log, call(number)) for number in range(1, 65)])

    assert len(observed.commits) <= 3
    assert 65 == log.lowest_open_number(AI_TELEMETRY) - 1


async def test_two_processes_never_share_a_directory(start: Starter, tmp_path: Path) -> None:
    """
    If a directory is in use, the error names the process that uses it. After a kill of that process, the
    next start succeeds.
    """
    directory = tmp_path / "shared"
    script = (
        "import sys, pathlib; from spool.sqlite.directory import lock_directory\n"
        "lock = lock_directory(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert "held" == holder.stdout.readline().strip()
        with pytest.raises(SpoolLocked, match=f"in use by process {holder.pid}"):
            await start(directory)
    finally:
        holder.kill()
        holder.communicate()
    await add((await start(directory)).log, call(1))


async def test_the_directory_is_private(start: Starter, tmp_path: Path) -> None:
    """A new data directory is private: nobody else can read it. An existing directory keeps its mode."""
    spool = await start()
    await add(spool.log, call(1))
    assert 0o700 == spool.directory.stat().st_mode & 0o777
    assert {0o600} == {
        path.stat().st_mode & 0o777 for path in spool.directory.iterdir() if path.suffix != ".new"
    }

    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    (theirs / "file").touch()
    lock_directory(theirs).release()
    assert 0o755 == theirs.stat().st_mode & 0o777


async def test_a_migration_that_is_interrupted_runs_again(tmp_path: Path) -> None:
    """An interrupted migration leaves the previous version and all data, and the next start repeats it."""
    connection = sqlite3.connect(tmp_path / "file.sqlite", isolation_level=None)
    first = "CREATE TABLE one (n INTEGER); INSERT INTO one VALUES (1)"
    migrate(connection, [first])
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, [first, "CREATE TABLE two (n INTEGER); INSERT INTO nowhere VALUES (1)"])
    migrate(connection, [first, "CREATE TABLE two (n INTEGER)"])
    assert [(1,)] == connection.execute("SELECT n FROM one").fetchall()
    assert [] == connection.execute("SELECT n FROM two").fetchall()
    connection.close()


async def test_a_new_file_has_all_versions_or_none(tmp_path: Path) -> None:
    """
    All versions of a new file are created in one transaction. After an interruption the next start begins with an
    empty file.
    """
    connection = sqlite3.connect(tmp_path / "file.sqlite", isolation_level=None)
    versions = [
        "CREATE TABLE one (n INTEGER)",
        "CREATE TABLE two (n INTEGER); INSERT INTO nowhere VALUES (1)",
    ]
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, versions)
    assert [(0,)] == connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    versions[1] = "CREATE TABLE two (n INTEGER)"
    migrate(connection, versions)
    assert [(version_numbers(versions)[1],)] == connection.execute("PRAGMA user_version").fetchall()
    connection.close()


async def test_a_kill_at_any_moment_keeps_what_was_acknowledged(start: Starter, tmp_path: Path) -> None:
    """
    Copies of the directory, taken while records arrive, each have every acknowledged record once
    and balanced accounting.
    """
    spool = await start(duplicate_ids=200)
    acknowledged: list[int] = []

    async def report(number: int) -> None:
        await add(spool.log, call(number), call(number, source="kong"))
        acknowledged.append(number)

    copies = []
    for wave in range(6):
        await asyncio.gather(*[report(wave * 40 + number) for number in range(40)])
        copies.append((killed(spool.directory, tmp_path / f"copy-{wave}"), list(acknowledged)))

    for directory, known in copies:
        copy = await start(directory, duplicate_ids=200)
        assert {call(number)[0].id for number in known} == {
            record.id for record in await everything(copy.log) if record is not None
        }
        assert len(known) == (await topic_terms(copy.log))["accepted"]
        await assert_books_balance(copy.log)
        await copy.close()


async def test_a_start_with_a_clock_that_is_ahead_forgets_no_ids(tmp_path: Path) -> None:
    """
    If a command or server ran for a moment with a clock that was ahead, ids are not forgotten: yesterday's repeats
    are still recognized afterwards.
    """
    machine = MovedClock(NOON)
    settings = SpoolSettings(hold=0)

    async def opened() -> SqliteSpool:
        clock = SteadyClock(machine, timer=machine.monotonic)
        return await open_spool(tmp_path / "data", settings=settings, clock=clock)

    spool = await opened()
    await add(spool.log, call(1))
    await spool.close()
    machine.move(30 * 86_400)
    spool = await opened()
    await spool.log.run_retention()
    await spool.close()
    machine.move(-30 * 86_400)
    spool = await opened()
    await add(spool.log, call(1))
    terms = await topic_terms(spool.log)
    assert terms["accepted"] == 1
    assert terms["duplicates"] == 1
    assert terms.get("expired", 0) == 0
    await spool.close()
