"""How a gateway reports calls that wait there for the next Tollhouse."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.devices.fleet.forwarded_heartbeats import adjust_heartbeat_for_upstream
from spool.devices.device import Device

NOW, MINUTE = 1_790_000_000.0, 60.0


def told(
    waiting_s: float | None, *, hold_s: float = 0.0, call_s: float = 60.0, **claim: Any
) -> dict[str, Any]:
    """
    Return what the next Tollhouse hears now, of a heartbeat of one minute ago. The oldest record waits for `waiting_s`,
    and the newest call ended `call_s` ago.
    """
    device = Device(
        id="laptop",
        enrolled_at=0.0,
        enrolled_by="fleet",
        last_seen=NOW,
        last_heartbeat=NOW - MINUTE,
        last_telemetry=NOW - call_s,
        newest_calls={"codex": NOW - call_s},
    )
    fields = {"state": "reporting", "use": "heard", "heard_at": "an hour"} | claim
    heartbeat = {"assistants": {"codex": fields}, "spool": {"records": 0, "oldest_age_s": 3.0}}
    since = None if waiting_s is None else NOW - waiting_s
    adjust_heartbeat_for_upstream(heartbeat, device, since, record_hold_s=hold_s, now=NOW)
    return heartbeat


@pytest.mark.parametrize(
    ("waiting_s", "hold_s", "is_stated"),
    [(None, 0.0, True), (30.0, 0.0, True), (90.0, 0.0, False), (None, 90.0, False), (None, 60.0, True)],
)
def test_the_newest_call_is_stated_if_all_before_the_heartbeat_is_sent(
    waiting_s: float | None, hold_s: float, *, is_stated: bool
) -> None:
    claim = told(waiting_s, hold_s=hold_s)["assistants"]["codex"]
    assert is_stated == ("heard_at" in claim)
    assert "reporting" == claim["state"]


def test_calls_that_wait_for_ten_minutes_are_a_backlog() -> None:
    found = told(11 * MINUTE)
    assert {"state": "unreachable", "cause": "backlog", "use": "heard"} == found["assistants"]["codex"]
    assert {"records": 0, "oldest_age_s": 11 * MINUTE} == found["spool"]


@pytest.mark.parametrize(
    "claim",
    [
        {"state": "overridden", "cause": "environment"},
        {"state": "unreachable", "cause": "agent_down", "use": "losing"},
        {"state": "reporting", "use": "losing"},
    ],
)
def test_a_worse_word_of_the_agent_stays(claim: dict[str, Any]) -> None:
    found = told(11 * MINUTE, **claim)["assistants"]["codex"]
    assert claim == {name: found[name] for name in claim}


def test_a_device_without_calls_since_then_has_no_backlog() -> None:
    assert "reporting" == told(11 * MINUTE, call_s=60 * MINUTE)["assistants"]["codex"]["state"]
