"""
Detectors for the fleet: assistants whose calls are lost or at risk, agents that stopped, and missing machines.

There is one finding per cause and team, because all its machines need the same repair. It names the machines with
their users. Its severity follows from the share of the fleet that has the cause, in all teams together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gateway.devices.fleet.assistant_states import to_gateway_time
from gateway.devices.fleet.coverage import FleetRow
from gateway.devices.fleet.heartbeat_facts import (
    ASSISTANT_TITLES,
    NO_AGENT,
    NOT_CONFIGURED,
    decode_heartbeat,
    parse_time_to_epoch,
)
from gateway.devices.fleet.matching import reported_serial_hash, serial_of_device
from gateway.devices.fleet.repairs import repair_of_cause
from gateway.devices.fleet.severity import severity_of_machines
from gateway.devices.machine_state import AGENT_STOPPED, CLOCK_WRONG, MISSING, REVOKED_THERE, Cause
from gateway.money.insights.detector_facts import (
    DAY_S,
    InsightFacts,
    mark_as_needing_only_states,
    mark_impossible_in_demo,
)
from gateway.money.insights.findings import MAX_FINDINGS, build_finding, format_rows, printable_name
from spool.devices.device import ENROLLED
from spool.printable import csv_lines
from spool.record import utc_iso
from spool.registry.insights import LOW, Finding

CSV_COLUMNS = ("id", "state", "user", "team", "os", "last_seen")
MAX_CSV_ROWS = 1000  # maximum machines in the list of a notice; `tollhouse fleet devices --csv` lists all
_NOT_APPLIED: Cause = (NOT_CONFIGURED, "policy_not_applied")
_OF_MACHINES = {  # cause of trouble on a machine by which no calls are lost -> its effect
    CLOCK_WRONG: "Its calls count at the wrong hour or day.",
    REVOKED_THERE: "Calls count here, and the upstream rejects them.",
}


@mark_as_needing_only_states
def assistant_not_reporting(facts: InsightFacts) -> Sequence[Finding]:
    """Find assistants whose calls are lost now, or will be lost when the assistant is used again."""
    causes = {cause for row in facts.fleet for cause in row.causes if cause[1] != NO_AGENT}
    return _cause_findings("assistant_not_reporting", facts, causes - {_NOT_APPLIED, *_OF_MACHINES})


@mark_as_needing_only_states
@mark_impossible_in_demo("a demo month has no policies")
def policy_not_applied(facts: InsightFacts) -> Sequence[Finding]:
    """Find machines on which the managed settings did not arrive."""
    return _cause_findings("policy_not_applied", facts, {_NOT_APPLIED})


@mark_impossible_in_demo("a demo month has no policies")
def policy_outdated(facts: InsightFacts) -> Sequence[Finding]:
    """Find machines whose policy has a lower number than one that another machine has had for a day."""
    policies = {
        row.id: policy for row in facts.fleet if (policy := _applied_policy(row, facts.now)) is not None
    }
    settled = [policy.number for policy in policies.values() if facts.now - policy.applied_at >= DAY_S]
    newest = max(settled, default=0)
    outdated = [row for row in facts.fleet if row.id in policies and policies[row.id].number < newest]
    severity = severity_of_machines(outdated, facts.fleet)
    return _largest_findings(
        _machine_count_and_finding(
            "policy_outdated",
            (team,),
            rows,
            severity,
            title=f"{_machines_phrase(rows, team)} {'has' if len(rows) == 1 else 'have'} an older policy than others",
            evidence=f"Other machines have had the policy with the number {newest} for a day.{_list_machines(rows)}",
            advice="Check in the MDM why the newest policy is not on these machines.",
        )
        for team, rows in _rows_by_team(outdated).items()
    )


@mark_as_needing_only_states
@mark_impossible_in_demo("a demo month has no agents")
def machine_trouble(facts: InsightFacts) -> Sequence[Finding]:
    """Find machines with a wrong clock, and machines that the upstream revoked."""
    findings = []
    for cause, seen in _OF_MACHINES.items():
        repair = repair_of_cause(cause)
        having = [row for row in facts.fleet if cause in row.causes]
        severity = severity_of_machines(having, facts.fleet)
        findings += [
            _machine_count_and_finding(
                "machine_trouble",
                (*cause, team),
                rows,
                severity,
                title=f"{_machines_phrase(rows, team)} {repair.words}",
                evidence=seen + _list_machines(rows),
                advice=repair.advice,
            )
            for team, rows in _rows_by_team(having).items()
        ]
    return _largest_findings(findings)


class _Policy(NamedTuple):
    number: int
    applied_at: float


def _applied_policy(row: FleetRow, now: float) -> _Policy | None:
    device = row.device
    if device is None or b'"number"' not in device.heartbeat:
        return None
    policy = decode_heartbeat(device.heartbeat).get("policy") or {}
    applied_at = parse_time_to_epoch(policy.get("applied_at"))
    if applied_at is None or "number" not in policy:
        return None
    return _Policy(policy["number"], to_gateway_time(device, applied_at, now=now))


def _cause_findings(detector: str, facts: InsightFacts, causes: Iterable[Cause]) -> list[Finding]:
    findings = []
    for cause in sorted(causes):
        repair = repair_of_cause(cause)
        having = _uncovered_with_cause(cause, facts.fleet)
        severity = severity_of_machines(having, facts.fleet)
        for team, rows in _rows_by_team(having).items():
            assistants = sorted(
                {
                    ASSISTANT_TITLES[each.name]
                    for row in rows
                    for each in row.assistants
                    if (each.state, each.cause) == cause
                }
            )
            subject = assistants[0] if len(assistants) == 1 else "A coding assistant"
            findings.append(
                _machine_count_and_finding(
                    detector,
                    (*cause, team),
                    rows,
                    severity,
                    title=f"{subject} on {_machines_phrase(rows, team)} {repair.words}",
                    evidence=(
                        f"Calls of {', '.join(assistants)} do not arrive from these machines, so their spend is "
                        f"missing.{_list_machines(rows)}"
                    ),
                    advice=repair.advice,
                )
            )
    return _largest_findings(findings)


def _uncovered_with_cause(cause: Cause, rows: Iterable[FleetRow]) -> list[FleetRow]:
    """Return the machines with a cause that are not covered. Calls that wait on a machine are no loss yet."""
    return [row for row in rows if cause in row.causes and not row.covered]


@mark_as_needing_only_states
@mark_impossible_in_demo("a demo month has no inventory")
def stopped_agent(facts: InsightFacts) -> Sequence[Finding]:
    """Find expected machines whose agents no longer report while the MDM still sees the machines."""
    stopped = [row for row in facts.fleet if row.state == AGENT_STOPPED and row.is_in_inventory]
    severity = severity_of_machines(stopped, facts.fleet)
    return _largest_findings(
        _machine_count_and_finding(
            "stopped_agent",
            (team,),
            rows,
            severity,
            title=f"The agent on {_machines_phrase(rows, team)} has stopped reporting",
            evidence=f"The MDM saw the machine twice after its last report here.{_list_machines(rows, with_time=True)}",
            advice="Check with the MDM whether the agent's service runs, and start it.",
            newest=max(row.last_seen or 0.0 for row in rows),
        )
        for team, rows in _rows_by_team(stopped).items()
    )


@mark_as_needing_only_states
@mark_impossible_in_demo("a demo month has no inventory")
def missing_device(facts: InsightFacts) -> Sequence[Finding]:
    """Find machines of the inventory that never reported."""
    missing = [row for row in facts.fleet if row.state == MISSING]
    advice = (
        "Distribute the agent and its settings to these machines. `tollhouse fleet missing --csv` lists them for the "
        "MDM. If a machine no longer exists, import the inventory again without it."
    )
    nameless = sum(_is_nameless(row) for row in facts.fleet)
    if nameless:
        devices = "1 device" if nameless == 1 else f"{nameless} devices"
        advice += (
            f" Or a machine reports without its serial number: {devices} outside the inventory did so. Run the "
            "agent's probe as root there."
        )
    severity = severity_of_machines(missing, facts.fleet)
    return _largest_findings(
        _machine_count_and_finding(
            "missing_device",
            (team,),
            rows,
            severity,
            title=f"{_machines_phrase(rows, team)} never reported",
            evidence=f"The inventory has the machine, and no report of it has arrived.{_list_machines(rows)}",
            advice=advice,
        )
        for team, rows in _rows_by_team(missing).items()
    )


def _is_nameless(row: FleetRow) -> bool:
    device = row.device
    if device is None or row.is_in_inventory or device.state != ENROLLED:
        return False
    return not (serial_of_device(device) or reported_serial_hash(device))


def _machine_count_and_finding(
    detector: str,
    subject: Sequence[str],
    affected_machines: Sequence[FleetRow],
    severity: str,
    *,
    title: str,
    evidence: str,
    advice: str,
    newest: float | None = None,
) -> tuple[int, Finding]:
    return len(affected_machines), build_finding(
        detector,
        subject,
        title=title,
        seen=evidence,
        advice=advice,
        category="coverage",
        effort=LOW,
        newest=newest,
        severity=severity,
        csv=_machines_csv(affected_machines),
    )


def _rows_by_team(rows: Iterable[FleetRow]) -> Mapping[str, list[FleetRow]]:
    teams: dict[str, list[FleetRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.id):
        teams[row.team].append(row)
    return teams


def _machines_phrase(rows: Sequence[FleetRow], team: str) -> str:
    of_team = f" of the team {printable_name(team)}" if team else ""
    if len(rows) == 1:
        return f"{printable_name(rows[0].id)}{of_team}"
    return f"{len(rows)} machines{of_team}"


def _list_machines(rows: Sequence[FleetRow], *, with_time: bool = False) -> str:
    """
    Format the machines with their users. For a single machine, return only its user, because the finding's
    title names the machine.
    """
    lines = []
    for row in rows:
        last = f", last report {utc_iso(row.last_seen)}" if with_time and row.last_seen else ""
        lines.append(f"{printable_name(row.id)}: {printable_name(row.user, 'no known user')}{last}")
    return format_rows(lines) if len(lines) > 1 else f" It belongs to {lines[0].partition(': ')[2]}."


def _machines_csv(rows: Sequence[FleetRow]) -> str:
    lines = (
        (row.id, row.state, row.user, row.team, row.os, utc_iso(row.last_seen)) for row in rows[:MAX_CSV_ROWS]
    )
    return csv_lines([CSV_COLUMNS, *lines])


def _largest_findings(findings: Iterable[tuple[int, Finding]]) -> list[Finding]:
    by_size = sorted(findings, key=lambda item: (-item[0], item[1].key))
    return [each for _, each in by_size[:MAX_FINDINGS]]
