"""The cost of capacity by day, and its parts of teams, compared with arithmetic by hand."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from gateway.bills.contracts.capacity import (
    CalledModel,
    PrepaidCoverage,
    TeamUse,
    capacity_terms,
    divide_among_teams,
)
from gateway.bills.contracts.declared import Contract, ContractTerm
from gateway.bills.months import CalendarMonth
from spool.money import UNIT
from spool.statements import DAY_S, parse_day

MARCH = CalendarMonth.of("2026-03")
LATER = float(MARCH.end)


def contract(name: str = "PTU", since: str = "2026-01-01", until: str = "", **term: str) -> Contract:
    stated = {"unit": "ptu", "number": "3", "price": "0.07", "per": "hour", **term}
    terms = (ContractTerm(kind="capacity", **stated), ContractTerm(kind="discount", percent="5"))  # type: ignore[arg-type]
    return Contract(
        id=name,
        name=name,
        provider="openai",
        since=since,
        until=until,
        terms=terms,
        created=1.0,
        last_updated=1.0,
    )


@pytest.mark.parametrize(
    ("since", "until", "now", "days"),
    [
        ("2026-01-01", "", LATER, 31),
        ("2026-03-10", "", LATER, 22),
        ("2026-01-01", "2026-03-10", LATER, 9),
        ("2026-01-01", "", MARCH.start + 1.5 * DAY_S, 2),
        ("2026-04-01", "", LATER + DAY_S, 0),
    ],
)
@pytest.mark.parametrize(("per", "daily"), [("hour", Fraction(24)), ("month", Fraction(1, 31))])
def test_days_of_a_contract_are_charged(
    since: str, until: str, now: float, days: int, per: str, daily: Fraction
) -> None:
    """A whole month by the month costs its price exactly. A price by the hour has no remainder."""
    found = capacity_terms([contract(since=since, until=until, per=per)], MARCH.days, now)
    amounts = [amount for term in found for amount in term.by_day.values()]
    assert days == len(amounts)
    assert all(abs(amount - Fraction("0.21") * daily * UNIT) < 1 for amount in amounts)
    if days == 31:
        assert Fraction("0.21") * daily * days * UNIT == sum(amounts)


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_teams_add_up(seed: int) -> None:
    """
    The costs of teams add up to the cost of the capacity for any number of teams, and follow the list values of
    their calls.
    """
    random = Random(seed)
    has_values = random.random() < 0.8
    uses = {
        f"team {number}": TeamUse(value=random.randint(0, 10**30) * has_values, calls=random.randint(1, 99))
        for number in range(random.randint(0, 30))
    }
    cost = random.randint(0, 10**32)
    parts = dict(divide_among_teams(cost, uses))
    assert cost == sum(parts.values())
    if not uses:
        assert {None: cost} == parts
        return
    weights = {team: use.value if has_values else use.calls for team, use in uses.items()}
    whole = sum(weights.values())
    assert all(
        not whole or abs(part - cost * weights[str(team)] // whole) <= 1 for team, part in parts.items()
    )


def test_one_term_covers_a_call() -> None:
    """
    Contracts that follow one another cover the calls of their own days. A contract also covers calls by the
    requested model name.
    """
    first = contract("first", until="2026-03-10")
    second = contract("second", since="2026-03-10")
    terms = capacity_terms([first, second], MARCH.days, LATER)
    covered = PrepaidCoverage(terms)
    called = CalledModel("openai", "gpt-4o", "our-deployment", "")
    days = (parse_day("2026-03-09"), parse_day("2026-03-10"))
    assert ["first", "second"] == [
        terms[index].contract.name
        for day in days
        if (index := covered.covering_term_index(called, day)) is not None
    ]
    assert covered.covering_term_index(called._replace(provider="anthropic"), days[0]) is None
