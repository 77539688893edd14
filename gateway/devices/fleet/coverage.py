"""
The rows of the fleet, one per device and one per machine that never reported, and the counts of coverage.

The functions depend only on their arguments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.devices.fleet.assistant_states import AssistantState
from gateway.devices.machine_state import (
    COLLECTOR,
    LEFT,
    MISSING,
    OFFLINE,
    REPLACED,
    WORDS,
    Cause,
    MachineState,
)
from spool.devices.device import ENROLLED, PENDING, REVOKED, Device
from spool.registry.tables.inventory import Machine

# states of machines, the best first
STATES = tuple(word for word in reversed(WORDS) if word not in (REPLACED, COLLECTOR))
# states of machines whose assistants are not current
_UNKNOWN_ASSISTANTS = frozenset({PENDING, REVOKED, LEFT, MISSING})


class MachineNames(NamedTuple):
    """The names of a machine. What the device reports has precedence over the inventory."""

    id: str
    hostname: str
    serial: str
    user: str


def machine_names(device: Device | None, machine: Machine | None) -> MachineNames:
    hostname, user = ("", "") if device is None else (device.hostname, device.user)
    serial = ""
    if machine is not None:
        hostname, serial, user = hostname or machine.hostname, machine.serial, user or machine.user
    return MachineNames(serial or hostname if device is None else device.id, hostname, serial, user)


def team_of_machine(device: Device | None, machine: Machine | None) -> str:
    """Return the team by the device's label, or by the inventory."""
    label = "" if device is None else device.all_labels.get("team", "")
    return label or ("" if machine is None else machine.team)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """
    A device, an expected machine of the inventory, or both as one. `causes` say why a machine may lose calls,
    without repeats.

    `state` is a word of `machine_state`, and `link` says whether the device is online. `heard_at` is the time
    of the newest report, call or check-in at the MDM. If it is too long ago, the machine is away. `os` is the
    reported or the listed system, and `system` its family, such as macos.
    """

    id: str
    state: str
    link: str = ""
    covered: bool = False
    heard_at: float = 0.0
    is_away: bool = False
    device: Device | None = None
    machine: Machine | None = None
    assistants: tuple[AssistantState, ...] = ()
    causes: tuple[Cause, ...] = ()
    os: str = ""
    system: str = ""

    @property
    def is_in_inventory(self) -> bool:
        return self.machine is not None

    @property
    def names(self) -> MachineNames:
        return machine_names(self.device, self.machine)

    @property
    def user(self) -> str:
        return self.names.user

    @property
    def team(self) -> str:
        return team_of_machine(self.device, self.machine)

    @property
    def last_seen(self) -> float | None:
        return None if self.device is None else self.device.last_seen or None

    @property
    def last_call(self) -> float | None:
        return None if self.device is None else max(self.device.newest_calls.values(), default=None)


def fleet_row_of_device(device: Device, machine: Machine | None, state: MachineState, *, os: str) -> FleetRow:
    shown_os = os or device.platform or ("" if machine is None else machine.os)
    calls = max(device.newest_calls.values(), default=0.0)
    checked_in = 0.0 if machine is None else machine.last_seen or 0.0
    return FleetRow(
        id=device.id,
        state=state.word,
        link=state.link,
        covered=state.covered,
        heard_at=max(device.last_contact_at, calls, checked_in),
        device=device,
        machine=machine,
        assistants=state.assistants.each,
        causes=state.causes,
        os=shown_os,
        system=operating_system_family(shown_os),
    )


def fleet_row_of_machine_without_device(machine: Machine, *, listed_at: float) -> FleetRow:
    """
    Return the row of a machine that does not report. If the inventory states no check-in, the time of the
    inventory counts as the machine's last sign of life.
    """
    return FleetRow(
        id=machine_names(None, machine).id,
        state=MISSING,
        heard_at=listed_at if machine.last_seen is None else machine.last_seen,
        machine=machine,
        os=machine.os,
        system=operating_system_family(machine.os),
    )


def operating_system_family(os: str) -> str:
    """Return macos, windows, linux, or the first word of any other system."""
    word = os.casefold().split(" ", 1)[0]
    if word.startswith(("mac", "darwin", "osx")):
        return "macos"
    if word.startswith("win"):
        return "windows"
    return (
        "linux" if word.startswith(("linux", "ubuntu", "debian", "fedora", "rhel", "red", "suse")) else word
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveragePart:
    name: str
    machines: int
    covered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseCount:
    """The number of devices whose state has one cause."""

    state: str
    cause: str
    devices: int
    assistants: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCoverage:
    """
    The counts of the fleet. With an inventory, they count the expected machines, and otherwise all devices
    that neither left nor are revoked. Machines without any report for `coverage_days` are only in `away`.
    `offline` counts machines that are also in the other counts, with the last state that they reported.

    `unexpected` counts devices that are not in the inventory. `assistants` counts all devices that are not
    away.
    """

    machines: int
    covered: int
    away: int
    offline: int
    enrolled: int
    unexpected: int
    states: Mapping[str, int]
    causes: Sequence[CauseCount]
    assistants: Mapping[str, Mapping[str, int]]
    teams: Sequence[CoveragePart]
    systems: Sequence[CoveragePart]


def machines_to_count(rows: Iterable[FleetRow], *, has_inventory: bool) -> list[FleetRow]:
    """
    Return the machines to count: the expected ones, or without an inventory all that did not leave and are
    not revoked.
    """
    gone = (REVOKED, LEFT)
    return [row for row in rows if row.machine is not None or not (has_inventory or row.state in gone)]


def measure_coverage(rows: Sequence[FleetRow], *, has_inventory: bool) -> FleetCoverage:
    """
    Return the coverage of a fleet. Each machine counts once. Between two reports, only `offline` changes.
    """
    there = machines_to_count(rows, has_inventory=has_inventory)
    expected = [row for row in there if not row.is_away]
    states = Counter(row.state for row in expected)
    devices_of = Counter(cause for row in expected for cause in row.causes)
    assistants_of: dict[Cause, Counter[str]] = defaultdict(Counter)
    for row in expected:
        if row.causes:
            for each in row.assistants:
                if (each.state, each.cause) in row.causes:
                    assistants_of[each.state, each.cause][each.name] += 1
    assistants: dict[str, dict[str, int]] = defaultdict(dict)
    current = (row for row in rows if not (row.is_away or row.state in _UNKNOWN_ASSISTANTS))
    found = Counter((each.name, each.state) for row in current for each in row.assistants)
    for (name, state), count in sorted(found.items()):
        assistants[name][state] = count
    return FleetCoverage(
        machines=len(expected),
        covered=sum(row.covered for row in expected),
        away=len(there) - len(expected),
        offline=sum(row.link == OFFLINE for row in expected),
        enrolled=sum(row.device is not None and row.device.state == ENROLLED for row in rows),
        unexpected=sum(row.machine is None for row in rows) if has_inventory else 0,
        states={state: states[state] for state in STATES},
        causes=[
            CauseCount(state=cause[0], cause=cause[1], devices=count, assistants=dict(assistants_of[cause]))
            for cause, count in sorted(devices_of.items(), key=lambda item: (-item[1], item[0]))
        ],
        assistants=assistants,
        teams=_coverage_by_part((row.team, row.covered) for row in expected),
        systems=_coverage_by_part((row.system, row.covered) for row in expected),
    )


def _coverage_by_part(rows: Iterable[tuple[str, bool]]) -> list[CoveragePart]:
    counts = Counter(rows)
    sizes = {name: counts[name, True] + counts[name, False] for name, _ in counts}
    return [
        CoveragePart(name=name, machines=size, covered=counts[name, True])
        for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    ]
