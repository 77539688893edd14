"""Amounts of contracts that depend on sums of calls, compared with arithmetic in fractions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from random import Random

import pytest

from gateway.bills.contracts.capacity import CalledModel, divide_among_teams
from gateway.bills.contracts.declared import Contract, ContractTerm, first_day_and_end
from gateway.bills.contracts.sums import ContractSums, DayCharge, ModelUse
from gateway.bills.months import CalendarMonth
from spool.money import UNIT
from spool.statements import DAY_S, day_text, parse_day

MONTHS = [CalendarMonth.of(name) for name in ("2026-01", "2026-02", "2026-03")]
LATER = float(MONTHS[-1].end)
KINDS = ("input", "output", "cache_read", "cache_write")
SLACK = 1000  # units: each division drops less than one


def contract(*terms: ContractTerm, since: str = "2026-01-01", until: str = "2026-04-01") -> Contract:
    return Contract(
        id="c",
        name="c",
        provider="openai",
        since=since,
        until=until,
        terms=terms,
        created=1.0,
        last_updated=1.0,
    )


def charges(
    own: Contract, uses: Sequence[ModelUse], *, now: float = LATER, prepaid: dict[int, int] | None = None
) -> list[DayCharge]:
    sums = ContractSums(contract=own, months=MONTHS, now=now, uses=uses, prepaid=prepaid or {})
    found = sums.day_charges()
    for each in found:
        assert sum(part for _, part in divide_among_teams(each.amount, each.use)) == each.amount
    return found


def total(found: Sequence[DayCharge], charge: str) -> int:
    return sum(each.amount for each in found if each.charge == charge)


def use(day: str, cost: int, team: str = "a", model: str = "gpt-4o", **tokens: int) -> ModelUse:
    called = CalledModel("openai", model, "", "")
    values = {kind: count * (4 if kind == "output" else 1) for kind, count in tokens.items()}
    return ModelUse(parse_day(day), team, called, cost * UNIT, 1, tokens, values)


def random_uses(random: Random) -> list[ModelUse]:
    found = []
    for _ in range(random.randint(0, 60)):
        day = random.choice([day for month in MONTHS for day in month.days])
        counts = {kind: random.randint(0, 1000) for kind in random.sample(KINDS, 2)}
        model = random.choice(("gpt-4o", "o3"))
        made = use(day_text(day), 0, random.choice("abc"), model, **counts)
        found.append(made._replace(cost=random.randint(-(10**27), 10**29)))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_every_amount_equals_arithmetic_by_hand(seed: int) -> None:
    """A random contract with all kinds of terms, on random calls, until a random moment. Calls come in any order."""
    random = Random(seed)
    first = random.choice([day for month in MONTHS[:2] for day in month.days])
    end = random.choice(range(first + DAY_S, MONTHS[-1].end + DAY_S, DAY_S))
    now = random.choice((LATER, random.uniform(first, end)))
    per, free, kinds = (
        random.choice(("month", "term")),
        random.choice(("day", "month")),
        KINDS[: random.randint(0, 4)],
    )
    amounts = {name: random.randint(1, 2000) for name in ("minimum", "credit", "fee", "tokens")}
    own = contract(
        ContractTerm(
            kind="allowance",
            tokens=str(amounts["tokens"]),
            per=free,  # type: ignore[arg-type]
            kinds=kinds,  # type: ignore[arg-type]
            models=("gpt-*",),
        ),
        ContractTerm(kind="minimum", amount=str(amounts["minimum"]), per=per),  # type: ignore[arg-type]
        ContractTerm(kind="credit", amount=str(amounts["credit"]), per=per),  # type: ignore[arg-type]
        ContractTerm(kind="fee", amount=str(amounts["fee"]), per=per, percent="7.5"),  # type: ignore[arg-type]
        since=day_text(first),
        until=day_text(end),
    )
    assert first_day_and_end(own) == (first, end)
    uses = [each for each in random_uses(random) if first <= each.day < end and each.day <= now]
    prepaid = {day: random.randint(0, 10**28) for day in range(first, end, DAY_S) if day <= now}
    found = charges(own, uses, now=now, prepaid=prepaid)
    assert found == charges(own, random.sample(uses, len(uses)), now=now, prepaid=prepaid)
    begun = [day for month in MONTHS for day in month.days if first <= day < end and day <= now]
    assert {each.day for each in found} <= set(begun)

    def periods(of: str) -> list[tuple[list[int], Fraction, int]]:
        """Return the begun days of each period, its part of the amount, and its last day."""
        whole = range(first, end, DAY_S)
        by_month: list[Sequence[int]] = [month.days for month in MONTHS]
        by_name: dict[str, list[Sequence[int]]] = {
            "day": [range(day, day + DAY_S, DAY_S) for day in whole],
            "month": by_month,
            "term": [whole],
        }
        found = []
        for span in by_name[of]:
            own = [day for day in span if day in whole]
            if own:
                found.append(([day for day in own if day in begun], Fraction(len(own), len(span)), own[-1]))
        return found

    lines: dict[int, Fraction] = defaultdict(Fraction)
    for day, amount in prepaid.items():
        lines[day] += amount
    for each in uses:
        lines[each.day] += each.cost
    allowed = Fraction(0)
    for days, part, _ in periods(free):
        of_days = [each for each in uses if each.day in days and each.called.model == "gpt-4o"]
        chosen = kinds or KINDS
        tokens = sum(count for each in of_days for kind, count in each.tokens.items() if kind in chosen)
        by_day: dict[int, Fraction] = defaultdict(Fraction)
        for each in of_days:
            value = sum(each.values.values())
            share = (
                Fraction(sum(each.values.get(kind, 0) for kind in chosen), value)
                if value
                else Fraction(not kinds)
            )
            by_day[each.day] += each.cost * share
        granted = int(amounts["tokens"] * part)
        for day, cost in by_day.items():
            less = max(Fraction(0), cost) * min(granted, tokens) / tokens if tokens else Fraction(0)
            lines[day] -= less
            allowed += less
    assert abs(total(found, "allowance") + allowed) <= SLACK * len(begun)
    fee = Fraction(0)
    for days, _, last in periods(per):
        length = (end - first) // DAY_S if per == "term" else len(CalendarMonth.at(last).days)
        fee += Fraction(amounts["fee"] * UNIT * len(days), length)
    fee += sum(max(Fraction(0), lines[day]) * Fraction(75, 1000) for day in begun)
    assert abs(total(found, "fee") - fee) <= SLACK * max(1, len(begun))
    missing = Fraction(0)
    credit = Fraction(0)
    for days, part, last in periods(per):
        granted_part = 1 if per == "term" else part
        lacking = max(Fraction(0), amounts["minimum"] * UNIT * granted_part - sum(lines[day] for day in days))
        missing += lacking if last in days else 0
        of_period = [each for each in found if each.day in days and each.charge in ("fee", "minimum")]
        owed = sum(lines[day] for day in days) + sum(each.amount for each in of_period)
        credit += min(amounts["credit"] * UNIT * granted_part, max(Fraction(0), owed))
    assert abs(total(found, "minimum") - missing) <= SLACK * max(1, len(begun))
    assert abs(total(found, "credit") + credit) <= SLACK * max(1, len(begun))


def test_free_tokens_of_a_day_have_the_same_share_of_each_call() -> None:
    """600 of 1,000 tokens are free, so each team pays 40 % of its cost. A day with fewer tokens costs nothing."""
    own = contract(ContractTerm(kind="allowance", tokens="600", per="day"))
    uses = [
        use("2026-01-05", 3, "a", input=250),
        use("2026-01-05", 7, "b", output=750),
        use("2026-01-06", 5, input=600),
    ]
    found = charges(own, uses)
    assert [("2026-01-05", -6 * UNIT), ("2026-01-06", -5 * UNIT)] == [
        (day_text(each.day), each.amount) for each in found
    ]
    assert {"a": -1.8, "b": -4.2} == {
        team: part / UNIT for team, part in divide_among_teams(found[0].amount, found[0].use)
    }


def test_free_kinds_of_tokens_leave_the_price_of_others() -> None:
    """Free input tokens do not reduce the price of output. Input is a fifth of the value of as much output."""
    own = contract(ContractTerm(kind="allowance", tokens="100", per="month", kinds=("input",)))
    [found] = charges(own, [use("2026-01-05", 10, input=100, output=100)])
    assert -2 * UNIT == found.amount


def test_a_minimum_counts_on_the_last_day_of_its_period() -> None:
    own = contract(ContractTerm(kind="minimum", amount="100", per="month"))
    uses = [use("2026-01-05", 60), use("2026-02-05", 130)]
    running = MONTHS[0].days[-1] - 1.0
    assert [] == charges(own, uses, now=running)
    found = charges(own, uses, now=MONTHS[1].days[-1])
    assert [("2026-01-31", 40 * UNIT)] == [(day_text(each.day), each.amount) for each in found]


def test_a_credit_pays_day_by_day_until_it_is_used_up() -> None:
    """A credit pays costs, minimums and fees day by day until it is used up, and never more than is owed."""
    own = contract(
        ContractTerm(kind="credit", amount="100", per="term"),
        ContractTerm(kind="fee", percent="50"),
        until="2026-03-01",
    )
    uses = [use("2026-01-05", 20), use("2026-01-07", 30), use("2026-02-05", 40)]
    paid = [
        (day_text(each.day), each.amount // UNIT) for each in charges(own, uses) if each.charge == "credit"
    ]
    assert [("2026-01-05", -30), ("2026-01-07", -45), ("2026-02-05", -25)] == paid


def test_an_amount_without_a_call_has_no_team() -> None:
    own = contract(ContractTerm(kind="fee", amount="31", per="month"), until="2026-01-03")
    found = charges(own, [use("2026-01-02", 5, "a")])
    assert [(None, UNIT), ("a", UNIT)] == [
        part for each in found for part in divide_among_teams(each.amount, each.use)
    ]
