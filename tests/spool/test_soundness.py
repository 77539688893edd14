"""A salvage leaves out rows that Tollhouse cannot have written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from spool.record import AI_TELEMETRY
from spool.sqlite.damage.soundness import LARGEST, RowCheck
from spool.sqlite.recovery import empty_database

COUNTER = {"topic": AI_TELEMETRY, "term": "accepted", "n": 5, "carried": 0}


@pytest.fixture(scope="module")
def check() -> Iterator[RowCheck]:
    with closing(empty_database()) as fresh:
        yield RowCheck(fresh)


def problem(check: RowCheck, table: str, values: dict[str, Any]) -> str:
    return check.find_problem(table, [values[name] for name in check.first_column_names(table, len(values))])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"term": "rejected.unknown_reason"}, ""),
        ({"topic": "ai-telemetrz"}, "the values of the row contradict each other"),
        ({"term": "acceptee"}, "the values of the row contradict each other"),
        ({"n": LARGEST}, "the values of the row contradict each other"),
        ({"carried": -LARGEST}, "the values of the row contradict each other"),
        ({"n": "5"}, "n has another type"),
        ({"term": None}, "term is missing"),
    ],
)
def test_a_counter_has_a_known_topic_and_term(
    check: RowCheck, changes: dict[str, Any], expected: str
) -> None:
    assert expected == problem(check, "books", COUNTER | changes)
