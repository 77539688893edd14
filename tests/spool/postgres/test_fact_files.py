"""Several gateways share the files of facts. Each answers as of the record that it names, whatever else happens."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from spool.errors import LedgerLost, SpoolUnavailable, TakenOver
from spool.ledger.files.remembered import RememberedParts
from spool.ledger.files.writer import FactWriter
from spool.postgres.database import Database
from spool.postgres.fact_files import TABLES
from spool.record import RecalculationEntry
from tests.rounds import IS_LONG, examples
from tests.spool.ledger.files.changing import NAME, prepare, renaming_below
from tests.spool.ledger.files.histories import DAY, random_query
from tests.spool.ledger.files.test_erasure import texts_on_disk
from tests.spool.ledger.files.test_files import ALL, calls_of, small_log
from tests.spool.ledger.files.writing import log_of, open_writer
from tests.spool.ledger_log import BEGIN, FakeLog, call
from tests.spool.postgres.writing_facts import open_shared
from tests.spool.postgres_cluster import Schema

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tollhouse %'"
SMALL_CACHE = 40_000  # bytes, fewer than the files of one history
KILLS = 30 if IS_LONG else 2
IN_TIME_S = 2.0


@pytest.fixture
async def shared(unmade_schema: Schema) -> AsyncIterator[Schema]:
    database = unmade_schema.database()
    tables = database.fill_in_table_names(f"CREATE SCHEMA {{schema}}; {TABLES}")
    await database.transaction(lambda on: on.execute(tables))
    await database.close()
    yield unmade_schema


def stored_names(schema: Schema) -> set[str]:
    with psycopg.connect(schema.dsn) as connection:
        found = connection.execute(f"SELECT DISTINCT name FROM {schema.name}.fact_files").fetchall()
    return {name for (name,) in found}


class Gateways:
    """Four gateways over one schema, of which some may write, and one that has every record and no files of others."""

    def __init__(self, schema: Schema, place: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.schema, self.place, self._loop = schema, place, loop
        self.databases: list[Database] = []
        self.known = open_writer(place / "known")
        self.log = FakeLog()
        self.all = [self.open(number) for number in range(4)]

    def open(self, number: int, *, kept_s: float = 600) -> FactWriter:
        database = self.schema.database()
        self.databases.append(database)
        folder = self.place / str(number)
        return open_shared(database, self._loop, folder, cache=SMALL_CACHE, kept_s=kept_s)

    def add(self, entry_of: FakeLog, place: int) -> None:
        self.log.entries.append(entry_of.entries[place])
        self.known.add_entries(self.log.entries[-1:])

    def catch_up(self, gateway: FactWriter) -> bool:
        """Read the log as far as the gateway can. Return whether it has all records."""
        gateway.refresh()
        for entry in self.log.entries:
            if entry.last >= gateway.next_number:
                known = max(gateway.next_number - entry.first, 0)
                gateway.add_entries(
                    [replace(entry, first=entry.first + known, records=entry.records[known:])]
                )
                if gateway.next_number <= entry.last:
                    break
        return gateway.next_number == self.log.lowest_open_number()

    def check(self, gateway: FactWriter, chance: random.Random) -> None:
        """Compare answers with those of the gateway that has everything."""
        if not self.catch_up(gateway):
            waits_at = gateway.next_number
            [entry] = [each for each in self.log.entries if each.first <= waits_at <= each.last]
            assert isinstance(entry.records[waits_at - entry.first], RecalculationEntry)
            return
        found, known = gateway.snapshot(), self.known.snapshot()
        assert found.record == known.record
        for query in (ALL, random_query(chance), random_query(chance)):
            assert found.costs(query) == known.costs(query)
        found.close()
        known.close()

    def close(self) -> None:
        for gateway in (self.known, *self.all):
            gateway.close()


def damage(path: Path, chance: random.Random) -> None:
    how = chance.randrange(3)
    data = bytearray(path.read_bytes())
    if how == 0:
        path.unlink()
    elif how == 1:
        path.write_bytes(data[:-1])
    else:
        data[chance.randrange(len(data))] ^= 4
        path.write_bytes(data)


def live(gateways: Gateways, seed: int) -> int:
    """Let a history happen. Return how often a writer found that another one had written."""
    chance, history, taken_over = random.Random(seed), log_of(seed, entries=8), 0
    for place in range(len(history.entries)):
        gateways.add(history, place)
        for _ in range(6):
            number = chance.randrange(4)
            gateway = gateways.all[number]
            gateway.may_write = (
                number == place % 4 or chance.random() < 0.2
            )  # some believe that they still may
            try:
                if chance.random() < 0.7:
                    gateways.check(gateway, chance)
                if gateway.may_write and chance.random() < 0.6:
                    gateway.write_parts()
                if gateway.may_write and chance.random() < 0.4:
                    gateway.merge_next(BEGIN + 100 * DAY)
            except TakenOver:
                taken_over += 1
                gateway.refresh()
            if chance.random() < 0.15:  # a restart with a damaged cache
                gateway.close()
                cached = sorted((gateways.place / str(number)).glob("*.parquet"))
                if cached:
                    damage(chance.choice(cached), chance)
                gateways.all[number] = gateways.open(number)
    writer = gateways.all[0]
    writer.may_write = True
    assert gateways.catch_up(writer)
    writer.write_parts()
    for gateway in gateways.all:
        gateway.may_write = False
        gateways.check(gateway, chance)
        assert gateway.manifest.reach == gateways.log.lowest_open_number()
    return taken_over


async def with_gateways(schema: Schema, place: Path, work: Callable[[Gateways], int]) -> int:
    loop, made = asyncio.get_running_loop(), list[Gateways]()

    def run() -> int:
        made.append(Gateways(schema, place, loop))
        return work(made[0])

    try:
        return await asyncio.to_thread(run)
    finally:
        for gateways in made:
            gateways.close()
            for database in gateways.databases:
                await database.close()


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(examples(40)))
async def test_four_gateways_give_the_same_answers(seed: int, shared: Schema, tmp_path: Path) -> None:
    """With two writers at once, restarts, damaged caches and caches that are too small for all files."""
    await with_gateways(shared, tmp_path, lambda gateways: live(gateways, seed))


def killed(gateways: Gateways, chance: random.Random) -> int:
    """
    Kill a writer at random moments until it has written everything. After each kill, another gateway answers at once
    from what is stored, and never with fewer records.
    """
    seed, entries, kills = chance.randrange(1000), 12, 0
    history = log_of(seed, entries=entries)
    for place in range(entries):
        gateways.add(history, place)
    reader = gateways.all[1]
    reader.may_write, reach = False, 0
    command = [sys.executable, "-m", "tests.spool.postgres.writing_facts", str(seed), str(entries)]
    command += [gateways.schema.dsn, gateways.schema.name, str(gateways.place / "killed")]
    code = -signal.SIGKILL
    while code:
        before = gateways.all[0].folder.store.read().generation
        with subprocess.Popen(command) as process:
            try:
                if kills < KILLS:
                    more, begun = chance.randrange(4), time.monotonic()
                    while process.poll() is None and time.monotonic() < begun + 60:
                        if gateways.all[0].folder.store.read().generation > before + more:
                            break
                    time.sleep(chance.random() * 0.02)
                    process.send_signal(signal.SIGKILL)
                code = process.wait(120)
            finally:
                process.kill()
        kills += code != 0
        gone = time.process_time()
        gateways.check(reader, chance)
        assert time.process_time() - gone < IN_TIME_S
        assert reader.manifest.reach >= reach
        reach = reader.manifest.reach
    assert reader.manifest.reach == gateways.log.lowest_open_number()
    return kills


@pytest.mark.proof
async def test_a_killed_writer_loses_nothing(shared: Schema, tmp_path: Path) -> None:
    chance = random.Random()
    kills = await with_gateways(shared, tmp_path, lambda gateways: killed(gateways, chance))
    assert kills


def cut(gateways: Gateways, chance: random.Random) -> int:
    """Cut all connections while a writer writes. Return how often it had to begin again."""
    history, failures = small_log(4), 0
    [writer, reader, *_] = gateways.all
    for place in range(len(history.entries)):
        gateways.add(history, place)
        while True:
            cutter = Thread(target=cut_connections, args=(gateways.schema.dsn, chance.random() * 0.2))
            cutter.start()
            try:
                gateways.catch_up(writer)
                writer.write_parts()
                writer.merge_next(BEGIN + 100 * DAY)
                break
            except (SpoolUnavailable, TakenOver):
                failures += 1
            finally:
                cutter.join()
    reader.may_write = False
    gateways.check(reader, chance)
    assert reader.manifest.reach == gateways.log.lowest_open_number()
    return failures


def cut_connections(dsn: str, rest_s: float) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(4):
            time.sleep(rest_s)
            connection.execute(CUT)


@pytest.mark.proof
async def test_a_cut_connection_loses_nothing(shared: Schema, tmp_path: Path) -> None:
    chance = random.Random()
    await with_gateways(shared, tmp_path, lambda gateways: cut(gateways, chance))


async def test_of_two_writers_one_begins_again(shared: Schema, tmp_path: Path) -> None:
    """The files of the loser are nowhere, although they have the names of the winner's."""

    def write(gateways: Gateways) -> int:
        first, second, reader, _ = gateways.all
        history = small_log(2)
        gateways.add(history, 0)
        assert gateways.catch_up(first)
        gateways.add(history, 1)
        assert gateways.catch_up(second)
        first.write_parts()
        with pytest.raises(TakenOver):
            second.write_parts()
        assert calls_of(second) == 6
        assert not list((tmp_path / "1").glob("*.parquet"))
        for gateway in (second, reader):
            assert gateways.catch_up(gateway)
            assert calls_of(gateway) == 6
        second.write_parts()
        assert gateways.catch_up(first)
        assert (calls_of(first), first.open_count) == (6, 0)
        return 0

    await with_gateways(shared, tmp_path, write)


async def test_an_erasure_and_a_rebuild_reach_every_gateway(shared: Schema, tmp_path: Path) -> None:
    """Their caches have neither the name nor the earlier generation, as soon as no answer needs them."""

    def change(gateways: Gateways) -> int:
        writer, reader, *_ = gateways.all
        log = FakeLog()
        log.add([call(user=NAME), call(user="bob")])
        log.add([call(user="bob")])
        for place in range(2):
            gateways.add(log, place)
            gateways.catch_up(writer)
            writer.write_parts()
        assert gateways.catch_up(reader)
        assert calls_of(reader) == 3
        assert NAME in texts_on_disk(tmp_path / "1")
        snapshot = reader.snapshot()
        assert writer.rename_people(renaming_below(4)) == 1
        assert gateways.catch_up(reader)
        assert (calls_of(reader), sum(row.calls for row in snapshot.costs(ALL))) == (3, 3)
        snapshot.close()
        assert NAME not in texts_on_disk(tmp_path / "1")
        prepared = prepare(tmp_path / "0", writer)
        prepared.add_entries([log.entries[0], replace(log.entries[1], records=[None])])
        prepared.count_from_now_on()
        gateways.all[0] = prepared
        writer.close()
        for gateway in (reader, gateways.open(0)):
            assert gateways.catch_up(gateway)
            assert (calls_of(gateway), gateway.manifest.series, gateway.manifest.damaged) == (3, 1, 1)
        assert stored_names(shared) > set(reader.manifest.files)
        cleaner = gateways.open(2, kept_s=0)
        while cleaner.merge_next(BEGIN):
            pass
        cleaner.close()
        assert stored_names(shared) == set(reader.manifest.files)
        for number in "01":
            assert {path.name for path in (tmp_path / number).glob("*.parquet")} == set(reader.manifest.files)
        return 0

    await with_gateways(shared, tmp_path, change)


async def test_a_cache_keeps_to_its_limit(shared: Schema, tmp_path: Path) -> None:
    """An answer over more has all of its files. A file that is gone from the database is an error, not fewer calls."""

    def ask(gateways: Gateways) -> int:
        writer, reader, *_ = gateways.all
        history, days = small_log(12), []
        reader._remembered = RememberedParts(0)
        for place in range(len(history.entries)):
            gateways.add(history, place)
            gateways.catch_up(writer)
            writer.write_parts()
        assert gateways.catch_up(reader)
        cached = tmp_path / "1"
        sizes = {name: file.bytes for name, file in reader.manifest.files.items()}
        assert sum(sizes.values()) > SMALL_CACHE
        assert calls_of(reader) == 36
        assert sizes.keys() == {path.name for path in cached.glob("*.parquet")}
        snapshot = reader.snapshot()
        for day in range(12):
            since, until = [datetime.fromtimestamp(BEGIN + n * DAY, UTC) for n in (day, day + 1)]
            days.append(sum(row.calls for row in snapshot.costs(replace(ALL, since=since, until=until))))
            held = sum(sizes[path.name] for path in cached.glob("*.parquet"))
            assert held <= SMALL_CACHE < held + max(sizes.values())
        assert days == [3] * 12
        [gone] = sorted(path.name for path in cached.glob("*.parquet"))[:1]
        (cached / gone).unlink()
        with psycopg.connect(shared.dsn) as connection:
            connection.execute(f"DELETE FROM {shared.name}.fact_files WHERE name = %s", (gone,))
        with pytest.raises(LedgerLost, match="was deleted from the database"):
            snapshot.costs(ALL)
        snapshot.close()
        return 0

    await with_gateways(shared, tmp_path, ask)
