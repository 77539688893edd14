"""What a later report of one call fills in, and where two reports disagree."""

from __future__ import annotations

import pytest

from spool.amendments import amended, disagree, missing
from spool.record import Inference


def report(**fields: object) -> Inference:
    return Inference(id=b"1" * 16, source="otel", **fields)  # type: ignore[arg-type]


def priced(cost: str, **tokens: int) -> Inference:
    return report(estimated_cost=cost, price_book="book", cost_source="estimated", **tokens)


def test_null_fields_are_filled_and_stated_ones_stay() -> None:
    """The first report of a fact wins."""
    first = report(request_model="gpt-4o", user="anna")
    assert {"team": "search"} == missing(first, report(request_model="other", user="bert", team="search"))


def test_a_reported_cost_brings_its_source() -> None:
    """A record that was estimated counts as reported once somebody says what it cost."""
    found = missing(priced("1", input_tokens=5), report(cost="0.5", input_tokens=5))
    assert {"cost": "0.5", "cost_source": "reported"} == found


@pytest.mark.parametrize(
    ("first", "later", "estimate"),
    [
        (priced("1", input_tokens=5), priced("0.4", input_tokens=5, cache_read_tokens=4), "0.4"),
        (priced("1", input_tokens=5), priced("0.4", cache_read_tokens=4), "1"),
        (priced("1", input_tokens=5), priced("2", input_tokens=5), "1"),
        (report(input_tokens=5), priced("2", input_tokens=5), "2"),
    ],
)
def test_the_estimate_of_the_fuller_count_stands(first: Inference, later: Inference, estimate: str) -> None:
    """A later report that knows all tokens of the first and more was priced better."""
    assert estimate == amended(first, missing(first, later)).estimated_cost


@pytest.mark.parametrize(
    ("first", "later", "expected"),
    [
        ({"input_tokens": 5}, {"input_tokens": 6}, True),
        ({"input_tokens": 5}, {"output_tokens": 6}, False),
        ({"cost": "0.1"}, {"cost": "0.10"}, False),
        ({"cost": "0.1"}, {"cost": "0.2"}, True),
        ({"cost": "0.1"}, {"cost": "NaN"}, True),
        ({"user": "anna"}, {"user": "bert"}, False),
    ],
)
def test_disagreement_is_about_tokens_and_cost(
    first: dict[str, object], later: dict[str, object], expected: bool
) -> None:
    """Sources round money and name people differently; numbers that differ are a conflict."""
    assert expected == disagree(report(**first), report(**later))
