"""
Provider bills in a registry: a new bill replaces its span, money is exact, and days are open or settled.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from spool import statements
from spool.errors import Invalid, NotThere
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.statements import DAY_S, Statement, StatementInfo, StatementOutcome, StatementRow
from tests.moved_clock import MovedClock
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
        rows=3, days=3, days_new=3, days_changed=0
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
    found = await registry.statements.import_statement(statement(row(1, "1.5"), first=1, days=1), actor=ADA)
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


async def test_a_part_of_a_day_replaces_its_hours(registry: Registry) -> None:
    """A part of a day replaces its hours. The day is not settled before a bill covers all of it."""
    hour = {"start": FIRST, "end": FIRST + 3600}
    later = {"start": FIRST + 7200, "end": FIRST + 10800}
    part = statement(row(0, "1", **hour), start=FIRST, end=FIRST + 3600)
    await registry.statements.import_statement(part, actor=ADA)
    await registry.statements.import_statement(
        replace(part, rows=(row(0, "2", **later),), start=FIRST + 3600, end=FIRST + 10800), actor=ADA
    )
    assert [False] == [each.settled for each in await registry.statements.statements()]
    assert Decimal(3) == statements.billed_total(
        await registry.statements.statement_rows(provider=None, start=FIRST, end=FIRST + DAY_S)
    )
    await registry.statements.import_statement(statement(row(0, "4"), days=1), actor=ADA)
    assert [True] == [each.settled for each in await registry.statements.statements()]
    assert Decimal(4) == statements.billed_total(
        await registry.statements.statement_rows(provider=None, start=FIRST, end=FIRST + DAY_S)
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
    known = await registry.statements.statements()
    assert [
        StatementInfo(start=FIRST, end=FIRST + 3 * DAY_S, settled=True, rows=1, **told),
        StatementInfo(start=FIRST + 3 * DAY_S, end=FIRST + 4 * DAY_S, settled=False, rows=1, **told),
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
async def test_rows_of_a_deleted_month_are_deleted(registry: Registry) -> None:
    """Deleting a month also deletes its rows. A dry run stores nothing."""
    assert 1 == (await registry.statements.import_statement(statement(row()), actor=ADA, dry_run=True)).rows
    assert [] == await registry.statements.statements()
    await registry.statements.import_statement(statement(row()), actor=ADA)
    [month] = await registry.statements.months()
    await registry.statements.delete(month.id, actor=ADA)
    assert [] == await registry.statements.months()
    assert [] == await registry.statements.statement_rows(provider=None, start=0, end=FIRST + 99 * DAY_S)
    with pytest.raises(NotThere):
        await registry.statements.delete(month.id, actor=ADA)


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


@pytest.mark.every_engine
async def test_amounts_at_the_limit_are_stored(registry: Registry) -> None:
    """Amounts with the maximum number of digits, and the longest texts, are stored."""
    most = "9" * (statements.MAX_DIGITS - statements.MAX_DECIMALS) + "." + "9" * statements.MAX_DECIMALS
    await registry.statements.import_statement(
        statement(row(amount=most, key="k" * statements.MAX_TEXT), row(amount=most)), actor=ADA
    )
    kept = await registry.statements.statement_rows(provider=None, start=FIRST, end=FIRST + DAY_S)
    assert [Decimal(most)] * 2 == [each.amount for each in kept]
