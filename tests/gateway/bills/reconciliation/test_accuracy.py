"""How exactly a month is counted: its error is known by hand, and each call in doubt is counted once."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from random import Random

import pytest

from gateway.bills.reconciliation.accuracy import month_accuracy
from spool import money
from tests.gateway.bills.reconciliation.plants import Plant, difference, planted
from tests.gateway.bills.reconciliation.simulator import DAYS, OPENAI, Call
from tests.gateway.bills.reconciliation.test_faults import ALL

SEED = 14


def is_not_of(day: int, call: Call) -> bool:
    return call.day != day


async def test_the_error_is_the_sum_of_unexplained_days() -> None:
    """
    If a bill was converted at the rates of other dates, the difference is unexplained. Days that are too high and
    too low do not cancel each other.
    """
    plants = [ALL["drifting"](Random(SEED), OPENAI)]
    found = await planted(OPENAI, SEED, plants)
    assert not [claim for claim in found.claims if claim.cause != "rounding"]
    by_day = [difference(OPENAI, SEED, plants, without=partial(is_not_of, day)) for day in DAYS]
    rounding = sum(abs(amount) for line in found.days for amount in line.causes.values())
    error = sum(map(abs, by_day))
    assert error > abs(found.total.difference)
    assert abs(found.error - error) <= rounding + money.UNIT // 10**6
    shown = month_accuracy("2026-03", found)
    assert shown["error"] == money.units_to_text(found.error)
    assert shown["token_coverage"] == "100.00"
    assert Decimal(shown["error_percent"]) == round(Decimal(100 * found.error) / found.total.billed, 2)


async def test_a_clean_month_has_no_error() -> None:
    """If rounding explains the whole difference, no call is in doubt."""
    shown = month_accuracy("2026-03", await planted(OPENAI, SEED, [Plant(causes=())]))
    assert {"0.00"} == {shown["error_percent"]}
    assert shown["sentence"].startswith(f"March 2026, {OPENAI}: $")
    assert " ± $" in shown["sentence"]
    assert [0, 0, 0] == [shown[f"{name}_calls"] for name in ("failed", "aborted", "unpriced")]


@pytest.mark.parametrize(("name", "reason"), [("failed", "failed"), ("no output count", "aborted")])
async def test_calls_in_doubt_are_counted(name: str, reason: str) -> None:
    """The month counts failed calls and calls without an output count as doubtful, each once."""
    shown = month_accuracy("2026-03", await planted(OPENAI, SEED, [ALL[name](Random(SEED), OPENAI)]))
    others = {"failed", "aborted", "unpriced"} - {reason}
    assert shown[f"{reason}_calls"] > 0
    assert {0} == {shown[f"{other}_calls"] for other in others}


def test_without_a_bill_there_is_no_error() -> None:
    assert {None} == {*month_accuracy("2026-03", None).values()}
