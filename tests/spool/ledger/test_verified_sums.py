"""`spool verify` recounts all sums: a wrong digit in any column of any table of sums is named with its period."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from gateway.intake.prices import PriceBook
from spool.ledger import checked_sums
from spool.ledger.checksums import CheckedSum, Checksums, ReproducibleSumParts
from spool.ledger.comparing import LedgerMender
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import COUNTS, LATENCY, MONEY, WIDTH, Dimensions
from spool.ledger.work import UNITS, WorkLimits
from spool.postgres.ledger import PostgresLedgerRows
from spool.record import NS, Correction, Inference, Record, UsageMetric
from spool.sqlite.ledger import SqliteLedgerRows
from tests.rounds import IS_LONG, as_proof, part
from tests.spool.ledger.engines import ENGINES, POSTGRES, SQLITE, Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

DAY = 24 * HOUR
SEEDS = 1000 if IS_LONG else 1
# made when a history ages; all of a year take most of its processor time
ALL_ROLLUPS, SOME_ROLLUPS = 10_000, 40
# a day without hours, one with both, one with hours only
OLD, SUMMED, NEW = BEGIN - 70 * DAY, BEGIN, BEGIN + 3 * DAY
MEASURES = (*COUNTS, *MONEY, *LATENCY)
PLACES = {"hours": (SUMMED, NEW), "days": (OLD, SUMMED), "work": (OLD, SUMMED, NEW)}


async def filled(ledgers: Ledgers) -> tuple[Ledger, FakeLog, FakeClock]:
    """Return a ledger with sums in each table, and no difference."""
    clock, log = FakeClock(BEGIN + 3 * DAY + HOUR), FakeLog()
    ledger = await ledgers.open(clock=clock)
    for start in (OLD, SUMMED, NEW):
        for index, team in enumerate(("ads", "search")):
            units = {unit: f"{unit}-{index}" for unit in UNITS if unit not in ("session", "run")}
            log.add(
                [
                    call(
                        id=(start + index).to_bytes(16, "big"), start_time=start * NS, end_time=(start + 1) * NS,
                        team=team, user=f"u{index}", device="d", api_key="k", region="r", sender_key="s", status="ok",
                        cost="0.5", cost_source="reported", session=f"s{index}", run=f"r{index}", parent_run="p",
                        tags={"service": "shop", **units}, meters={"web_searches": 2}, charges={"EUR": "0.25"},
                        cache_read_tokens=7, cache_write_tokens=3, cache_write_1h_tokens=1, reasoning_tokens=2,
                    )
                ],
                at=start + HOUR,
            )  # fmt: skip
    log.add(
        [
            UsageMetric(
                id=b"m" * 16, source="claude_code", name="claude_code.cost.usage", value="1.5", unit="USD",
                start_time=NEW * NS, end_time=NEW * NS,
            )
        ],
        at=NEW,
    )  # fmt: skip
    await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    for _ in range(ALL_ROLLUPS if IS_LONG else SOME_ROLLUPS):
        if not await ledger.make_next_rollup():
            break
    assert [] == (await ledger.compare_and_note_differences(log)).problem_sentences()
    return ledger, log, clock


class Plant(NamedTuple):
    """Wrong values in the first row of each start, or of the table if it has no starts: of columns, and how."""

    table: str
    starts: Sequence[int]
    columns: Sequence[str]
    wrong: Callable[[Any], Any]

    @property
    def identity(self) -> Sequence[str]:
        beside = {"work": ("units",), "meters": ("width", "meter")}
        return ("start", "key", *beside.get(self.table, ())) if self.starts else ("id",)


def raised(value: Any) -> Any:
    return value + 1


def moved(key: int) -> int:
    return key + 1000


def mistyped(text: str) -> str:
    return f"x{text}"


def plants(engine: str, columns: Sequence[str]) -> list[Plant]:
    found = [Plant(table, starts, columns, raised) for table, starts in PLACES.items()]
    found += [Plant(table, starts, ("key",), moved) for table, starts in PLACES.items()]
    of_units = PLACES["work"]
    found += [Plant("work", of_units, ("units",), raised), Plant("meters", of_units, ("meter",), mistyped)]
    found += [Plant("meters", of_units, ("whole", "millionths"), raised)]
    found += [Plant("keys", (), ("team",), mistyped), Plant("keys", (), ("size",), raised)]
    found += [Plant("work_units", (), (f"unit_{unit}",), raised) for unit in ("session", "ticket")]
    found += [Plant("work_units", (), ("parent_run",), raised), Plant("work_names", (), ("name",), mistyped)]
    if engine != SQLITE:
        found.append(Plant("keys", (), ("tag_values",), lambda value: {"service": f"x{value}"}))
    return found


def put(rows: Any, table: str, place: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    of_row = " AND ".join(f"{name} = :own_{name}" for name in place)
    own = {f"own_{name}": each for name, each in place.items()}
    texts = {name: json.dumps(each) if isinstance(each, dict) else each for name, each in values.items()}
    new = ", ".join(
        f'"{name}" = ' + (f"CAST(:{name} AS jsonb)" if name == "tag_values" else f":{name}")
        for name in values
    )
    assert 1 == rows._tables.run(f"UPDATE {rows._table(table)} SET {new} WHERE {of_row}", **texts, **own)


def first_row(rows: Any, plant: Plant, start: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what identifies the row, and its values in the plant's columns."""
    names = plant.identity
    where = "" if start is None else f"WHERE start = {start}"
    columns = ", ".join(f'"{name}"' for name in plant.columns)
    row = rows._tables.first_row(
        f"SELECT {', '.join(names)}, {columns} FROM {rows._table(plant.table)} {where}"
        f" ORDER BY {', '.join(names)} LIMIT 1"
    )
    place, values = row[: len(names)], row[len(names) :]
    return dict(zip(names, place, strict=True)), dict(zip(plant.columns, values, strict=True))


async def planted(ledger: Ledger, log: FakeLog, plant: Plant) -> list[str]:
    """Return the words of a comparison while rows have wrong values."""
    mended = []
    for start in plant.starts or (None,):
        place, before = await ledger._read_rows(partial(first_row, plant=plant, start=start))
        wrong = {name: plant.wrong(value) for name, value in before.items()}
        await ledger._store.change(partial(put, table=plant.table, place=place, values=wrong))
        now = {name: wrong.get(name, value) for name, value in place.items()}
        mended.append(partial(put, table=plant.table, place=now, values=before))
    words = list((await ledger.compare_and_note_differences(log)).problem_sentences())
    for mend in mended:
        await ledger._store.change(mend)
    return words


def at(start: int) -> str:
    return datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%d %H:%M UTC")


async def test_each_wrong_digit_is_named(ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A wrong digit in each column of hours, days, meters, units, dimensions and names is named, in hours, days, and
    days with hours.
    """
    monkeypatch.setattr(checked_sums, "MOST_MEASURES_TOLD", 100)
    ledger, log, _ = await filled(ledgers)
    columns = PostgresLedgerRows.columns if ledgers.engine != SQLITE else SqliteLedgerRows.columns
    for plant in plants(ledgers.engine, columns):
        words = await planted(ledger, log, plant)
        assert words, plant
        names = MEASURES if len(plant.columns) > 5 else (r"[\w.]+",)
        for start in plant.starts:
            told = "\n".join(each for each in words if at(start) in each)
            for name in names:
                assert re.search(rf"source=\w+, .* {name} \S+ instead of \S", told), (plant, name, told)
            assert "team=" in told, (plant, start)
    assert [] == (await ledger.compare_and_note_differences(log)).problem_sentences()


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_counting_continues_meanwhile(ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Counting continues during a comparison: calls of each day arrive between all reads. The comparison reports no
    difference, and still names a wrong sum.
    """
    ledger, log, _ = await filled(ledgers)
    read, is_counting = ledger._read_rows, False

    async def beside(work: Callable[[LedgerRows], Any]) -> Any:
        nonlocal is_counting
        if not is_counting:
            is_counting = True
            log.add([call(start_time=start * NS, session="new") for start in (SUMMED, NEW)], at=NEW)
            await ledger.catch_up(log)
            is_counting = False
        return await read(work)

    monkeypatch.setattr(ledger, "_read_rows", beside)
    before = log.lowest_open_number()
    assert [] == (await ledger.compare_and_note_differences(log)).problem_sentences()
    assert before + 20 < log.lowest_open_number()
    wrong = Plant("days", (SUMMED,), ("input_tokens",), raised)
    assert any(at(SUMMED) in each for each in await planted(ledger, log, wrong))


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_a_comparison_starts_again_if_sums_move(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If sums move during a comparison, because hours become days, it starts again. If a rebuild runs, the comparison
    says that it was not made.
    """
    ledger, log, clock = await filled(ledgers)
    read, happen = ledger._read_rows, [ledger.sum_up_and_delete_hours]
    clock.at += 100 * DAY

    async def beside(work: Callable[[LedgerRows], Any]) -> Any:
        result = await read(work)
        if happen and result and isinstance(result, tuple):
            await happen.pop()()
        return result

    monkeypatch.setattr(ledger, "_read_rows", beside)
    assert [] == (await ledger.compare_and_note_differences(log)).problem_sentences()
    assert not happen
    await ledger.rebuild(log)
    assert [
        "counted again" in each
        for each in (await ledger.compare_and_note_differences(log)).problem_sentences()
    ] == [True]


def test_a_checksum_sees_each_part_of_a_sum() -> None:
    """
    The checksum of a sum depends on each part: each measure, each dimension, the name and the quantity of a meter,
    and the set of units change it.
    """
    values = Dimensions._make([*[f"d{index}" for index in range(13)], 0, "r", "s"])
    checksums, view, measures = Checksums(), ReproducibleSumParts(), [1] * WIDTH
    cells = [
        CheckedSum(values, measures),
        CheckedSum(values, measures, units=5),
        CheckedSum(values, measures, units=6),
    ]
    cells += [CheckedSum(values, [1 + (place == index) for place in range(WIDTH)]) for index in range(WIDTH)]
    cells += [
        CheckedSum(
            Dimensions._make([*values[:place], 1 if place == 13 else "other", *values[place + 1 :]]), measures
        )
        for place in range(len(values))
    ]
    cells += [CheckedSum(values, meters=meters) for meters in ({"a": 1}, {"a": 2}, {"b": 1})]
    assert len(cells) == len({checksums.checksum_of(view, cell) for cell in cells})


async def test_wrong_sums_are_repaired(ledgers: Ledgers) -> None:
    """
    Wrong sums are repaired: the daily comparison counts periods again whose calls agree, and sums days up again. A
    rebuild repairs names.
    """
    ledger, log, clock = await filled(ledgers)

    def spoil(rows: Any) -> None:
        for table, start in (("hours", NEW), ("work", NEW), ("meters", NEW), ("days", SUMMED), ("days", OLD)):
            column = "whole" if table == "meters" else "input_tokens"
            rows._tables.run(f"UPDATE {rows._table(table)} SET {column} = {column} + 1 WHERE start = {start}")
        rows._tables.run(f"UPDATE {rows._table('work_names')} SET name = 'wrong'")
        rows._tables.run(f"UPDATE {rows._table('work_units')} SET parent_run = 5")
        rows._tables.run(f"UPDATE {rows._table('keys')} SET region = 'wrong'")

    await ledger._store.change(spoil)
    clock.at += 60
    assert 3 <= len((await ledger.compare_and_note_differences(log)).problem_sentences())
    await LedgerMender(ledger=ledger, log=log, clock=clock).compare_and_repair()
    await ledger.rebuild(log)
    assert any(
        "counted again" in each
        for each in (await ledger.compare_and_note_differences(log)).problem_sentences()
    )
    await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    assert [] == (await ledger.compare_and_note_differences(log)).problem_sentences()


class History:
    """A ledger under random changes: full periods, partial prices, other tags, retention, unlisted units."""

    def __init__(self, ledgers: Ledgers, chance: random.Random, *, most_rollups: int) -> None:
        self._ledgers, self.chance, self._most_rollups = ledgers, chance, most_rollups
        self.clock, self.log = FakeClock(BEGIN + 5 * DAY), FakeLog()
        self.tags: tuple[str, ...] = ("service",)
        self.max_rows = 1000
        self.ledger: Ledger
        self._calls: list[Inference] = []

    async def open(self) -> None:
        limits = WorkLimits(ids_per_month=10, retention_s=30.0 * DAY, retention_units_s=40.0 * DAY)
        options: Any = {"tags": self.tags, "max_rows": self.max_rows, "work": limits}
        self.ledger = await self._ledgers.open(clock=self.clock, **options)

    async def add(self) -> None:
        records: list[Record] = []
        for _ in range(self.chance.randrange(1, 30)):
            if self._calls and self.chance.random() < 0.3:
                records.append(self._correction())
            else:
                records.append(self._call())
        self.log.add([*records, self._metric()], at=self.clock.at)
        await self.ledger.catch_up(self.log)

    def _call(self) -> Inference:
        chance = self.chance
        made = call(
            id=(len(self._calls) + 1).to_bytes(16, "big"),
            provider="acme", request_model=chance.choice(("acme-a", "acme-b")), team=chance.choice(("ads", "se\0arch")),
            user=chance.choice(("ann", "bob", None, "x" * 300)), start_time=self._start(), end_time=self._start(),
            input_tokens=chance.randrange(100, 900), cache_read_tokens=chance.choice((0, 50)),
            session=f"s{chance.randrange(30)}", run=chance.choice((None, f"r{chance.randrange(9)}")),
            parent_run=chance.choice((None, "r1")), ancestors=chance.choice((None, "r2 r3")),
            meters=chance.choice(({}, {}, {"web_searches": 1})), charges=chance.choice(({}, {"EUR": "0.1"})),
            tags={"service": chance.choice("ab"), "zone": chance.choice("ns"), "ticket": f"t{chance.randrange(20)}"},
        )  # fmt: skip
        self._calls.append(made)
        return made

    def _start(self) -> int:
        return (
            int(self.clock.at - self.chance.randrange(2 * DAY) - self.chance.choice((0, 0, 0, 66 * DAY))) * NS
        )

    def _correction(self) -> Correction:
        index = self.chance.randrange(len(self._calls))
        before = self._calls[index]
        after = copy(before)
        after.output_tokens, after.cost = self.chance.randrange(99), self.chance.choice((None, "0.7"))
        after.cost_source = "reported" if after.cost else before.cost_source
        self._calls[index] = after
        return Correction(
            id=self.chance.randbytes(16), source="litellm", corrects=before.id, reason="late_usage", known_at=0,
            start_time=before.start_time or 0, before=before, after=after,
        )  # fmt: skip

    def _metric(self) -> UsageMetric:
        return UsageMetric(
            id=self.chance.randbytes(16), source="claude_code", name="claude_code.cost.usage", value="1.5", unit="USD",
            start_time=self._start(), end_time=self._start(), tags={"ticket": "t1"},
        )  # fmt: skip

    async def recalculate(self) -> None:
        """Calls of one model with cached tokens have no price in some books."""
        price, models = self.chance.randrange(1, 9), []
        for name in ("acme-a", "acme-b"):
            prices = {"input": str(price), "output": "1"}
            prices |= {"cache_read": "0.5"} if self.chance.random() < 0.5 else {}
            models.append({"id": name, "match": {"equals": [name]}, "prices": [prices]})
        card = {
            "format": 1, "version": f"v{price}", "providers": {"acme": {"models": models}},
            "source": {"name": "Acme", "date": "2026-11-27", "currency": "USD"},
        }  # fmt: skip
        book = PriceBook.decode_rate_card_and_overrides(msgspec.json.encode(card), b"{}")
        since = datetime.fromtimestamp(self.clock.at // DAY * DAY - self.chance.choice((1, 100)) * DAY, UTC)
        await self.ledger.reprice(self.log, book, since=since)

    async def restart(self) -> None:
        """Start again, perhaps with other tags and another limit of a period."""
        self.tags = self.chance.choice((self.tags, ("service",), ("service", "zone")))
        self.max_rows = self.chance.choice((self.max_rows, 4, 1000))
        await self.open()

    async def rebuild(self) -> None:
        await self.ledger.rebuild(self.log)
        await self.ledger.catch_up(self.log)

    async def age(self) -> None:
        self.clock.at += self.chance.choice((0, 1, 1, 65, 140)) * DAY
        await self.ledger.sum_up_and_delete_hours()
        for _ in range(self._most_rollups):
            if not await self.ledger.make_next_rollup():
                break

    async def forget(self) -> None:
        self.log.forget_below(self.log.lowest_open_number() - self.chance.randrange(30, 300))


@pytest.mark.parametrize(
    ("engine", "seed"),
    [
        *((SQLITE, seed) for seed in range(SEEDS)),
        *(as_proof((POSTGRES, seed)) for seed in range(0, SEEDS, 4)),
    ],
)
@pytest.mark.usefixtures("unflushed")
async def test_random_histories_differ_in_nothing(
    engine: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """
    After each step of a random history, the comparison reports no difference. A wrong digit in a comparable hour is
    still found.
    """
    ledgers = Ledgers.of(engine, request, tmp_path)
    # rollups are missing in every second history
    most_rollups = ALL_ROLLUPS if seed % 2 else SOME_ROLLUPS
    history = History(ledgers, random.Random(seed), most_rollups=most_rollups)
    await history.open()
    steps = (
        history.recalculate, history.restart, history.rebuild, history.age, history.age, history.forget,
    )  # fmt: skip
    try:
        for _ in range(12):
            await history.add()
            step = history.chance.choice(steps)
            await step()
            assert (
                [] == (await history.ledger.compare_and_note_differences(history.log)).problem_sentences()
            ), (seed, step)
        await history.add()

        def spoil(rows: Any) -> None:
            newest = rows.period_starts(HOUR, 0)[-1]
            rows._tables.run(
                f"UPDATE {rows._table('hours')} SET output_tokens = output_tokens + 1 WHERE start = {newest}"
            )

        await ledgers.store.change(spoil)
        assert any(
            "output_tokens" in each
            for each in (await history.ledger.compare_and_note_differences(history.log)).problem_sentences()
        )
    finally:
        await ledgers.close()


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_calls_are_counted_between_the_reads(ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that begins a new hour of a day that is summed up is no difference, whenever it is counted."""
    ledger, log, _ = await filled(ledgers)
    read, reads = ledger._read_rows, 0

    async def read_and_count(work: Any) -> Any:
        nonlocal reads
        found = await read(work)
        if reads == turn:
            start = SUMMED + (2 + turn) * HOUR
            log.add([call(start_time=start * NS, id=start.to_bytes(16, "big"))], at=start)
            with monkeypatch.context() as others:
                others.setattr(ledger, "_read_rows", read)
                await ledger.catch_up(log)
        reads += 1
        return found

    for turn in range(10):
        with monkeypatch.context() as each:
            each.setattr(ledger, "_read_rows", read_and_count)
            assert [] == (await ledger.compare_and_note_differences(log)).problem_sentences(), turn
        assert reads > turn
        reads = 0
