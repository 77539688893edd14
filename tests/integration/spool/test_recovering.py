"""`tollhouse spool recover FILE` imports the records of a file that was moved aside, each once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.configuration.sections import Config
from gateway.devices.states import device_revoker
from gateway.service.assembly.storage import open_storage
from spool.clock import SystemClock
from spool.deliveries.values import RouteSpec, Settlement
from spool.engines import import_damaged_file
from spool.erasing import AGAIN_AFTER_S, continue_due_erasures, erase_from_storage
from spool.erasure import new_erasure
from spool.errors import NotAllowed
from spool.record import AI_TELEMETRY, NS
from spool.registry.operators import Actor
from spool.settings import SpoolSettings
from spool.sqlite.spool import SqliteSpool
from spool.storage import RecoveryResult, StorageOptions
from tests.integration.spool.conftest import Starter
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, assert_books_balance, call, everything, topic_terms

ROUTE = RouteSpec(name="upstream/ai-telemetry", topic=AI_TELEMETRY)


def options(directory: Path, clock: MovedClock) -> StorageOptions:
    return StorageOptions(directory=directory, settings=SpoolSettings(hold=0), clock=clock)


async def fill(spool: SqliteSpool, first: int = 0, last: int = 40) -> None:
    for number in range(first, last):
        await add(spool.log, call(number))


async def test_new_log_recovers_only_the_records_that_it_lacks(
    start: Starter, clock: MovedClock, tmp_path: Path
) -> None:
    """
    Records that the old log had delivered are left out, and records in both logs are recognized. A second
    run adds nothing.
    """
    first = await start()
    await first.deliveries.set_routes([ROUTE])
    await fill(first)
    done = await first.deliveries.take_due_delivery(ROUTE.name, now=1e12, max_records=10)
    assert done is not None
    await first.deliveries.store_settlement(done, Settlement(delivered=10))
    await first.close()
    aside = tmp_path / "aside.sqlite"
    (first.directory / "spool.sqlite").rename(aside)
    (first.directory / "spool.note.json").unlink()
    second = await start()
    await fill(second, 35, 45)
    await second.close()

    assert RecoveryResult(added=25, known=5, settled=10, unreadable=0) == await import_damaged_file(
        options(first.directory, clock), aside
    )
    again = await import_damaged_file(options(first.directory, clock), aside)

    assert RecoveryResult(added=0, known=30, settled=10, unreadable=0) == again
    spool = await start()
    found = [record.id for record in await everything(spool.log) if record]
    assert {call(number)[0].id for number in range(10, 45)} == set(found)
    assert 35 == len(found)
    await assert_books_balance(spool.log)


async def test_the_same_log_gets_back_what_was_damaged(
    start: Starter, clock: MovedClock, tmp_path: Path
) -> None:
    """A better copy of the file has the records that a salvage counted as damaged. Only these are added."""
    first = await start()
    await fill(first)
    await first.close()
    better = tmp_path / "better.sqlite"
    better.write_bytes((first.directory / "spool.sqlite").read_bytes())
    spool = await start()
    await spool.database.run(
        lambda connection: connection.execute(
            "UPDATE entries SET body = x'ff' WHERE first IN (7, 8)"
        ).fetchall()
    )
    assert 2 == (await everything(spool.log)).count(None)
    await spool.close()

    assert RecoveryResult(added=2, known=38, settled=0, unreadable=0) == await import_damaged_file(
        options(first.directory, clock), better
    )
    assert RecoveryResult(added=0, known=40, settled=0, unreadable=0) == await import_damaged_file(
        options(first.directory, clock), better
    )

    spool = await start()
    assert 42 == (await topic_terms(spool.log))["accepted"]
    await assert_books_balance(spool.log)


async def test_what_cannot_be_recovered_is_said(start: Starter, clock: MovedClock, tmp_path: Path) -> None:
    """`spool recover` refuses a missing file, the log's own file and a file that is no database, and says why."""
    first = await start()
    await first.close()
    own = first.directory / "spool.sqlite"
    noise = tmp_path / "noise"
    noise.write_bytes(b"no database" * 3000)
    for file, words in (
        (tmp_path / "gone", "does not exist"),
        (own, "is the current log"),
        (noise, "nothing in"),
    ):
        with pytest.raises(NotAllowed, match=words):
            await import_damaged_file(options(first.directory, clock), file)
    assert not (first.directory / "recover.tmp").exists()


async def test_the_command_prints_what_was_read(start: Starter, tmp_path: Path) -> None:
    """`spool recover` prints record counts, and a hint if the totals should be counted again."""
    first = await start()
    await fill(first)
    await first.close()
    aside = tmp_path / "aside.sqlite"
    (first.directory / "spool.sqlite").rename(aside)
    words = ["spool", "recover", str(aside), "--data", str(first.directory)]
    for added, known in ((40, 0), (0, 40)):
        done = await asyncio.to_thread(CliRunner().invoke, main, words)
        assert 0 == done.exit_code, done.output
        fields = dict(line.split() for line in done.output.splitlines() if len(line.split()) == 2)
        assert str(added) == fields["added"]
        assert str(known) == fields["known"]
    assert "the data directory is usable" in done.output
    done = await asyncio.to_thread(CliRunner().invoke, main, [*words[:2], "gone", *words[3:]])
    assert 2 == done.exit_code


async def test_numbers_of_a_lost_log_erase_no_later_person(start: Starter) -> None:
    """An erasure applies to the first records of its log. If the log is lost, the new one begins with other people."""
    first = await start()
    await add(first.log, call(1, user="canary-login"))
    await first.close()
    config, clock = Config(data_dir=first.directory, spool=SpoolSettings(hold=0)), MovedClock(time.time())
    async with open_storage(config, clock=clock) as storage:
        assert storage.registry is not None
        erasure = new_erasure([storage.registry.people.erasure_digest("canary-login")], clock.now())
        actor = Actor("root@example.com", "local")
        await erase_from_storage(storage, erasure, revoke_device=device_revoker(""), actor=actor)
        assert 2 == storage.registry.persons.erasures[0].stored[AI_TELEMETRY]
    (first.directory / "spool.sqlite").unlink()
    async with open_storage(config, clock=clock) as storage:
        later = int((clock.now() + 60) * NS)
        await add(storage.log, call(2, user="canary-login", start_time=later))
        clock.move(AGAIN_AFTER_S + 1)
        assert 1 == await continue_due_erasures(storage, clock, device_revoker(""))
        assert ["canary-login"] == [getattr(each, "user", None) for each in await everything(storage.log)]


async def test_a_recovered_record_brings_no_erased_name_back(start: Starter, tmp_path: Path) -> None:
    """A file that was moved aside has records with the name of a person who was erased later."""
    first = await start()
    await add(first.log, call(1, user="canary-login"))
    await first.close()
    aside = tmp_path / "aside.sqlite"
    (first.directory / "spool.sqlite").rename(aside)
    async with open_storage(Config(data_dir=first.directory), clock=SystemClock()) as storage:
        assert storage.registry is not None
        erasure = new_erasure([storage.registry.people.erasure_digest("canary-login")], time.time())
        await storage.registry.erase_person(erasure, (), Actor("root@example.com", "local"))
    words = ["spool", "recover", str(aside), "--data", str(first.directory)]
    done = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert 0 == done.exit_code, done.output
    second = await start()
    assert [*erasure.names.values()] == [record.user for record in await everything(second.log) if record]  # type: ignore[union-attr]
