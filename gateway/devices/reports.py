"""
What a device reports of itself, whether a report is the device's, and what is refused, in words that say what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.people.authentication.access import Bearer
from gateway.service.errors import Refusal
from spool.devices.device import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """What a device reports of itself; empty is unknown. `heartbeat` is the rest of a heartbeat, as JSON."""

    id: str
    hostname: str = ""
    platform: str = ""
    agent_version: str = ""
    user: str = ""
    fingerprint: str = field(default="", repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)
    want_key: bool = False
    revoked: bool = False  # of another Tollhouse alone: it revoked the device, or reset it
    reset: bool = False
    sent_at: float | None = None
    heartbeat: bytes = b""

    def facts(self) -> dict[str, Any]:
        """Returns the reported values as fields of a device."""
        names = ("hostname", "platform", "agent_version", "user", "fingerprint", "labels")
        return {name: value for name in names if (value := getattr(self, name))}


def is_another(device: Device, report: DeviceReport) -> bool:
    return bool(device.fingerprint and report.fingerprint) and device.fingerprint != report.fingerprint


def is_from(device: Device, report: DeviceReport, bearer: Bearer) -> bool:
    """True if the device itself reports: under its own key, or with its fingerprint."""
    if bearer.device is not None:
        return bearer.device == device.id
    return bool(device.fingerprint) and report.fingerprint == device.fingerprint


FULL_RETRY_S = 3600


def full() -> Refusal:
    message = "no key enrols more devices than it leaves free of devices.max; an operator can raise it, or delete some"
    return Refusal(429, "too_many_devices", message, retry_after_s=FULL_RETRY_S)


def revoked() -> Refusal:
    return Refusal(410, "device_revoked", "this device was revoked; an operator can approve it again")


def check_own(bearer: Bearer, id: str) -> None:
    if bearer.device is not None and bearer.device != id:
        raise Refusal(403, "other_device", "a device's key is good for this device alone")


def check_speaks_for(device: Device, bearer: Bearer) -> None:
    """
    Refusal 403 if a device that has used its own key is spoken for under another one.

    The fleet's key lies on every laptop: with it a stolen laptop would count as heard. A Tollhouse that the
    configuration names speaks for the devices that report to it.
    """
    if device.key_used and bearer.device != device.id and not bearer.is_gateway:
        message = (
            "this device has used a key of its own: send under that key; if it lost the key, an operator"
        )
        raise Refusal(403, "device_key_needed", f"{message} resets it: tollhouse devices reset ID")


def unknown() -> Refusal:
    message = "this device is not enrolled; enrol it or send a heartbeat first"
    return Refusal(404, "unknown_device", message)


def another() -> Refusal:
    message = "another device is enrolled under this id; if this one takes its place, an operator resets it"
    return Refusal(409, "another_fingerprint", f"{message}: tollhouse devices reset ID")
