"""How severe losses of a fleet are: planted in a share of 100 or more machines, found, and noticed."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.devices.fleet.coverage import FleetRow, fleet_row_of_device
from gateway.devices.fleet.heartbeat_facts import REPORTING
from gateway.devices.fleet.severity import severity_of_machines
from gateway.devices.fleet.uses import LOSING
from gateway.devices.machine_state import AT_RISK, MachineEvidence, evaluate_machine_state
from gateway.money.insights.detector_facts import InsightFacts
from gateway.money.insights.detectors.fleet import MAX_CSV_ROWS
from gateway.money.insights.inspector import STATE_DETECTORS, run_detectors
from spool.devices.device import Device
from spool.registry.notices import CRITICAL, INFO, MAX_CSV, WARNING, InsightSubscription, Notice, check_notice
from spool.registry.registry import Registry
from spool.registry.tables.inventory import Machine
from spool.sqlite.registry import SqliteRegistry
from tests.gateway.devices.fleet.lives import Kind, fine, fine_and_seldom, idle_openings, silent
from tests.gateway.devices.fleet.test_oracle import Laptop
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG

NOW = 1_800_000_000.0
HOUR_S, DAY_S = 3600.0, 86_400.0
STEP_H = 6  # hours between two inspections
TEAMS = 4


def machine(
    number: int, now: float, *, teams: int = TEAMS, claim: str = "unused", use: str = "heard"
) -> FleetRow:
    heartbeat = {"assistants": {"codex": {"state": claim, "use": use}}}
    device = Device(
        id=f"m{number:05}",
        user=f"user-{number}",
        labels={"team": f"team-{number % teams}"},
        enrolled_at=1.0,
        enrolled_by="fleet",
        last_seen=now,
        last_heartbeat=now,
        newest_calls={"codex": now - DAY_S},
        uses=json.dumps({"codex": {"setting": "x", "since": now - HOUR_S}}),
        heartbeat=json.dumps(heartbeat).encode(),
    )
    return fleet_row_of_device(
        device, None, evaluate_machine_state(MachineEvidence(device, 60.0), now), os="macOS 15"
    )


def fleet(size: int, bad: int, now: float = NOW, **claim: Any) -> list[FleetRow]:
    return [machine(n, now, **(claim if n < bad else {})) for n in range(size)]


@pytest.mark.parametrize(
    ("size", "bad", "losing", "at_risk"),
    [
        (100, 1, INFO, INFO),
        (100, 9, INFO, INFO),
        (100, 10, WARNING, INFO),
        (100, 49, WARNING, INFO),
        (100, 50, CRITICAL, WARNING),
        (100, 60, CRITICAL, WARNING),
        (20, 2, INFO, INFO),
        (20, 3, WARNING, INFO),
        (18, 9, WARNING, INFO),
        (20, 10, CRITICAL, WARNING),
        (2000, 19, INFO, INFO),
        (2000, 20, WARNING, INFO),
        (1, 1, INFO, INFO),
    ],
)
def test_the_share_of_the_fleet_decides(size: int, bad: int, losing: str, at_risk: str) -> None:
    """Machines that lose no call yet are one step less severe. Teams do not split the share."""
    for use, word, severity in (("losing", LOSING, losing), ("none", AT_RISK, at_risk)):
        rows = fleet(size, bad, claim="not_configured", use=use)
        assert {word} == {row.state for row in rows[:bad]}
        assert {REPORTING} >= {row.state for row in rows[bad:]}
        assert severity == severity_of_machines(rows[:bad], rows)
        run = run_detectors(InsightFacts(now=NOW, fleet=rows), STATE_DETECTORS)
        assert [severity] == [finding.severity for finding in run.findings]


def test_machines_outside_the_list_are_part_of_the_fleet() -> None:
    """A list of five pilot machines makes no warning of three losses among 200 other machines."""
    rows = fleet(205, 3, claim="not_configured", use="losing")
    listed = [replace(row, machine=Machine(serial=row.id)) for row in rows[-5:]]
    assert INFO == severity_of_machines(rows[:3], [*rows[:-5], *listed])
    assert WARNING == severity_of_machines(rows[:3], [*rows[:15], *listed])


async def test_losses_are_noticed_by_severity(tmp_path: Path) -> None:
    """
    For twelve days of 100 machines, nobody is notified while nothing is lost. If one machine loses its calls for a
    day, nobody is notified either. 10 machines are a warning at the first inspection, and 60 are critical.
    """
    clock = MovedClock(NOW)
    store = await SqliteRegistry.open(tmp_path)
    registry = await Registry.open(store, secret=b"s" * 32, clock=clock, declared=())
    registry.notices.subscriptions = (InsightSubscription(channel="mail", severity=WARNING),)
    noticed: dict[str, tuple[float, Notice]] = {}
    for number in range(12 * 24 // STEP_H):
        bad = {4: 1, 6: 10, 7: 60}.get(number * STEP_H // 24, 0)
        rows = fleet(100, bad, clock.now(), claim="not_configured", use="losing")
        run = run_detectors(InsightFacts(now=clock.now(), fleet=rows), STATE_DETECTORS)
        await registry.insights.merge_findings(
            run.findings, looked_for=run.looked_for, truncated_detectors=run.cut
        )
        for each in await registry.notices.waiting_notifications():
            noticed.setdefault(each.notice.id, (clock.now(), each.notice))
        clock.move(STEP_H * HOUR_S)
    assert [(6 * DAY_S, WARNING), (7 * DAY_S, CRITICAL)] == [
        (at - NOW, notice.severity) for at, notice in noticed.values()
    ]
    threads = {notice.thread for _, notice in noticed.values()}
    assert {f"insight {insight.id}" for insight in await registry.insights.detector_insights()} == threads
    critical = [notice for _, notice in noticed.values() if notice.severity == CRITICAL]
    listed = [row for notice in critical for row in csv.DictReader(io.StringIO(notice.csv))]
    assert {(f"m{n:05}", LOSING, f"user-{n}") for n in range(60)} == {
        (row["id"], row["state"], row["user"]) for row in listed
    }
    await registry.close()


QUIET = (fine, fine_and_seldom, idle_openings)


@pytest.mark.proof
@pytest.mark.parametrize("more", [(), (silent,)])
def test_only_quiet_days_have_no_finding(tmp_path: Path, more: Sequence[Kind]) -> None:
    """
    In a fleet whose people work, sleep, open programs without a prompt and are away, nothing is found as long as no
    session is lost.
    """
    days: dict[int, dict[str, FleetRow]] = defaultdict(dict)
    for number, kind in enumerate((*QUIET, *more)):
        life = kind(random.Random(number), 7.0 if IS_LONG else 3.0)
        for now, device in Laptop(tmp_path / str(number), life).looks():
            state = evaluate_machine_state(MachineEvidence(device, 60.0), now)
            row = fleet_row_of_device(replace(device, id=f"m{number}"), None, state, os="")
            days[int(now // DAY_S)][row.id] = row
    rows: dict[str, FleetRow] = {}
    found = []
    for day in sorted(days):
        rows |= days[day]
        facts = InsightFacts(now=(day + 1) * DAY_S, fleet=list(rows.values()))
        found += [each.draft.title for each in run_detectors(facts, STATE_DETECTORS).findings]
    assert bool(more) == bool(found), found


def test_a_list_of_many_machines_is_bounded() -> None:
    rows = fleet(1200, 1200, claim="overridden", use="losing", teams=1)
    [finding] = run_detectors(InsightFacts(now=NOW, fleet=rows), STATE_DETECTORS).findings
    assert MAX_CSV_ROWS + 1 == len(finding.csv.splitlines())
    notice = check_notice(Notice(id="a", kind="insight.opened", title="t", at=NOW, csv=finding.csv * 3))
    assert len(notice.csv) <= MAX_CSV and notice.csv.endswith("\n")
    assert set(notice.csv.splitlines()) == set(finding.csv.splitlines())
