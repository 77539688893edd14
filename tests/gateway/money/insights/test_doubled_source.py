"""Detectors of calls that two sources report."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import pytest

from gateway.money.insights.detectors import calls as detectors
from gateway.money.insights.detectors.calls import doubled_source, repeated_ids
from spool.identity import build_nested_report, encode_times_as_dedup_key
from spool.record import NS, Inference
from tests.gateway.money.insights.examples import NOW, call, found, spend


def calls(source: str, *, later: float = 0.0, n: int = 30, **fields: Any) -> list[Inference]:
    """Create calls one minute apart, each with different token counts."""
    return [
        call(7200 - 60 * index - later, source=source, input_tokens=1000 + index, cost="0.1", **fields)
        for index in range(n)
    ]


def test_twins_of_another_source() -> None:
    """
    A second source repeats the calls: the same model and tokens three seconds later, with a prefix in the
    model name. Each repeated call costs $0.1.
    """
    twins = calls("otel", later=3, request_model="openai/gpt-4o")
    [finding] = found(doubled_source, recent=[*calls("litellm"), *twins])
    assert finding.draft.title == "litellm and otel seem to report the same calls"
    assert finding.draft.cost_impact == "3.00"
    assert '[sources."otel"]' in finding.draft.description


def test_calls_that_look_alike_take_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load test sends thousands of equal calls at once. The work per call does not grow with their number."""
    works: list[float] = []
    for number in (200, 2_000):
        starts = Mock(side_effect=detectors._start_or_zero)
        with monkeypatch.context() as patch:
            patch.setattr(detectors, "_start_or_zero", starts)
            found(doubled_source, recent=[call(9000, source="otel") for _ in range(number)])
        works.append(starts.call_count / number)
    assert works[1] <= works[0] + 1


def test_the_order_of_arrival_does_not_matter() -> None:
    one = found(doubled_source, recent=[*calls("litellm"), *calls("otel", later=3)])
    swapped = found(doubled_source, recent=[*calls("otel", later=3), *calls("litellm")])
    assert [finding.key for finding in one] == [finding.key for finding in swapped]


def test_what_is_no_twin() -> None:
    """
    Two calls are no repeat if they are six seconds apart, of the same source, cached, few or short, or if
    their tokens or models differ.
    """
    first = calls("litellm")
    for second in (
        calls("otel", later=6),
        calls("otel", later=1, output_tokens=7),
        calls("otel", later=1, request_model="o3"),
        calls("litellm", later=1),
        calls("otel", later=1, n=2),
        calls("otel", later=1, status="cached"),
    ):
        assert [] == found(doubled_source, recent=[*first, *second])
    short = [
        call(9000 - index, source=source, input_tokens=5, output_tokens=1)
        for index in range(40)
        for source in "ab"
    ]
    assert [] == found(doubled_source, recent=short)


@pytest.mark.parametrize("n", [3, 8])
def test_a_small_source_whose_calls_all_have_a_twin(n: int) -> None:
    """
    A developer's assistant makes a few calls through a gateway that serves many others. If each of these calls has
    a twin, there is a finding.
    """
    busy, twins = calls("litellm", n=200), calls("codex", later=2, n=n)
    [finding] = found(doubled_source, recent=[*busy, *twins])
    assert finding.draft.title == "codex and litellm seem to report the same calls"
    assert finding.draft.cost_impact == f"{n * Decimal('0.1'):.2f}"
    alone = calls("codex", later=2, n=1, output_tokens=9)
    assert [] == found(doubled_source, recent=[*busy, *twins, *alone])
    assert [] == found(doubled_source, recent=[*busy, *calls("codex", later=2, n=2)])


@pytest.mark.parametrize("others", [0, 10])
def test_an_assistant_whose_calls_are_mostly_joined_to_those_of_its_gateway(others: int) -> None:
    """
    An assistant and its gateway report 30 calls, and 27 of them are joined. The three others count twice. Calls that
    are joined have a session. The gateway also serves programs.
    """
    joined = [*calls("litellm", n=20, session="s"), *calls("copilot_cli", later=20, n=7, session="s")]
    programs = calls("litellm", later=30, n=others, output_tokens=9)
    doubled = [*calls("copilot_cli", later=10, n=3, session="s"), *calls("litellm", later=12, n=3)]
    [finding] = found(doubled_source, recent=[*joined, *programs, *doubled])
    assert finding.draft.title == "copilot_cli and litellm seem to report the same calls"
    assert finding.draft.cost_impact == "0.30"
    assert [] == found(doubled_source, recent=[*joined, *programs])


@pytest.mark.parametrize("seed", range(20))
def test_a_calm_month_has_no_finding(seed: int) -> None:
    """Sources of any size call the same models at the same hours, and some of their calls look alike by chance."""
    dice = random.Random(seed)
    recent = [
        call(
            dice.randrange(30) * 86400 + dice.randrange(8 * 3600),
            source=f"source {number}",
            session=f"session {number}" if number % 2 else None,
            request_model=dice.choice(["gpt-4o", "gpt-4o-mini", "claude-sonnet-4-5"]),
            input_tokens=dice.randint(50, 3000),
            output_tokens=dice.randint(1, 60),
        )
        for number in range(6)
        for _ in range(dice.choice([3, 4, 12, 60, 400]))
    ]
    assert [] == found(doubled_source, recent=recent)


def test_ids_that_came_again() -> None:
    """The finding of repeated ids assumes the average price of a call for each. A few repeats are ignored."""
    [finding] = found(repeated_ids, repeated_ids=20, week=[spend(cost=Decimal(50))])
    assert "10.00" == finding.draft.cost_impact
    assert [] == found(repeated_ids, repeated_ids=9, week=[spend()])


def test_chance_meetings_of_busy_sources() -> None:
    """Twelve matches by chance among hundreds of calls are not a finding."""
    many = [call(9000 - index, source=source, input_tokens=10 * index + source_index)
            for index in range(200) for source_index, source in enumerate(("litellm", "otel"))]  # fmt: skip
    assert [] == found(doubled_source, recent=[*many, *calls("litellm", n=12), *calls("otel", later=1, n=12)])


@pytest.mark.parametrize("told_input", [1600, 1000])
def test_spans_of_an_sdk_next_to_calls_of_the_same_source(told_input: int) -> None:
    """The framework may leave the cache out of the input. A call that has both reports is no repeat."""
    times = [int((NOW - 7200 - 60 * index) * NS) for index in range(30)]
    by_sdk = [told(index, start, is_inner=True, cache_read_tokens=600) for index, start in enumerate(times)]
    around = [told(index, start, is_inner=False) for index, start in enumerate(times)]
    for index, report in enumerate(around):
        report.input_tokens = told_input + index
    [finding] = found(doubled_source, recent=[*by_sdk, *around])
    assert finding.draft.title == "otel and otel (SDK) seem to report the same calls"
    assert finding.draft.cost_impact == "3.00"
    assert "ANTHROPIC_OPEN_TELEMETRY=false" in finding.draft.description
    assert [] == found(doubled_source, recent=around * 2)
    for report, other in zip(by_sdk, around, strict=True):
        report.also = (report.also or b"") + (other.also or b"")
    assert [] == found(doubled_source, recent=[*by_sdk, *around])


def told(index: int, start: int, *, is_inner: bool, **fields: Any) -> Inference:
    """Return a call with the name that nested reports have."""
    record = call(start_time=start, source="otel", input_tokens=1600 + index, cost="0.1", **fields)
    nesting = build_nested_report(record, ["desk"], start, start + NS, is_inner=is_inner)
    assert nesting is not None
    record.also = encode_times_as_dedup_key(nesting)
    return record
