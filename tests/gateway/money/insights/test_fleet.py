"""Findings about the fleet: one for all lost calls, and others per team, with machines, users and repairs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from gateway.devices.fleet.assistant_states import AssistantState
from gateway.devices.fleet.coverage import FleetRow, fleet_row_of_device, fleet_row_of_machine_without_device
from gateway.devices.fleet.heartbeat_facts import (
    ASSISTANT_TITLES,
    CAUSES,
    DISK_FULL,
    NO_AGENT,
    NO_RECORD,
    NOT_FORWARDED,
)
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
    fleet_losing,
    machine_trouble,
    missing_device,
    policy_outdated,
    stopped_agent,
)
from gateway.money.insights.detectors.machines import reinstalled_device
from gateway.money.lost_calls import FleetLosses
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
    # the gateway's word for an assistant in use that nobody can judge
    causes = {
        ("unseen" if state == "unused" else state, cause)
        for state, known in CAUSES.items()
        for cause in known
    }
    of_gateway = {("unknown", NO_AGENT), ("unreachable", NO_RECORD), ("unreachable", NOT_FORWARDED)}
    of_gateway |= {("unseen", "direct"), ("unknown", DISK_FULL), ("unreachable", DISK_FULL)}
    assert causes | of_gateway | {CLOCK_WRONG, REVOKED_THERE} == _REPAIRS.keys()
    assert "is not set up" == repair_of_cause(("not_configured", "")).words


ELSEWHERE = AssistantState("codex", "overridden", "other_endpoint")
LOST = AssistantState("codex", "unreachable", "agent_down", use="losing")
FINE = AssistantState("codex", "reporting")
BACKLOG = AssistantState("codex", "unreachable", "backlog", use="delayed")


def test_all_machines_that_lose_calls_share_a_finding() -> None:
    """It lists the causes with their machines. Fine assistants and machines without facts have none."""
    other = AssistantState("claude-code", "overridden", "other_endpoint")
    facts = InsightFacts(
        now=NOW,
        fleet=[
            *(row(f"s{n}", ELSEWHERE, team="search", user="ada") for n in range(30)),
            row("s-other", other, team="search"),
            row("policy", AssistantState("codex", "not_configured", "policy_not_applied"), team="ads"),
            row("lost", LOST, team="ads", user="bob"),
            row("fine", FINE, team="ads"),
            row("bare"),
            row("waits", BACKLOG, team="ads"),
        ],
    )
    [finding] = fleet_losing(facts)
    assert finding.draft.title == "Calls of coding assistants are lost on 1 machine"
    text = finding.draft.description
    assert "Calls are lost on 1 of 36 machines, and may be lost on 32 more." in text
    for line in (
        "- 31 machines: A coding assistant sends to another endpoint",
        "- 1 machine: Codex has not received the policy",
        "- 1 machine: Codex is used while the agent is stopped",
    ):
        assert line in text
    assert "Start the agent's service." in text and "missing in the last" not in text
    machines = {line.split(",")[0] for line in finding.csv.splitlines()[1:]}
    assert machines == {*(f"s{n}" for n in range(30)), "s-other", "policy", "lost"}
    [alone] = fleet_losing(
        InsightFacts(now=NOW, fleet=[row("lone", ELSEWHERE, user="bob"), row("fine", FINE)])
    )
    assert alone.draft.title == "Codex on lone sends to another endpoint"
    assert "It belongs to bob." in alone.draft.description
    assert alone.key == finding.key
    later = InsightFacts(now=NOW, fleet=[row(f"s{n}", ELSEWHERE) for n in range(3)])
    assert titles(fleet_losing(later)) == ["Codex on 3 machines sends to another endpoint"]
    assert fleet_losing(InsightFacts(now=NOW, fleet=[row("waits", BACKLOG), row("fine", FINE)])) == []


@pytest.mark.parametrize(
    ("calls", "people", "sentence"),
    [(1, 1, "1 call of 1 person is missing"), (1, 0, "1 call is missing"), (3, 0, "3 calls are missing")],
)
def test_losses_without_costs_state_only_their_number(calls: int, people: int, sentence: str) -> None:
    losses = FleetLosses(
        first="2026-11-24",
        last="2026-11-30",
        calls=calls,
        people=people,
        estimated=Decimal(90),
        counted=Decimal(10),
        calls_by_team={},
    ).without_costs()
    [finding] = fleet_losing(InsightFacts(now=NOW, fleet=[row("lone", ELSEWHERE)], losses=losses))
    assert f"At least {sentence} in" in finding.draft.description
    assert "$" not in finding.draft.description
    assert finding.draft.cost_impact == "0.00"


@pytest.mark.parametrize(
    ("estimated", "counted", "severity"),
    [
        ("4.99", "95.01", "info"),
        ("5", "95", "warning"),
        ("19.99", "80.01", "warning"),
        ("20", "80", "critical"),
        ("1", "0", "critical"),
        (None, "80", "info"),
        ("0", "80", "info"),
    ],
)
def test_the_lost_money_decides_the_severity(estimated: str | None, counted: str, severity: str) -> None:
    """One machine of many may lose most of the money."""
    losses = FleetLosses(
        first="2027-01-09",
        last="2027-01-15",
        calls=41,
        people=3,
        estimated=None if estimated is None else Decimal(estimated),
        counted=Decimal(counted),
        calls_by_team={},
    )
    rows = [row("lost", LOST), *(row(f"fine-{n}", FINE) for n in range(200))]
    [finding] = fleet_losing(InsightFacts(now=NOW, fleet=rows, losses=losses))
    assert finding.severity == severity
    about = "." if estimated is None else f", about ${Decimal(estimated):.2f}."
    assert f"At least 41 calls of 3 people are missing in the last 7 days{about}" in finding.draft.description
    assert Decimal(finding.draft.cost_impact) == Decimal(estimated or 0)
    assert fleet_losing(InsightFacts(now=NOW, fleet=rows[1:], losses=losses)) == []


def test_many_small_causes_are_as_severe_as_a_large_one() -> None:
    """Half of a fleet loses calls for many causes, each of which a few machines have."""
    causes = [cause for cause in _REPAIRS if cause[0] in ("overridden", "telemetry_off", "unreachable")]
    lost = [
        row(f"m{n}", AssistantState("codex", *causes[n % len(causes)], use="losing"))
        for n in range(2 * len(causes))
    ]
    [finding] = fleet_losing(
        InsightFacts(now=NOW, fleet=[*lost, *(row(f"f{n}", FINE) for n in range(len(lost)))])
    )
    assert finding.severity == "critical"
    assert "and " in finding.draft.description and "more" in finding.draft.description


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
    assert not fleet_losing(InsightFacts(now=NOW, fleet=rows))


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
