"""The classes of waste by examples that were calculated by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.money.waste import judging
from spool.record import Inference
from tests.gateway.money.waste.examples import MODEL, amounts, call, judged


def lane(hour: Any) -> list[Inference]:
    """
    Make a conversation that breaks at its third call and pauses before its fourth. `hour` is the part of each
    write for an hour: a function of the write.
    """
    rows = [
        (0, 20_010, 0, 20_000),
        (65, 24_510, 20_000, 4_500),
        (130, 30_000, 8_000, 22_000),
        (1335, 31_000, 0, 31_000),
    ]
    return [call(at, size, read, write, cache_write_1h_tokens=hour(write)) for at, size, read, write in rows]


def test_a_break_and_a_pause_are_paid_again_at_the_price_of_writes() -> None:
    calls = judged(lane(lambda write: 0))
    assert amounts(calls) == {"break": "0.056925", "pause": "0.1035", "useful": "0.16866"}
    assert [sorted(each.amounts) for each in calls] == [[], [], ["break"], ["pause"]]


def test_tokens_that_live_for_an_hour_survive_the_pause() -> None:
    calls = judged(lane(lambda write: write))
    assert [each.amounts for each in calls[:2]] == [{}, {}]
    assert amounts(calls[2:3])["break"] == "0.09405"
    assert amounts(calls[3:]) == {"break": "0.171", "useful": "0.0225"}


def test_a_lifetime_that_is_not_stated_leaves_the_pause_unjudged() -> None:
    calls = judged(lane(lambda write: None))
    assert amounts(calls) == {"break": "0.056925", "not_judged": "0.1035", "useful": "0.16866"}
    assert calls[3].reason == judging.UNSURE_LIFETIME


def test_a_failed_call_that_is_repeated_leaves_what_it_wrote_for_the_next() -> None:
    calls = judged([
        call(0, 31_000, 0, 31_000),
        call(60, 33_000, 31_000, 2_000, output_tokens=0, status="error"),
        call(70, 33_000, 33_000, 0),
    ])  # fmt: skip
    assert amounts(calls[1:2]) == {"repeated": "0.0099", "useful": "0.0069"}
    assert not calls[0].amounts and not calls[2].amounts


@pytest.mark.parametrize(
    ("apart", "same"), [(60.0, True), (60.000001, False)], ids=["a minute after the end", "later"]
)
def test_a_repeat_begins_at_most_a_minute_after_the_call(apart: float, same: bool) -> None:
    first = call(0, 9_000, 0, 8_000, cache_write_1h_tokens=0)
    second = call(5 + apart, 9_000, 8_000, 0)
    assert (judging.REPEATED in judged([first, second])[0].amounts) is same


def test_an_answer_that_was_not_used_is_a_repeat_only_with_a_cache() -> None:
    """Without a cache, calls of the same size may be different questions."""
    twice = [call(at, 900, 0, 0) for at in (0, 10)]
    assert amounts(judged(twice)) == {"useful": "0.0204"}
    used = [call(0, 9_000, 0, 8_000), call(10, 9_000, 8_000, 500)]
    assert judging.REPEATED not in judged(used)[0].amounts


def test_a_change_of_the_model_and_a_shorter_input_are_choices() -> None:
    other = {"request_model": "claude-opus-4-5", "response_model": "claude-opus-4-5"}
    start = call(0, 20_000, 0, 20_000)
    assert amounts(judged([start, call(10, 21_000, 0, 21_000, **other)])[1:])["model_switch"] == "0.115"
    assert amounts(judged([start, call(10, 8_000, 5_000, 3_000)])[1:])["shortened"] == "0.01035"


@pytest.mark.parametrize(("second", "missed"), [(300, "0.00128"), (300.5, None)])
def test_an_automatic_cache_misses_within_the_time_that_is_stated(second: float, missed: str | None) -> None:
    """K is 1,024 of 1,100 tokens; gpt-4o costs 2.5, and 1.25 if it is read."""
    gpt: Any = {"provider": "openai", "request_model": "gpt-4o", "response_model": "gpt-4o"}
    found = amounts(judged([call(0, 1_100, 0, None, **gpt), call(second, 1_200, 0, None, **gpt)]))
    assert found.get("missed") == missed
    least = [call(at, 1_023, 0, None, **gpt) for at in (0, 10)]
    assert "missed" not in amounts(judged(least))


def test_writes_that_nobody_read_are_unread_once_nobody_can_read_them() -> None:
    alone = [call(0, 5_000, 1_000, 4_000, cache_write_1h_tokens=0)]
    assert amounts(judged(alone)) == {"unread": "0.003", "useful": "0.0198"}
    for known in ({"until": 305}, {"knows_all": False}):
        [one] = judged(alone, **known)
        assert (amounts([one])["not_judged"], one.reason) == ("0.003", judging.UNSURE_READ)
    assert amounts(judged(alone, until=305.1))["unread"] == "0.003"


def test_a_read_by_another_lane_of_the_same_key_is_of_use() -> None:
    writer = call(0, 5_000, 1_000, 4_000, cache_write_1h_tokens=0)

    def unread(at: float, api_key: str | None = None, model: str = MODEL) -> str | None:
        named = {"api_key": api_key, "request_model": model, "response_model": model}
        reader = call(at, 4_000, 3_000, 1_000, cache_write_1h_tokens=0, **named)
        return amounts(
            judged({("one",): [writer], ("two",): [reader, call(at + 9, 4_500, 4_000, 0, **named)]})[:1]
        ).get("unread")

    assert unread(60) == "0.00075"  # 4,000 of 5,000 tokens were read
    assert unread(60, api_key="other") == unread(60, model="claude-sonnet-4-0") == "0.003"
    assert unread(600) == "0.003"


def test_a_conversation_without_a_cache_pays_for_what_a_cache_would_have_held() -> None:
    """
    The cache would have written 4,096 tokens for 0.75 more per million, then read them for 2.70 less, and
    written the next 904 for 0.75 more.
    """
    calls = judged([call(0, 4_096, 0, 0), call(60, 5_000, 0, 0)])
    assert amounts(calls)["uncached"] == "0.0073092"  # (4096 * 2.7 - 904 * 0.75 - 4096 * 0.75) / 1,000,000
    for calls in (
        judged([call(0, 4_095, 0, 0), call(60, 5_000, 0, 0)]),
        judged([call(0, 4_096, 0, 0), call(301, 5_000, 0, 0)]),
        judged([call(0, 4_096, None, 0), call(60, 5_000, 0, 0)]),
        judged([call(0, 4_096, 0, 0), call(60, 3_000, 0, 0)]),
    ):
        assert not any(each.amounts for each in calls)


def test_what_is_not_known_is_not_judged() -> None:
    first = call(0, 20_000, 0, 20_000)
    assert judged({None: [first]})[0].reason == judging.NO_LANE
    cases: list[tuple[Inference, str]] = [
        (call(3, 21_000, 0, 21_000), judging.OVERLAPS),
        (call(10, 21_000, None, 21_000), judging.NO_COUNTS),
        (call(10, 21_000, 2_000, 20_000), judging.NO_COUNTS),
        (call(10, 21_000, 0, 21_000, provider="x_ai"), judging.NO_RULE),
        (
            call(10, 21_000, 0, 21_000, request_model="claude-9", response_model=None, cost="1"),
            judging.NO_PRICE,
        ),
    ]
    for second, reason in cases:
        found = judged([first, second])[-1]
        assert found.reason == reason
        assert not found.useful and not found.amounts
    without_end = call(0, 20_000, 0, 20_000, end_time=None)
    assert judged([without_end, call(10, 21_000, 0, 21_000)])[-1].reason == judging.NO_TIME


def test_a_lane_ends_six_hours_after_its_last_call() -> None:
    six = 6 * 3600
    start = call(0, 20_000, 0, 20_000, cache_write_1h_tokens=0)
    for at, name in ((5 + six, "pause"), (5.1 + six, "unread")):
        assert name in amounts(judged([start, call(at, 21_000, 0, 21_000, cache_write_1h_tokens=0)]))
    assert "pause" not in amounts(judged([start, call(5.1 + six, 21_000, 0, 21_000)]))


def test_amounts_shrink_with_the_paid_share_and_never_grow() -> None:
    def break_of(cost: str | None) -> str:
        calls = lane(lambda write: 0)
        calls[2] = call(130, 30_000, 8_000, 22_000, cache_write_1h_tokens=0, cost=cost)
        return amounts(judged(calls))["break"]

    whole = calls_cost = lane(lambda write: 0)[2].estimated_cost
    assert calls_cost == "0.0924"
    assert break_of(whole) == break_of("5") == "0.056925"
    assert break_of("0.0462") == "0.0284625"


def test_a_call_from_a_gateways_cache_is_none_that_the_provider_saw() -> None:
    start, end = call(0, 20_000, 0, 20_000), call(20, 21_000, 20_000, 1_000)
    between = call(10, 90_000, 0, 0, status="cached", request_model=MODEL)
    assert not any(each.amounts for each in judged([start, between, end])[1:])
