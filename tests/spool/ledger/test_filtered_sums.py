"""Filters select the numbers of dimensions first, and then read their sums in one of two ways."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from spool.ledger.dimensions import DerivedDimension
from spool.ledger.queries import CostQuery
from spool.ledger.sums import DAY_S, WIDTH, Dimensions
from spool.sqlite import ledger
from spool.sqlite.ledger import SqliteLedgerRows, migrate_ledger

DAYS, TEAMS, MODELS = 9, 7, 5
EVER: dict[str, Any] = {"since": datetime(1970, 1, 1, tzinfo=UTC), "until": datetime(1970, 2, 1, tzinfo=UTC)}
FILTERS = (
    {"include": {"team": ("team-3",)}},
    {"include": {"team": ("team-3", "team-4"), "model": ("model-1",)}, "exclude": {"team": ("team-4",)}},
    {"exclude": {"model": ("model-0",)}},
    {"include": {"team": ("nobody",)}},
    {"include": {"team": ("",)}},
    {"include": {"large": ("yes",)}},
    {"exclude": {"large": ("yes",)}},
)
LARGE = DerivedDimension(
    name="large", label="", sources=("team",), value=lambda names: "yes" if names[0] > "team-2" else ""
)


def dimensions(team: int, model: int) -> Dimensions:
    name = f"team-{team}" if team else ""
    return Dimensions(
        "call", "litellm", "p", f"model-{model}", "", name, "", "", "", "", "ok", "reported", "", 0
    )


def filled() -> SqliteLedgerRows:
    rows = SqliteLedgerRows(connection := sqlite3.connect(":memory:"))
    migrate_ledger(connection)
    chance = Random(1)
    for team in range(TEAMS):
        for model in range(MODELS):
            [number] = rows.find_or_assign_dimension_set_numbers([dimensions(team, model)])
            days = [day for day in range(DAYS) if chance.random() < 0.7]
            rows.add_sums(DAY_S, [(day * DAY_S, number, [1] * WIDTH) for day in days])
    return rows


@pytest.mark.parametrize("named", FILTERS)
@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("most", [0, 20, 20_000])
def test_both_ways_find_the_same(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, dict[str, tuple[str, ...]]], by_start: bool, most: int
) -> None:
    """
    Looking up sums one by one and scanning all sums give the same result as checking every sum separately.
    """
    monkeypatch.setattr(ledger, "_LOOKED_UP", most)
    rows = filled()
    since, until = DAY_S, (DAYS - 1) * DAY_S
    include, exclude = named.get("include", {}), named.get("exclude", {})

    def passes(of: Dimensions) -> bool:
        known = {**of._asdict(), "large": LARGE.value((of.team,))}
        return all(known[name] in values for name, values in include.items()) and not any(
            known[name] in values for name, values in exclude.items()
        )

    expected: dict[tuple[str | None, int], int] = {}
    for start in range(since, until, DAY_S):
        for of, measures in rows.read_sums(DAY_S, start):
            if passes(of):
                place = (of.team or None, start if by_start else 0)
                expected[place] = expected.get(place, 0) + measures[0]
    query = CostQuery(
        **EVER, group_by=("team",), include=include, exclude=exclude, derived={LARGE.name: LARGE}
    )
    found = rows.totals_by_group([(DAY_S, since, until, 0)], query, groups_by_start=by_start)
    assert {(each.group[0], each.start): each.measures[0] for each in found} == expected


def test_sums_of_few_numbers_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a filter passes few numbers, no other sums of the time are read."""
    rows = filled()
    asked: list[str] = []
    rows._connection.set_trace_callback(asked.append)
    query = CostQuery(**EVER, include={"team": ("team-3",)})
    list(rows.totals_by_group([(DAY_S, 0, DAYS * DAY_S, 0)], query))
    rows._connection.set_trace_callback(None)
    statements = [text for text in asked if "days" in text]
    assert statements
    for statement in statements:
        plan = [row[-1] for row in rows._connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert any("SEARCH days USING PRIMARY KEY (start=? AND key=?)" in line for line in plan), plan


@pytest.mark.parametrize(
    "include", [{}, {"team": ("team-3",)}, {"status": ("error",)}, {"team": ("nobody",)}]
)
@pytest.mark.parametrize("by_start", [False, True])
def test_sums_of_outcomes_are_those_of_every_sum(include: dict[str, tuple[str, ...]], by_start: bool) -> None:
    """
    Without a dimension, sums are split only by status and cost source, whichever of them is most frequent.
    """
    rows = filled()
    outcomes = (("error", "none"), ("cached", "estimated"), ("ok", "estimated"))
    for place, (status, cost_source) in enumerate(outcomes, start=2):
        of = dimensions(3, place)._replace(status=status, cost_source=cost_source)
        measures = [place**power for power in range(1, WIDTH + 1)]
        rows.add_sums(
            DAY_S,
            [
                (day * DAY_S, rows.find_or_assign_dimension_set_numbers([of])[0], measures)
                for day in range(0, DAYS, place)
            ],
        )
    expected: dict[tuple[str, str, int], list[int]] = {}
    for start in range(0, DAYS * DAY_S, DAY_S):
        for of, measures in rows.read_sums(DAY_S, start):
            if all(of._asdict()[name] in values for name, values in include.items()):
                at = (of.status, of.cost_source, start if by_start else 0)
                expected[at] = [a + b for a, b in zip(expected.get(at, [0] * WIDTH), measures, strict=True)]
    totals = rows.totals_by_group(
        [(DAY_S, 0, DAYS * DAY_S, 0)], CostQuery(**EVER, include=include), groups_by_start=by_start
    )
    found = {(each.status, each.cost_source, each.start): [*each.measures] for each in totals}
    assert {at: measures for at, measures in found.items() if any(measures)} == expected


def test_numbers_of_a_filter_are_chosen_once_for_several_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The numbers of dimensions that pass a filter are chosen once for several stretches of time. They are used until
    there is a new number or another filter, even after a stretch with too few of them.
    """
    monkeypatch.setattr(ledger, "_LOOKED_UP", 20)
    rows = filled()
    asked: list[str] = []
    rows._connection.set_trace_callback(asked.append)

    def calls(since: int, until: int, team: str = "team-3") -> int:
        query = CostQuery(**EVER, include={"team": (team,)})
        found = rows.totals_by_group([(DAY_S, since * DAY_S, until * DAY_S, 0)], query)
        return sum(each.measures[0] for each in found)

    def chosen() -> int:
        found = sum(text.startswith("SELECT id FROM keys") for text in asked)
        asked.clear()
        return found

    parts = calls(0, DAYS), calls(0, 2), calls(2, 5), calls(5, DAYS)
    assert 2 == chosen()  # the first stretch has too many numbers to choose all
    assert parts[0] == sum(parts[1:])
    assert [calls(0, 2, "team-4"), calls(0, 2, "team-4")] == [calls(0, 2, "team-4")] * 2
    assert 1 == chosen()
    [number] = rows.find_or_assign_dimension_set_numbers([dimensions(4, MODELS)])
    rows.add_sums(DAY_S, [(0, number, [1000] * WIDTH)])
    assert calls(0, 2, "team-4") > 1000


@pytest.mark.parametrize("passing", range(1, TEAMS))
def test_derived_values_are_computed_once_for_several_stretches(
    monkeypatch: pytest.MonkeyPatch, passing: int
) -> None:
    """
    If many sets of dimensions pass, their derived values are computed once for all time ranges of a query, and no
    more than half of their numbers are listed.
    """
    monkeypatch.setattr(ledger, "_LOOKED_UP", 0)
    rows = filled()
    computed = 0

    def value(names: tuple[str, ...]) -> str:
        nonlocal computed
        computed += 1
        return "yes" if names[0] < f"team-{passing}" else ""

    teams = DerivedDimension(name="some", label="", sources=("team",), value=value)
    query = CostQuery(**EVER, include={"some": ("yes",)}, derived={"some": teams})
    spans = [(DAY_S, day * DAY_S, (day + 3) * DAY_S, 0) for day in range(0, DAYS, 3)]
    found = [list(rows.totals_by_group([span], query)) for span in spans]
    expected = [(of, measures) for day in range(DAYS) for of, measures in rows.read_sums(DAY_S, day * DAY_S)]
    assert sum(measures[0] for of, measures in expected if of.team < f"team-{passing}") == sum(
        each.measures[0] for sums in found for each in sums
    )
    assert computed <= TEAMS * MODELS + len(spans)
    assert len(json.loads(rows._divided[2])) <= TEAMS * MODELS / 2
