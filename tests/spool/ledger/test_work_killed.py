"""
kill -9 while units of work are counted, unlisted, linked, repriced and rebuilt, and damage to the file of the totals:
all sums are those of the calls.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from spool.errors import LedgerLost
from spool.ledger.counting import expire_units
from spool.ledger.ledger import Ledger
from spool.ledger.sums import OTHER
from spool.ledger.work import UNITS, WorkLimits
from spool.ledger.work_links import WorkUnitLink, WorkUnitLinks
from spool.record import NS, Correction, Inference
from spool.sqlite.ledger import open_ledger
from tests.spool.ledger.test_work import Book, corrected, made_call
from tests.spool.ledger.test_work_conserved import DIMENSIONS, Sums, among, query, sums_of, without_unit
from tests.spool.ledger.test_work_links import DAY, by_hand, link_of
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, opened

KILLS = 200
DAYS = 70
LIMITS = WorkLimits(ids_per_month=30)
PRICE = "0.000007"
EVER: Any = {
    name: datetime.fromtimestamp(BEGIN + day * DAY, UTC)
    for name, day in (("since", -50), ("until", DAYS + 2))
}


def made_log(kills: int) -> FakeLog:
    """Make entries of some calls and corrections in 70 days. The same number gives the same log."""
    chance, log, calls = random.Random(kills), FakeLog(), list[Inference]()
    for part in range(40 + 4 * kills):
        at, entry = BEGIN + part * DAYS * DAY // (40 + 4 * kills), list[Any]()
        for _ in range(20):
            number = 20 * part + len(entry)
            if calls and chance.random() < 0.2:
                place = chance.randrange(len(calls))
                change = corrected(chance, calls[place], number)
                change.after.session = calls[place].session
                calls[place] = change.after
                entry.append(change)
                continue
            record = made_call(chance, number)
            record.session = record.session and f"session-{chance.randrange(80 + 2 * kills)}"
            record.run = record.run and f"run-{chance.randrange(60)}"
            record.start_time = int(at - chance.choice((0, 0, 0, 40 * DAY)) - chance.randrange(DAY)) * NS
            calls.append(record)
            entry.append(record)
        log.add(entry, at=at)
    return log


def made_links(seed: int) -> Sequence[WorkUnitLink]:
    chance = random.Random(seed)
    return [
        link_of("session", f"session-{number}", "pull_request", f"pull_request-{number % 3}")
        for number in range(20)
        if chance.random() < 0.5
    ]


async def opened_ledger(directory: Path, clock: FakeClock) -> Ledger:
    ledger = await open_ledger(directory, clock=clock, work=LIMITS)
    ledger.books.open = opened
    return ledger


async def _count(directory: Path, kills: int, seed: int, ready: Connection) -> None:
    """Count, unlist, link, reprice and rebuild in random order until killed."""
    whole, chance, clock = made_log(kills), random.Random(seed), FakeClock()
    ledger = await opened_ledger(directory, clock)
    ready.send_bytes(b"ready")
    while True:
        reach = (await ledger.state(counts_rows=False)).reach
        entries = next(
            (place for place, entry in enumerate(whole.entries) if entry.last >= reach), len(whole.entries)
        )
        log = FakeLog.of(whole, upto=min(entries + chance.randrange(1, 8), len(whole.entries)))
        clock.at = log.entries[-1].committed_at
        await ledger.catch_up(log)
        happening = chance.randrange(8)
        if happening < 4:
            await ledger.sum_up_and_delete_hours()
        elif happening < 6:
            await ledger.apply_links(WorkUnitLinks(await _listed(ledger, made_links(chance.randrange(10)))))
        elif (await ledger.state(counts_rows=False)).rebuilding:
            continue  # prices and a second rebuild wait for the first one
        elif happening == 6:
            price = str(Decimal(chance.randrange(1, 100)).scaleb(-6))
            await ledger.reprice(log, Book(price), since=datetime.fromtimestamp(BEGIN - 60 * DAY, UTC))
        else:
            await ledger.rebuild(log)


async def _listed(ledger: Ledger, links: Sequence[WorkUnitLink]) -> list[WorkUnitLink]:
    return [link for link in links if not await ledger.is_unit_merged_into_other(link.unit, link.id)]


def count(directory: Path, kills: int, seed: int, ready: Connection) -> None:
    asyncio.run(_count(directory, kills, seed, ready))


@pytest.mark.proof
def test_kills_and_damage_change_no_sum(tmp_path: Path) -> None:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    chance = random.Random(KILLS)
    for seed in range(KILLS):
        here, there = processes.Pipe(duplex=False)
        counting = processes.Process(target=count, args=(tmp_path, KILLS, seed, there))
        counting.start()
        there.close()
        assert here.poll(120)
        assert b"ready" == here.recv_bytes()
        time.sleep(chance.expovariate(5))
        assert counting.is_alive()
        counting.kill()
        counting.join()
        here.close()
    asyncio.run(check(tmp_path))


async def check(directory: Path) -> None:
    """After the kills, after a rebuild, and after damage: all sums are those of the log."""
    log = made_log(KILLS)
    clock = FakeClock(log.entries[-1].committed_at)
    calls = calls_of(log)
    ledger = await opened_ledger(directory, clock)
    found = await settle(ledger, log, calls)
    await ledger.rebuild(log)
    assert found == await settle(ledger, log, calls)
    await ledger.close()
    file = directory / "ledger.sqlite"
    content = bytearray(file.read_bytes())
    for page in range(1, len(content) // 4096, 2):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    file.write_bytes(content)
    ledger = await opened_ledger(directory, clock)
    await settle(ledger, log, calls)
    assert [*directory.glob("ledger.sqlite.damaged-*")]
    await ledger.close()


def calls_of(log: FakeLog) -> dict[bytes, Inference]:
    """Return the calls of a log after all corrections, at the last price."""
    calls = dict[bytes, Inference]()
    for entry in log.entries:
        for record in entry.records:
            if isinstance(record, Inference):
                calls[record.id] = record
            elif isinstance(record, Correction):
                calls[record.corrects] = record.after
    for record in calls.values():
        if record.request_model == "gpt-5":
            record.estimated_cost = str(Decimal(PRICE) * (record.input_tokens or 0))
    return calls


async def settle(ledger: Ledger, log: FakeLog, calls: Mapping[bytes, Inference]) -> Sequence[Sums]:
    """Count the rest, check each listed unit and the sum of all, and return all sums."""
    while (await ledger.state()).reach < log.lowest_open_number() or (await ledger.state()).rebuilding:
        try:
            await ledger.catch_up(log)
        except LedgerLost:  # damage was found, and a new file begins
            continue
    await ledger.sum_up_and_delete_hours()
    # tidy does this only after it deleted hours, so whether it does now depends on the kills
    now = log.entries[-1].committed_at
    await ledger._change_rows(lambda rows: expire_units(rows, LIMITS, int(now)))
    links = await _listed(ledger, made_links(3))
    await ledger.apply_links(WorkUnitLinks(links))
    await ledger.reprice(log, Book(PRICE), since=datetime.fromtimestamp(BEGIN - 60 * DAY, UTC))
    answers = []
    for unit in UNITS:
        found = sums_of(await ledger.costs(query(EVER, unit, *DIMENSIONS)))
        expected = by_hand(calls, links, unit, *DIMENSIONS)
        listed = {group[0] for group in found} - {OTHER}
        assert len(listed) > 1
        assert among(expected, listed | {None}) == among(found, listed | {None})
        assert without_unit(expected) == without_unit(found)
        answers.append(found)
    assert any((OTHER, *more) in answers[0] for _, *more in answers[0])
    return answers
