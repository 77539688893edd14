"""Whatever is reported, in whatever order: both logs give equal answers and the books balance to the integer."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import spool.memory
import spool.sqlite
from spool.deliveries.values import RouteSpec, Settlement
from spool.identity import Identity
from spool.record import AI_TELEMETRY, Record
from spool.settings import SpoolSettings
from tests.moved_clock import MovedClock
from tests.spool.contract.disk import killed
from tests.spool.contract.world import NOON, call, everything, point, submission

T = TypeVar("T")

HOLD_S = 10
ROUTE = RouteSpec(name="upstream/ai-telemetry", topic=AI_TELEMETRY)
# More ids than one run of the machine brings: which of them still know their number is no part of the contract.
SETTINGS = SpoolSettings(hold=HOLD_S, retention=3600, duplicate_window=7200, duplicate_ids=1000)


def report(number: int, certain: bool, fields: dict[str, Any]) -> tuple[Record, Identity]:
    """A call, or a record that no rule identifies: its id is nobody else's."""
    record, known_as = call(number, **fields)
    if certain:
        return record, known_as
    record.id = known_as.id[::-1]
    return record, Identity(record.id, certain=False)


calls = st.builds(
    report,
    number=st.integers(0, 12),
    certain=st.sampled_from([True, True, True, False]),
    fields=st.fixed_dictionaries(
        {"source": st.sampled_from(["otel", "litellm", "kong"])},
        optional={
            "user": st.sampled_from(["ada", "bob"]),
            "team": st.just("search"),
            "cost": st.sampled_from(["0.1", "0.2"]),
            "input_tokens": st.sampled_from([None, 100, 101]),
            "tags": st.just({"env": "prod"}),
        },
    ),
)
points = st.builds(
    lambda value, at, series: point(value, at=NOON + at, series=bytes([series]) * 16),
    value=st.integers(0, 50),
    at=st.integers(1, 30),
    series=st.integers(0, 2),
)
reasons = st.dictionaries(st.sampled_from(["malformed", "not_ai", "merged"]), st.integers(1, 3), max_size=2)


class Houses(RuleBasedStateMachine):
    """One log on disk and one in memory, told the same."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = MovedClock(NOON)
        self.root = Path(tempfile.mkdtemp())
        self.lives = count()
        self.directory = self.root / "0"
        self.disk = self.run(spool.sqlite.open_spool(self.directory, settings=SETTINGS, clock=self.clock))
        self.memory = self.run(spool.memory.open_spool(settings=SETTINGS, clock=self.clock))

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self.loop.run_until_complete(wait())

    def teardown(self) -> None:
        self.run(self.disk.close())
        self.run(self.memory.close())
        self.loop.close()
        shutil.rmtree(self.root)

    @rule(
        batch=st.lists(calls, max_size=6),
        deltas=st.lists(points, max_size=3),
        ignored=reasons,
        rejected=reasons,
        pending=st.integers(-1, 1),
        split=st.integers(0, 1),
    )
    def report(self, batch: list[tuple[Record, Identity]], deltas: list[Any], **terms: Any) -> None:
        one = submission(batch, points=deltas, **terms)
        shown = []
        for log in (self.disk.log, self.memory.log):
            receipt = self.run(log.append(one))
            shown.append(dict(self.run(log.receipt(receipt.id))))
        for row in shown:
            row.pop("id")
        assert shown[0] == shown[1]

    @rule(seconds=st.sampled_from([1, HOLD_S + 1, 1900, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.clock.move(seconds)

    @rule()
    def retention(self) -> None:
        assert self.run(self.memory.log.retain()) == self.run(self.disk.log.retain())

    @rule()
    def a_route_is_declared(self) -> None:
        for house in self.houses:
            self.run(house.deliveries.declare([ROUTE]))

    @rule(records=st.integers(1, 5))
    def a_delivery_settles(self, records: int) -> None:
        if not self.run(self.disk.deliveries.routes()):
            return
        ranges = []
        for house in self.houses:
            delivery = self.run(house.deliveries.due(ROUTE.name, now=self.clock.now(), max_records=records))
            ranges.append(delivery and (delivery.first, delivery.last))
            if delivery:
                self.run(house.deliveries.settle(delivery, Settlement(delivered=delivery.count)))
        assert ranges[0] == ranges[1]

    @rule()
    def the_process_is_killed(self) -> None:
        """What was open is closed after a start, so time passes first: then nothing may be different."""
        self.clock.move(HOLD_S + 1)
        directory = self.root / f"{next(self.lives)}-killed"
        killed(self.directory, directory)
        self.run(self.disk.close())
        self.directory = directory
        self.disk = self.run(spool.sqlite.open_spool(directory, settings=SETTINGS, clock=self.clock))

    @property
    def houses(self) -> tuple[spool.sqlite.SqliteSpool, spool.memory.MemorySpool]:
        return self.disk, self.memory

    @invariant()
    def both_answer_alike(self) -> None:
        assert self.run(everything(self.memory.log)) == self.run(everything(self.disk.log))
        books = [self.run(house.log.books()) for house in self.houses]
        assert books[0] == books[1]
        assert self.run(self.memory.log.conflicts()) == self.run(self.disk.log.conflicts())

    @invariant()
    def the_books_balance(self) -> None:
        for house in self.houses:
            recounted = self.run(house.log.verify())
            assert [] == list(recounted.imbalances)
            assert self.run(house.log.books()) == recounted


TestHouses = Houses.TestCase
TestHouses.settings = settings(
    max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
