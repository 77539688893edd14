"""The table of states: each state with each of its causes, and their order."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from gateway.devices.agent.heard_calls import HeardCalls
from gateway.devices.agent.probe.states import (
    AssistantFacts,
    HomeState,
    SettingsSource,
    evaluate_home,
    worst_home_state,
)
from gateway.devices.agent.sessions import PROGRAMS_BY_NAME
from gateway.devices.fleet.heartbeat_facts import CAUSES
from gateway.devices.fleet.use_slots import OpenUse
from gateway.devices.fleet.uses import KnownSession, RememberedAssistantUses, SessionFile

RECENT_S = 14 * 86_400  # docs/fleet/coverage.md: within 14 days
NOW = 1_000_000_000.0
SESSION = "key"
NOTHING = AssistantFacts(program=PROGRAMS_BY_NAME["claude-code"])
FINE = replace(
    NOTHING, is_enabled=True, is_ours=True, enabled_by=SettingsSource.FILE, endpoint_by=SettingsSource.FILE
)
CONFIGURED = RememberedAssistantUses(
    setting="configured",
    since=NOW - 30 * 86_400,
    cut_since=NOW - 30 * 86_400,
    looked=NOW - 7200,
    awake=100_000,
    sessions={SESSION: KnownSession(0, NOW - 86_400)},
)


def used(at: float, facts: AssistantFacts = FINE) -> AssistantFacts:
    return replace(facts, sessions={SESSION: SessionFile(9999, at)})


def heard(facts: AssistantFacts, ended: float) -> AssistantFacts:
    calls = HeardCalls()
    calls.add_call(ended, ended)
    return replace(facts, newest_call=ended, calls={SESSION: calls})


USED = used(NOW - 3600)
# earlier looks saw two uses without a call, before the use that this look sees
LOSING = used(NOW - 600)
UNHEARD = msgspec.structs.replace(
    CONFIGURED,
    used=NOW - 1200,
    open=(OpenUse(SESSION, NOW - 2400, 98_000), OpenUse(SESSION, NOW - 1200, 99_000)),
)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (replace(FINE, newest_call=NOW - RECENT_S), ("reporting", "")),
        (heard(USED, NOW - 3600 - 120), ("reporting", "")),
        (heard(used(NOW - 1), NOW), ("reporting", "")),
        (replace(NOTHING, is_installed=False, newest_call=NOW), ("reporting", "")),
        (replace(NOTHING, is_installed=False), ("not_installed", "")),
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
        (replace(NOTHING, hides=SettingsSource.SERVER), ("overridden", "server_policy")),
        (replace(FINE, hides=SettingsSource.SERVER), ("unused", "")),
        (NOTHING, ("not_configured", "no_policy")),
        (replace(NOTHING, is_ours=True), ("not_configured", "no_policy")),
        (replace(NOTHING, is_enabled=True), ("not_configured", "no_policy")),
        (replace(NOTHING, lacks_policy=True), ("not_configured", "policy_not_applied")),
        (replace(FINE, changed_at=NOW, running_since=NOW - 1), ("not_configured", "not_restarted")),
        (replace(FINE, changed_at=NOW - 1, running_since=NOW), ("unused", "")),
        *(
            (replace(USED, path=path), ("unreachable", path))
            for path in ("agent_down", "port_taken", "proxy")
        ),
        *(
            (heard(replace(USED, waits=waits), NOW - 3600), ("unreachable", waits))
            for waits in ("tls", "dns", "refused", "backlog")
        ),
        (heard(USED, NOW - 9999), ("reporting", "")),  # one use without a call is no loss yet
        (heard(replace(USED, path="agent_down"), NOW - 3600), ("reporting", "")),
        (replace(FINE, path="agent_down"), ("unused", "")),
        (FINE, ("unused", "")),
        (replace(FINE, newest_call=NOW - RECENT_S - 1), ("unused", "")),
        (used(NOW - RECENT_S - 1), ("unused", "")),
        (replace(FINE, unseen="several_users", newest_call=NOW), ("unused", "several_users")),
    ],
)
def test_each_state(facts: AssistantFacts, expected: tuple[str, str]) -> None:
    """Each state holds for its facts, with its cause, which is one that the gateway accepts."""
    found = evaluate_home(facts, CONFIGURED, now=NOW)
    state, cause = found.state, found.cause
    assert expected == (state, cause)
    assert not cause or cause in CAUSES[state]


def test_three_uses_without_a_call_are_a_loss() -> None:
    """A loss of an assistant ends if a later use is heard, and a call before the loss does not end it."""
    found = evaluate_home(LOSING, UNHEARD, now=NOW)
    assert ("unreachable", "", True) == (found.state, found.cause, found.memory.is_losing)
    later = replace(FINE, sessions={SESSION: SessionFile(99_999, NOW + 900)})
    for call, state in ((NOW - 3600, "unreachable"), (NOW + 900, "reporting")):
        assert state == evaluate_home(heard(later, call), found.memory, now=NOW + 1200).state


def test_a_loss_keeps_its_cause_until_a_call() -> None:
    """While the agent is down, no heartbeat states its assistants. The first heartbeat afterwards does."""
    down = evaluate_home(replace(USED, path="agent_down"), CONFIGURED, now=NOW)
    later = evaluate_home(USED, down.memory, now=NOW + 300)
    assert ("unreachable", "agent_down") == (later.state, later.cause)
    ended = evaluate_home(heard(USED, NOW - 3600), later.memory, now=NOW + 600)
    assert ("reporting", "", "") == (ended.state, ended.cause, ended.memory.cut)


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


def home(
    state: str, *, used: float | None = None, user: int = 1000, is_losing: bool = False, unseen: str = ""
) -> HomeState:
    at = None if used is None else NOW - used
    return HomeState(state, "", RememberedAssistantUses(is_losing=is_losing, unseen=unseen), at, user)


def test_a_machine_with_several_homes() -> None:
    """
    The state of an assistant is that of the worst home in which it is used. An idle home or root's folder hides
    nothing.
    """
    idle, root = home("reporting"), home("not_configured", user=0)
    unseen = home("unused", used=60, unseen="several_users")
    used, lost = home("overridden", used=60), home("unreachable", used=60, is_losing=True)
    for homes, expected in (
        ([idle, used], used),
        ([used, lost, idle], lost),
        ([home("reporting", used=60), unseen], unseen),
        ([used, unseen], used),
        ([home("reporting", used=60), home("overridden"), root], home("reporting", used=60)),
        ([home("unused"), root], home("unused")),
        ([home("unused", used=RECENT_S + 1), home("overridden")], home("overridden")),
        ([root], root),
    ):
        assert expected == worst_home_state(homes, now=NOW)
