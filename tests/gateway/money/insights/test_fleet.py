"""Findings about the fleet: one per cause and team, with the machines, their users and the repair."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from gateway.devices.fleet.assistant_states import AssistantState
from gateway.devices.fleet.coverage import FleetRow, fleet_row_of_device, fleet_row_of_machine_without_device
from gateway.devices.fleet.heartbeat_facts import ASSISTANT_TITLES, CAUSES, NO_AGENT, NO_RECORD, NOT_FORWARDED
from gateway.devices.fleet.repairs import _REPAIRS, repair_of_cause
from gateway.devices.machine_state import (
    CLOCK_WRONG,
    REVOKED_THERE,
    AssistantStates,
    MachineEvidence,
    evaluate_machine_state,
)
from gateway.money.insights.detector_facts import DAY_S, InsightFacts
from gateway.money.insights.detectors.fleet import (
    assistant_not_reporting,
    machine_trouble,
    missing_device,
    policy_not_applied,
    policy_outdated,
    stopped_agent,
)
from gateway.money.insights.detectors.machines import reinstalled_device
from gateway.normalise.assistants import ASSISTANTS
from spool.devices.device import REVOKED_UPSTREAM, Device
from spool.record import utc_iso
from spool.registry.insights import Finding
from spool.registry.tables.inventory import Machine
from tests.documents import ROOT

NOW = 1_800_000_000.0


def row(
    id: str,
    *states: AssistantState,
    team: str = "",
    user: str = "",
    seen: float | None = NOW,
    before: float | None = None,
    **device: Any,
) -> FleetRow:
    given = {"enrolled_at": 1.0, "enrolled_by": "fleet", "last_seen": NOW, "last_heartbeat": NOW, **device}
    machine = Machine(serial=id, team=team, user=user, last_seen=seen, seen_before=before)
    evidence = MachineEvidence(Device(id=id, **given), 60.0, machine)
    return fleet_row_of_device(
        evidence.device, machine, evaluate_machine_state(evidence, NOW, AssistantStates(states, NOW)), os=""
    )


def titles(findings: Any) -> list[str]:
    return [each.draft.title for each in findings]


def test_every_cause_has_words_and_a_repair() -> None:
    causes = {(state, cause) for state, known in CAUSES.items() for cause in known}
    of_gateway = {("unknown", NO_AGENT), ("unreachable", NO_RECORD), ("unreachable", NOT_FORWARDED)}
    assert causes | of_gateway | {CLOCK_WRONG, REVOKED_THERE} == _REPAIRS.keys()
    assert "is not set up" == repair_of_cause(("not_configured", "")).words


def test_assistants_that_do_not_report() -> None:
    """Machines with one cause and one team share a finding. Fine assistants and machines without facts have none."""
    elsewhere = AssistantState("codex", "overridden", "other_endpoint")
    other = AssistantState("claude-code", "overridden", "other_endpoint")
    facts = InsightFacts(
        now=NOW,
        fleet=[
            *(row(f"s{n}", elsewhere, team="search", user="ada") for n in range(30)),
            row("s-other", other, team="search"),
            row("lone", elsewhere, user="bob"),
            row("policy", AssistantState("codex", "not_configured", "policy_not_applied"), team="ads"),
            row("fine", AssistantState("codex", "reporting"), team="ads"),
            row("bare"),
            row("waits", AssistantState("codex", "unreachable", "backlog", use="delayed"), team="ads"),
        ],
    )
    first, second = assistant_not_reporting(facts)
    assert (
        "A coding assistant on 31 machines of the team search sends to another endpoint" == first.draft.title
    )
    assert "Calls of Claude Code, Codex do not" in first.draft.description
    assert "s0: ada" in first.draft.description and "and 19 more" in first.draft.description
    assert "Codex on lone sends to another endpoint" == second.draft.title
    assert "It belongs to bob." in second.draft.description
    assert ["Codex on policy of the team ads has not received the policy"] == titles(
        policy_not_applied(facts)
    )
    assert len({each.key for each in (first, second, *policy_not_applied(facts))}) == 3


def test_agents_that_stopped_on_machines_that_the_mdm_still_sees() -> None:
    """There is no finding for a machine that sleeps, and none for an earlier device of a machine."""
    asleep: dict[str, Any] = {"last_seen": NOW - DAY_S, "last_heartbeat": NOW - DAY_S}
    stopped = row("a", user="ada", seen=NOW, before=NOW - 3600, **asleep)
    facts = InsightFacts(
        now=NOW,
        fleet=[
            stopped,
            row("asleep", seen=NOW, **asleep),
            row("awake", seen=NOW, before=NOW - 3600),
            replace(stopped, id="earlier", machine=None),
        ],
    )
    [finding] = stopped_agent(facts)
    assert "The agent on a has stopped reporting" == finding.draft.title
    assert "ada, last report 2027-01-14" in finding.draft.description


def test_machines_that_never_reported() -> None:
    machines = [
        Machine(serial="A1", team="ads", user="ada", last_seen=NOW - DAY_S),
        Machine(serial="A2", team="ads"),
        Machine(serial="B1"),
    ]
    rows = [fleet_row_of_machine_without_device(each, listed_at=NOW) for each in machines]
    found: list[Finding] = list(missing_device(InsightFacts(now=NOW, fleet=rows)))
    assert ["2 machines of the team ads never reported", "B1 never reported"] == titles(found)
    assert "A1: ada" in found[0].draft.description


def test_missing_machines_may_report_without_a_serial_number() -> None:
    """Three laptops whose agents state no serial number are outside the inventory, so the advice names them."""
    expected = [fleet_row_of_machine_without_device(Machine(serial=f"S{n}"), listed_at=NOW) for n in range(3)]
    nameless = [replace(row(f"laptop-{n}"), machine=None) for n in range(3)]
    named = replace(row("other", heartbeat=b'{"serial": "Z1"}'), machine=None)
    hashed = replace(row("hashed", heartbeat=b'{"serial_hash": "ab"}'), machine=None)
    [finding] = missing_device(
        InsightFacts(now=NOW, fleet=[*expected, *nameless, named, hashed, row("known")])
    )
    assert "3 devices outside the inventory" in finding.draft.description
    [finding] = missing_device(InsightFacts(now=NOW, fleet=[*expected, named]))
    assert "outside the inventory" not in finding.draft.description


def test_machines_that_were_installed_again() -> None:
    """
    All devices that wait for the inventory share one finding. Devices that wait for another reason are not in it.
    """

    def waiting(id: str, cause: str) -> Device:
        return Device(id=id, state="pending", cause=cause, enrolled_at=NOW, enrolled_by="f", last_seen=NOW)

    other = [waiting("new", ""), waiting("stranger", "not_expected")]
    assert not reinstalled_device(InsightFacts(now=NOW, devices=other))
    again = [waiting(f"again-{n}", "same_hardware") for n in range(5)]
    [finding] = reinstalled_device(InsightFacts(now=NOW, devices=[*other, *again]))
    assert "5 machines were installed again and wait for approval, and so do the calls" == finding.draft.title
    assert "again-0" in finding.draft.description and "stranger" not in finding.draft.description


def with_policy(id: str, number: int, days: float, team: str = "", offset_s: float = 0.0) -> FleetRow:
    policy = {"number": number, "applied_at": utc_iso(NOW - days * DAY_S + offset_s)}
    heartbeat = json.dumps({"policy": policy, "assistants": {}}).encode()
    return row(id, team=team, heartbeat=heartbeat, clock_offset_s=offset_s)


def test_machines_with_a_wrong_clock_or_revoked_upstream() -> None:
    """
    There is one finding per cause and team, also about covered machines. A clock counts as wrong from 5 minutes on.
    """
    fine = AssistantState("codex", "reporting", use="heard")
    late = [row(f"late-{sign}", fine, team="a", clock_offset_s=sign * 300.1) for sign in (-1, 1)]
    rows = [
        row("right", fine, team="a", clock_offset_s=300.0),
        row("there", fine, held=REVOKED_UPSTREAM),
        row("other", fine, held="400 a name is too long"),
        row("gone", fine, clock_offset_s=900.0, left_at=NOW),
        *late,
    ]
    assert [True] * 5 == [each.covered for each in rows if each.id != "gone"]
    assert [
        "2 machines of the team a sent a time that is wrong by more than 5 minutes",
        "there stayed enrolled here after the upstream revoked the device",
    ] == titles(machine_trouble(InsightFacts(now=NOW, fleet=rows)))
    assert not assistant_not_reporting(InsightFacts(now=NOW, fleet=rows))


def test_machines_with_an_older_policy() -> None:
    """A newer policy counts a day after the first machine has it, so a roll-out is no finding."""
    old = [with_policy(f"old-{n}", 4, 30) for n in range(3)]
    bare = row("bare", heartbeat=b'{"policy": {"number": 1}}')
    assert not policy_outdated(InsightFacts(now=NOW, fleet=[*old, bare, with_policy("new", 5, 0.9)]))
    [finding] = policy_outdated(InsightFacts(now=NOW, fleet=[*old, bare, with_policy("new", 5, 1)]))
    assert "3 machines have an older policy than others" == finding.draft.title
    assert "number 5" in finding.draft.description and "old-0" in finding.csv and "new" not in finding.csv
    assert not policy_outdated(InsightFacts(now=NOW, fleet=[with_policy("a", 5, 9), with_policy("b", 6, 0)]))
    # the clock of the machine that has the policy is wrong by this much
    for offset_s in (-2 * DAY_S, 2 * DAY_S):
        first = [with_policy("new", 5, days, offset_s=offset_s) for days in (0.9, 1)]
        assert not policy_outdated(InsightFacts(now=NOW, fleet=[*old, first[0]]))
        assert policy_outdated(InsightFacts(now=NOW, fleet=[*old, first[1]]))


def test_insights_name_assistants_as_the_console_does() -> None:
    page = (ROOT / "gateway/console/static/pages/fleet.mjs").read_text()
    [titles] = re.findall(r"const TITLES = {(.*)};", page)
    assert ASSISTANT_TITLES == {
        name.strip('"'): title for name, title in re.findall(r'([\w"-]+): "([^"]+)"', titles)
    }
    assert set(ASSISTANTS) == set(ASSISTANT_TITLES)
