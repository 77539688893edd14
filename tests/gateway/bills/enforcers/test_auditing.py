"""The audit of enforcers: right counters have no finding, and every planted fault is found with both numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from gateway.bills.enforcers import auditing, faults
from gateway.bills.enforcers.auditing import LimitAudit
from gateway.bills.enforcers.faults import MoneyBudget
from spool.record import NS, Inference
from spool.registry.tables.enforcers import EnforcerLimit
from tests.gateway.bills.enforcers.world import DAY, NOVEMBER, Counter, Sent, World
from tests.gateway.money.budgets.house import House
from tests.rounds import as_proof, reduced
from tests.spool.ledger_log import HOUR, call


async def world(*counters: Counter, **options: Any) -> World:
    return await World(House(at=NOVEMBER), counters, **options).start()


def our(
    name: str, include: Mapping[str, Sequence[str]], per: str, granularity: str, amount: Decimal
) -> MoneyBudget:
    return MoneyBudget(name=name, include=include, per=per, granularity=granularity, amount=amount)


def dollars(text: str) -> list[Decimal]:
    return [Decimal(found.replace(",", "")) for found in re.findall(r"\$([\d,]+\.\d\d)", text)]


@pytest.mark.proof
async def test_thirty_days_of_right_counters() -> None:
    """
    Windows of a day, a week and a month, late resets, restarts of both programs, and batches that are hours late have
    no finding. A new month begins after five days. The counters are compared at the end.
    """
    start = NOVEMBER - 5 * DAY
    outages = [(start + day * DAY + 9 * HOUR, start + day * DAY + 14 * HOUR) for day in (3, 11, 19, 27)]
    down = [(start + day * DAY, start + day * DAY + 2 * HOUR) for day in (5, 15)]
    counters = [Counter("month"), Counter("week", "7d"), Counter("day", "1d"), Counter("days", "3d")]
    made = await World(House(at=start), counters, outages=outages, down=down).start()
    for _ in range(5):
        audits = await made.run(6)
        await made.start()  # start the auditor again, as after a restart of Tollhouse
    assert {} == made.found
    compared = {audit.limit.name: audit for audit in audits}
    assert "" == compared["month"].reason
    month = compared["month"]
    assert month.band is not None
    assert Decimal(100) < month.band.low <= Decimal(month.limit.spent or "")


def aborted(sent: Sent) -> Decimal:
    return Decimal(0) if sent.status == "error" else sent.cost


def unpriced_mini(sent: Sent) -> Decimal:
    return Decimal(0) if sent.model == "gpt-4o-mini" else sent.cost


@pytest.mark.parametrize(
    ("counts", "cause"),
    [
        (lambda sent: sent.cost * 2, "each amount is 2 times ours"),
        as_proof((lambda sent: sent.cost * 3, "each amount is 3 times ours")),
        (aborted, "lacks exactly the calls with status error"),
        as_proof((unpriced_mini, "lacks exactly the calls with model gpt-4o-mini")),
        (lambda sent: sent.cost * Decimal("0.8"), "No cause is proven"),
    ],
)
async def test_wrong_counters(counts: Any, cause: str) -> None:
    made = await world(Counter("wrong", counts=counts), Counter("right"))
    [_, right] = await made.run(reduced(4, by=2))
    assert {faults.COUNTER} == {*made.found}
    assert () == tuple(right.faults)
    fault = made.found[faults.COUNTER]
    assert cause in fault.seen
    spent, low, *_ = dollars(fault.title)
    assert spent in dollars(fault.seen)
    assert low in dollars(fault.seen)
    assert "since 2026-11-01T00:00:00.000Z" in fault.seen


async def test_counter_that_stops_rising_is_a_fault() -> None:
    made = await world(Counter("still"))
    await made.run(2)
    made.counters[0].counts = lambda sent: Decimal(0)
    await made.run(2)
    assert {faults.COUNTER} == {*made.found}
    assert re.search("it stood still since .* while our sum rose", made.found[faults.COUNTER].seen)


async def test_a_counter_per_instance() -> None:
    """
    A planted fault: two instances of the enforcer count separately, and a reading comes from one of them at random.
    """
    parts = [Counter("split"), Counter("split")]

    def row(counter: Counter, reading: int) -> Mapping[str, Any]:
        return parts[reading // 2 % 2].row()

    made = await world(Counter("split"), shown=row)
    turn = iter(range(10**6))

    def count(sent: Sent) -> Decimal:
        parts[int(next(turn) % 3 == 0)].add(sent)
        return sent.cost

    made.counters[0].counts = count
    for part in parts:
        part.reset(NOVEMBER)
    await made.run(reduced(4, by=2))
    assert {faults.COUNTER} == {*made.found}
    assert "each instance counts alone" in made.found[faults.COUNTER].seen


async def test_a_month_that_resets_each_day() -> None:
    daily = Counter("daily")

    def row(counter: Counter, reading: int) -> Mapping[str, Any]:
        return {**Counter("daily").row(), **daily.row(), "spend": float(counter.spent)}

    made = await world(Counter("daily", "1d"), shown=row)
    daily.reset(NOVEMBER)
    await made.run(3)
    # after 48 readings, only the low counter is left to see
    assert {faults.WINDOW} <= {*made.found} <= {faults.WINDOW, faults.COUNTER}
    assert "is reset at 2026-12-01T00:00:00.000Z" in made.found[faults.WINDOW].seen
    assert "was reset between 2026-11-0" in made.found[faults.WINDOW].seen


async def test_a_counter_that_is_not_reset() -> None:
    made = await world(Counter("stuck", "1d"))
    await made.run(0.5)
    made.counters[0].reset = lambda now: None  # type: ignore[method-assign]
    await made.run(1)
    assert {faults.WINDOW} == {*made.found}
    assert "was not reset at the stated time" in made.found[faults.WINDOW].title


async def test_thirty_days_are_no_month() -> None:
    budget = our("Keys", {"api_key": ("fixed",)}, "", "monthly", Decimal(1000))
    made = await world(Counter("fixed", "30d", first_reset=NOVEMBER + 10 * DAY), budgets=[budget])
    made.counters[0].reset(NOVEMBER)
    await made.run(1)
    assert {faults.WINDOW} == {*made.found}
    assert "2026-11-11T00:00:00.000Z" in made.found[faults.WINDOW].seen
    assert "2026-12-01T00:00:00.000Z" in made.found[faults.WINDOW].seen


@pytest.mark.parametrize(
    ("readings", "rise"),
    [
        ([(0, "49"), (300, "51"), (1200, "52"), (1500, "52")], None),  # calls that were under way
        ([(0, "49"), (300, "51"), (1200, "52"), (1500, "99")], "from 52.00 to 99.00 EUR"),
        ([(0, "60"), (600, "70"), (899, "80")], None),  # not yet a quarter of an hour
        ([(0, "60"), (900, "70"), (901, "70.01")], None),  # a cent is rounding
        ([(0, "60"), (900, "70"), (1800, "50")], None),  # reset, or repaired by hand
        ([(0, "60"), (900, None), (1800, "70"), (2700, "80")], "from 70.00 to 80.00 EUR"),
    ],
)
def test_a_counter_that_rises_above_a_limit_in_another_currency(
    readings: Sequence[tuple[int, str | None]], rise: str | None
) -> None:
    """No call of ours is needed: the enforcer's own counter shows that it still lets calls through."""
    limit = EnforcerLimit(kind="team", id="t", name="search", limit="50", currency="EUR", window="month")
    series = [(NOVEMBER + at, msgspec.structs.replace(limit, spent=spent)) for at, spent in readings]
    found = faults.rising_counter_faults(series)
    assert [rise] * (rise is not None) == [
        each.title.partition("its counter rose ")[2].removesuffix(" above its limit") for each in found
    ]
    for other in ({"enforcing": False}, {"limit": "1000"}, {"limit": None}):
        changed = [(at, msgspec.structs.replace(each, **other)) for at, each in series]
        assert [] == faults.rising_counter_faults(changed)
    moved = [(at, msgspec.structs.replace(each, ends_at=NOVEMBER + at)) for at, each in series]
    assert [] == faults.rising_counter_faults(moved)  # each reading is of another window


async def test_a_limit_that_cannot_be_compared_is_seen_to_refuse_nothing() -> None:
    """A limit whose window is unknown has no comparison, and its counter still rises above it."""
    made = await world(
        Counter("open", limit="20"), shown=lambda counter, _: {**counter.row(), "budget_reset_at": None}
    )
    [audit] = await made.run(3)
    assert audit.reason
    assert {faults.NOT_REFUSING} == {*made.found}
    assert "above its limit" in made.found[faults.NOT_REFUSING].title


async def test_a_limit_that_refuses_nothing() -> None:
    """
    Calls that an enforcer let through after its limit are claimed with number, amount and first hour. A limit that
    refuses calls has no finding.
    """
    made = await world(Counter("open", limit="20"), Counter("shut", limit="20"))
    shut = made.counters[1]
    begin = made._call

    def refuse(key: str, start: float) -> None:
        if key != "shut" or shut.spent < 20:
            begin(key, start)

    made._call = refuse  # type: ignore[method-assign]
    [of_open, of_shut] = await made.run(3)
    assert {faults.NOT_REFUSING} == {*made.found}
    assert () == tuple(of_shut.faults)
    [fault] = of_open.faults
    assert "had reached the limit of $20.00" in fault.seen
    count, cost = re.findall(r"([\d,]+) calls for \$([\d.]+)", fault.title)[0]
    assert 0 < int(count)
    assert 0 < Decimal(cost)


@pytest.mark.parametrize(
    "budget",
    [
        our("Keys", {"api_key": ("alpha",)}, "", "monthly", Decimal(500)),
        our("Keys", {"api_key": ("alpha",), "source": ("litellm",)}, "", "monthly", Decimal(500)),
        our("Keys", {}, "api_key", "monthly", Decimal(500)),
    ],
)
async def test_another_amount(budget: MoneyBudget) -> None:
    made = await world(Counter("alpha"), budgets=[budget])
    await made.run(1)
    assert {faults.LIMIT_DIFFERS} == {*made.found}
    assert [Decimal(1000), Decimal(500)] == dollars(made.found[faults.LIMIT_DIFFERS].title)


async def test_budgets_of_other_calls_or_periods_do_not_differ() -> None:
    budgets = [
        our("Same", {"api_key": ("alpha",)}, "", "monthly", Decimal(1000)),
        our("Daily", {"api_key": ("alpha",)}, "", "daily", Decimal(5)),
        our("Model", {"api_key": ("alpha",), "model": ("gpt-4o",)}, "", "monthly", Decimal(5)),
        our("All", {}, "", "monthly", Decimal(5)),
    ]
    made = await world(Counter("alpha"), budgets=budgets)
    await made.run(1)
    assert {} == made.found


async def test_a_model_without_a_price() -> None:
    made = await world(Counter("alpha"))
    await made.run(1)
    made.house.log.add([unpriced_call("alpha", made.house.clock.at)], at=made.house.clock.at)
    await made.run(0.5)
    assert {faults.UNPRICED} == {*made.found}
    assert "new-model: 1 calls" in made.found[faults.UNPRICED].seen


def unpriced_call(key: str, at: float) -> Inference:
    return call(
        id=b"unpriced" * 2, api_key=key, request_model="new-model", estimated_cost=None, cost_source="none",
        start_time=int(at - 60) * NS,
    )  # fmt: skip


async def test_limits_that_cannot_be_compared_say_why() -> None:
    """
    A limit that cannot be compared has a reason and no finding: its key sends no telemetry, its window is
    incomplete, or totals are counted again.
    """
    quiet = Counter("quiet")
    made = await world(quiet, Counter("alpha"))
    begin = made._call
    made._call = lambda key, start: begin(key, start) if key == "alpha" else None  # type: ignore[method-assign]
    quiet.spent = Decimal(500)
    audits: list[LimitAudit] = [*await made.run(1)]
    reasons = {audit.limit.name: audit.reason for audit in audits}
    assert {"quiet": "no call with the name in this limit was reported in its window", "alpha": ""} == reasons
    assert {} == made.found


@pytest.mark.parametrize("most", [1, 2])
async def test_windows_are_limited(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Only the windows with the most limits are compared, because each window needs sums of its own."""
    monkeypatch.setattr(auditing, "MAX_WINDOWS", most)
    made = await world(Counter("a"), Counter("b"), Counter("c", "1d"))
    audits = await made.run(1.5)
    above = [audit.limit.name for audit in audits if audit.reason == auditing.TOO_MANY_WINDOWS]
    assert (["c"] if most == 1 else []) == above


async def test_a_comparison_is_reused() -> None:
    """A comparison with an enforcer is repeated after FRESH_S seconds, or when a new reading is stored."""
    made = await world(Counter("a"))
    await made.run(0.5)
    first = await made.auditor.audit_limits()
    made.house.clock.at += auditing.FRESH_S - 1
    assert first is await made.auditor.audit_limits()
    made.house.clock.at += 1
    second = await made.auditor.audit_limits()
    assert first is not second
    await made.reader.read_enforcer("litellm-eu")
    third = await made.auditor.audit_limits()
    assert second is not third
    assert made.house.clock.at == third[0].read_at
