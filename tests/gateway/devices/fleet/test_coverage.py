"""Matches between devices and machines, and the figures of coverage, against a count by hand over random fleets."""

from __future__ import annotations

import json
import random
from typing import Any

from gateway.devices.fleet.assistant_states import AssistantState, assistants_of
from gateway.devices.fleet.coverage import FleetRow, coverage_of, device_row, missing_row, system_of
from gateway.devices.fleet.facts import CAUSES
from gateway.devices.fleet.matching import ExpectedMachines
from spool.devices.device import ENROLLED, PENDING, REVOKED, Device
from spool.registry.tables.inventory import Machine

NOW = 1_800_000_000.0
DAY = 86_400.0
NAMES = ("claude-code", "codex", "copilot")


def device(id: str, *, serial: str = "", assistants: Any = None, **fields: Any) -> Device:
    facts = {"serial": serial} if serial else {}
    heartbeat = json.dumps({**facts, **({"assistants": assistants} if assistants else {})}).encode()
    given = {"enrolled_at": NOW - 30 * DAY, "enrolled_by": "fleet", "last_seen": NOW, "last_heartbeat": NOW}
    return Device(id=id, heartbeat=heartbeat, **{**given, **fields})


def row(known: Device, machine: Machine | None = None) -> FleetRow:
    assistants = tuple(assistants_of(known, now=NOW))
    return device_row(known, machine, assistants, os="", now=NOW, interval_s=60.0)


def test_machines_are_matched_by_serial_then_by_hostname() -> None:
    machines = [
        Machine(serial="A1", hostname="one.example.com"),
        Machine(serial="B2", hostname="two"),
        Machine(hostname="three"),
        Machine(serial="F4", hostname="same"),
        Machine(serial="E5", hostname="same"),
    ]
    devices = [
        device("d1", serial="a1", hostname="two"),  # the serial number wins
        device("d2", hostname="TWO.corp"),
        device("d3", serial="Z9", hostname="three"),  # the list states no serial number of this machine
        device("d4", hostname="same"),  # two machines have this hostname
        device("E5"),  # the device id is a serial number
        device("d6", serial="Z8", hostname="one"),  # another serial number than the machine's
    ]
    place_of, device_of = ExpectedMachines(machines).matched(devices)
    assert {"d1": 0, "d2": 1, "d3": 2, "E5": 4} == place_of
    assert {0: "d1", 1: "d2", 2: "d3", 4: "E5"} == {place: known.id for place, known in device_of.items()}


def test_of_two_devices_that_claim_a_serial_number_the_newest_enrolled_one_counts() -> None:
    machines = [Machine(serial="A1")]
    old = device("old", serial="A1", last_seen=NOW - 60)
    new = device("new", serial="A1")
    pending = device("pending", serial="A1", state=PENDING, last_seen=NOW + 60)
    for devices in ([old, new, pending], [pending, new, old]):
        assert {"new": 0} == ExpectedMachines(machines).matched(devices)[0]


def test_expects_only_what_is_listed() -> None:
    expected = ExpectedMachines([Machine(serial="A1", hostname="one"), Machine(hostname="two")])
    assert expected.expects(serial="a1", hostname="")
    assert expected.expects(serial="", hostname="one.example.com")
    assert expected.expects(serial="Z9", hostname="two")
    assert not expected.expects(serial="Z9", hostname="one")
    assert not expected.expects(serial="", hostname="")
    assert not ExpectedMachines([Machine(serial="A1")]).expects(serial="", hostname="")


def test_the_state_of_a_device() -> None:
    codex = {"codex": {"state": "unused"}}
    cases: list[tuple[Device, str]] = [
        (device("d", assistants=codex, newest_calls={"codex": NOW}), "reporting"),
        (device("d", assistants=codex), "unused"),
        (device("d", assistants={"codex": {"state": "not_installed"}}), "unused"),
        (device("d", assistants={"codex": {"state": "overridden"}}), "not_reporting"),
        (device("d", assistants=codex, last_seen=NOW - 181), "silent"),
        (
            device("d", last_heartbeat=None, last_seen=NOW - DAY, newest_calls={"codex": NOW - DAY}),
            "reporting",
        ),
        (device("d", last_heartbeat=None, last_seen=0.0), "missing"),
        (device("d"), "not_reporting"),
        (device("d", last_telemetry=NOW - DAY), "reporting"),
        (device("d", last_telemetry=NOW - 15 * DAY), "not_reporting"),
        (device("d", state=PENDING), "pending"),
        (device("d", state=REVOKED), "revoked"),
    ]
    assert [state for _, state in cases] == [row(known).state for known, _ in cases]
    assert (("unknown", "no_agent"),) == row(device("d")).causes


def test_systems() -> None:
    words = {
        "macOS 26.1": "macos",
        "Darwin": "macos",
        "Mac": "macos",
        "Windows 11": "windows",
        "win32": "windows",
    }
    words |= {"Ubuntu 24.04": "linux", "linux": "linux", "FreeBSD 14": "freebsd", "": ""}
    assert words == {os: system_of(os) for os in words}


def random_fleet(seed: int) -> tuple[list[FleetRow], bool]:
    chosen = random.Random(seed)
    rows: list[FleetRow] = []
    has_inventory = chosen.random() < 0.8
    for n in range(chosen.randrange(30)):
        team, os = chosen.choice(("", "search", "ads")), chosen.choice(("", "macOS 26", "Windows 11"))
        machine = (
            Machine(serial=f"S{n}", team=team, os=os) if has_inventory and chosen.random() < 0.8 else None
        )
        if machine is not None and chosen.random() < 0.2:
            rows.append(missing_row(machine))
            continue
        states = []
        for name in chosen.sample(NAMES, chosen.randrange(4)):
            state = chosen.choice(list(CAUSES))
            states.append(AssistantState(name, state, chosen.choice(("", *CAUSES[state]))))
        known = device(
            f"d{n}",
            state=chosen.choice((ENROLLED,) * 6 + (PENDING, REVOKED)),
            last_seen=chosen.choice((NOW, NOW, NOW - DAY, 0.0)),
            platform=os,
            labels={"team": team} if chosen.random() < 0.5 else {},
        )
        rows.append(device_row(known, machine, tuple(states), os="", now=NOW, interval_s=60.0))
    return rows, has_inventory


def test_the_figures_equal_a_count_by_hand() -> None:
    """For 1,000 random fleets, every figure equals a plain count of the rows that it names."""
    for seed in range(1000):
        rows, has_inventory = random_fleet(seed)
        figures = coverage_of(rows, has_inventory=has_inventory)
        counted = [each for each in rows if each.machine is not None or not has_inventory]
        assert len(counted) == figures.machines == sum(figures.states.values())
        assert len(rows) - len(counted) == figures.unexpected
        assert figures.covered == sum(each.state in ("reporting", "unused") for each in counted)
        assert figures.enrolled == sum(
            each.device is not None and each.device.state == ENROLLED for each in rows
        )
        for state, count in figures.states.items():
            assert count == sum(each.state == state for each in counted), state
        for cause in figures.causes:
            having = [each for each in counted if (cause.state, cause.cause) in each.causes]
            assert cause.devices == len(having) > 0
            for name, count in cause.assistants.items():
                assert count == sum(
                    (name, cause.state, cause.cause) in {state[:3] for state in each.assistants}
                    for each in having
                )
        all_causes = {cause for each in counted for cause in each.causes}
        assert all_causes == {(cause.state, cause.cause) for cause in figures.causes}
        for name, counts in figures.assistants.items():
            live = [each for each in rows if each.state in ("reporting", "unused", "not_reporting")]
            assert sum(counts.values()) == sum(
                state.name == name for each in live for state in each.assistants
            )
        for part in figures.teams:
            members = [each for each in counted if each.team == part.name]
            assert (part.machines, part.covered) == (
                len(members),
                sum(each.state in ("reporting", "unused") for each in members),
            )
        assert figures.machines == sum(part.machines for part in figures.systems)


def test_a_covered_device_has_no_assistant_in_need_of_repair() -> None:
    for seed in range(200):
        for each in random_fleet(seed)[0]:
            if each.state in ("reporting", "unused"):
                assert all(
                    state.state in ("reporting", "unused", "not_installed") for state in each.assistants
                )
            assert bool(each.causes) == (each.state == "not_reporting")
