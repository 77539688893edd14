"""Detectors of provider reports that no longer arrive, and of a falling counted share of a bill."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.lines import AGREES, DIFFERS, EXPLAINED, OPEN, UNKNOWN, ComparisonLine
from gateway.bills.reconciliation.reconciler import ReconciledMonth
from gateway.bills.statements.arrivals import ReportArrival
from gateway.money.insights.detector_facts import DAY_S, InsightFacts
from gateway.money.insights.detectors.statements import (
    coverage_drop,
    reconciliation_difference,
    statement_stale,
)
from spool.money import UNIT
from spool.registry.notices import NOT_ARRIVING
from tests.gateway.bills.reconciliation import simulator
from tests.gateway.money.insights.examples import NOW, TODAY, found

HOUR_S = 3600
MONTH = datetime.fromtimestamp(NOW, UTC).replace(day=1, hour=0).timestamp() // DAY_S * DAY_S


def pulled(until: float | None, **fields: Any) -> ReportArrival:
    values: dict[str, Any] = {"source": "openai_costs", "account": "", "settle_s": 2 * DAY_S, "until": until,
                              "pull": "costs", "every": 6 * HOUR_S}  # fmt: skip
    return ReportArrival(**{**values, **fields})


def imported(until: float, months: Sequence[str] = ("2026-07", "2026-08"), **fields: Any) -> ReportArrival:
    return pulled(until, pull="", every=0.0, months=months, **fields)


def test_a_pull_that_brings_nothing_new() -> None:
    """
    A pull without new data is reported after one day plus its settle time and its interval. The text has the
    reason of the failure.
    """
    edge = NOW - DAY_S - 2 * DAY_S - 6 * HOUR_S
    assert [] == found(statement_stale, arrivals=[pulled(edge)])
    [finding] = found(
        statement_stale, arrivals=[pulled(edge - 1, failure="401 wrong key; check that it is an admin key")]
    )
    assert finding.draft.title.startswith("The report openai_costs that costs pulls ends with ")
    assert "The pull failed: 401 wrong key; check that it is an admin key." in finding.draft.description
    assert "tollhouse reconcile pull --name costs" in finding.draft.description
    [silent] = found(statement_stale, arrivals=[pulled(edge - 1)])
    assert finding.key == silent.key
    assert "No pull has finished since." in silent.draft.description


def test_pull_that_never_had_data_is_reported_once_failed() -> None:
    """A pull that never had data is reported once it has failed. A new pull gets time first."""
    assert [] == found(statement_stale, arrivals=[pulled(None)])
    [finding] = found(statement_stale, arrivals=[pulled(None, failure="404")])
    assert "has never arrived" in finding.draft.title


def test_each_pull_has_its_own_settle_time() -> None:
    """Reports of clouds settle in three days, those of LiteLLM in an hour."""
    until = NOW - 3 * DAY_S
    stale = found(
        statement_stale, arrivals=[pulled(until, settle_s=HOUR_S), pulled(until, settle_s=3 * DAY_S)]
    )
    assert 1 == len(stale)


def test_a_month_that_was_not_imported() -> None:
    """
    A month must be completely imported once its bill has settled. `NOW` is in the third week of a month.
    """
    month = datetime.fromtimestamp(MONTH - 1, UTC).strftime("%Y-%m")
    assert [] == found(statement_stale, arrivals=[imported(MONTH)])
    [finding] = found(statement_stale, arrivals=[imported(MONTH - 3 * DAY_S)])
    assert f"The report openai_costs does not cover the whole of {month}" == finding.draft.title
    settles = NOW - MONTH
    assert [] == found(statement_stale, arrivals=[imported(MONTH - DAY_S, settle_s=settles + 1)])
    assert 1 == len(found(statement_stale, arrivals=[imported(MONTH - DAY_S, settle_s=settles)]))


def test_who_does_not_import_monthly_is_not_reminded() -> None:
    """
    A person who imported only one month gets no reminder, and neither does a person who stopped
    importing long ago.
    """
    assert [] == found(statement_stale, arrivals=[imported(MONTH - DAY_S, months=("2026-08",))])
    assert [] == found(statement_stale, arrivals=[imported(NOW - 101 * DAY_S)])


def reconciled(
    *rates: int, state: str = AGREES, has_money: bool = True, **fields: Any
) -> list[ReconciledMonth]:
    """
    Create one day per rate in percent, up to the day before yesterday, each with $100 and a million tokens.
    """
    lines = [
        ComparisonLine(
            name=str(int(TODAY - (len(rates) + 1 - place) * DAY_S)), state=state, billed=100 * UNIT,
            counted=rate * UNIT, billed_tokens=1_000_000, counted_tokens=rate * 10_000,
            captured_tokens=rate * 10_000, captured_money=rate * UNIT,
        )
        for place, rate in enumerate(rates)
    ]  # fmt: skip
    values: dict[str, Any] = {
        "provider": "openai", "total": ComparisonLine(), "days": lines, "models": (), "keys": (),
        "claims": (), "finest": "day",
        "has_money": has_money, "sources": (), "set_aside": (), "foreign": {}, "only_billed": {}, "only_counted": {},
        "renamed": (),
    }  # fmt: skip
    reconciliation = Reconciliation(**{**values, **fields})
    return [ReconciledMonth(month=CalendarMonth.at(NOW), providers=[reconciliation], without={})]


def test_less_is_counted_than_before() -> None:
    """
    A drop of more than five points over a week of settled days is reported. The missing amount is the impact.
    """
    [finding] = found(coverage_drop, reconciled=reconciled(*[98] * 14, *[70] * 7))
    assert (
        "The counted share of the tokens that openai billed fell from 98.0% to 70.0%" == finding.draft.title
    )
    assert "210.00" == finding.draft.cost_impact
    assert "tollhouse reconcile report --month" in finding.draft.description
    assert [] == found(coverage_drop, reconciled=reconciled(*[98] * 14, *[93] * 7))
    assert 1 == len(found(coverage_drop, reconciled=reconciled(*[98] * 14, *[93] * 6, 92)))


def test_money_alone_can_drop() -> None:
    """The share of counted money can drop while all tokens are counted, because a price is missing."""
    months = reconciled(*[98] * 14, *[70] * 7)
    for line in months[0].providers[0].days:
        line.captured_tokens = line.billed_tokens
    [finding] = found(coverage_drop, reconciled=months)
    assert "of the money that openai billed" in finding.draft.title


@pytest.mark.parametrize("state", [OPEN, UNKNOWN])
def test_days_that_are_not_compared_give_no_finding(state: str) -> None:
    """Open days and days without a bill do not count."""
    assert [] == found(coverage_drop, reconciled=reconciled(*[98] * 14, *[70] * 7, state=state))
    assert 1 == len(found(coverage_drop, reconciled=reconciled(*[98] * 14, *[70] * 7, state=DIFFERS)))


def test_a_rate_needs_days_before() -> None:
    """The drop is measured against a week before it. A constant gap is no drop, and neither is a rise."""
    assert [] == found(coverage_drop, reconciled=reconciled(*[98] * 6, *[70] * 7))
    assert 1 == len(found(coverage_drop, reconciled=reconciled(*[98] * 7, *[70] * 7)))
    assert [] == found(coverage_drop, reconciled=reconciled(*[70] * 21))
    assert [] == found(coverage_drop, reconciled=reconciled(*[70] * 14, *[98] * 7))


def test_two_months_are_one_time() -> None:
    """The days of the last and the current month are read as one period, in any order."""
    [whole] = reconciled(*[98] * 10, *[70] * 7)
    days = list(whole.providers[0].days)
    [late], [early] = reconciled(), reconciled()
    late.providers[0].days.extend(days[9:])  # type: ignore[attr-defined]
    early.providers[0].days.extend(days[:9])  # type: ignore[attr-defined]
    assert 1 == len(coverage_drop(InsightFacts(now=NOW, reconciled=[late, early])))


async def test_a_key_that_stops_to_report() -> None:
    """
    In a simulated month, a key stops reporting. The finding is only for its provider, with the cost of its calls.
    """
    calls, silent, since = simulator.month(a_day=6), simulator.KEYS[1], simulator.DAYS[-7]
    missing = [
        call for call in calls if call.key == silent and call.day >= since and call.provider == "openai"
    ]
    counts = await simulator.count(
        [simulator.record(call) for call in calls if call not in missing], simulator.book()
    )
    rows = simulator.statements(calls)
    providers = [simulator.reconcile(provider, rows, counts) for provider in simulator.PROVIDERS]
    month = ReconciledMonth(month=CalendarMonth.of("2026-03"), providers=providers, without={})
    [finding] = found(coverage_drop, reconciled=[month])
    assert "openai billed fell from 100.0% to " in finding.draft.title
    assert "The largest cause of the month is unreported calls: " in finding.draft.description
    cost = sum((call.cost() for call in missing), Decimal(0))
    assert abs(Decimal(finding.draft.cost_impact) - cost) <= Decimal("0.01")


def test_the_amounts_of_a_difference_add_up() -> None:
    """
    The title and the listed causes are about the days that differ, and their shown amounts add up: billed - counted
    is the sum of the causes and the unexplained rest. Days that agree are in none of them.
    """
    cent = UNIT // 100

    def line(day: float, state: str, counted: int, *causes: int, unexplained: int = 0) -> ComparisonLine:
        amounts = {f"cause_{number}": amount for number, amount in enumerate(causes)}
        billed = counted + sum(causes) + unexplained
        return ComparisonLine(name=str(int(day)), state=state, billed=billed, counted=counted, causes=amounts)

    days = [
        line(TODAY - 3 * DAY_S, DIFFERS, 1000 * cent + cent // 3, 304 * cent // 10, 76 * cent // 10),
        line(TODAY - 4 * DAY_S, DIFFERS, 500 * cent, -1234 * cent // 100, unexplained=67 * cent // 10),
        line(TODAY - 5 * DAY_S, AGREES, 700 * cent, 9 * cent),
    ]
    result = Reconciliation(
        provider="openai", total=ComparisonLine(), days=days, finest="day", has_money=True, sources=["costs"],
        set_aside=(), foreign={},
    )  # fmt: skip
    reconciled = ReconciledMonth(month=CalendarMonth.at(NOW), providers=[result], without={})
    [finding] = found(reconciliation_difference, reconciled=[reconciled])
    billed, counted = map(Decimal, re.findall(r"[$]([0-9.]+)", finding.draft.title))
    listed = re.findall(r"(?:cause [0-9]|unexplained): (-?)[$]([0-9.]+)", finding.draft.description)
    assert 3 == len(listed)
    assert billed - counted == sum(Decimal(f"{sign}{amount}") for sign, amount in listed)
    assert Decimal("15.00") == counted


def test_the_impact_is_the_size_of_all_causes() -> None:
    """Causes of opposite sign do not cancel out, and days that causes explain count as well."""
    days = [
        ComparisonLine(
            name=str(int(TODAY - 3 * DAY_S)), state=EXPLAINED, billed=100 * UNIT, counted=97 * UNIT,
            causes={"unreported_traffic": 15 * UNIT, "double_report": -8 * UNIT, "own_price": -4 * UNIT},
        ),
        ComparisonLine(name=str(int(TODAY - 4 * DAY_S)), state=DIFFERS, billed=9 * UNIT, counted=10 * UNIT),
    ]  # fmt: skip
    [finding] = found(reconciliation_difference, reconciled=reconciled(days=days))
    assert 28 == Decimal(finding.draft.cost_impact)
    assert "2 settled days" in finding.draft.title
    assert "The cost impact adds up all causes without their signs" in finding.draft.description
    assert "- unreported traffic: $15.00" in finding.draft.description
    one_sided = reconciled(
        days=[ComparisonLine(name=str(int(TODAY - 4 * DAY_S)), state=DIFFERS, billed=9 * UNIT)]
    )
    [finding] = found(reconciliation_difference, reconciled=one_sided)
    assert "without their signs" not in finding.draft.description


def test_no_title_names_two_equal_amounts() -> None:
    """If two days exchange an amount, their total agrees, but both days count as different."""
    days = [
        ComparisonLine(
            name=str(int(TODAY - back * DAY_S)), state=DIFFERS, billed=billed * UNIT, counted=(10 - billed) * UNIT,
            causes={"posted_late": (2 * billed - 10) * UNIT},
        )
        for back, billed in ((4, 2), (3, 8))
    ]  # fmt: skip
    [finding] = found(reconciliation_difference, reconciled=reconciled(days=days))
    assert ["10.00"] == re.findall(r"[$]([0-9.]+)", finding.draft.title)


def test_a_refused_pull_is_critical_after_a_day() -> None:
    """
    A pull that would remove final figures is critical 24 hours after its first refusal, with the reason, although its
    newest bills are in time.
    """
    fields = {"failure": "nothing was stored, because it would remove stored figures"}
    fresh = NOW - HOUR_S
    assert [] == found(statement_stale, arrivals=[pulled(fresh, refused_since=NOW - DAY_S + 1, **fields)])
    [finding] = found(statement_stale, arrivals=[pulled(fresh, refused_since=NOW - DAY_S, **fields)])
    assert NOT_ARRIVING == finding.draft.category
    assert finding.draft.title.startswith("The bills that costs pulls are refused since ")
    assert fields["failure"] in finding.draft.description
    assert "tollhouse reconcile pull --name costs --replace" in finding.draft.description
