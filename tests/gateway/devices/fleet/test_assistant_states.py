"""The state of an assistant: the agent's claim counts only where no call that arrived says otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.devices.agent.assistants import ASSISTANTS
from gateway.devices.fleet.assistant_states import RECENT_S, assistants_of, evaluate
from gateway.devices.fleet.facts import ASSISTANT_OF_SOURCE, CAUSES
from spool.devices.device import Device

NOW = 1_800_000_000.0
ENROLLED_AT = NOW - 30 * 86_400
DAY, MINUTE = 86_400.0, 60.0

CASES: list[tuple[str, str, float | None, float | None, tuple[str, str]]] = [
    # claimed state and cause, seconds since the last use and since the newest call, state and cause
    ("reporting", "", None, None, ("unused", "")),
    ("reporting", "", 71 * MINUTE, None, ("unreachable", "no_record")),
    ("reporting", "", 70 * MINUTE, None, ("unused", "")),
    ("reporting", "", MINUTE, MINUTE, ("reporting", "")),
    ("unused", "", None, DAY, ("reporting", "")),
    ("unused", "", None, RECENT_S, ("reporting", "")),
    ("unused", "", None, RECENT_S + 1, ("unused", "")),
    ("unused", "", RECENT_S + 1, RECENT_S + 1, ("unused", "")),
    ("unused", "", 0.0, 10 * MINUTE, ("reporting", "")),
    ("unused", "", 0.0, DAY, ("reporting", "")),
    ("unused", "", 71 * MINUTE, 81 * MINUTE, ("reporting", "")),
    ("unused", "", 71 * MINUTE, 81 * MINUTE + 1, ("unreachable", "no_record")),
    ("unused", "", 31 * DAY, None, ("unused", "")),
    ("unreachable", "backlog", 0.0, DAY, ("unreachable", "backlog")),
    ("unreachable", "tls", None, None, ("unreachable", "tls")),
    ("unreachable", "", None, None, ("unreachable", "no_record")),
    ("unreachable", "agent_down", 3 * MINUTE, MINUTE, ("reporting", "")),
    ("not_installed", "", None, None, ("not_installed", "")),
    ("not_installed", "", None, DAY, ("reporting", "")),
    ("not_installed", "", None, 15 * DAY, ("not_installed", "")),
    ("telemetry_off", "settings", DAY, 2 * DAY, ("telemetry_off", "settings")),
    ("telemetry_off", "settings", 2 * DAY, DAY, ("reporting", "")),
    ("overridden", "other_endpoint", DAY, None, ("overridden", "other_endpoint")),
    ("not_configured", "no_policy", DAY, None, ("not_configured", "no_policy")),
    ("not_configured", "", None, None, ("not_configured", "")),
    ("unknown", "malformed", None, None, ("unknown", "malformed")),
    ("", "", None, MINUTE, ("reporting", "")),
    ("", "", None, 15 * DAY, ("unknown", "no_agent")),
]


@pytest.mark.parametrize(("claimed", "cause", "used", "newest", "expected"), CASES)
def test_the_table(
    claimed: str, cause: str, used: float | None, newest: float | None, expected: tuple[str, str]
) -> None:
    evaluated = evaluate(
        claimed,
        cause,
        used=None if used is None else NOW - used,
        newest=None if newest is None else NOW - newest,
        enrolled_at=ENROLLED_AT,
        now=NOW,
    )
    assert expected == evaluated


def test_without_calls_no_claim_makes_an_assistant_reporting() -> None:
    """Every claim and cause that an agent can send, with and without a use."""
    for state, causes in CAUSES.items():
        for cause in ("", *causes):
            for used in (None, NOW - 31 * DAY, NOW - DAY, NOW):
                evaluated = evaluate(state, cause, used=used, newest=None, enrolled_at=ENROLLED_AT, now=NOW)
                assert "reporting" != evaluated[0]


def device(assistants: dict[str, Any], **fields: Any) -> Device:
    heartbeat = json.dumps({"assistants": assistants}).encode()
    return Device(
        id="laptop",
        enrolled_at=ENROLLED_AT,
        enrolled_by="fleet",
        last_seen=NOW,
        heartbeat=heartbeat,
        **fields,
    )


def test_a_clock_that_is_ahead_makes_no_use_too_new() -> None:
    """The device's clock is an hour ahead, so its use lies before the newest call."""
    claim = {"codex": {"state": "unused", "used_at": "2027-01-15T08:50:00Z"}}  # 50 minutes after NOW
    later = NOW + 3 * 3600
    for offset_s, state in ((3600.0, "reporting"), (-3600.0, "unreachable")):
        known = device(claim, newest_calls={"codex": NOW}, clock_offset_s=offset_s)
        assert [state] == [each.state for each in assistants_of(known, now=later)]


def test_assistants_are_those_of_the_agent_and_of_the_calls() -> None:
    known = device({"codex": {"state": "unused"}}, newest_calls={"claude-code": NOW})
    assert [("claude-code", "reporting"), ("codex", "unused")] == [
        (each.name, each.state) for each in assistants_of(known, now=NOW)
    ]


def test_every_assistant_that_can_be_set_up_has_its_sources() -> None:
    """A further assistant of `agent setup` or `agent policy` needs a line in ASSISTANT_OF_SOURCE."""
    for assistant in ASSISTANTS.values():
        assert {assistant.name} == {ASSISTANT_OF_SOURCE[source] for source in assistant.sources}
    assert {*ASSISTANTS, "opencode"} == set(ASSISTANT_OF_SOURCE.values())
