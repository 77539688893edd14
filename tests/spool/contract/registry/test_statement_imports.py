"""
Imports of bills against a count by hand: each row counts once, in any order of whole, partial, added, overlapping and
undone imports. Undoing the newest import restores every answer.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec
import pytest

from spool import statements
from spool.errors import NotAllowed, NotThere
from spool.registry.registry import Registry
from spool.registry.tables import statement_ledger
from spool.statements import DAY_S, PULL, CoveredDays, ImportedFile, Statement, StatementRow
from tests.moved_clock import MovedClock
from tests.rounds import examples, part
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.contract.registry.test_statements import (
    ADA,
    FIRST,
    NotedRow,
    Sums,
    note_row,
    random_day_of_use,
    random_days,
    row,
    statement,
    stored_sums,
    sums_by_hand,
)
from tests.spool.kept import audit_rows

pytestmark = pytest.mark.rule
BILLS = ("", "2026-08", "2026-09")


async def answers(registry: Registry) -> bytes:
    """Return every answer about bills, but for the list of imports, which names what was undone."""
    table = registry.statements
    rows = await table.statement_rows(provider=None, start=0, end=2**33)
    return msgspec.json.encode([sorted(map(repr, rows)), await table.statements(), await table.months()])


@dataclass
class Given:
    """An import of the test, as a person would note it."""

    id: str
    order: tuple[int, int]
    covers: Sequence[CoveredDays]
    rows: Sequence[NotedRow]
    undone: bool = False

    def replaces(self, bill: str, day: int) -> bool:
        return any(
            each.start <= day < each.end and (not each.bill or bill in ("", each.bill))
            for each in self.covers
        )


@dataclass
class Hand:
    """Counts by the rule alone: a row counts unless a newer import covers its bill on its day."""

    given: list[Given] = field(default_factory=list)

    def sums(self) -> Sums:
        counting = [each for each in self.given if not each.undone]
        return sums_by_hand(
            noted
            for each in counting
            for noted in each.rows
            if not any(
                other.order > each.order and other.replaces(noted.bill, noted.stored) for other in counting
            )
        )


def random_statement(chance: random.Random, number: int) -> tuple[Statement, list[NotedRow]]:
    covers, rows, noted = [], [], []
    for bill in chance.sample(BILLS, k=chance.choice((1, 1, 2))):
        days = random_days(chance, bill)
        covers.append(days)
        for _ in range(chance.randrange(5)):
            day, amount = random_day_of_use(chance, days), Decimal(chance.randint(-5, 20))
            # few models and keys, so that imports have equal rows, and rows that differ only in what is no cell
            rows.append(row(day, str(amount), bill=bill, model=f"m{chance.randrange(2)}"))
            noted.append(note_row(days, day, amount))
    span = {"start": min(each.start for each in covers), "end": max(each.end for each in covers)}
    return statement(*rows, **span, covers=tuple(covers), read_at=float(number)), noted


@pytest.mark.parametrize("seed", part(range(examples(60)), every=4))
async def test_imports_count_as_by_hand(seed: int, registry: Registry, clock: MovedClock) -> None:
    chance, hand, number = random.Random(seed), Hand(), 0
    for step in range(25):
        clock.move(chance.choice((1.0, 3600.0, DAY_S)))
        live = [each for each in hand.given if not each.undone]
        if live and chance.random() < 0.25:
            undone = chance.choice(live)
            await registry.statements.undo(undone.id, actor=ADA)
            undone.undone = True
        else:
            given, noted = random_statement(chance, step)
            infos = {info.id: info for info in await registry.statements.imports()}
            bases = [
                each
                for each in live
                if infos[each.id].state in ("counts", "in_part") and not infos[each.id].add_to
            ]
            base = chance.choice(bases) if bases and chance.random() < 0.3 else None
            before = await answers(registry)
            outcome = await registry.statements.import_statement(
                given,
                actor=ADA,
                way=chance.choice(statements.WAYS[:2]),
                add_to=base.id if base else "",
                replace=True,
            )
            if outcome.id:
                number += 1
                assert f"imp_{number}" == outcome.id
                if chance.random() < 0.3:
                    after = await answers(registry)
                    await registry.statements.undo(outcome.id, actor=ADA)
                    assert before == await answers(registry)
                    again = await registry.statements.import_statement(
                        given, actor=ADA, add_to=base.id if base else "", replace=True
                    )
                    number += 1
                    assert after == await answers(registry)
                    outcome = again
                order = (base.order[0], number) if base else (number, number)
                hand.given.append(Given(outcome.id, order, () if base else given.covered_days, noted))
            else:
                assert before == await answers(registry)
        assert hand.sums() == await stored_sums(registry)
        by_import = counted_by_import(hand)
        for info in await registry.statements.imports():
            assert sum((day.counted for day in info.days), Decimal(0)) == by_import.get(info.id, 0)


def counted_by_import(hand: Hand) -> dict[str, Decimal]:
    """Return what counts of each import, by hand."""
    counting = [each for each in hand.given if not each.undone]
    found = {}
    for each in hand.given:
        found[each.id] = sum(
            (
                noted.amount
                for noted in each.rows
                if not each.undone
                and not any(
                    other.order > each.order and other.replaces(noted.bill, noted.stored)
                    for other in counting
                )
            ),
            Decimal(0),
        )
    return found


@pytest.mark.every_engine
async def test_what_was_replaced_counts_again(open_registry: RegistryOpener) -> None:
    """
    An undo restores every answer, also after a restart, and is audited. Twice, or of an unknown import, it is refused.
    """
    registry = await open_registry()
    first = await registry.statements.import_statement(statement(row(0), row(1, "2")), actor=ADA)
    before = await answers(registry)
    second = await registry.statements.import_statement(statement(row(0, "5")), actor=ADA, replace=True)
    assert ("imp_1", "imp_2") == (first.id, second.id)
    assert [("imp_1", "replaced", ("imp_2",)), ("imp_2", "counts", ())] == await states(registry)
    await registry.close()
    registry = await open_registry()
    undone = await registry.statements.undo("imp_2", actor=ADA)
    assert ("undone", ADA.name) == (undone.state, undone.undone_by)
    assert before == await answers(registry)
    assert [("imp_1", "counts", ()), ("imp_2", "undone", ())] == await states(registry)
    with pytest.raises(NotAllowed, match="imp_2 is already undone"):
        await registry.statements.undo("imp_2", actor=ADA)
    with pytest.raises(NotThere, match="tollhouse reconcile imports"):
        await registry.statements.undo("imp_3", actor=ADA)
    await registry.statements.undo("imp_1", actor=ADA)
    assert [] == await registry.statements.months()
    assert [] == await registry.statements.statement_rows(provider=None, start=0, end=2**33)
    actions = Counter(each.action for each in await audit_rows(registry))
    assert {"statement.import": 2, "statement.undo": 2} == actions


async def states(registry: Registry) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.id, each.state, each.replaced_by) for each in await registry.statements.imports()]


async def test_an_import_that_is_replaced_step_by_step(registry: Registry) -> None:
    """Each newer bill replaces its part. The import is replaced with the last part, by the import that replaced it."""
    bills = ("2026-08", "2026-09")
    covers = [CoveredDays(bill, FIRST, FIRST + DAY_S) for bill in bills]
    both = statement(*(row(bill=bill) for bill in bills), days=1, covers=tuple(covers))
    await registry.statements.import_statement(both, actor=ADA)
    for number, (days, state) in enumerate(zip(covers, ("in_part", "replaced"), strict=True), start=2):
        newer = statement(row(bill=days.bill, amount="3"), days=1, covers=(days,))
        await registry.statements.import_statement(newer, actor=ADA)
        [first, *_] = await registry.statements.imports()
        assert (state, ("imp_3",) if state == "replaced" else ()) == (first.state, first.replaced_by), number


async def test_a_repeated_file_is_named(registry: Registry) -> None:
    """
    Equal files change nothing, and nothing can be added twice. After an undo, the same file is a new import.
    """
    file = ImportedFile("costs.json", "d" * 64, 1)
    given = statement(row(), files=(file,))
    assert "imp_1" == (await registry.statements.import_statement(given, actor=ADA)).id
    for options in ({}, {"add_to": "imp_1"}):
        again = await registry.statements.import_statement(given, actor=ADA, **options)  # type: ignore[arg-type]
        assert ("", "imp_1") == (again.id, again.already)
    await registry.statements.undo("imp_1", actor=ADA)
    again = await registry.statements.import_statement(given, actor=ADA)
    assert ("imp_2", "") == (again.id, again.already)


async def test_a_second_part_may_be_of_another_month(registry: Registry) -> None:
    """An import is found by its id, whatever its months. One of another account cannot be added to."""
    await registry.statements.import_statement(statement(row(0)), actor=ADA)
    later = statement(row(40, "2"), first=40, days=1)
    added = await registry.statements.import_statement(later, actor=ADA, add_to="imp_1")
    assert "imp_2" == added.id
    assert [Decimal(1), Decimal(2)] == [month.billed for month in await registry.statements.months()]
    with pytest.raises(NotThere, match="imp_1 is no import of this source and account"):
        await registry.statements.import_statement(
            statement(row(41), account="other"), actor=ADA, add_to="imp_1"
        )


async def documents(registry: Registry, kind: str) -> set[str]:
    return set(await registry.statements._changes.read(lambda rows: rows.documents(kind)))  # type: ignore[attr-defined]


async def test_pulls_keep_only_what_differs(registry: Registry, clock: MovedClock) -> None:
    """
    A pull that repeats days stores no rows for them. What was not final goes with the next pull, so a pull of each day
    leaves one import for the days before its span. Final figures that differ are kept until their time is over.
    """
    for day in range(30):
        rows = [
            row(each, str(each + 1 if each < day + 9 else 0.5), settled=each < day + 9)
            for each in range(day, day + 10)
        ]
        given = statement(
            *rows, first=day, days=10, settled_until=FIRST + (day + 9) * DAY_S, read_at=float(day)
        )
        await registry.statements.import_statement(given, actor=ADA, way=PULL)
        clock.move(DAY_S)
    found = await registry.statements.imports()
    assert {1, 10} == {len(each.days) for each in found}
    assert 39 + 1 == len(await documents(registry, statement_ledger.ROWS_KIND))
    restated = statement(row(30, "40"), first=30, days=1, read_at=99.0)
    await registry.statements.import_statement(restated, actor=ADA, way=PULL)
    await registry.statements.undo((await registry.statements.imports())[-1].id, actor=ADA)
    [kept] = await registry.statements.statement_rows(
        provider=None, start=FIRST + 30 * DAY_S, end=FIRST + 31 * DAY_S
    )
    assert Decimal(31) == kept.amount


@pytest.mark.parametrize("is_undone", [False, True])
async def test_replaced_rows_are_kept_for_their_time(
    is_undone: bool, registry: Registry, clock: MovedClock
) -> None:
    """At the end of the time to keep them, replaced and undone rows go with the next import, to the second."""
    await registry.statements.import_statement(statement(row(0, "1")), actor=ADA)
    if is_undone:
        await registry.statements.undo("imp_1", actor=ADA)
    await registry.statements.import_statement(statement(row(0, "2")), actor=ADA)
    for seconds, kept in ((100.0, True), (1.0, False)):
        clock.move(seconds)
        newer = statement(row(0, str(seconds)))
        await registry.statements.import_statement(newer, actor=ADA, replace=True, keep_replaced_s=100.0)
        assert kept == ("imp_1" in await documents(registry, statement_ledger.IMPORT_KIND))
    rows = await documents(registry, statement_ledger.ROWS_KIND)
    assert 3 == len(rows), "rows of imp_1 are deleted with it, and all others are kept"


async def test_hours_of_a_day_are_added(registry: Registry) -> None:
    """
    A day that is covered in part keeps its rows. Rows of the same hours are an overlap and do not count, until the
    import that has them is undone. A report of the whole day replaces all.
    """

    def hours(first: int, after: int, amount: str) -> Statement:
        rows = [
            row(0, amount, start=FIRST + hour * 3600, end=FIRST + (hour + 1) * 3600)
            for hour in range(first, after)
        ]
        is_part = after - first < 24
        return statement(*rows, days=1, days_in_part=frozenset([FIRST] if is_part else []))

    async def billed() -> Decimal:
        return statements.billed_total(
            await registry.statements.statement_rows(provider=None, start=FIRST, end=FIRST + DAY_S)
        )

    await registry.statements.import_statement(hours(0, 12, "1"), actor=ADA)
    await registry.statements.import_statement(hours(9, 18, "10"), actor=ADA)
    assert Decimal(12 + 60) == await billed()
    [_, second] = await registry.statements.imports()
    assert ("in_part", 3, Decimal(60)) == (
        second.days[0].state,
        second.days[0].overlap,
        second.days[0].counted,
    )
    assert 0 == (await registry.statements.months())[0].settled
    await registry.statements.undo("imp_1", actor=ADA)
    assert Decimal(90) == await billed()
    await registry.statements.import_statement(hours(0, 24, "2"), actor=ADA)
    assert Decimal(48) == await billed()
    assert 1 == (await registry.statements.months())[0].settled
    whole_first = hours(3, 5, "7")
    assert "" == (await registry.statements.import_statement(whole_first, actor=ADA)).id


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_two_gateways_import_at_once(open_registry: RegistryOpener) -> None:
    """Imports of two processes have different numbers, and the newer one counts on all days."""
    both = [await open_registry(), await open_registry()]
    outcomes = await asyncio.gather(
        *(
            registry.statements.import_statement(
                statement(row(number % 3, str(10 + number)), read_at=9.0), actor=ADA, replace=True
            )
            for number, registry in enumerate(both * 3)
        )
    )
    assert {f"imp_{number}" for number in range(1, 7)} == {each.id for each in outcomes}
    newest = [each.id for each in outcomes].index("imp_6")
    for registry in both:
        expected = {("", FIRST + newest % 3 * DAY_S): Decimal(10 + newest)}
        assert [expected, expected] == await stored_sums(registry)
        counting = [each.id for each in await registry.statements.imports() if each.state == "counts"]
        assert ["imp_6"] == counting


async def test_a_month_is_derived_from_the_imports(registry: Registry) -> None:
    """Another order of equal figures is another import, and none of them is counted for a bill twice."""
    rows: list[StatementRow] = [row(0, "1", key="a"), row(0, "2", key="b")]
    await registry.statements.import_statement(statement(rows[0]), actor=ADA)
    added = await registry.statements.import_statement(statement(rows[1]), actor=ADA, add_to="imp_1")
    whole = await answers(registry)
    await registry.statements.import_statement(statement(*rows[::-1]), actor=ADA)
    assert Decimal(3) == (await registry.statements.months())[0].billed
    assert ["replaced", "replaced", "counts"] == [each.state for each in await registry.statements.imports()]
    await registry.statements.undo("imp_3", actor=ADA)
    assert whole == await answers(registry)
    await registry.statements.undo(added.id, actor=ADA)
    assert Decimal(1) == (await registry.statements.months())[0].billed


async def test_final_figures_that_a_pull_replaced_come_back(registry: Registry, clock: MovedClock) -> None:
    """Figures that were final and other ones stay for their time, although later pulls repeat the new ones."""
    for amounts in (("10", "1"), ("20", "1"), ("20", "2")):
        pulled = statement(*(row(day, amount) for day, amount in enumerate(amounts)), days=2)
        await registry.statements.import_statement(pulled, actor=ADA, way=PULL, replace=True)
        clock.move(3600)
    assert [1, 2, 2] == [len(each.days) for each in await registry.statements.imports()]
    for id in ("imp_3", "imp_2"):
        await registry.statements.undo(id, actor=ADA)
    assert [{("", FIRST): Decimal(10)}] * 2 == await stored_sums(registry)


async def test_a_repeated_day_keeps_its_times(registry: Registry, clock: MovedClock) -> None:
    """An import that changes one day leaves the time of the other day, so nothing about it is calculated again."""
    started = clock.now()
    await registry.statements.import_statement(statement(row(0), row(1), days=2), actor=ADA)
    clock.move(60)
    newer = statement(row(0), row(1, "2"), days=2, read_at=9.0)
    await registry.statements.import_statement(newer, actor=ADA)
    infos = await registry.statements.statements()
    assert [started, started + 60] == [info.imported_at for info in infos]
    await registry.statements.undo("imp_1", actor=ADA)
    assert infos == await registry.statements.statements()
