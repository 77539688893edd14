"""The table of states: each state with each of its causes, and their order."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from gateway.devices.agent.probe.states import (
    AssistantFacts,
    HomeState,
    SettingsSource,
    evaluate_home,
    worst_home_state,
)
from gateway.devices.fleet.heartbeat_facts import CAUSES
from gateway.devices.fleet.uses import RememberedAssistantUses

RECENT_S = 14 * 86_400  # docs/coverage.md: within 14 days
NOW = 1_000_000_000.0
FINE = AssistantFacts(
    is_enabled=True, is_ours=True, enabled_by=SettingsSource.FILE, endpoint_by=SettingsSource.FILE
)
USED = replace(FINE, used_at=NOW - 3600)
CONFIGURED = RememberedAssistantUses(
    setting="configured", since=NOW - 30 * 86_400, cut_since=NOW - 30 * 86_400
)
# earlier looks saw two uses without a call, five and ten minutes before the use that this look sees
LOSING = replace(FINE, used_at=NOW - 300)
UNHEARD = msgspec.structs.replace(
    CONFIGURED, used=NOW - 600, unheard=NOW - 900, newest=(NOW - 900, NOW - 600)
)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (replace(FINE, newest_call=NOW - RECENT_S), ("reporting", "")),
        (replace(USED, newest_call=NOW - 3600 - 120), ("reporting", "")),
        (replace(FINE, newest_call=NOW, used_at=NOW - 1), ("reporting", "")),
        (AssistantFacts(is_installed=False, newest_call=NOW), ("reporting", "")),
        (AssistantFacts(is_installed=False), ("not_installed", "")),
        (replace(FINE, problem="no_permission"), ("unknown", "no_permission")),
        (replace(FINE, problem="malformed"), ("unknown", "malformed")),
        (replace(FINE, problem="version"), ("unknown", "version")),
        (replace(FINE, is_enabled=False, enabled_by=SettingsSource.USER), ("telemetry_off", "settings")),
        (
            replace(FINE, is_enabled=False, enabled_by=SettingsSource.ENVIRONMENT),
            ("telemetry_off", "environment"),
        ),
        (replace(FINE, is_enabled=False, enabled_by=SettingsSource.FILE), ("telemetry_off", "vendor_policy")),
        (
            replace(FINE, is_enabled=False, enabled_by=SettingsSource.SERVER),
            ("telemetry_off", "vendor_policy"),
        ),
        (replace(FINE, is_ours=False, endpoint_by=SettingsSource.SERVER), ("overridden", "server_policy")),
        (replace(FINE, is_ours=False, endpoint_by=SettingsSource.MDM), ("overridden", "mdm_policy")),
        (replace(FINE, is_ours=False, endpoint_by=SettingsSource.FILE), ("overridden", "file_policy")),
        (replace(FINE, is_ours=False, endpoint_by=SettingsSource.ENVIRONMENT), ("overridden", "environment")),
        (replace(FINE, is_ours=False, endpoint_by=SettingsSource.USER), ("overridden", "other_endpoint")),
        (AssistantFacts(hides=SettingsSource.SERVER), ("overridden", "server_policy")),
        (replace(FINE, hides=SettingsSource.SERVER), ("unused", "")),
        (AssistantFacts(), ("not_configured", "no_policy")),
        (AssistantFacts(is_ours=True), ("not_configured", "no_policy")),
        (AssistantFacts(is_enabled=True), ("not_configured", "no_policy")),
        (AssistantFacts(lacks_policy=True), ("not_configured", "policy_not_applied")),
        (replace(FINE, changed_at=NOW, running_since=NOW - 1), ("not_configured", "not_restarted")),
        (replace(FINE, changed_at=NOW - 1, running_since=NOW), ("unused", "")),
        *(
            (replace(USED, path=path), ("unreachable", path))
            for path in ("agent_down", "port_taken", "proxy")
        ),
        *(
            (replace(USED, waits=waits, newest_call=NOW), ("unreachable", waits))
            for waits in ("tls", "dns", "refused", "backlog")
        ),
        (replace(USED, newest_call=NOW - 3721), ("reporting", "")),  # one use without a call is no loss yet
        (replace(USED, path="agent_down", newest_call=NOW - 3600), ("reporting", "")),
        (replace(FINE, path="agent_down"), ("unused", "")),
        (FINE, ("unused", "")),
        (replace(FINE, newest_call=NOW - RECENT_S - 1), ("unused", "")),
        (replace(FINE, used_at=NOW - RECENT_S - 1), ("unused", "")),
    ],
)
def test_each_state(facts: AssistantFacts, expected: tuple[str, str]) -> None:
    """Each state holds for its facts, with its cause, which is one that the gateway accepts."""
    found = evaluate_home(facts, CONFIGURED, now=NOW)
    state, cause = found.state, found.cause
    assert expected == (state, cause)
    assert not cause or cause in CAUSES[state]


def test_three_uses_without_a_call_are_a_loss() -> None:
    """A loss of an assistant ends with a later call, and a call before the loss does not end it."""
    found = evaluate_home(LOSING, UNHEARD, now=NOW)
    assert ("unreachable", "", True) == (found.state, found.cause, found.memory.is_losing)
    for call, state in ((NOW - 1021, "unreachable"), (NOW - 1020, "reporting")):
        assert state == evaluate_home(replace(LOSING, newest_call=call), found.memory, now=NOW).state


def test_a_loss_keeps_its_cause_until_a_call() -> None:
    """While the agent is down, no heartbeat states its assistants. The first heartbeat afterwards does."""
    down = evaluate_home(replace(USED, path="agent_down"), CONFIGURED, now=NOW)
    later = evaluate_home(USED, down.memory, now=NOW + 300)
    assert ("unreachable", "agent_down") == (later.state, later.cause)
    heard = evaluate_home(replace(USED, newest_call=NOW), later.memory, now=NOW + 600)
    assert ("reporting", "", "") == (heard.state, heard.cause, heard.memory.cut)


def test_the_first_state_that_holds() -> None:
    """If everything is wrong and one fact after the other is repaired, the states follow in order."""
    facts = replace(
        LOSING,
        is_installed=False,
        problem="malformed",
        is_enabled=False,
        enabled_by=SettingsSource.USER,
        is_ours=False,
        endpoint_by=SettingsSource.USER,
        changed_at=NOW,
        running_since=NOW - 1,
        path="proxy",
    )
    found, memory = [], CONFIGURED
    for repaired in (
        {},
        {"is_installed": True},
        {"problem": ""},
        {"is_enabled": True},
        {"is_ours": True},
        {"running_since": None},
    ):
        facts = replace(facts, **repaired)
        home = evaluate_home(facts, memory, now=NOW)
        found.append(home.state)
    assert found == [
        "not_installed", "unknown", "telemetry_off", "overridden", "not_configured", "unreachable",
    ]  # fmt: skip


def home(state: str, *, used: float | None = None, user: int = 1000, is_losing: bool = False) -> HomeState:
    at = None if used is None else NOW - used
    return HomeState(state, "", RememberedAssistantUses(is_losing=is_losing), at, user)


def test_a_machine_with_several_homes() -> None:
    """
    The state of an assistant is that of the worst home in which it is used. An idle home or root's folder hides
    nothing.
    """
    idle, root = home("reporting"), home("not_configured", user=0)
    used, lost = home("overridden", used=60), home("unreachable", used=60, is_losing=True)
    for homes, expected in (
        ([idle, used], used),
        ([used, lost, idle], lost),
        ([home("reporting", used=60), home("overridden"), root], home("reporting", used=60)),
        ([home("unused"), root], home("unused")),
        ([home("unused", used=RECENT_S + 1), home("overridden")], home("overridden")),
        ([root], root),
    ):
        assert expected == worst_home_state(homes, now=NOW)
