"""Detectors of contracts that end and plans without seats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.bills.contracts.declared import Contract, ContractTerm
from gateway.bills.plans.declared import AssistantPlan, Seat
from gateway.money.insights.detectors.contracts import contract_ends, plan_without_seats
from spool.registry.notices import CRITICAL, INFO, WARNING
from tests.gateway.money.insights.examples import NOW, found


def day(days_from_now: int) -> str:
    return (datetime.fromtimestamp(NOW, UTC) + timedelta(days=days_from_now)).date().isoformat()


def contract(name: str, since: int, until: int | None, *kinds: Any, provider: str = "openai") -> Contract:
    return Contract(
        id=name, name=name, provider=provider, since=day(since), until="" if until is None else day(until),
        terms=tuple(ContractTerm(kind=kind) for kind in kinds or ("discount",)), created=0.0, last_updated=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("until", "severity"),
    [(31, None), (30, WARNING), (8, WARNING), (7, CRITICAL), (0, CRITICAL), (-29, CRITICAL), (-30, None)],
)
def test_an_end_is_a_warning_a_month_before_and_critical_a_week_before(
    until: int, severity: str | None
) -> None:
    """The times are written here as the documentation promises them. NOW is an afternoon."""
    findings = found(contract_ends, contracts=[contract("Year", -300, until)])
    assert [severity] * (severity is not None) == [finding.severity for finding in findings]


def test_a_contract_that_others_continue_does_not_end() -> None:
    """All kinds of terms must be continued, by contracts of the provider that begin in time and last longer."""
    year = contract("Year", -300, 5, "discount", "minimum")
    discount, minimum = contract("Next", 5, None), contract("Minimum", 1, 400, "minimum")
    for others, ends in (
        ([discount], True),
        ([discount, minimum], False),
        ([contract("Late", 6, None, "discount", "minimum")], True),
        ([contract("Short", -9, 5, "discount", "minimum")], True),
        ([contract("Other", 5, None, "discount", "minimum", provider="anthropic")], True),
    ):
        names = [finding.draft.title for finding in found(contract_ends, contracts=[year, *others])]
        assert ends is any("The contract Year ends with" in name for name in names)


def test_a_plan_without_a_seat_of_today_is_told() -> None:
    """A seat that ended yesterday counts no more, and one that begins later does."""
    seats = {"Idle": (), "Ended": (day(0),), "Held": (day(0), ""), "Ending": (day(1),)}
    plans = [
        AssistantPlan(
            id=name, name=name, view="v", created=0.0, last_updated=0.0,
            seats=tuple(Seat(user="ann@example.com", since=day(-9), until=until) for until in ends),
        )
        for name, ends in seats.items()
    ]  # fmt: skip
    findings = found(plan_without_seats, plans=plans)
    assert ["Ended", "Idle"] == [finding.draft.title.rpartition(" ")[2] for finding in findings]
    assert {INFO} == {finding.severity for finding in findings}
