"""
The changes of a device's row when it enrols, reports, or is approved, revoked or reset.

The functions depend only on their arguments. `gateway.devices.machine_state` has the state that people see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gateway.devices.fleet.assistant_states import corrected_call_end
from spool.devices.device import ENROLLED, REVOKED, Device

NOT_EXPECTED = "not_expected"  # cause of a pending device that is not in the inventory
SAME_HARDWARE = "same_hardware"  # cause of a pending device if another device has the same hardware id
REMOVED, UNENROLLED = "removed", "unenrolled"  # how an agent was removed; UNENROLLED also ends its key
# seconds for which the key of a removed agent still works, in case it is installed again
KEY_AFTER_LEAVING_S = 7 * 86_400.0
LEAVINGS = frozenset({REMOVED, UNENROLLED})
STATE_CHANGES = 50  # maximum stored state changes per device


def new_device(id: str, now: float, enrolled_by: str, **fields: Any) -> Device:
    """
    Return a new device. Its generation is higher than that of any deleted device with this id, so keys of the
    deleted device stay invalid.
    """
    return Device(
        id=id, enrolled_at=now, enrolled_by=enrolled_by, last_seen=now, generation=int(now), **fields
    )


def approved_device(device: Device, now: float) -> Device:
    settled: dict[str, Any] = {
        **dict.fromkeys(("cause", "replaced_by", "words"), ""),
        **dict.fromkeys(("copied_at", "left_at")),
    }
    # a copied device stayed enrolled, so calls from before the approval can still be lost
    since = device.enrolled_at if device.state == ENROLLED else now
    return device.with_changes_and_next_version(
        changes_enrolment=True, state=ENROLLED, revoked_by="", held=None, enrolled_at=since, **settled
    )


def device_after_reset(device: Device, now: float) -> Device:
    # facts of an earlier machine with this id, which no longer apply
    forgotten: dict[str, Any] = {
        **dict.fromkeys(("fingerprint", "token", "serial", "hardware_id", "words", "state_changes"), ""),
        **dict.fromkeys(("clock_offset_s", "copied_at", "left_at")),
        "heartbeat": b"",
        "newest_calls": {},
        "uses": "{}",
    }
    after = _without_key(device, flagged_at=None, held=None, enrolled_at=now, **forgotten)
    return replace(after, reset_version=after.facts_version)


def _without_key(device: Device, **changes: Any) -> Device:
    generation = device.generation + device.has_key
    return device.with_changes_and_next_version(
        changes_enrolment=True, generation=generation, has_key=False, key_used=False, **changes
    )


def device_after_leaving(device: Device, leaving_kind: str, now: float) -> Device:
    """
    Return a device after it left. A device that was copied stays unchanged, because nobody knows which
    machine leaves.
    """
    if device.copied_at is not None:
        return device
    after = replace(device, left_at=now)
    return _without_key(after) if leaving_kind == UNENROLLED else after


def expired_key_remover(now: float) -> Callable[[Device], Device]:
    def end_expired_key(device: Device) -> Device:
        return _without_key(device) if has_expired_key(device, now) else device

    return end_expired_key


def has_expired_key(device: Device, now: float) -> bool:
    return device.has_key and device.left_at is not None and now - device.left_at > KEY_AFTER_LEAVING_S


def device_revoker(revoking_operator: str) -> Callable[[Device], Device]:
    return lambda device: _without_key(device, state=REVOKED, revoked_by=revoking_operator)


def revoker_of_replaced_device(replacing_device_id: str) -> Callable[[Device], Device]:
    return lambda device: _without_key(device, state=REVOKED, revoked_by="", replaced_by=replacing_device_id)


def last_seen_updater(now: float) -> Callable[[Device], Device]:
    """Return a change that notes a report at `now`, unless another gateway noted a later one."""
    return lambda device: replace(device, last_seen=max(now, device.last_seen))


def state_recorder(state_name: str, now: float) -> Callable[[Device], Device]:
    """
    Return a change that adds a state to the state changes of a device, unless it is the newest one there.
    """

    def record_state(device: Device) -> Device:
        if last_recorded_state(device) == state_name:
            return device
        lines = [*device.state_changes.splitlines(), f"{now:.0f} {state_name}"]
        return replace(device, state_changes="\n".join(lines[-STATE_CHANGES:]))

    return record_state


def last_recorded_state(device: Device) -> str:
    return device.state_changes.rpartition(" ")[2]


def parse_state_changes(device: Device) -> list[tuple[float, str]]:
    """Return each state word of a device with the time at which it began, the newest first."""
    lines = (line.split(" ") for line in reversed(device.state_changes.splitlines()))
    return [(float(at), word) for at, word in lines]


def telemetry_updater(now: float, calls: Mapping[str, float]) -> Callable[[Device], Device]:
    """Return a change that notes telemetry. `calls` are the ends of calls by the device's clock."""

    def note_telemetry(device: Device) -> Device:
        newest = dict(device.newest_calls)
        for name, time in calls.items():
            ended = corrected_call_end(device, time, now=now)
            newest[name] = max(ended, newest.get(name, ended))
        return replace(last_seen_updater(now)(device), last_telemetry=now, newest_calls=newest)

    return note_telemetry
