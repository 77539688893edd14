"""
The state of a machine: one word for its setting, its use and its enrolment, whether it counts as covered, and
whether it is online.

Every page, command, metric and insight that names the state of a device gets it from
`evaluate_machine_state`. Offline is not one of the words: a machine that sleeps keeps the word of its last
report.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import inf
from typing import NamedTuple

from gateway.devices.fleet.assistant_states import (
    DELAYED,
    DELAYED_S,
    FINE,
    OTHER_CALLS,
    AssistantState,
    assistant_states_of_device,
    assistant_states_valid_until,
    reported_spool,
)
from gateway.devices.fleet.heartbeat_facts import (
    DISK_FULL,
    NO_AGENT,
    REPORTING,
    UNKNOWN,
    UNUSED,
    has_cluster_label,
)
from gateway.devices.fleet.uses import LOSING, RECENT_S, UNSEEN
from spool.devices.device import ENROLLED, PENDING, REVOKED, REVOKED_UPSTREAM, Device
from spool.registry.tables.inventory import Machine

REPLACED = "replaced"  # state: the machine enrolled again under another id
LEFT = "left"  # state: the agent reported that it was removed
COPIED = "copied"  # state: two machines seem to use copies of the same disk
MISSING = "missing"  # state: the inventory expects the machine, but it never reported
AGENT_STOPPED = "agent_stopped"  # state: the MDM still sees the machine, but its agent no longer reports
AT_RISK = "at_risk"  # state: with its present settings, the machine will lose calls
COLLECTOR = "collector"  # state of the agent of a cluster, which has no coding assistants
# states in order of precedence: the first that applies is shown
WORDS = (
    REPLACED, REVOKED, LEFT, PENDING, COPIED, MISSING, LOSING, AGENT_STOPPED, UNKNOWN, AT_RISK, UNSEEN, DELAYED,
    REPORTING, UNUSED, COLLECTOR,
)  # fmt: skip
_WITHOUT_CAUSES = frozenset({COLLECTOR, REPLACED, REVOKED, LEFT, PENDING, MISSING})
COVERED = frozenset({DELAYED, REPORTING, UNUSED})
# states of machines that need a repair
FAILING = frozenset({COPIED, LOSING, AGENT_STOPPED, UNKNOWN, AT_RISK})

ONLINE, OFFLINE = "online", "offline"
LINKS = (ONLINE, OFFLINE, UNKNOWN)
MISSED = 3  # number of missed report intervals after which a device is offline
# seconds between the last report and a check-in at the MDM, after which the agent counts as stopped
STOPPED_AFTER_S = 3600.0
STOPPED_INTERVALS = 6


Cause = tuple[str, str]  # cause of a loss: state of an assistant, and the reason
_NOTHING_KNOWN: Cause = (UNKNOWN, NO_AGENT)
# word in place of an assistant's state, for causes of the machine that may apply in any state
MACHINE = "machine"
CLOCK_WRONG: Cause = (MACHINE, "clock_wrong")
REVOKED_THERE: Cause = (MACHINE, "revoked_upstream")
CLOCK_WRONG_S = 300.0


class MachineEvidence(NamedTuple):
    """
    The facts that decide a machine's state. `machine` is the machine of the inventory that the device claims
    to be. `listening_since` is the time from which this gateway could receive reports.
    """

    device: Device
    interval_s: float
    machine: Machine | None = None
    listening_since: float = 0.0


class AssistantStates(NamedTuple):
    """The states of a device's assistants. They stay the same until `until` if nothing new is reported."""

    each: tuple[AssistantState, ...]
    until: float


class MachineState(NamedTuple):
    """
    The state of a machine. `causes` say why it may lose calls, and what else is wrong with it, without
    repeats. `changes_at` is when the state changes without a new report, or infinite if it never does.
    """

    word: str
    link: str
    covered: bool
    causes: tuple[Cause, ...]
    assistants: AssistantStates
    changes_at: float


def evaluate_machine_state(
    evidence: MachineEvidence, now: float, valid_assistant_states: AssistantStates | None = None
) -> MachineState:
    """Return a machine's state. `valid_assistant_states` are the states of its assistants if they are still valid."""
    device = evidence.device
    assistants = valid_assistant_states or evaluate_assistant_states(device, now)
    word, causes = _state_and_causes(evidence, assistants.each, now)
    if word not in _WITHOUT_CAUSES:
        causes += tuple(_additional_causes(device))
    covered = word in COVERED and not (word == DELAYED and _reported_spool_age_s(device) > DELAYED_S)
    link, link_until = _connection_state_and_end(evidence, now)
    times = [inf if _has_agent(device) else assistants.until, link_until]
    if not assistants.each and (newest := device.newest_calls.get(OTHER_CALLS)) is not None:
        times.append(newest + RECENT_S)
    changes_at = min((time for time in times if time >= now), default=inf)
    return MachineState(word, link, covered, causes, assistants, changes_at)


def evaluate_assistant_states(device: Device, now: float) -> AssistantStates:
    at = time_machine_is_judged_at(device, now)
    return AssistantStates(
        tuple(assistant_states_of_device(device, moment=at)), assistant_states_valid_until(device, moment=at)
    )


def time_machine_is_judged_at(device: Device, now: float) -> float:
    """
    Return the time as of which a machine is judged. If it is offline, that is its last report, because its
    calls wait on it and are not lost.
    """
    return min(now, device.last_seen) if _has_agent(device) else now


def _has_agent(device: Device) -> bool:
    return device.last_heartbeat is not None


def _state_and_causes(
    evidence: MachineEvidence, assistants: Sequence[AssistantState], now: float
) -> tuple[str, tuple[Cause, ...]]:
    device = evidence.device
    if device.replaced_by:
        return REPLACED, ()
    if device.state == REVOKED:
        return REVOKED, ()
    if device.left_at is not None:
        return LEFT, ()
    if device.state != ENROLLED:
        return device.state, ()
    if device.copied_at is not None:
        return COPIED, ()
    if has_cluster_label(device.all_labels):
        return COLLECTOR, ()
    if not device.last_seen:
        return MISSING, ()
    bad = [each for each in assistants if each.state not in FINE]
    if bad:
        return _state_and_causes_of_assistants(evidence, bad)
    if _is_agent_stopped(evidence):
        return AGENT_STOPPED, ()
    if any(each.state == REPORTING for each in assistants):
        return REPORTING, ()
    if assistants:
        return UNUSED, ()
    if reported_spool(device).full:
        return UNKNOWN, ((UNKNOWN, DISK_FULL),)
    newest = device.newest_calls.get(OTHER_CALLS)
    if newest is not None and time_machine_is_judged_at(device, now) - newest <= RECENT_S:
        return REPORTING, ()
    return UNKNOWN, (_NOTHING_KNOWN,)


def _state_and_causes_of_assistants(
    evidence: MachineEvidence, bad: Sequence[AssistantState]
) -> tuple[str, tuple[Cause, ...]]:
    # calls that only wait on the laptop do not make the machine uncovered
    waits = any(each.use == DELAYED for each in bad) and _reported_spool_age_s(evidence.device) <= DELAYED_S
    reasons = [each for each in bad if not (waits and each.use == DELAYED)] or bad
    causes = tuple(dict.fromkeys((each.state, each.cause) for each in reasons))
    uses = {each.use for each in bad}
    if LOSING in uses:
        return LOSING, causes
    if _is_agent_stopped(evidence):
        return AGENT_STOPPED, causes
    if any(each.state == UNKNOWN for each in bad):
        return UNKNOWN, causes
    if any(each.use not in (DELAYED, UNSEEN) for each in bad):
        return AT_RISK, causes
    return UNSEEN if UNSEEN in uses else DELAYED, causes


def _additional_causes(device: Device) -> Iterator[Cause]:
    if abs(device.clock_offset_s or 0.0) > CLOCK_WRONG_S:
        yield CLOCK_WRONG
    if device.held == REVOKED_UPSTREAM:
        yield REVOKED_THERE


def _is_agent_stopped(evidence: MachineEvidence) -> bool:
    """
    Return whether an agent is stopped: the MDM saw its machine twice, clearly later than its last report.
    """
    device, machine = evidence.device, evidence.machine
    if machine is None or not _has_agent(device):
        return False
    after = device.last_seen + max(STOPPED_AFTER_S, STOPPED_INTERVALS * evidence.interval_s)
    seen, before = machine.last_seen, machine.seen_before
    return seen is not None and before is not None and before > after and seen > after


def _reported_spool_age_s(device: Device) -> float:
    return reported_spool(device).oldest_age_s or 0.0


def _connection_state_and_end(evidence: MachineEvidence, now: float) -> tuple[str, float]:
    device, missed_s = evidence.device, MISSED * evidence.interval_s
    if now <= device.last_seen + missed_s:
        return ONLINE, device.last_seen + missed_s
    if not _has_agent(device):  # without an agent, an assistant sends only while it is used
        return UNKNOWN, inf
    if now <= evidence.listening_since + missed_s:
        return UNKNOWN, evidence.listening_since + missed_s
    return OFFLINE, inf


class MachineStates:
    def __init__(self) -> None:
        self._known: dict[str, tuple[MachineEvidence, MachineState, float]] = {}

    def find_or_evaluate(self, evidence: MachineEvidence, now: float) -> MachineState:
        id = evidence.device.id
        known = self._known.get(id)
        assistants = None
        if known is not None:
            before, state, made_at = known
            if made_at <= now <= state.changes_at and _is_same_evidence(before, evidence):
                return state
            if _has_same_report_objects(before.device, evidence.device):
                earlier, at = (
                    time_machine_is_judged_at(before.device, made_at),
                    time_machine_is_judged_at(evidence.device, now),
                )
                assistants = state.assistants if earlier <= at <= state.assistants.until else None
        state = evaluate_machine_state(evidence, now, assistants)
        self._known[id] = evidence, state, now
        return state

    def forget_all_but(self, kept_ids: Collection[str]) -> None:
        if len(self._known) > len(kept_ids):
            self._known = {id: known for id, known in self._known.items() if id in kept_ids}

    def forget_unless_unchanged(self, id: str, device: Device | None) -> None:
        """Forget the state of a device, unless its new row has the same reports."""
        known = self._known.get(id)
        if known is not None and not (
            device is not None and _has_same_report_objects(known[0].device, device)
        ):
            del self._known[id]


class QuietDevices:
    """
    Devices whose state cannot change yet. By id, `_until` has the device from which the state was computed,
    and the time until which the state stays.
    """

    def __init__(self) -> None:
        self._until: dict[str, tuple[Device, float]] = {}
        self._basis: object = None
        self._began = 0.0

    def devices_to_evaluate(
        self, devices: Collection[Device], shared_inputs: object, now: float
    ) -> list[Device]:
        """
        Return the devices whose state may have changed. `shared_inputs` is what the states of all devices depend on.
        If it changes, or the clock is set back, all devices are returned.
        """
        if shared_inputs != self._basis or now < self._began or len(self._until) > len(devices):
            self._until.clear()
        self._basis, self._began = shared_inputs, now
        until = self._until
        return [
            device
            for device in devices
            if (known := until.get(device.id)) is None or known[0] is not device or now > known[1]
        ]

    def forget_device(self, id: str) -> None:
        self._until.pop(id, None)

    def add_device(self, device: Device, state: MachineState) -> None:
        self._until[device.id] = device, state.changes_at


def _is_same_evidence(one: MachineEvidence, other: MachineEvidence) -> bool:
    # compare by identity, because each change creates a new object
    is_same = one.device is other.device and one.machine is other.machine
    return is_same and one.interval_s == other.interval_s


def _has_same_report_objects(one: Device, other: Device) -> bool:
    names = ("heartbeat", "newest_calls", "uses")
    return all(getattr(one, name) is getattr(other, name) for name in names)
