"""
Provider bills in a registry: a new bill replaces its span, money is exact, and days are open or settled.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest

from spool import statements
from spool.errors import Invalid, WouldRemove
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.statements import DAY_S, CoveredDays, Statement, StatementInfo, StatementOutcome, StatementRow
from tests.moved_clock import MovedClock
from tests.rounds import examples, part
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows

ADA = Actor("ada@example.com", "local")
FIRST = 1_785_542_400  # the first day of a month (August 2026)
pytestmark = pytest.mark.rule


def row(day: int = 0, amount: str = "1", **changes: Any) -> StatementRow:
    values: dict[str, Any] = {
        "source": "openai_costs", "provider": "openai", "account": "proj_1", "key": None, "model": "gpt-4o",
        "start": FIRST + day * DAY_S, "end": FIRST + (day + 1) * DAY_S, "unit": "usd", "kind": "input",
        "currency": "USD", "tier": None, "region": None, "batch": None, "settled": True,
    }  # fmt: skip
    return StatementRow(**{**values, "amount": Decimal(amount), **changes})


def statement(*rows: StatementRow, first: int = 0, days: int = 3, **changes: Any) -> Statement:
    values: dict[str, Any] = {
        "source": "openai_costs", "account": "", "read_at": 5.0,
        "settled_until": FIRST + 99 * DAY_S, "name": "costs.json",
        "start": FIRST + first * DAY_S, "end": FIRST + (first + days) * DAY_S,
    }  # fmt: skip
    return Statement(rows=rows, **{**values, **changes})


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_a_statement_is_there_after_a_restart(open_registry: RegistryOpener) -> None:
    """
    Every digit of a bill's money survives a restart. Equal rows are merged, and a second import of the same
    file changes nothing.
    """
    registry = await open_registry()
    given = statement(
        row(0, "0.1"), row(0, "0.20"), row(1, "3", model=None), row(2, "-0.000000000000000000000000001")
    )
    assert StatementOutcome(
        rows=3, days=3, days_new=3, days_changed=0, id="imp_1"
    ) == await registry.statements.import_statement(given, actor=ADA)
    await registry.close()
    again = await open_registry()
    kept = await again.statements.statement_rows(provider="openai", start=FIRST, end=FIRST + 3 * DAY_S)
    assert [Decimal("0.3"), Decimal(3), Decimal("-0.000000000000000000000000001")] == [
        each.amount for each in kept
    ]
    assert msgspec.structs.replace(row(), amount=Decimal("0.3")) == kept[0]
    assert StatementOutcome(
        rows=3, days=3, days_new=0, days_changed=0
    ) == await again.statements.import_statement(given, actor=ADA)
    assert ["statement.import"] == [each.action for each in await audit_rows(again)]


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_a_restated_span_is_replaced(registry: Registry) -> None:
    """
    A new bill replaces its span: rows that are missing in the new bill are deleted. A shorter span leaves other
    days, accounts and sources unchanged.
    """
    await registry.statements.import_statement(
        statement(row(0), row(1, "2"), row(1, "9", kind="output"), row(2)), actor=ADA
    )
    await registry.statements.import_statement(statement(row(1, "7"), account="other"), actor=ADA)
    other = msgspec.structs.replace(row(1, "5"), source="openai_usage", unit="tokens", currency=None)
    await registry.statements.import_statement(replace(statement(other), source="openai_usage"), actor=ADA)
    found = await registry.statements.import_statement(
        statement(row(1, "1.5"), first=1, days=1), actor=ADA, replace=True
    )
    [revision] = found.revisions
    assert found.days == 1
    assert found.days_new == 0
    assert found.days_changed == 1
    assert revision.day == FIRST + DAY_S
    assert revision.billed_before == Decimal(11)
    assert revision.billed == Decimal("1.5")
    kept = await registry.statements.statement_rows(provider=None, start=FIRST + DAY_S, end=FIRST + 2 * DAY_S)
    assert sorted([Decimal("1.5"), Decimal(7), Decimal(5)]) == sorted(each.amount for each in kept)
    assert (
        2
        == len(
            await registry.statements.statement_rows(
                provider="openai", start=FIRST + 2 * DAY_S, end=FIRST + 9 * DAY_S
            )
        )
        + 1
    )


async def test_days_without_a_row_are_covered(registry: Registry, clock: MovedClock) -> None:
    """Consecutive days of a bill are one entry, with or without rows. Open days, and days read at another time,
    are separate entries."""
    given = statement(row(0), row(3, settled=False), days=4)
    await registry.statements.import_statement(given, actor=ADA)
    told: dict[str, Any] = {
        "source": "openai_costs",
        "provider": "openai",
        "account": "",
        "imported_at": clock.now(),
    }
    first: dict[str, Any] = {"used_from": FIRST, "used_until": FIRST + 2 * DAY_S}
    second: dict[str, Any] = {"used_from": FIRST + 3 * DAY_S, "used_until": FIRST + 4 * DAY_S}
    known = await registry.statements.statements()
    assert [
        StatementInfo(start=FIRST, end=FIRST + 3 * DAY_S, settled=True, rows=1, **first, **told),
        StatementInfo(
            start=FIRST + 3 * DAY_S, end=FIRST + 4 * DAY_S, settled=False, rows=1, **second, **told
        ),
    ] == [replace(info, digests=()) for info in known]
    assert [3, 1] == [len(info.digests) for info in known]
    [month] = await registry.statements.months()
    assert month.days == 4
    assert month.settled == 3
    assert month.rows == 2
    assert month.billed == Decimal(2)


async def test_a_day_without_a_row_can_be_open(registry: Registry) -> None:
    """
    A day without a row is open, because its cost may still arrive. It is settled when a later bill has no row
    for it either.
    """
    for settled in (1, 3):
        await registry.statements.import_statement(
            statement(row(0), settled_until=FIRST + settled * DAY_S), actor=ADA
        )
        assert settled == (await registry.statements.months())[0].settled


async def test_what_is_billed_for_another_month_is_billed_once(registry: Registry) -> None:
    """
    A correction for another month belongs to the first day of its bill, and is deleted when the bill is replaced.
    """
    for amount in ("-1", "-2"):
        await registry.statements.import_statement(statement(row(0), row(-40, amount)), actor=ADA)
    kept = await registry.statements.statement_rows(provider=None, start=0, end=FIRST + 9 * DAY_S)
    assert Decimal(-1) == statements.billed_total(kept)


async def test_a_month_is_found_by_its_days(registry: Registry) -> None:
    """A row for a whole month belongs to each of its days."""
    await registry.statements.import_statement(statement(row(0, end=FIRST + 30 * DAY_S), days=30), actor=ADA)
    day = FIRST + 20 * DAY_S
    assert 1 == len(await registry.statements.statement_rows(provider="openai", start=day, end=day + DAY_S))


@pytest.mark.every_engine
async def test_a_dry_run_stores_nothing(registry: Registry) -> None:
    found = await registry.statements.import_statement(statement(row()), actor=ADA, dry_run=True)
    assert (1, "") == (found.rows, found.id)
    assert [] == await registry.statements.statements()
    assert [] == await registry.statements.imports()


async def test_how_far_a_pull_came_outlives_the_process(open_registry: RegistryOpener) -> None:
    """
    The progress of a pull survives the process. It is stored by the pull's name. A pull that never ran has no
    progress.
    """
    registry = await open_registry()
    await registry.statements.store_pull_state("costs", {"cursor": "4", "start": FIRST})
    await registry.close()
    again = (await open_registry()).statements
    assert {"cursor": "4", "start": FIRST} == await again.read_pull_state("costs")
    assert await again.read_pull_state("other") is None


@pytest.mark.parametrize(
    "wrong",
    [
        statement(days=0),
        statement(days=statements.MAX_DAYS + 1),
        statement(row(amount="1E-28")),
        statement(row(amount="1E+60")),
        statement(row(amount="NaN")),
        statement(row(key="k" * (statements.MAX_TEXT + 1))),
        statement(row(source="other")),
        statement(row(end=FIRST)),
        statement(start=-5),
    ],
)
async def test_what_breaks_a_rule_is_refused(registry: Registry, wrong: Statement) -> None:
    with pytest.raises(Invalid):
        await registry.statements.import_statement(wrong, actor=ADA)
    assert [] == await registry.statements.months()


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_amounts_at_the_limit_are_stored(registry: Registry) -> None:
    """Amounts with the maximum number of digits, and the longest texts, are stored."""
    most = "9" * (statements.MAX_DIGITS - statements.MAX_DECIMALS) + "." + "9" * statements.MAX_DECIMALS
    await registry.statements.import_statement(
        statement(row(amount=most, key="k" * statements.MAX_TEXT), row(amount=most)), actor=ADA
    )
    kept = await registry.statements.statement_rows(provider=None, start=FIRST, end=FIRST + DAY_S)
    assert [Decimal(most)] * 2 == [each.amount for each in kept]


# the first and the last day of each bill; a report without bills has no period
PERIODS = {
    "": None,
    "2026-08": (FIRST, FIRST + 30 * DAY_S),
    "2026-09": (FIRST + 31 * DAY_S, FIRST + 60 * DAY_S),
}
Sums = list[dict[tuple[str, int], Decimal]]  # by bill and day of use, and by bill and day on the bill


class NotedRow(NamedTuple):
    """A row as a person would note it, with its three days."""

    bill: str
    used: int
    stored: int
    billed: int
    amount: Decimal


def random_days(chance: random.Random, bill: str) -> CoveredDays:
    first = FIRST + (chance.randrange(6) + (31 if bill == "2026-09" else 0)) * DAY_S
    return CoveredDays(bill, first, first + chance.randint(1, 5) * DAY_S)


def random_day_of_use(chance: random.Random, covered: CoveredDays) -> int:
    """Return the number of a day since FIRST: within the covered days, around them, or in another month."""
    shift: int = chance.choice((*range(-3, 8), -31, 31))
    return int(covered.start - FIRST) // DAY_S + shift


def note_row(covered: CoveredDays, day: int, amount: Decimal) -> NotedRow:
    used = moved = FIRST + day * DAY_S
    if period := PERIODS[covered.bill]:
        moved = min(max(used, period[0]), period[1])
    is_near = abs(moved - used) <= DAY_S and covered.start <= moved < covered.end
    stored = moved if is_near else covered.start
    return NotedRow(covered.bill, used, stored, moved if covered.bill else stored, amount)


def sums_by_hand(rows: Iterable[NotedRow]) -> Sums:
    by_use, by_bill = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for each in rows:
        by_use[each.bill, each.used] += each.amount  # type: ignore[assignment]
        by_bill[each.bill, each.billed] += each.amount  # type: ignore[assignment]
    return [{key: Decimal(amount) for key, amount in sums.items() if amount} for sums in (by_use, by_bill)]


async def stored_sums(registry: Registry) -> Sums:
    """Read months and parts of months by themselves, so that a row that answers for two of them counts twice."""
    by_use, by_bill = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for start, end in pairwise(FIRST + day * DAY_S for day in (-60, 0, 3, 31, 33, 61, 110)):
        span: dict[str, Any] = {"provider": None, "start": start, "end": end}
        for each in await registry.statements.statement_rows(**span):
            by_use[each.bill, statements.day_of_row(each)] += each.amount  # type: ignore[assignment]
        for billed in await registry.statements.billed_rows(**span):
            by_bill[billed.row.bill, billed.billed_days[0]] += billed.row.amount  # type: ignore[assignment]
    return [{key: Decimal(amount) for key, amount in sums.items() if amount} for sums in (by_use, by_bill)]


@pytest.mark.parametrize("seed", part(range(examples(100)), every=3))
async def test_each_row_counts_once(seed: int, registry: Registry) -> None:
    """
    Whole and partial exports of two bills in any order: a row counts until a newer export of its bill covers its day.
    A row from outside the days of its bill is under the first of them. It is in the sum of its day of use, and in the
    sum of its bill.
    """
    chance = random.Random(seed)
    counted: list[NotedRow] = []
    for number in range(12):
        covers, rows = [], []
        for bill in chance.sample(("2026-08", "2026-09"), k=chance.choice((1, 1, 2))):
            days = random_days(chance, bill)
            covers.append(days)
            counted = [
                each for each in counted if each.bill != bill or not days.start <= each.stored < days.end
            ]
            for _ in range(chance.randrange(5)):
                day, amount = random_day_of_use(chance, days), Decimal(chance.randint(-5, 20))
                rows.append(row(day, str(amount), bill=bill, model=f"m{number}"))
                counted.append(note_row(days, day, amount))
        span = {"start": min(each.start for each in covers), "end": max(each.end for each in covers)}
        given = statement(*rows, **span, covers=tuple(covers), read_at=float(number))
        await registry.statements.import_statement(given, actor=ADA, replace=True)
        assert sums_by_hand(counted) == await stored_sums(registry)


async def test_rows_of_other_bills_stay(registry: Registry) -> None:
    """A report without bills has every row of its days, so it replaces those of any bill."""
    of_august = statement(
        row(0, "100", bill="2026-08"), covers=(CoveredDays("2026-08", FIRST, FIRST + DAY_S),)
    )
    of_september = statement(
        row(0, "-1.5", bill="2026-09"), covers=(CoveredDays("2026-09", FIRST, FIRST + DAY_S),)
    )
    for given, total in (
        (of_august, "100"),
        (of_september, "98.5"),
        (of_august, "98.5"),
        (statement(row(0, "99")), "99"),
    ):
        await registry.statements.import_statement(given, actor=ADA)
        stored = await registry.statements.statement_rows(provider=None, start=FIRST, end=FIRST + DAY_S)
        assert Decimal(total) == statements.billed_total(stored)


@pytest.mark.parametrize("unit", ["usd", "eur", "tokens"])
async def test_final_figures_are_not_removed_by_accident(unit: str, registry: Registry) -> None:
    """Half of a sum may go, more only with consent. Open days may lose everything, and nothing is stored by halves."""
    rows = [row(day, "10", unit=unit, settled=day != 2) for day in range(3)]
    await registry.statements.import_statement(statement(*rows), actor=ADA)
    half = statement(row(0, "5", unit=unit), first=0, days=1)
    await registry.statements.import_statement(half, actor=ADA)
    await registry.statements.import_statement(statement(first=2, days=1), actor=ADA)
    less = statement(row(0, "9", unit=unit), row(1, "4.999", unit=unit), days=2)
    for dry_run in (True, False):
        with pytest.raises(
            WouldRemove, match=f"2026-08-02: 10 {unit} would become 4.999. Import the whole report"
        ):
            await registry.statements.import_statement(less, actor=ADA, dry_run=dry_run)
    stored = await registry.statements.statement_rows(provider=None, start=FIRST, end=FIRST + 3 * DAY_S)
    assert [Decimal(5), Decimal(10)] == [each.amount for each in stored]
    await registry.statements.import_statement(less, actor=ADA, replace=True)


async def test_an_older_report_replaces_none_by_accident(registry: Registry) -> None:
    await registry.statements.import_statement(statement(row(0, "10"), read_at=7.0), actor=ADA)
    older = statement(row(0, "11"), read_at=6.0)
    with pytest.raises(WouldRemove, match="2026-08-01: the stored report is newer"):
        await registry.statements.import_statement(older, actor=ADA)
    await registry.statements.import_statement(
        statement(row(0, "10"), read_at=6.0), actor=ADA
    )  # the same rows
    await registry.statements.import_statement(older, actor=ADA, replace=True)


async def test_an_error_names_ten_days(registry: Registry) -> None:
    await registry.statements.import_statement(statement(*map(row, range(12)), days=12), actor=ADA)
    with pytest.raises(WouldRemove, match="2026-08-10: 1 usd would become 0; and 2 more days"):
        await registry.statements.import_statement(statement(days=12, read_at=9.0), actor=ADA)


@pytest.mark.parametrize(
    ("start", "end", "name"),
    [
        (FIRST, FIRST + 31 * DAY_S, "2026-08"),
        (FIRST + DAY_S, FIRST + 32 * DAY_S, "2026-08-02/2026-09-02"),
        (FIRST, FIRST + 400 * DAY_S, "2026-08-01/2027-09-05"),
    ],
)
def test_a_bill_has_the_name_of_its_period(start: int, end: int, name: str) -> None:
    assert name == statements.bill_name(start, end)


@pytest.mark.parametrize("end", [FIRST, FIRST - DAY_S, FIRST + 400 * DAY_S + 1])
def test_a_wrong_period_of_a_bill(end: int) -> None:
    with pytest.raises(Invalid, match="must have 1 to 400 days"):
        statements.bill_name(FIRST, end)


async def test_limits_of_bills(registry: Registry) -> None:
    def of_bills(count: int) -> Statement:
        covers = tuple(CoveredDays(f"bill-{n}", FIRST, FIRST + DAY_S) for n in range(count))
        return statement(days=1, covers=covers)

    await registry.statements.import_statement(of_bills(24), actor=ADA)
    with pytest.raises(Invalid, match="at most 24 bills"):
        await registry.statements.import_statement(of_bills(25), actor=ADA)
    with pytest.raises(Invalid, match="whole days"):
        await registry.statements.import_statement(statement(end=FIRST + 3600), actor=ADA)
