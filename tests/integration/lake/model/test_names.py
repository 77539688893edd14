"""
A model of landings with random kills, takeovers, repeats, lost requests and restores. In the end each number
is in one file of its edition, and the lake's sums equal the accounting.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.errors import Retryable
from exporters.lake import names, parquet
from exporters.lake.exporter import LakeExporter
from exporters.lake.formats import PARQUET
from exporters.lake.past.adoption import LakeAdoption
from exporters.lake.tables import TABLES
from exporters.lake.verification import (
    CONTENT,
    DATA,
    FOREIGN,
    ReadManifest,
    accounting_difference,
    read_manifests,
    verify_files,
)
from spool.deliveries.protocols import LANDINGS
from spool.deliveries.values import Delivery, RouteSpec
from spool.errors import TakenOver
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, NS
from tests.exporters.spools import StoppedClock, call
from tests.integration.lake.lakes import ROUTE, House, opened
from tests.integration.lake.model.unruly_store import HeldPut, Killed, UnrulyStore
from tests.rounds import IS_LONG, as_proof

MOST_TRIES: Final = 200
_DIES: Final = 0.05  # probability of a kill before and after each mark or settlement
_DAY_S: Final = 86400
STEPS = st.lists(
    st.tuples(st.just("add"), st.integers(1, 12))
    | st.tuples(st.just("land"), st.integers(1, 10))
    | st.tuples(st.just("take_over"), st.integers(0, 3))
    | st.tuples(st.sampled_from(["back_up", "restore"]), st.just(0)),
    min_size=4,
    max_size=20,
)  # fmt: skip


class Model:
    """An installation with one lake route. Each method is a step that may happen to it."""

    def __init__(self, directory: Path, chance: Random, *, has_conditions: bool) -> None:
        self.store = UnrulyStore(chance, has_conditions=has_conditions)
        self._directory = directory
        self._scratch = directory / "scratch"
        self._scratch.mkdir()
        self._chance = chance
        self._clock = StoppedClock()
        self._stack = AsyncExitStack()
        self._starts = self._made = 0
        self._most = 10  # maximum number of records per delivery
        self.restores = 0
        self.house: House
        self._exporter: LakeExporter

    async def begin(self) -> None:
        await self._open()
        await self._restart()
        # The first delivery stores an edition. Store it here as well, because a backup without an edition
        # would not know the lake.
        await self.house.storage.small.open_table(LANDINGS).find_or_begin_log_editions(ROUTE, 1)
        await self.back_up(0)

    async def end(self) -> None:
        await self._stack.aclose()

    async def _open(self) -> None:
        self.house = await self._stack.enter_async_context(opened(self._directory / "data", self._clock))

    async def _restart(self) -> None:
        """Start another process. Deliveries of the previous one are due again."""
        self._starts += 1
        context = replace(self.house.context(), directory=self._directory / f"work-{self._starts}")
        self._exporter = LakeExporter(
            self.store,
            context,
            destination="lake",
            format=PARQUET,
            table=TABLES[AI_TELEMETRY],
            clock=self._clock,
            max_records=self._most,
        )
        await self.house.storage.deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY)])

    # -- steps ---------------------------------------------------------------------------------------------

    async def add(self, count: int) -> None:
        """Add calls of several days, some of them cached or only for reference."""
        self._clock.move(1.0)
        made = []
        for _ in range(count):
            self._made += 1
            day_s = self._chance.choice((0, 0, 0, 1, 2)) * _DAY_S
            start_time = int(self._clock.now() - day_s) * NS
            fields: dict[str, Any] = {"cost": f"0.{self._made:04d}1", "cost_source": "reported"}
            fields |= self._chance.choice(({}, {}, {"shadow": True}, {"status": "cached"}))
            made.append(call(self._made, start_time=start_time, **fields))
        await self.house.add(made)

    async def land(self, most: int) -> None:
        """Send one delivery of at most `most` records."""
        self._most = most
        delivery = await self._due()
        if delivery is not None:
            await self._send(self._exporter, delivery)

    async def take_over(self, behind: int) -> None:
        """
        Let another process land a delivery while a put of the first process is under way. Then the
        first one continues.
        """
        delivery = await self._due()
        if delivery is None:
            return
        self.store.held = put = HeldPut(behind)
        holder = asyncio.create_task(self._send(self._exporter, delivery))
        begun = asyncio.create_task(put.begun.wait())
        await asyncio.wait([holder, begun], return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        self.store.held = None
        await self._restart()
        await self.land(self._most)
        put.released.set()
        await holder

    async def back_up(self, _: int) -> None:
        """Copy the data directory, then restart."""
        await self._stack.aclose()
        shutil.rmtree(self._directory / "backup", ignore_errors=True)
        shutil.copytree(self._directory / "data", self._directory / "backup")
        await self._open()
        await self._restart()

    async def restore(self, _: int) -> None:
        """
        Continue from the newest backup in another edition. Puts of the original have arrived or are lost.
        """
        await self._stack.aclose()
        self.store.calm()
        shutil.rmtree(self._directory / "data")
        shutil.copytree(self._directory / "backup", self._directory / "data")
        await self._open()
        storage = self.house.storage
        await storage.deliveries.reopen_after_restore(unknown_outcome_reason=None)
        await storage.small.open_table(LANDINGS).begin_log_edition()
        work = self._directory / "adoption"
        work.mkdir(exist_ok=True)
        adoption = LakeAdoption(
            store=self.store,
            landings=storage.small.open_table(LANDINGS),
            deliveries=storage.deliveries,
            log=storage.log,
            reports=storage.partial_reports,
            clock=self._clock,
            destination="lake",
            writer=PARQUET.writer,
            batch_records=self._most,
            directory=work,
        )
        await adoption.adopt_records(leaves_in_lake=False, dry_run=False)
        self.store.is_calm = False
        self.restores += 1
        await self.back_up(0)  # back up at once, because an older backup does not know this edition

    # -- a delivery ----------------------------------------------------------------------------------------

    async def _due(self) -> Delivery | None:
        deliveries = self.house.storage.deliveries
        return await deliveries.take_due_delivery(ROUTE, now=self._clock.now() + 1e9, max_records=self._most)

    async def _send(self, exporter: LakeExporter, delivery: Delivery) -> None:
        """Send like the route's loop. No failure of the store may park the route."""
        self._clock.move(1.0)
        deliveries = self.house.storage.deliveries
        try:
            keep_mark = partial(self._keep_mark, delivery)
            settlement = await exporter.write_delivery(delivery, self._pieces(delivery), keep_mark)
            self._may_die()
            await deliveries.store_settlement(delivery, settlement)
            self._may_die()
        except Retryable as error:
            await deliveries.schedule_retry(
                delivery, reason=str(error), not_before=0.0, may_be_accepted=error.ambiguous
            )
        except TakenOver:
            pass
        except Killed:
            await self._restart()

    async def _keep_mark(self, delivery: Delivery, mark: str) -> None:
        self._may_die()
        await self.house.storage.deliveries.store_delivery_mark(delivery, mark)
        self._may_die()

    async def _pieces(self, delivery: Delivery) -> AsyncIterator[LogEntry]:
        """Yield the entries in random parts, as after a compaction of the log."""
        most = self._chance.randint(1, 5)
        for entry in await self.house.storage.log.read(AI_TELEMETRY, delivery.first, delivery.last):
            for part in entry.split(most):
                yield part

    def _may_die(self) -> None:
        if not self.store.is_calm and self._chance.random() < _DIES:
            raise Killed

    # -- the result at the end ----------------------------------------------------------------------------

    async def judge(self) -> None:
        """Land everything that waits. Then compare the lake with the log and the accounting."""
        self.store.calm()
        await self._restart()
        self._most = 10
        for _ in range(MOST_TRIES):
            delivery = await self._due()
            if delivery is None:
                break
            await self._send(self._exporter, delivery)
        assert 0 == (await self.house.state()).queued
        files = {name: self._rows(name) for name in self.store.objects if name.startswith(names.DATA)}
        numbers = Counter((edition, number) for rows in files.values() for edition, number, _, _ in rows)
        assert [] == [each for each, times in numbers.items() if times > 1]
        named = [files[key] for key in await self._named()]
        spent = [(id, spend or Decimal(0)) for rows in named for _, _, id, spend in rows]
        self._hold_against_log(spent, await self._log())
        await self._hold_against_books()

    def _rows(self, name: str) -> list[tuple[Any, ...]]:
        there = self._scratch / "there"
        there.write_bytes(self.store.objects[name])
        return list(parquet.read_rows(there, ["edition", "number", "id", "spend"]))

    async def _named(self) -> list[str]:
        """Return the files that manifests name."""
        found = [each async for each in read_manifests(self.store, "lake", self._scratch)]
        return [file.key for each in found if isinstance(each, ReadManifest) for file in each.body.files]

    async def _log(self) -> dict[str, Decimal]:
        """Return each record's cost in the log by id."""
        log = self.house.storage.log
        entries = await log.read(AI_TELEMETRY, 1, log.lowest_open_number(AI_TELEMETRY) - 1)
        records: list[Any] = [record for entry in entries for record in entry.records]
        return {record.id.hex(): _spend(record) for record in records}

    def _hold_against_log(self, rows: list[tuple[str, Decimal]], log: dict[str, Decimal]) -> None:
        assert sorted(log) == sorted(id for id, _ in rows)
        assert sum(log.values()) == sum(spend for _, spend in rows)

    async def _hold_against_books(self) -> None:
        terms = await self.house.terms()
        manifests = read_manifests(self.store, "lake", self._scratch)
        found = await verify_files(self.store, manifests, level=DATA, scratch=self._scratch)
        assert accounting_difference(found, ROUTE, terms, terms) is None
        # Two differences are allowed: an original may leave unfinished files, and a late manifest of the same
        # files may replace the stored one if the store ignores conditions.
        may_be = {FOREIGN} if self.restores else set()
        may_be |= set() if self.store.has_conditions else {CONTENT}
        assert [] == [each for each in found.differences if each.kind not in may_be]


def _spend(record: Any) -> Decimal:
    return Decimal(0) if record.shadow or record.status == "cached" else Decimal(record.cost)


@pytest.mark.parametrize("has_conditions", [True, as_proof(False)], ids=["conditions", "none"])
@settings(max_examples=60 if IS_LONG else 3, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**32))
def test_each_number_is_in_one_file_of_its_edition(
    has_conditions: bool, steps: list[tuple[str, int]], seed: int
) -> None:
    """
    Each number is in one file of its edition, and each id appears once in the files that manifests name. The
    store may or may not support conditions.
    """

    async def run(directory: Path) -> None:
        model = Model(directory, Random(seed), has_conditions=has_conditions)
        try:
            await model.begin()
            for step, value in [("add", 5), *steps]:
                await getattr(model, step)(value)
            await model.judge()
        finally:
            await model.end()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))
