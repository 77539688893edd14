"""What a device reports of itself, and whether a report is the device's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.people.authentication.access import Bearer
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
