"""
The rows of the fleet, one per device and per machine that never reported, and the figures of coverage.

The functions depend only on their arguments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gateway.devices.fleet.assistant_states import FINE, RECENT_S, AssistantState
from gateway.devices.fleet.facts import NO_AGENT, REPORTING, UNKNOWN, UNUSED
from gateway.devices.states import silent_after
from spool.devices.device import ENROLLED, PENDING, REVOKED, Device
from spool.registry.tables.inventory import Machine

NOT_REPORTING, SILENT, MISSING = "not_reporting", "silent", "missing"
STATES = (REPORTING, UNUSED, NOT_REPORTING, SILENT, MISSING, PENDING, REVOKED)
COVERED = frozenset({REPORTING, UNUSED})
_LIVE = frozenset({REPORTING, UNUSED, NOT_REPORTING})  # states in which the states of assistants are current

Cause = tuple[str, str]  # the state of an assistant, and why it has this state
_NOTHING_KNOWN: Cause = (UNKNOWN, NO_AGENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """
    A device, an expected machine, or both. `causes` say why a device is not reporting, without repeats.

    `os` is the reported or the listed system, and `system` its family, such as macos.
    """

    id: str
    state: str
    device: Device | None = None
    machine: Machine | None = None
    assistants: tuple[AssistantState, ...] = ()
    causes: tuple[Cause, ...] = ()
    os: str = ""
    system: str = ""

    @property
    def is_expected(self) -> bool:
        return self.machine is not None

    @property
    def user(self) -> str:
        reported = "" if self.device is None else self.device.user
        return reported or ("" if self.machine is None else self.machine.user)

    @property
    def team(self) -> str:
        label = "" if self.device is None else self.device.all_labels.get("team", "")
        return label or ("" if self.machine is None else self.machine.team)

    @property
    def last_seen(self) -> float | None:
        return None if self.device is None else self.device.last_seen or None


def device_row(
    device: Device,
    machine: Machine | None,
    assistants: tuple[AssistantState, ...],
    *,
    os: str,
    now: float,
    interval_s: float,
) -> FleetRow:
    state, causes = _device_state(device, assistants, now=now, interval_s=interval_s)
    shown_os = os or device.platform or ("" if machine is None else machine.os)
    return FleetRow(
        id=device.id,
        state=state,
        device=device,
        machine=machine,
        assistants=assistants,
        causes=causes,
        os=shown_os,
        system=system_of(shown_os),
    )


def missing_row(machine: Machine) -> FleetRow:
    return FleetRow(
        id=machine.serial or machine.hostname,
        state=MISSING,
        machine=machine,
        os=machine.os,
        system=system_of(machine.os),
    )


def _device_state(
    device: Device, assistants: Sequence[AssistantState], *, now: float, interval_s: float
) -> tuple[str, tuple[Cause, ...]]:
    """
    Return the state of a device, and the causes if it is not reporting.

    A device without an agent sends no heartbeats, so it is never silent. An admitted device that never
    reported is missing.
    """
    if device.state != ENROLLED:
        return device.state, ()
    if not device.last_seen:
        return MISSING, ()
    if device.last_heartbeat is not None and now > silent_after(device, interval_s):
        return SILENT, ()
    causes = tuple(dict.fromkeys((each.state, each.cause) for each in assistants if each.state not in FINE))
    if causes:
        return NOT_REPORTING, causes
    if any(each.state == REPORTING for each in assistants):
        return REPORTING, ()
    if assistants:
        return UNUSED, ()
    heard = device.last_telemetry
    if heard is not None and now - heard <= RECENT_S:
        return REPORTING, ()
    return NOT_REPORTING, (_NOTHING_KNOWN,)


def system_of(os: str) -> str:
    """Return the family of a system: macos, windows, linux, or the first word of any other."""
    word = os.casefold().split(" ", 1)[0]
    if word.startswith(("mac", "darwin", "osx")):
        return "macos"
    if word.startswith("win"):
        return "windows"
    return (
        "linux" if word.startswith(("linux", "ubuntu", "debian", "fedora", "rhel", "red", "suse")) else word
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The machines of one team or system, and how many of these are covered."""

    name: str
    machines: int
    covered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseCount:
    """The devices that do not report for one cause, and by assistant the number of these devices."""

    state: str
    cause: str
    devices: int
    assistants: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCoverage:
    """
    The figures of the fleet. If there is an inventory, `machines`, `covered`, `states`, `causes`, `teams` and
    `systems` count the expected machines. Otherwise they count all devices. `assistants` and `unexpected`
    count all devices that are enrolled and not silent, and all devices.
    """

    machines: int
    covered: int
    enrolled: int
    unexpected: int
    states: Mapping[str, int]
    causes: Sequence[CauseCount]
    assistants: Mapping[str, Mapping[str, int]]
    teams: Sequence[Part]
    systems: Sequence[Part]


def coverage_of(rows: Iterable[FleetRow], *, has_inventory: bool) -> FleetCoverage:
    """Return the figures. Each machine counts once."""
    rows = list(rows)
    counted = [row for row in rows if row.machine is not None or not has_inventory]
    states = Counter(row.state for row in counted)
    devices_of = Counter(cause for row in counted for cause in row.causes)
    assistants_of: dict[Cause, Counter[str]] = defaultdict(Counter)
    for row in counted:
        if row.causes:
            for each in row.assistants:
                if each.state not in FINE:
                    assistants_of[each.state, each.cause][each.name] += 1
    assistants: dict[str, dict[str, int]] = defaultdict(dict)
    live = (row for row in rows if row.state in _LIVE)
    found = Counter((each.name, each.state) for row in live for each in row.assistants)
    for (name, state), count in sorted(found.items()):
        assistants[name][state] = count
    return FleetCoverage(
        machines=states.total(),
        covered=sum(states[state] for state in COVERED),
        enrolled=sum(row.device is not None and row.device.state == ENROLLED for row in rows),
        unexpected=len(rows) - len(counted),
        states={state: states[state] for state in STATES},
        causes=[
            CauseCount(state=cause[0], cause=cause[1], devices=count, assistants=dict(assistants_of[cause]))
            for cause, count in sorted(devices_of.items(), key=lambda item: (-item[1], item[0]))
        ],
        assistants=assistants,
        teams=_parts((row.team, row.state in COVERED) for row in counted),
        systems=_parts((row.system, row.state in COVERED) for row in counted),
    )


def _parts(rows: Iterable[tuple[str, bool]]) -> list[Part]:
    """Return the parts, the largest first. `rows` has the part of each machine, and whether it is covered."""
    counts = Counter(rows)
    sizes = {name: counts[name, True] + counts[name, False] for name, _ in counts}
    return [
        Part(name=name, machines=size, covered=counts[name, True])
        for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    ]
