"""The calls that an agent received, by session, against a count by hand, and the file with its limits."""

from __future__ import annotations

import random
from pathlib import Path

from gateway.devices.agent import heard_calls
from gateway.devices.agent.heard_calls import HeardCalls, HeardSessions, ReceivedCall, read_heard_calls
from gateway.devices.agent.sessions import session_key
from tests.rounds import examples

NOW = 1_800_000_000.0


def call(
    session: str = "one", ended: float = NOW, program: str = "codex", lasted: float = 5.0
) -> ReceivedCall:
    return ReceivedCall(program, session, None, ended - lasted, ended)


def test_a_slot_is_heard_by_calls_from_2_minutes_before_it_to_10_minutes_after_it() -> None:
    dice = random.Random(1)
    for _ in range(examples(300)):
        calls = [
            (began, began + dice.choice((0, 5, 900, 7000)))
            for began in (NOW + dice.uniform(0, 6 * 3600) for _ in range(dice.randrange(1, 12)))
        ]
        heard = HeardCalls()
        for began, ended in calls:
            heard.add_call(began, ended)
        for slot in range(int(NOW // 300) - 8, int(NOW // 300) + 130):
            begin, end = slot * 300, slot * 300 + 300
            by_hand = any(ended >= begin - 120 and began <= end + 600 for began, ended in calls)
            assert by_hand == heard.has_slot(slot), (calls, slot)


def test_calls_are_kept_by_session_and_those_without_one_by_user(tmp_path: Path) -> None:
    heard = HeardSessions(tmp_path)
    heard.add_calls([call(), call("", program="claude-code"), call("ses_1", program="opencode")], NOW)
    heard.write(7, NOW)
    stored = read_heard_calls(tmp_path)
    assert {session_key("codex", "one"), "codex", "claude-code", "opencode"} == stored.keys()
    is_heard = {key: calls.has_slot(int(NOW // 300)) for key, calls in stored.items()}
    assert {
        session_key("codex", "one"): True,
        "codex": False,
        "claude-code": True,
        "opencode": True,
    } == is_heard
    assert {NOW} == {calls.ended for calls in stored.values()}
    assert 7 == HeardSessions(tmp_path).number
    assert "one" not in (tmp_path / "heard.json").read_text()


def test_the_name_of_a_file_of_gemini_cli_is_enough() -> None:
    id = "7ce85377-0b0a-4908-8706-050403020100"
    assert session_key("gemini-cli", id) == session_key("gemini-cli", id[:8])
    assert session_key("codex", id) != session_key("codex", id[:8])
    assert session_key("codex", id) != session_key("qwen-code", id)


def test_the_file_has_the_newest_sessions(tmp_path: Path) -> None:
    heard = HeardSessions(tmp_path)
    for number in range(2100):
        heard.add_calls([call(str(number), NOW + number)], NOW + number)
    heard.add_calls([call("old", NOW - 15 * 86_400)], NOW + 2100)
    heard.write(0, NOW + 2100)
    stored = read_heard_calls(tmp_path)
    assert heard_calls.MOST_SESSIONS == len(stored)
    assert session_key("codex", "2099") in stored
    assert session_key("codex", "old") not in stored
    dice = random.Random(1)
    for number in range(1500, 2100):
        times = [NOW + dice.uniform(0, 14 * 86_400) for _ in range(40)]
        heard.add_calls([call(str(number), at) for at in times], NOW + 14 * 86_400)
    heard.write(0, NOW + 14 * 86_400)
    assert (tmp_path / "heard.json").stat().st_size <= heard_calls.MOST_BYTES
    assert read_heard_calls(tmp_path)


def test_a_clock_that_was_set_back_leaves_no_calls_of_the_future(tmp_path: Path) -> None:
    """Otherwise they would hide losses when the same times come again."""
    heard = HeardSessions(tmp_path)
    heard.add_calls([call(ended=NOW), call(ended=NOW - 7200)], NOW)
    heard.add_calls([call("other", NOW - 3600)], NOW - 3600)
    heard.write(0, NOW - 3600)
    calls = read_heard_calls(tmp_path)[session_key("codex", "one")]
    assert (True, False) == (calls.has_slot(int((NOW - 7200) // 300)), calls.has_slot(int(NOW // 300)))
    assert calls.ended <= NOW - 3600


def test_a_call_with_a_strange_time_hides_nothing_else(tmp_path: Path) -> None:
    heard = HeardSessions(tmp_path)
    heard.add_calls([ReceivedCall("codex", "one", None, 0.0, NOW + 1e9)], NOW)
    heard.write(0, NOW)
    calls = read_heard_calls(tmp_path)[session_key("codex", "one")]
    found = [calls.has_slot(int((NOW + at) // 300)) for at in (-2 * 86_400, -3600, 3600)]
    assert [False, True, False] == found


def test_a_damaged_file_has_no_calls(tmp_path: Path) -> None:
    for text in ("", "[]", "{", '{"sessions": {"a": 1}}'):
        (tmp_path / "heard.json").write_text(text)
        assert {} == read_heard_calls(tmp_path)
