"""
Names that a report adds after the record of its call closed.

A later report with only such a name is recognized as the same call. This holds even after a kill, and whether
or not the call's ids are in a run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import spool.sqlite.spool
from spool.identity import RecordIdentity
from spool.log.protocols import RecordLog
from spool.record import AI_TELEMETRY, Record
from spool.settings import SpoolSettings
from spool.sqlite.spool import SqliteSpool
from tests.moved_clock import MovedClock
from tests.spool.contract.disk import killed
from tests.spool.contract.examples import add, assert_books_balance, call, everything, topic_terms

DAY_S = 90_000.0
Report = tuple[Record, RecordIdentity]


def report(number: int, *names: bytes, **fields: Any) -> Report:
    record, known_as = call(number, **fields)
    return record, known_as._replace(also=names)


FIRST = report(1, b"the first name..")
BOTH = report(2, b"the first name..", b"told later......")
LATER = report(3, b"told later......")


async def test_a_name_of_a_call_in_a_run_is_remembered(log: RecordLog, clock: MovedClock) -> None:
    """
    The record number of a call whose ids are in a run is unknown. A repeated name is still stored only once.
    """
    await add(log, FIRST)
    clock.move(DAY_S)
    await add(log, call(9))  # this report moves the ids of the day before into runs
    known = (await log.stats()).duplicate_ids
    for number in range(3):
        await add(log, BOTH)
        clock.move(number * DAY_S)
        await add(log, LATER)
        # The three new ids are one for each of the two reports, and the name.
        assert known + 3 == (await log.stats()).duplicate_ids
    assert [FIRST[0], call(9)[0]] == await everything(log)
    assert 6 == (await topic_terms(log))["duplicates"]
    await assert_books_balance(log)


async def test_a_report_of_the_same_side_is_a_call_of_its_own(log: RecordLog, clock: MovedClock) -> None:
    """A second report of one side is a new call, even if the other side's call is in a run."""
    client = call(1)[0], call(1)[1]._replace(links=((b"made", b"answered"),))
    attempts = [(call(n)[0], call(n)[1]._replace(links=((b"answered", b"made"),))) for n in (2, 3)]
    await add(log, client)
    clock.move(DAY_S)
    await add(log, call(9))
    for attempt in attempts:
        await add(log, attempt)
    assert [client[0], call(9)[0], attempts[1][0]] == await everything(log)


class KilledSpool:
    """A spool on disk that a test kills and opens again from the current files."""

    def __init__(self, directory: Path, clock: MovedClock, **settings: Any) -> None:
        self._directory = directory
        self._clock = clock
        self._settings = SpoolSettings(**{"hold": 10, **settings})
        self.opened: list[SqliteSpool] = []

    async def start(self) -> None:
        one = await spool.sqlite.spool.open_spool(self._directory, settings=self._settings, clock=self._clock)
        self.opened.append(one)

    async def kill(self) -> None:
        self._directory = killed(self._directory, self._directory.with_name(f"killed-{len(self.opened)}"))
        await self.start()

    async def stop(self) -> None:
        await self.opened.pop().close()
        await self.start()

    async def tell(self, *reports: Report) -> None:
        for one in reports:
            await add(self.opened[-1].log, one)

    async def names_on_disk(self) -> int:
        """Return the number of stored names that are separate from records."""
        return await self._count("facts WHERE name LIKE 'names %'")

    async def runs_on_disk(self) -> int:
        return await self._count("id_runs")

    async def _count(self, of: str) -> int:
        def count(connection: sqlite3.Connection) -> int:
            (rows,) = connection.execute(f"SELECT count(*) FROM {of}").fetchone()
            return int(rows)

        return await self.opened[-1].database.read(count)

    async def judge(self, *kept: Report) -> None:
        """Assert that exactly these reports are stored as records."""
        self._clock.move(11)
        log = self.opened[-1].log
        assert [record.id for record, _ in kept] == [one.id for one in await everything(log) if one]
        assert len(kept) == log.next_number(AI_TELEMETRY) - 1
        await assert_books_balance(log)


@pytest.fixture
async def killed_spool(tmp_path: Path, clock: MovedClock) -> AsyncIterator[KilledSpool]:
    """A spool that stores few ids as newest, so that at least four become a run at once."""
    one = KilledSpool(tmp_path / "data", clock, duplicate_ids=16)
    await one.start()
    yield one
    for opened in one.opened:
        await opened.close()


async def test_name_added_after_the_hold_survives_a_kill(
    killed_spool: KilledSpool, clock: MovedClock
) -> None:
    """A name that a late report adds is on disk before the answer. A repeat writes nothing."""
    await killed_spool.tell(FIRST)
    clock.move(11)
    await killed_spool.tell(BOTH, BOTH)
    assert 1 == await killed_spool.names_on_disk()
    await killed_spool.kill()
    await killed_spool.tell(LATER, BOTH)
    await killed_spool.kill()
    await killed_spool.tell(LATER)
    # The two names on disk are the name, and the id of the report that has only this name.
    assert 2 == await killed_spool.names_on_disk()
    await killed_spool.judge(FIRST)


async def test_name_that_arrives_after_a_stop_survives_a_kill(
    killed_spool: KilledSpool, clock: MovedClock
) -> None:
    """
    A name that arrives after a stop is still known after a kill. A stop folds all ids into runs, so the place of
    the record is unknown.
    """
    await killed_spool.tell(FIRST)
    clock.move(11)
    await killed_spool.stop()
    await killed_spool.tell(BOTH)
    await killed_spool.kill()
    await killed_spool.tell(LATER)
    await killed_spool.stop()
    await killed_spool.tell(BOTH, LATER)
    await killed_spool.judge(FIRST)


async def test_fold_moves_a_record_and_leaves_a_late_name(
    killed_spool: KilledSpool, clock: MovedClock
) -> None:
    """
    If a name arrives while its record is open, a fold moves the record into a run and leaves the name. At the
    kill, runs contain only the ids of the record.
    """
    others = [call(number) for number in range(10, 17)]
    await killed_spool.tell(FIRST, *others[:3])
    await killed_spool.tell(BOTH)
    clock.move(11)
    await killed_spool.tell(*others[3:])
    assert 0 < await killed_spool.runs_on_disk()
    await killed_spool.kill()
    await killed_spool.tell(LATER)
    await killed_spool.judge(FIRST, *others)


async def test_fold_deletes_stored_names_of_its_records(killed_spool: KilledSpool, clock: MovedClock) -> None:
    """A fold deletes stored names once it has moved their record's ids into a run."""
    await killed_spool.tell(FIRST)
    clock.move(11)
    await killed_spool.tell(BOTH)
    clock.move(DAY_S)
    await killed_spool.tell(call(9))
    assert 0 == await killed_spool.names_on_disk()
    await killed_spool.kill()
    await killed_spool.tell(LATER)
    await killed_spool.judge(FIRST, call(9))
