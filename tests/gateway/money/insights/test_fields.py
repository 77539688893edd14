"""Senders that lose fields from one version to the next, and calls without usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gateway.money.insights.detector_facts import DAY_S
from gateway.money.insights.detectors.fields import lost_field, uncounted_calls
from spool.registry.insights import Finding
from spool.sender_fields import OTHER, FieldCounts, SenderDay
from tests.gateway.money.insights.examples import NOW, found

TODAY = int(NOW // DAY_S)
OLD, NEW = "2.1.121", "2.1.122"


def counts(
    calls: int = 100, *, days_ago: int = 0, senders: Sequence[str] = ("laptop",), **fields: int
) -> FieldCounts:
    at = NOW - days_ago * DAY_S
    return FieldCounts(first=at, last=at, calls=calls, senders=[*senders], fields=fields)


def by_day(*versions: tuple[int, str, FieldCounts], source: str = "claude_code") -> Mapping[int, SenderDay]:
    days: dict[int, SenderDay] = {}
    for days_ago, version, of_day in versions:
        days.setdefault(TODAY - days_ago, {})[source, version] = of_day
    return days


def lost(*versions: tuple[int, str, FieldCounts]) -> Sequence[Finding]:
    return found(lost_field, sender_fields=by_day(*versions))


def test_a_version_lost_its_cost() -> None:
    """
    The finding about a lost field has the counts of both versions. Fields that both versions state are not
    reported.
    """
    [finding] = lost(
        (2, OLD, counts(200, days_ago=2, cost=198, model=200)),
        (1, NEW, counts(240, days_ago=1, model=240)),
        (0, NEW, counts(1000, model=1000)),
    )
    assert "claude_code 2.1.122 states no cost: 0 of 1,240; 2.1.121: 99%" == finding.draft.title
    assert "possible reason" not in finding.draft.description


@pytest.mark.parametrize(
    ("before", "after", "is_found"),
    [
        ({"calls": 50, "cost": 45}, {"calls": 50, "cost": 5}, True),
        ({"calls": 50, "cost": 44}, {"calls": 50, "cost": 5}, False),
        ({"calls": 50, "cost": 45}, {"calls": 50, "cost": 6}, False),
        ({"calls": 49, "cost": 49}, {"calls": 50, "cost": 0}, False),
        ({"calls": 50, "cost": 50}, {"calls": 49, "cost": 0}, False),
        ({"senders": ["laptop", "other"]}, {"senders": ["laptop", "third"]}, True),
        ({"senders": ["laptop", "other"]}, {"senders": ["laptop"]}, False),
        ({"senders": ["laptop"]}, {"senders": ["laptop", "other"]}, False),
        ({"senders": ["laptop"]}, {"senders": ["another program"]}, False),
    ],
)
def test_edges(before: dict[str, Any], after: dict[str, Any], is_found: bool) -> None:
    """
    A lost field is reported from 50 calls of each version on, if 90 % of the old and at most 10 % of the new
    version's calls have it, with one sender or several on both sides.
    """
    old = counts(**{"days_ago": 1, "cost": 100, **before})
    assert is_found is bool(lost((1, OLD, old), (0, NEW, counts(**after))))


def test_fields_that_appear_or_never_were_are_silent() -> None:
    assert [] == lost((1, OLD, counts(days_ago=1)), (0, NEW, counts(cost=100)))
    assert [] == lost((1, OLD, counts(days_ago=1)), (0, NEW, counts()))


def test_it_ends_when_the_field_returns() -> None:
    """
    The newest day with enough calls decides about a new version, and the old version is compared by its newest days
    as well.
    """
    old, new = (2, OLD, counts(days_ago=2, cost=100)), (1, NEW, counts(900, days_ago=1))
    assert [] == lost(old, new, (0, NEW, counts(50, cost=50)))
    assert 1 == len(lost(old, new, (0, NEW, counts(49, cost=49))))
    assert [] == lost(old, new, (0, OLD, counts(days_ago=0)))


def test_it_ends_seven_days_after_the_last_call() -> None:
    old = (9, OLD, counts(days_ago=9, cost=100))
    assert 1 == len(lost(old, (7, NEW, counts(days_ago=7))))
    assert [] == lost(old, (8, NEW, counts(days_ago=8)))


def test_versions_of_one_moment_are_ordered_by_their_numbers() -> None:
    """
    Versions are sorted by number, so 2.1.99 is before 2.1.122. Calls of older versions, and of senders without a
    version, are not compared.
    """
    stating, lacking = counts(cost=100), counts()
    assert 1 == len(lost((0, "2.1.99", stating), (0, NEW, lacking)))
    assert [] == lost((0, "2.1.99", lacking), (0, NEW, stating))
    assert [] == lost((1, OLD, stating), (0, "", lacking), (0, OTHER, lacking))


def test_a_moved_share_is_named() -> None:
    """
    If the share of a provider changed by more than 20 points, this may be why a field is missing, so nothing is
    reported.
    """
    old, new = counts(days_ago=1, cost=100), counts()
    old.providers, new.providers = {"anthropic": 100}, {"anthropic": 80, "bedrock": 20}
    old.operations, new.operations = {"chat": 100}, {"chat": 79, "embeddings": 21}
    [finding] = lost((1, OLD, old), (0, NEW, new))
    assert "the share of the operation chat went from 100% to 79%" in finding.draft.description
    assert "provider" not in finding.draft.description


def test_rare_senders_are_silent() -> None:
    """50 senders with few calls and a new version every day raise no alarm."""
    days: dict[int, SenderDay] = {}
    for number in range(50):
        for age in range(14):
            days.setdefault(TODAY - age, {})[f"source {number}", f"1.{14 - age}"] = counts(
                3 + number % 40, days_ago=age, cost=0 if age % 2 else 3 + number % 40
            )
    assert [] == found(lost_field, sender_fields=days)
    assert [] == found(uncounted_calls, sender_fields=days)


@pytest.mark.parametrize(
    ("billed", "uncounted", "is_found"), [(50, 25, True), (51, 25, False), (49, 49, False), (0, 0, False)]
)
def test_calls_without_usage(billed: int, uncounted: int, is_found: bool) -> None:
    """Calls without usage are reported if they are at least half of at least 50 calls of a day."""
    today = counts(1000)
    today.billed, today.uncounted = billed, uncounted
    findings = found(uncounted_calls, sender_fields=by_day((0, NEW, today)))
    assert is_found is bool(findings)
    if is_found:
        assert "25 of 50 calls of claude_code 2.1.122 state no usage" == findings[0].draft.title


def test_the_newest_day_with_enough_calls_decides() -> None:
    bad, good, few = counts(60), counts(60), counts(9)
    bad.billed = bad.uncounted = good.billed = 60
    few.billed = 9
    assert 1 == len(found(uncounted_calls, sender_fields=by_day((1, NEW, bad), (0, NEW, few))))
    assert [] == found(uncounted_calls, sender_fields=by_day((1, NEW, bad), (0, NEW, good)))
    assert [] == found(uncounted_calls, sender_fields=by_day((2, NEW, bad)))
