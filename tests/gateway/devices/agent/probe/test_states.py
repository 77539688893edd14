"""The table of states: each state with each of its causes, and their order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.devices.agent.probe.states import (
    DELAY_S,
    EXPORT_S,
    RECENT_S,
    AssistantFacts,
    SettingsSource,
    evaluate,
    of_machine,
)
from gateway.devices.fleet.facts import CAUSES

NOW = 1_000_000_000.0
FINE = AssistantFacts(
    is_enabled=True, is_ours=True, enabled_by=SettingsSource.FILE, endpoint_by=SettingsSource.FILE
)
USED = replace(FINE, used_at=NOW - 3600)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (replace(FINE, newest_record=NOW - RECENT_S), ("reporting", "")),
        (replace(USED, newest_record=NOW - 3600 - DELAY_S), ("reporting", "")),
        (replace(FINE, newest_record=NOW, used_at=NOW - 1), ("reporting", "")),
        (AssistantFacts(is_installed=False, newest_record=NOW), ("reporting", "")),
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
            for path in ("agent_down", "port_taken", "proxy", "tls", "dns", "refused", "backlog", "")
        ),
        (replace(USED, newest_record=NOW - 3601 - DELAY_S), ("unreachable", "")),
        (replace(USED, path="agent_down", newest_record=NOW - 3600), ("reporting", "")),
        (replace(FINE, path="agent_down"), ("unused", "")),
        (FINE, ("unused", "")),
        (replace(FINE, newest_record=NOW - RECENT_S - 1), ("unused", "")),
        (replace(USED, enrolled_at=NOW), ("unused", "")),
        (replace(FINE, used_at=NOW - EXPORT_S + 1), ("unused", "")),
        (replace(FINE, used_at=NOW - RECENT_S - 1), ("unused", "")),
    ],
)
def test_each_state(facts: AssistantFacts, expected: tuple[str, str]) -> None:
    """Each state holds for its facts, with its cause, which is one that the gateway accepts."""
    state, cause = evaluate(facts, now=NOW)
    assert expected == (state, cause)
    assert not cause or cause in CAUSES[state]


def test_the_first_state_that_holds() -> None:
    """If everything is wrong and one fact after the other is repaired, the states follow in order."""
    facts = replace(
        USED,
        is_installed=False,
        problem="malformed",
        is_enabled=False,
        enabled_by=SettingsSource.USER,
        is_ours=False,
        endpoint_by=SettingsSource.USER,
        changed_at=NOW,
        running_since=NOW - 1,
        path="tls",
    )
    found = []
    for repaired in (
        {},
        {"is_installed": True},
        {"problem": ""},
        {"is_enabled": True},
        {"is_ours": True},
        {"running_since": None},
        {"used_at": None},
    ):
        facts = replace(facts, **repaired)
        found.append(evaluate(facts, now=NOW)[0])
    assert found == [
        "not_installed", "unknown", "telemetry_off", "overridden", "not_configured", "unreachable", "unused",
    ]  # fmt: skip


def test_a_machine_with_several_users() -> None:
    """The first state of the table that holds for one of the users is the state of the machine."""
    assert ("not_installed", "") == of_machine([])
    states = [("unused", ""), ("overridden", "environment"), ("unreachable", "tls")]
    assert ("overridden", "environment") == of_machine(states)
