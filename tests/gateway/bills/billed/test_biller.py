"""
Billed costs are computed from bills and the ledger, once per day. A day is computed again only if its bill or
its calls changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from gateway.bills.billed.biller import BilledCostCalculator
from gateway.bills.billed.details import billed_cost_details
from gateway.bills.reconciliation.gathering import StatementSources
from gateway.intake.prices import PriceBook
from spool import money
from spool.ledger.dimensions import BILLED_TYPES
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.record import NS
from spool.sqlite.in_memory import new_in_memory_ledger
from spool.statements import BilledRow, StatementInfo, StatementRow, day_of_row, to_billed_row
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

DAY = 24 * HOUR
FIRST = BEGIN // DAY * DAY


class Told:
    """Imported bills, in the form in which the computation of billed costs reads them."""

    def __init__(self) -> None:
        self.kept: list[StatementRow] = []
        self.read_at = 1.0
        self.settled = True
        self.providers = ["openai"]

    async def billed_rows(self, *, provider: str | None, start: int, end: int) -> Sequence[BilledRow]:
        return [
            billed_row
            for row in self.kept
            if (billed_row := to_billed_row(row, day_of_row(row))).row.provider == provider
            and billed_row.billed_days[0] < end
            and billed_row.billed_days[-1] >= start
        ]

    def _billed_end(self, row: StatementRow) -> int:
        return to_billed_row(row, day_of_row(row)).billed_days[-1] + DAY

    async def statements(self) -> Sequence[StatementInfo]:
        if not self.kept:
            return []
        span: dict[str, Any] = {
            "start": FIRST,
            "end": max([FIRST + 2 * DAY, *(self._billed_end(row) for row in self.kept)]),
            "settled": self.settled,
        }
        return [
            StatementInfo(
                source="bill",
                provider=provider,
                account="",
                rows=1,
                imported_at=self.read_at,
                used_from=span["start"],
                used_until=span["end"],
                **span,
            )
            for provider in self.providers
        ]


def line(
    kind: str, amount: str, *, unit: str = "usd", model: str | None = "gpt-4o", day: int = 0
) -> StatementRow:
    return StatementRow(
        source="bill", provider="openai", account=None, key=None, model=model, start=FIRST + day * DAY,
        end=FIRST + (day + 1) * DAY, unit=unit, kind=kind, amount=Decimal(amount), currency=None, tier=None,
        region=None, batch=None, settled=True,
    )  # fmt: skip


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.clock.at = FIRST + 3 * DAY
        self.log, self.told = FakeLog(), Told()

    async def open(self) -> World:
        self.ledger = await Ledger(new_in_memory_ledger(), clock=self.clock).load()
        sources = StatementSources(
            ledger=self.ledger,
            log=self.log,  # type: ignore[arg-type]
            prices=PriceBook.load,
            statements=self.told,  # type: ignore[arg-type]
        )
        self.biller = BilledCostCalculator(sources, self.clock)
        return self

    def use(self, team: str, tokens: int, *, day: int = 0) -> None:
        at = FIRST + day * DAY + HOUR
        self.log.add([call(team=team, input_tokens=tokens, output_tokens=0, start_time=at * NS)], at=at)

    def asked(self, cost_type: str, *dimensions: str) -> CostQuery:
        since, until = (datetime.fromtimestamp(FIRST + days * DAY, UTC) for days in (0, 3))
        arranged = BILLED_TYPES.get(cost_type, 0)
        return CostQuery(
            since=since, until=until, granularity="total", group_by=dimensions, arranged=arranged
        )

    async def paid(self, cost_type: str, *dimensions: str) -> dict[tuple[str | None, ...], Decimal]:
        return {
            row.group: Decimal(row.cost)
            for row in await self.ledger.costs(self.asked(cost_type, *dimensions))
        }


async def test_every_dimension_closes_to_the_bill() -> None:
    """
    In both cost types, every grouping contains the usage, discount and tax of two days. Billed usage without
    calls has a reason.
    """
    world = await World().open()
    world.use("search", 60)
    world.use("ads", 30)
    world.told.kept += [line("input", "100", unit="tokens"), line("input", "1"), line("input", "0.07", day=1)]
    world.told.kept += [line("discount", "-0.1", model=None), line("tax", "0.19", model=None, day=1)]
    assert 2 == await world.biller.recalculate_changed_months()
    for cost_type in BILLED_TYPES:
        for dimension in (*world.ledger.dimensions(), "charge", "basis"):
            assert Decimal("1.16") == sum((await world.paid(cost_type, dimension)).values()), dimension
    by_team = await world.paid("billed_cost", "team", "charge")
    assert by_team["search", "usage"] == Decimal("0.6")
    assert by_team["ads", "usage"] == Decimal("0.3")
    within = await world.paid("discounted_cost", "team", "charge")
    assert Decimal("-0.06") == within["search", "discount"]
    # The team has 0.60 of the usage of 1.07 dollars. Both amounts are before discounts.
    tax = 19 * money.UNIT // 100 * 60 // 107
    assert tax == money.text_to_units(str(within["search", "tax"]))
    beside = await billed_cost_details(world.ledger, world.asked("billed_cost"), world.clock.now())
    assert {"no_telemetry": "0.07", "unreported": "0.1"} == beside["by_reason"]
    assert {"closed": 2, "provisional": 0, "open": 1} == beside["days"]
    assert beside["unallocated"] == "0.17"
    assert beside["without_statement"] == []


async def test_sellers_without_a_bill_are_independent_of_the_dimensions() -> None:
    """The list of sellers without a bill does not depend on the query's dimensions."""
    world = await World().open()
    world.use("search", 60)
    await world.ledger.catch_up(world.log)
    query_of_teams = world.asked("billed_cost", "team")
    shown_lists = []
    for query in (
        query_of_teams,
        replace(query_of_teams, kept=frozenset([("search",), (None,)])),
        replace(query_of_teams, top=1),
    ):
        beside = await billed_cost_details(world.ledger, query, world.clock.now())
        shown_lists.append(beside["without_statement"])
    counted = (await world.paid("real_cost"))[()]
    assert [[{"provider": "openai", "real_cost": str(counted)}]] * 3 == shown_lists


@pytest.mark.proves("an unchanged day is not written again")
async def test_a_day_is_made_again_where_something_changed() -> None:
    """A late call or a restated amount recomputes the costs of its day, and of no other day."""
    world = await World().open()
    world.use("search", 60)
    world.told.kept += [line("input", "1"), line("input", "2", day=1)]
    assert 2 == await world.biller.recalculate_changed_months()
    assert 0 == await world.biller.recalculate_changed_months()
    world.use("ads", 20)
    world.clock.at += HOUR
    assert 1 == await world.biller.recalculate_changed_months()
    assert Decimal("0.25") == (await world.paid("billed_cost", "team"))[("ads",)]
    world.told.kept[1] = line("input", "5", day=1)
    world.told.read_at = 2.0
    assert 1 == await world.biller.recalculate_changed_months()
    assert {(): Decimal(6)} == await world.paid("billed_cost")
    assert [2, 2] == [day.revision for day in await world.ledger.billed_days(0, 2**40)]
    assert {(): Decimal("0.0007")} == await world.paid("real_cost")
    world.told.kept.clear()
    assert 2 == await world.biller.recalculate_changed_months()
    assert {} == await world.paid("billed_cost")


async def test_a_discount_of_a_day_without_usage_is_on_that_of_the_month() -> None:
    """
    If a day has a discount but no usage, the discount is divided over the month's usage. This holds with and
    without a tax on the bill.
    """
    world = await World().open()
    world.use("search", 60)
    world.use("ads", 20)
    world.told.kept += [line("input", "2"), line("discount", "-0.4", model=None, day=1)]
    assert 2 == await world.biller.recalculate_changed_months()
    by_team = await world.paid("discounted_cost", "team", "charge")
    assert by_team["search", "discount"] == Decimal("-0.3")
    assert by_team["ads", "discount"] == Decimal("-0.1")
    world.told.kept.append(line("tax", "0.2", model=None))
    world.told.read_at += 1
    assert 1 == await world.biller.recalculate_changed_months()
    again = await world.paid("discounted_cost", "team", "charge")
    assert by_team["search", "discount"] == again["search", "discount"]


async def test_a_day_that_is_not_final_says_so() -> None:
    """A day that the provider may restate is provisional. A day that has not ended has no billed cost."""
    world = await World().open()
    world.clock.at = FIRST + DAY + HOUR
    world.told.settled = False
    world.use("search", 60, day=1)
    world.told.kept += [line("input", "1"), line("input", "2", day=1)]
    assert 1 == await world.biller.recalculate_changed_months()
    assert {(): Decimal(1)} == await world.paid("discounted_cost")
    beside = await billed_cost_details(world.ledger, world.asked("billed_cost"), world.clock.now())
    assert {"closed": 0, "provisional": 1, "open": 1} == beside["days"]
    assert [{"provider": "openai", "real_cost": "0.00035"}] == beside["without_statement"]


async def test_a_bill_in_other_currencies_is_in_dollars_at_the_rate_of_its_day() -> None:
    """
    Each bill row in another currency is converted at the rate of its day and rounded once. A currency without
    a rate is named, and a new rate recomputes its day.
    """
    world = await World().open()
    known = {("EUR", FIRST): "1.0831", ("JPY", FIRST): "0.006612345678", ("EUR", FIRST + DAY): "1.0899"}

    def rates(given: str, asked: str, day: int) -> int | None:
        assert asked == "USD"
        rate = known.get((given, day))
        return None if rate is None else int(Decimal(rate).scaleb(12))

    world.ledger.rates = rates
    rows_of_days = (("7.13", "EUR", 0), ("1801", "JPY", 0), ("0.1", "EUR", 1), ("99", "JPY", 1))
    world.told.kept += [line("input", "2"), line("input", "3", day=1)]
    for amount, currency, day in rows_of_days:
        row = line("support", amount, unit=currency.lower(), day=day)
        world.told.kept.append(msgspec.structs.replace(row, currency=currency))
    assert await world.biller.recalculate_changed_months() == 2
    assert await world.biller.recalculate_changed_months() == 0
    in_dollars = Decimal("5") + Decimal("7.722503") + Decimal("11.908834566078") + Decimal("0.10899")
    assert {(): in_dollars} == await world.paid("billed_cost")
    beside = await billed_cost_details(world.ledger, world.asked("billed_cost"), world.clock.now())
    assert {"JPY": 1} == beside["foreign"]

    known["JPY", FIRST + DAY] = "0.0066"
    assert await world.biller.recalculate_changed_months() == 1
    assert await world.biller.recalculate_changed_months() == 0
    assert {(): in_dollars + Decimal("0.6534")} == await world.paid("billed_cost")
