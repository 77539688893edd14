"""
The states of a device, and the changes of its row when it enrols, reports, or is approved, revoked or reset.

The functions depend only on their arguments. The states offline (SILENT) and "sends no calls" (MUTE) are not
stored, because they follow from the times of the last reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

from spool.devices.device import ENROLLED, PENDING, REVOKED, Device

SILENT = "silent"  # offline: no report for three intervals
COPIED = "copied"  # two machines seem to use the disk of this device
REPLACED = "replaced"  # the same machine enrolled under another id
MUTE = "mute"  # heartbeats arrive, but the usual telemetry has stopped
STATES = (PENDING, ENROLLED, SILENT, MUTE, COPIED, REPLACED, REVOKED)
NOT_EXPECTED = "not_expected"  # cause of a pending device: it is not in the inventory
SAME_HARDWARE = "same_hardware"  # cause of a pending device: another device has its hardware id

MISSED = 3
MUTE_AFTER_S = 86_400.0  # seconds without telemetry, so long that a night without work does not count


def state_of(device: Device, *, now: float, interval_s: float) -> str:
    if device.replaced_by:
        return REPLACED
    if device.state != ENROLLED:
        return device.state
    if device.copied_at is not None:
        return COPIED
    if now > silent_after(device, interval_s):
        return SILENT
    return MUTE if is_mute(device, now=now) else ENROLLED


def is_mute(device: Device, *, now: float) -> bool:
    """Return whether heartbeats arrive although the usual telemetry has stopped."""
    return now > _mute_after(device)


def changes_after(device: Device, *, now: float, interval_s: float) -> float:
    """
    Return the time at which the state changes if the device sends no further report, or infinity if it
    does not change.
    """
    if device.state != ENROLLED or device.copied_at is not None:
        return inf
    times = (silent_after(device, interval_s), _mute_after(device))
    return min((time for time in times if time >= now), default=inf)


def silent_after(device: Device, interval_s: float) -> float:
    return device.quiet_since + MISSED * interval_s


def _mute_after(device: Device) -> float:
    heard, sent = device.last_heartbeat, device.last_telemetry
    return inf if heard is None or sent is None or heard <= sent else sent + MUTE_AFTER_S


def counts(devices: Iterable[Device], *, now: float, interval_s: float) -> Mapping[str, int]:
    """Count the devices in each state, including empty states."""
    by_state = Counter(state_of(device, now=now, interval_s=interval_s) for device in devices)
    return {state: by_state[state] for state in STATES}


def begun(id: str, now: float, by: str, **fields: Any) -> Device:
    """
    Return a new device.

    Its generation is higher than that of any deleted device with this id, so keys of the deleted
    device stay invalid.
    """
    return Device(id=id, enrolled_at=now, enrolled_by=by, last_seen=now, generation=int(now), **fields)


def approved(device: Device, now: float) -> Device:
    settled: dict[str, Any] = {"cause": "", "replaced_by": "", "words": "", "copied_at": None}
    return device.updated(facts=True, state=ENROLLED, revoked_by="", held=None, enrolled_at=now, **settled)


def reset(device: Device, now: float) -> Device:
    # another machine may use the id from now on, so the facts of the earlier machine no longer apply
    forgotten: dict[str, Any] = {
        **dict.fromkeys(("fingerprint", "token", "serial", "hardware_id", "words"), ""),
        "copied_at": None,
        "heartbeat": b"",
        "newest_calls": {},
    }
    after = _without_key(device, flagged_at=None, held=None, enrolled_at=now, **forgotten)
    return replace(after, reset_version=after.facts_version)


def _without_key(device: Device, **changes: Any) -> Device:
    generation = device.generation + device.has_key
    return device.updated(facts=True, generation=generation, has_key=False, key_used=False, **changes)


def revoked_by(name: str) -> Callable[[Device], Device]:
    return lambda device: _without_key(device, state=REVOKED, revoked_by=name)


def replaced_by(id: str) -> Callable[[Device], Device]:
    return lambda device: _without_key(device, state=REVOKED, revoked_by="", replaced_by=id)


def seen(now: float) -> Callable[[Device], Device]:
    """Return a change that records a report, unless another gateway recorded a later one."""
    return lambda device: replace(device, last_seen=max(now, device.last_seen))


def heard(now: float, assistants: Collection[str]) -> Callable[[Device], Device]:
    """Return a change that records telemetry, and calls of these coding assistants."""

    def changed(device: Device) -> Device:
        calls = device.newest_calls
        newest = {**calls, **{name: max(now, calls.get(name, now)) for name in assistants}}
        return replace(seen(now)(device), last_telemetry=now, newest_calls=newest)

    return changed
