"""A closed month does not change. Later changes become entries of the day on which they were found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bills.billed import closing
from gateway.bills.billed.closing import Invoice, MonthFigures, closed_month_id
from gateway.bills.billed.details import billed_cost_details
from gateway.bills.billed.restating import subtract_known_sums
from gateway.bills.months import CalendarMonth
from spool import money
from spool.errors import Invalid
from spool.ledger.billed import BilledDay, BilledSum
from spool.ledger.dimensions import BILLED_TYPES
from spool.ledger.queries import CostQuery
from tests.gateway.bills.billed.test_biller import DAY, FIRST, World, line

MONTH = CalendarMonth.at(FIRST)
EMPTY = BilledDay(day=FIRST, provider="openai", state="closed", mark="", source="", read_at=0.0, made_at=0.0)
NEXT_BILL = CalendarMonth.at(MONTH.end).name
AFTER = MONTH.end + 2 * DAY
LATER = (MONTH.end - FIRST) // DAY + 30  # number of days after the month that the queries of this test cover
TYPES = [name for name in BILLED_TYPES if name != "invoiced_amortized_cost"]


class ClosedWorld(World):
    """Billed costs with months that can be closed."""

    closed: dict[str, Mapping[str, Any]]

    async def open(self) -> ClosedWorld:
        await super().open()
        self.closed = {}
        sources = replace(self.biller._sources, closed_months=lambda: self.closed)
        self.biller._sources = sources
        self.clock.at = AFTER
        return self

    async def close(self, total: str, *, lines: int = 1, tax: str = "0") -> MonthFigures:
        invoice = Invoice(
            provider="openai", month=MONTH.name, number="1", total=money.text_to_units(total),
            tax=money.text_to_units(tax), lines=lines,
        )  # fmt: skip

        async def keep(found: MonthFigures) -> None:
            self.closed[closed_month_id("openai", MONTH.name)] = closing.figures_document(found)

        return await self.biller.close_month(MONTH, "openai", [invoice], keep)

    async def reopen(self) -> None:
        async def forget() -> None:
            self.closed.clear()

        await self.biller.reopen_month(MONTH, forget)

    def asked(self, cost_type: str, *dimensions: str) -> CostQuery:
        whole = datetime.fromtimestamp(MONTH.start, UTC), datetime.fromtimestamp(FIRST + LATER * DAY, UTC)
        return replace(super().asked(cost_type, *dimensions), since=whole[0], until=whole[1])

    async def of_month(self, cost_type: str, *dimensions: str) -> dict[tuple[str | None, ...], Decimal]:
        query = replace(self.asked(cost_type, *dimensions), until=datetime.fromtimestamp(MONTH.end, UTC))
        return {row.group: Decimal(row.cost) for row in await self.ledger.costs(query)}


async def test_rounding_of_a_closed_month_is_unallocated() -> None:
    """
    The invoice differs by half a cent per line because of rounding. This amount is unallocated, and every
    grouping of every cost type contains it.
    """
    world = await ClosedWorld().open()
    world.use("search", 60)
    world.told.kept += [line("input", "1.00333"), line("discount", "-0.1", model=None)]
    figures = await world.close("0.90")
    assert money.units_to_text(figures.rounding_gap) == "-0.00333"
    assert money.units_to_text(figures.unexplained_gap) == "0"
    assert [problem for problem in figures.problems() if "$" in problem] == []
    for cost_type in BILLED_TYPES:
        for dimension in (*world.ledger.dimensions(), "charge", "basis", "corrects"):
            assert Decimal("0.90") == sum((await world.of_month(cost_type, dimension)).values()), dimension
    assert Decimal("-0.00333") == (await world.of_month("billed_cost", "charge"))[("rounding",)]
    beside = await billed_cost_details(world.ledger, world.asked("billed_cost"), world.clock.now())
    assert isinstance(beside["days"], dict)
    assert beside["days"]["invoiced"] == 2
    assert beside["days"]["closed"] == 0


async def test_tax_that_only_the_invoice_has_is_divided_by_usage() -> None:
    """
    A tax that only the invoice has is divided by usage. If the invoice differs by more than half a cent per line,
    the difference becomes a line of its own and a problem.
    """
    world = await ClosedWorld().open()
    world.use("search", 60)
    world.use("ads", 20)
    world.told.kept += [line("input", "2", day=0)]
    figures = await world.close("2.50", tax="0.38")
    assert money.units_to_text(figures.rounding_gap) == "0"
    assert money.units_to_text(figures.unexplained_gap) == "0.12"
    assert "$0.12 is unexplained" in figures.problems()[0]
    alone = await world.of_month("billed_cost", "team", "charge")
    assert alone[None, "tax"] == Decimal("0.38")
    assert alone[None, "difference"] == Decimal("0.12")
    within = await world.of_month("discounted_cost", "team", "charge")
    assert within["search", "tax"] == Decimal("0.285")
    assert within["ads", "tax"] == Decimal("0.095")
    assert Decimal("2.50") == sum(within.values())


@pytest.mark.proves("a closed month plus its entries equals the recalculated month")
async def test_late_calls_and_newer_bills_are_entries_of_the_day_on_which_they_were_found() -> None:
    """
    The closed month plus its restatements equals the month computed from scratch, in every cost type and
    grouping (identity I5).
    """
    world, other_world = await ClosedWorld().open(), await ClosedWorld().open()
    for either_world in (world, other_world):
        either_world.use("search", 60)
        either_world.told.kept += [
            line("input", "100", unit="tokens"),
            line("input", "1"),
            line("tax", "0.2", model=None),
        ]
    await world.close("1.20")
    before = {name: await world.of_month(name, "team", "charge", "basis") for name in BILLED_TYPES}
    for at, change in enumerate((_late_call, _dearer, _back)):
        for either_world in (world, other_world):
            change(either_world)
            either_world.clock.at = AFTER + at * DAY
            either_world.told.read_at += 1
            await either_world.biller.recalculate_month(MONTH)
            await either_world.biller.recalculate_month(MONTH)
        for name in BILLED_TYPES:
            assert before[name] == await world.of_month(name, "team", "charge", "basis")
        for name in TYPES:
            for by in ("team", "model", "basis", "user"):
                recent = {key: amount for key, amount in (await other_world.paid(name, by)).items() if amount}
                both = {key: amount for key, amount in (await world.paid(name, by)).items() if amount}
                assert recent == both, (name, by, at)
    restated_days = await world.paid("billed_cost", "charge", "corrects")
    day = f"{datetime.fromtimestamp(FIRST, UTC):%Y-%m-%d}"
    assert Decimal(0) == restated_days["restated", day]
    await world.reopen()
    assert await other_world.paid("billed_cost", "team", "charge") == await world.paid(
        "billed_cost", "team", "charge"
    )
    assert [] == await world.ledger.billed_corrections()


def _late_call(world: ClosedWorld) -> None:
    world.use("ads", 20)


def _dearer(world: ClosedWorld) -> None:
    world.told.kept[1] = line("input", "1.5")


def _back(world: ClosedWorld) -> None:
    world.told.kept[1] = line("input", "1")


async def test_days_without_a_bill_are_closed_too() -> None:
    """
    A bill that arrives after a month was closed becomes a new entry. The closed month and its invoice number stay.
    """
    world = await ClosedWorld().open()
    world.use("search", 60)
    world.told.kept += [line("input", "1")]
    figures = await world.close("1")
    assert "days have no bill" in figures.problems()[-1]
    world.told.kept += [line("input", "5", day=1)]
    world.told.read_at += 1
    assert 1 == await world.biller.recalculate_changed_months()
    assert {(): Decimal(1)} == await world.of_month("billed_cost")
    assert Decimal(5) == (await world.paid("billed_cost", "charge"))[("restated",)]
    assert {"restated": Decimal(5)} == {
        key[0]: amount
        for key, amount in (await world.paid("billed_cost", "charge")).items()
        if key[0] != "usage"
    }
    world.told.kept.clear()
    await world.biller.recalculate_changed_months()
    assert {(): Decimal(1)} == await world.of_month("billed_cost")


@pytest.mark.parametrize("days", [0, 1])
async def test_withdrawn_bill_reverses_its_restatement_of_a_closed_day(days: int) -> None:
    """
    If a bill that restated a day of a closed month is withdrawn on the same day, no entry remains. If it is
    withdrawn later, a second entry reverses the first.
    """
    world = await ClosedWorld().open()
    world.use("search", 60)
    world.told.kept += [line("input", "1")]
    await world.close("1")
    world.told.kept += [line("input", "5", day=1)]
    world.told.read_at += 1
    await world.biller.recalculate_changed_months()
    world.told.kept.clear()
    world.told.read_at += 1
    world.clock.at += days * DAY
    await world.biller.recalculate_changed_months()
    await world.biller.recalculate_changed_months()
    assert Decimal(1) == (await world.paid("billed_cost"))[()]
    for by in ("team", "charge"):
        amounts = {key: amount for key, amount in (await world.paid("billed_cost", by)).items() if amount}
        assert [Decimal(1)] == list(amounts.values())
    assert 1 + days == len(await world.ledger.billed_corrections())


def corrected(world: ClosedWorld, amount: str, *, line_type: str | None = "correction") -> None:
    """Add a row to the next bill that is about calls of the month."""
    row = msgspec.structs.replace(line("input", amount), line_type=line_type, bill=NEXT_BILL)
    world.told.kept.append(row)


async def looked(world: ClosedWorld, days: int = 0) -> None:
    world.told.read_at += 1
    world.clock.at += days * DAY
    await world.biller.recalculate_changed_months()
    assert 0 == await world.biller.recalculate_changed_months()


@pytest.mark.proves("the next bill cannot move a closed month")
@pytest.mark.parametrize("line_type", ["correction", "refund", None])
@pytest.mark.parametrize("amount", ["-4", "2"])
async def test_the_next_bill_moves_no_closed_month(amount: str, line_type: str | None) -> None:
    """
    A refund, a correction or late usage on the next bill is on the first day of that bill, and divided among the calls
    of its day of use. The closed month stays as it is, also after it was opened again.
    """
    world = await ClosedWorld().open()
    world.use("search", 60)
    world.use("ads", 20)
    world.told.kept += [line("input", "10")]
    await world.close("10")
    closed = await world.of_month("billed_cost")
    corrected(world, amount, line_type=line_type)
    for later in (0, 1):
        await looked(world, later)
        assert [] == await world.ledger.billed_corrections()
        assert closed == await world.of_month("billed_cost") == {(): Decimal(10)}
        charge = line_type or "correction"
        assert Decimal(amount) == (await world.paid("billed_cost", "charge"))[charge,]
        within = await world.paid("discounted_cost", "team", "charge")
        assert Decimal(amount) * 3 / 4 == within["search", charge]
    await world.reopen()
    await looked(world)
    assert closed == await world.of_month("billed_cost")
    assert Decimal(10) + Decimal(amount) == sum((await world.paid("billed_cost", "charge")).values())


async def test_a_restatement_and_a_later_bill_both_count() -> None:
    """A changed row of a closed month is an entry, and a row of the next bill is another amount."""
    world = await ClosedWorld().open()
    world.use("search", 60)
    world.told.kept += [line("input", "10")]
    await world.close("10")
    corrected(world, "-1")
    world.told.kept[0] = line("input", "6")
    await looked(world)
    by_charge = await world.paid("billed_cost", "charge")
    assert (Decimal(-4), Decimal(-1)) == (by_charge["restated",], by_charge["correction",])
    assert Decimal(5) == sum(by_charge.values())


async def test_closed_month_equals_its_invoice_after_restart_or_ledger_loss() -> None:
    """
    A closed month equals its invoice. If a bill changed before a restart, or the ledger was lost, a
    difference line makes up for it.
    """
    world = await ClosedWorld().open()
    world.use("search", 60)
    world.told.kept += [line("input", "1.003")]
    invoice = Invoice(provider="openai", month=MONTH.name, number="1", total=money.text_to_units("1"))
    figures = await world.biller.recalculate_figures(MONTH, "openai", [invoice])
    world.closed[closed_month_id("openai", MONTH.name)] = closing.figures_document(figures)
    world.told.kept[0] = line("input", "1.5")
    await world.biller.recalculate_month(MONTH)
    for cost_type in BILLED_TYPES:
        assert Decimal(1) == sum((await world.of_month(cost_type, "team")).values())
    by_charge = await world.of_month("billed_cost", "charge")
    assert by_charge["rounding",] == Decimal("-0.003")
    assert by_charge["difference",] == Decimal("-0.497")


part = st.tuples(
    st.integers(0, 3), st.sampled_from("ab"), st.sampled_from([15, 31, 5, 26]), st.integers(-(10**30), 10**30)
)
amounts = st.lists(part, max_size=8)


@given(amounts, amounts)
def test_a_restatement_is_exactly_what_changed(before: list[Any], after: list[Any]) -> None:
    """
    A restatement is exactly the change, for each arrangement, set of dimensions and basis. An unchanged row
    has no restatement.
    """
    known_sums, new_sums = ([_sum(*fields) for fields in side] for side in (before, after))
    differences = subtract_known_sums(new_sums, known_sums)
    assert [] == subtract_known_sums(new_sums, new_sums)
    for bit in (1, 2, 4, 8):
        assert _added(new_sums, bit) == _added([*known_sums, *differences], bit)
    assert not any(billed_sum.arranged & 16 or not billed_sum.amount for billed_sum in differences)


def _sum(team: int, basis: str, arranged: int, amount: int) -> BilledSum:
    dimensions = closing.unassigned_dimensions("openai")._replace(team=str(team))
    return BilledSum(dimensions, "usage", basis, arranged, amount)


def _added(sums: list[BilledSum], bit: int) -> dict[tuple[str | None, str], int]:
    amounts: dict[tuple[str | None, str], int] = {}
    for billed_sum in sums:
        if billed_sum.arranged & bit:
            key = (billed_sum.dimensions.team, billed_sum.basis)
            amounts[key] = amounts.get(key, 0) + billed_sum.amount
    return {key: amount for key, amount in amounts.items() if amount}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("month", "2026-13", "such as 2026-10"),
        ("month", "October", "such as 2026-10"),
        ("total", "a lot", "decimal number"),
        ("issued", "yesterday", "a day such as"),
        ("lines", 1_000_001, "1 to 1000000"),
        ("currency", "credits", "currency must be one of"),
        ("number", "", "number"),
    ],
)
def test_a_wrong_invoice_is_refused_in_words(field: str, value: object, words: str) -> None:
    """The error for an invalid invoice names the field."""
    fields = {"provider": "openai", "month": "2026-10", "number": "1", "total": "1", field: value}
    with pytest.raises(Invalid, match=words):
        closing.parse_invoice(fields)
