"""Matches between devices and machines, and the figures of coverage, against a count by hand over random fleets."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from math import inf
from typing import Any

from gateway.devices.fleet.assistant_states import FINE, AssistantState
from gateway.devices.fleet.coverage import (
    FleetRow,
    fleet_row_of_device,
    fleet_row_of_machine_without_device,
    measure_coverage,
    operating_system_family,
)
from gateway.devices.fleet.heartbeat_facts import CAUSES, hash_serial
from gateway.devices.fleet.matching import ExpectedMachines
from gateway.devices.machine_state import (
    WORDS,
    AssistantStates,
    MachineEvidence,
    MachineState,
    evaluate_machine_state,
)
from spool.devices.device import ENROLLED, PENDING, REVOKED, Device
from spool.registry.tables.inventory import Machine
from tests.rounds import IS_LONG

NOW = 1_800_000_000.0
DAY = 86_400.0
INTERVAL_S = 60.0
NAMES = ("claude-code", "codex", "copilot")


def device(id: str, *, serial: str = "", assistants: Any = None, **fields: Any) -> Device:
    facts = {"serial": serial} if serial else {}
    heartbeat = json.dumps({**facts, **({"assistants": assistants} if assistants else {})}).encode()
    given = {"enrolled_at": NOW - 30 * DAY, "enrolled_by": "fleet", "last_seen": NOW, "last_heartbeat": NOW}
    return Device(id=id, heartbeat=heartbeat, **{**given, **fields})


def state_of(
    known: Device, machine: Machine | None = None, assistants: Sequence[AssistantState] | None = None
) -> MachineState:
    states = None if assistants is None else AssistantStates(tuple(assistants), inf)
    return evaluate_machine_state(MachineEvidence(known, INTERVAL_S, machine), NOW, states)


def row(known: Device, machine: Machine | None = None) -> FleetRow:
    return fleet_row_of_device(known, machine, state_of(known, machine), os="")


def test_machines_are_matched_by_serial_then_by_hostname() -> None:
    machines = [
        Machine(serial="A1", hostname="one.example.com"),
        Machine(serial="B2", hostname="two"),
        Machine(hostname="three"),
        Machine(serial="F4", hostname="same"),
        Machine(serial="E5", hostname="same"),
    ]
    devices = [
        device("d1", serial="a1", hostname="two"),  # the serial number takes precedence over the hostname
        device("d2", hostname="TWO.corp"),
        device("d3", serial="Z9", hostname="three"),  # the list states no serial number of this machine
        device("d4", hostname="same"),  # two machines have this hostname
        device("E5"),  # the device id is a serial number
        # the device states another serial number than the machine with this hostname has
        device("d6", serial="Z8", hostname="one"),
    ]
    place_of, device_of = ExpectedMachines(machines).match_devices(devices)
    assert {"d1": 0, "d2": 1, "d3": 2, "E5": 4} == place_of
    assert {0: "d1", 1: "d2", 2: "d3", 4: "E5"} == {place: known.id for place, known in device_of.items()}


def test_of_two_devices_that_claim_a_serial_number_the_newest_enrolled_one_counts() -> None:
    machines = [Machine(serial="A1")]
    old = device("old", serial="A1", last_seen=NOW - 60)
    new = device("new", serial="A1")
    pending = device("pending", serial="A1", state=PENDING, last_seen=NOW + 60)
    for devices in ([old, new, pending], [pending, new, old]):
        assert {"new": 0} == ExpectedMachines(machines).match_devices(devices)[0]


def test_a_hash_of_the_serial_number_matches_as_well() -> None:
    """
    A device and a machine match by serial number, which agents always state. If no machine has it, a machine with
    the same hostname and another serial number is no match.
    """
    machines = [
        Machine(serial="A1", hostname="one"),
        Machine(serial="B2", hostname="two"),
        Machine(hostname="three"),
    ]
    expected = ExpectedMachines(machines)
    assert expected.has_machine(serial="", hostname="", serial_hash=hash_serial("a1"))
    assert not expected.has_machine(serial="", hostname="two", serial_hash=hash_serial("Z9"))
    assert expected.has_machine(serial="", hostname="three", serial_hash=hash_serial("Z9"))
    assert not expected.has_machine(serial="Z9", hostname="", serial_hash=hash_serial("A1"))
    hashed = Device(
        id="d", enrolled_at=1.0, enrolled_by="f", last_seen=NOW,
        heartbeat=json.dumps({"serial_hash": hash_serial("b2")}).encode(),
    )  # fmt: skip
    assert {"d": 1} == expected.match_devices([hashed])[0]


def test_a_machine_that_was_installed_again_is_the_machine() -> None:
    """A device that waits for approval does not cover its machine. The claim of another device changes nothing."""
    machines, hardware = [Machine(serial="A1")], "h" * 64
    old = device("old", serial="A1", hardware_id=hardware, last_seen=NOW - DAY)
    fields: Any = {"serial": "A1", "state": PENDING, "cause": "same_hardware", "enrolled_at": NOW - 60}
    again = device("again", hardware_id=hardware, **fields)
    stranger = device("stranger", hardware_id="x" * 64, **fields)
    alive = replace(old, id="alive", last_seen=NOW)
    for known, found in (
        ((old, again), "again"),
        ((old, stranger), "old"),
        ((old, stranger, again), "again"),
        ((alive, again), "alive"),
        ((old, alive, again), "alive"),
        ((again,), "again"),
    ):
        for devices in permutations(known):
            assert {found: 0} == ExpectedMachines(machines).match_devices(devices)[0]


def test_expects_only_what_is_listed() -> None:
    expected = ExpectedMachines([Machine(serial="A1", hostname="one"), Machine(hostname="two")])
    assert expected.has_machine(serial="a1", hostname="")
    assert expected.has_machine(serial="", hostname="one.example.com")
    assert expected.has_machine(serial="Z9", hostname="two")
    assert not expected.has_machine(serial="Z9", hostname="one")
    assert not expected.has_machine(serial="", hostname="")
    assert not ExpectedMachines([Machine(serial="A1")]).has_machine(serial="", hostname="")


def test_the_word_of_a_machine() -> None:
    """The state of a machine is the first in the table that applies. Each state hides those below it."""
    day_ago, calls = NOW - DAY, {"codex": NOW}
    unheard = {"codex": {"setting": "configured", "since": 0.0, "unheard": day_ago}}
    codex, off = {"codex": {"state": "unused"}}, {"codex": {"state": "overridden"}}
    waits = {"codex": {"state": "unreachable", "cause": "backlog"}}
    unseen = {"codex": {"state": "unused", "cause": "several_users", "use": "unseen"}}
    unread = {"codex": {"state": "unknown", "cause": "malformed"}}
    cases: list[tuple[Device, str, bool]] = [
        (device("d", state=REVOKED, replaced_by="e"), "replaced", False),
        (device("d", state=REVOKED, assistants=codex), "revoked", False),
        (device("d", state=PENDING, left_at=NOW, assistants=codex, newest_calls=calls), "left", False),
        (device("d", state=PENDING, assistants=codex, newest_calls=calls), "pending", False),
        (device("d", copied_at=NOW, assistants=codex, newest_calls=calls), "copied", False),
        (device("d", last_heartbeat=None, last_seen=0.0), "missing", False),
        (device("d", assistants=codex, uses=json.dumps(unheard)), "losing", False),
        (device("d", assistants=unread | {"copilot": {"state": "overridden"}}), "unknown", False),
        (device("d", assistants=off | {"copilot": waits["codex"]}), "at_risk", False),
        (device("d", assistants=unseen | {"copilot": off["codex"]}), "at_risk", False),
        (device("d", assistants=unseen | {"copilot": waits["codex"]}), "unseen", False),
        (device("d", assistants=unseen, newest_calls={"codex": day_ago - 1}), "unseen", False),
        (device("d", assistants=unseen, newest_calls={"codex": day_ago}), "reporting", True),
        (device("d", assistants=waits, newest_calls=calls), "delayed", True),
        (device("d", assistants=codex, newest_calls=calls), "reporting", True),
        (device("d", assistants=codex, uses=json.dumps(unheard), newest_calls=calls), "reporting", True),
        (device("d", assistants=codex), "unused", True),
        (device("d", assistants={"codex": {"state": "not_installed"}}), "unused", True),
        (device("d"), "unknown", False),
        (device("d", newest_calls={"": day_ago}), "reporting", True),
        (device("d", last_telemetry=NOW), "unknown", False),  # only a call makes a machine reporting
        (device("d", last_heartbeat=None, last_seen=day_ago, newest_calls={"codex": day_ago}), "reporting", True),
        (device("d", labels={"kind": "cluster"}, assistants=codex), "collector", False),
    ]  # fmt: skip
    for known, word, covered in cases:
        found = state_of(known)
        assert (word, covered) == (found.word, found.covered), known
    assert (("unknown", "no_agent"),) == state_of(device("d")).causes
    assert {word for _, word, _ in cases} | {"agent_stopped"} == set(WORDS)


def test_calls_that_wait_longer_than_a_day_are_not_covered() -> None:
    for waited_s, covered in ((DAY, True), (DAY + 1, False)):
        heartbeat = {
            "assistants": {"codex": {"state": "unreachable", "cause": "backlog"}},
            "spool": {"oldest_age_s": waited_s},
        }
        known = replace(device("d"), heartbeat=json.dumps(heartbeat).encode())
        assert ("delayed", covered) == state_of(known)[0:3:2]


def test_an_agent_has_stopped_if_the_mdm_saw_the_machine_twice() -> None:
    """
    An agent counts as stopped if its machine checked in at the MDM an hour and six intervals after the agent's last
    report. A machine without an agent is not judged so.
    """
    asleep = device("d", last_seen=NOW - DAY, last_heartbeat=NOW - DAY)
    soon, late = NOW - DAY + 3600, NOW - DAY + 3601
    words = {
        (seen, before): state_of(asleep, Machine(serial="A", last_seen=seen, seen_before=before)).word
        for seen in (None, soon, late)
        for before in (None, soon, late)
    }
    assert {(late, late)} == {times for times, word in words.items() if word == "agent_stopped"}
    without_agent = device("d", last_heartbeat=None, last_seen=NOW - DAY)
    machine = Machine(serial="A", last_seen=NOW, seen_before=NOW)
    assert "unknown" == state_of(without_agent, machine).word


def test_the_link_is_no_word() -> None:
    """A machine that sleeps keeps its state. A gateway that has just started does not call it offline."""
    asleep = device("d", last_seen=NOW - DAY, last_heartbeat=NOW - DAY, newest_calls={"codex": NOW - DAY})
    assert ("reporting", "offline") == state_of(asleep)[:2]
    started = MachineEvidence(asleep, INTERVAL_S, listening_since=NOW - 3 * INTERVAL_S)
    assert ("reporting", "unknown") == evaluate_machine_state(started, NOW)[:2]
    assert ("reporting", "offline") == evaluate_machine_state(started, NOW + 1)[:2]
    assert "online" == state_of(device("d", last_seen=NOW - 3 * INTERVAL_S)).link


def test_systems() -> None:
    words = {
        "macOS 26.1": "macos",
        "Darwin": "macos",
        "Mac": "macos",
        "Windows 11": "windows",
        "win32": "windows",
    }
    words |= {"Ubuntu 24.04": "linux", "linux": "linux", "FreeBSD 14": "freebsd", "": ""}
    assert words == {os: operating_system_family(os) for os in words}


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
            rows.append(fleet_row_of_machine_without_device(machine, listed_at=NOW))
            continue
        states = []
        for name in chosen.sample(NAMES, chosen.randrange(4)):
            state = chosen.choice(list(CAUSES))
            cause = chosen.choice(("", *CAUSES[state]))
            use = chosen.choice(("none", "heard", "losing", "delayed"))
            states.append(AssistantState(name, state, cause, use=use))
        known = device(
            f"d{n}",
            state=chosen.choice((ENROLLED,) * 6 + (PENDING, REVOKED)),
            last_seen=chosen.choice((NOW, NOW, NOW - DAY, 0.0)),
            platform=os,
            labels={"team": team} if chosen.random() < 0.5 else {},
        )
        made = fleet_row_of_device(known, machine, state_of(known, machine, states), os="")
        rows.append(replace(made, is_away=chosen.random() < 0.2))
    return rows, has_inventory


def test_the_figures_equal_a_count_by_hand() -> None:
    """For many random fleets, every figure equals a plain count of the rows that it names."""
    for seed in range(1000 if IS_LONG else 200):
        rows, has_inventory = random_fleet(seed)
        figures = measure_coverage(rows, has_inventory=has_inventory)
        counted = [
            each
            for each in rows
            if each.machine is not None or (not has_inventory and each.state != "revoked")
        ]
        assert sum(each.is_away for each in counted) == figures.away
        counted = [each for each in counted if not each.is_away]
        assert len(counted) == figures.machines == sum(figures.states.values())
        assert figures.unexpected == (sum(each.machine is None for each in rows) if has_inventory else 0)
        assert figures.covered == sum(each.covered for each in counted)
        assert figures.offline == sum(each.link == "offline" for each in counted)
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
                    any(
                        (name, cause.state, cause.cause) == (at.name, at.state, at.cause)
                        for at in each.assistants
                    )
                    for each in having
                )
        all_causes = {cause for each in counted for cause in each.causes}
        assert all_causes == {(cause.state, cause.cause) for cause in figures.causes}
        for name, counts in figures.assistants.items():
            live = [
                each
                for each in rows
                if not each.is_away and each.state not in ("missing", "pending", "revoked")
            ]
            assert sum(counts.values()) == sum(
                state.name == name for each in live for state in each.assistants
            )
        for part in figures.teams:
            members = [each for each in counted if each.team == part.name]
            assert (part.machines, part.covered) == (len(members), sum(each.covered for each in members))
        assert figures.machines == sum(part.machines for part in figures.systems)


def test_a_covered_machine_has_no_assistant_in_need_of_repair() -> None:
    for seed in range(200 if IS_LONG else 50):
        for each in random_fleet(seed)[0]:
            if each.covered and each.state != "delayed":
                assert {state.state for state in each.assistants} <= FINE
            if each.causes:
                assert each.state in ("losing", "unknown", "at_risk", "delayed")
