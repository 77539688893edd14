"""
Detectors for the fleet: assistants whose calls are lost or at risk, agents that stopped, and missing machines.

Lost calls are one finding for the whole fleet, because many small causes together may lose most calls. The other
findings are one per team, and name the machines with their users. The severity follows from the share of the fleet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from gateway.devices.fleet.assistant_states import to_gateway_time
from gateway.devices.fleet.coverage import FleetRow
from gateway.devices.fleet.heartbeat_facts import (
    ASSISTANT_TITLES,
    NO_AGENT,
    decode_heartbeat,
    parse_time_to_epoch,
)
from gateway.devices.fleet.matching import reported_serial_hash, serial_of_device
from gateway.devices.fleet.repairs import repair_of_cause
from gateway.devices.fleet.severity import LOSING_STATES, severity_of_machines
from gateway.devices.machine_state import AGENT_STOPPED, CLOCK_WRONG, MISSING, REVOKED_THERE, Cause
from gateway.money.insights.detector_facts import (
    DAY_S,
    InsightFacts,
    mark_as_needing_only_states,
    mark_impossible_in_demo,
)
from gateway.money.insights.findings import (
    MAX_FINDINGS,
    build_finding,
    format_money,
    format_rows,
    printable_name,
)
from gateway.money.lost_calls import SHOWN_DAYS, FleetLosses
from spool.devices.device import ENROLLED
from spool.printable import csv_lines
from spool.record import utc_iso
from spool.registry.insights import LOW, Finding
from spool.registry.notices import CRITICAL, INFO, SEVERITIES, WARNING

CSV_COLUMNS = ("id", "state", "user", "team", "os", "last_seen")
MAX_CSV_ROWS = 1000  # maximum machines in the list of a notice; `tollhouse fleet devices --csv` lists all
# estimated part of all costs of assistants in SHOWN_DAYS
WARNING_SHARE_OF_COST, CRITICAL_SHARE_OF_COST = Decimal("0.05"), Decimal("0.2")
_OF_MACHINES = {  # cause of trouble on a machine by which no calls are lost -> its effect
    CLOCK_WRONG: "Its calls count at the wrong hour or day.",
    REVOKED_THERE: "Calls count here, and the upstream rejects them.",
}


@mark_as_needing_only_states
def fleet_losing(facts: InsightFacts) -> Sequence[Finding]:
    """Find the machines whose assistants lose calls now, or will lose them when they are used again."""
    # calls that wait on a covered machine are no loss yet
    rows = [row for row in facts.fleet if not row.covered and _causes_of_assistants(row)]
    if not rows:
        return []
    losing = [row for row in rows if row.state in LOSING_STATES]
    causes = Counter(cause for row in rows for cause in _causes_of_assistants(row))
    by_size = sorted(causes, key=lambda cause: (-causes[cause], cause))
    worst = next(cause for row in losing or rows for cause in by_size if cause in row.causes)
    repair = repair_of_cause(worst)
    if len(causes) == 1:
        is_one_team = len({row.team for row in rows}) == 1
        where = _machines_phrase(rows, rows[0].team) if is_one_team else _count_machines(len(rows))
        title = f"{_assistants_phrase(worst, rows)} on {where} {repair.words}"
    else:
        verb = "are" if losing else "may be"
        title = f"Calls of coding assistants {verb} lost on {_count_machines(len(losing or rows))}"
    evidence = [
        f"Calls are lost on {len(losing)} of {_count_machines(len(facts.fleet))}, and may be lost on "
        f"{len(rows) - len(losing)} more.",
        _losses_sentence(facts.losses),
    ]
    lines = [
        f"{_count_machines(causes[cause])}: {_assistants_phrase(cause, rows)} {repair_of_cause(cause).words}"
        for cause in by_size
    ]
    listed = format_rows(lines) or _list_machines(rows)
    finding = build_finding(
        "fleet_losing",
        (),
        title=title,
        seen=" ".join(filter(None, evidence)) + listed,
        advice=f"{repair.advice} `tollhouse fleet causes` lists the repair of each cause.",
        category="coverage",
        effort=LOW,
        impact=facts.losses.estimated or Decimal(0) if facts.losses is not None else Decimal(0),
        severity=_severity_of_losses(rows, facts),
        csv=_machines_csv(rows),
    )
    return [finding]


def _count_machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"


def _causes_of_assistants(row: FleetRow) -> list[Cause]:
    return [cause for cause in row.causes if cause[1] != NO_AGENT and cause not in _OF_MACHINES]


def _assistants_phrase(cause: Cause, rows: Iterable[FleetRow]) -> str:
    names = {
        ASSISTANT_TITLES[each.name]
        for row in rows
        for each in row.assistants
        if (each.state, each.cause) == cause
    }
    return names.pop() if len(names) == 1 else "A coding assistant"


def _losses_sentence(losses: FleetLosses | None) -> str:
    if losses is None or not losses.calls:
        return ""
    people = f" of {losses.people} {'person' if losses.people == 1 else 'people'}" if losses.people else ""
    cost = "" if losses.estimated is None else f", about {format_money(losses.estimated)}"
    calls = "1 call" if losses.calls == 1 else f"{losses.calls} calls"
    verb = "is" if losses.calls == 1 else "are"
    return f"At least {calls}{people} {verb} missing in the last {SHOWN_DAYS} days{cost}."


def _severity_of_losses(rows: Sequence[FleetRow], facts: InsightFacts) -> str:
    """Return the severity by the share of the machines, or by the share of the money if it is more severe."""
    share = None if facts.losses is None else facts.losses.lost_share
    by_money = INFO
    if share is not None and share >= WARNING_SHARE_OF_COST:
        by_money = CRITICAL if share >= CRITICAL_SHARE_OF_COST else WARNING
    return max(severity_of_machines(rows, facts.fleet), by_money, key=SEVERITIES.index)


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
