"""What becomes of a device that is enrolled, heard, approved, revoked or reset: new rows from old ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spool.devices.device import ENROLLED, REVOKED, Device


def begun(id: str, now: float, by: str, **fields: Any) -> Device:
    """
    Returns a new device.

    Its generation is later than any that a device of this id had before it was deleted, so their keys stay dead.
    """
    return Device(id=id, enrolled_at=now, enrolled_by=by, last_seen=now, generation=int(now), **fields)


def approved(device: Device, now: float) -> Device:
    return device.updated(facts=True, state=ENROLLED, revoked_by="", held=None, enrolled_at=now)


def reset(device: Device, now: float) -> Device:
    after = _without_key(device, fingerprint="", flagged_at=None, held=None, enrolled_at=now)
    return replace(after, reset_version=after.facts_version)


def _without_key(device: Device, **changes: Any) -> Device:
    generation = device.generation + device.has_key
    return device.updated(facts=True, generation=generation, has_key=False, key_used=False, **changes)


def revoked_by(name: str) -> Callable[[Device], Device]:
    return lambda device: _without_key(device, state=REVOKED, revoked_by=name)


def seen(now: float) -> Callable[[Device], Device]:
    """Notes that a device was heard; another gateway may have heard it later."""
    return lambda device: replace(device, last_seen=max(now, device.last_seen))
