"""Reports of devices: their facts, whether the device itself sent them, and the refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.core.errors import Refusal
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.devices.device import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """
    The facts that a device reports; an empty value is unknown. `heartbeat` has the other fields of a
    heartbeat, as JSON.
    """

    id: str
    hostname: str = ""
    platform: str = ""
    agent_version: str = ""
    user: str = ""
    fingerprint: str = field(default="", repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)
    serial: str = ""
    serial_hash: str = ""
    hardware_id: str = ""
    seq: int | None = None  # number of this heartbeat
    word: str = ""  # token from the last response, see gateway.devices.heartbeat_tokens
    want_key: bool = False
    leaving: str = ""  # how the agent was removed, see gateway.devices.states
    revoked: bool = False  # True only if another Tollhouse reports that it revoked or reset the device
    reset: bool = False
    sent_at: float | None = None
    heartbeat: bytes = b""

    def facts(self) -> dict[str, Any]:
        names = ("hostname", "platform", "agent_version", "user", "fingerprint", "labels", "hardware_id")
        return {name: value for name in names if (value := getattr(self, name))}


def has_other_fingerprint(device: Device, report: DeviceReport) -> bool:
    return bool(device.fingerprint and report.fingerprint) and device.fingerprint != report.fingerprint


def is_from_device(device: Device, report: DeviceReport, bearer: AuthenticatedKey) -> bool:
    """Return whether the device itself reports: under its own key, or with its fingerprint."""
    if bearer.device is not None:
        return bearer.device == device.id
    return bool(device.fingerprint) and report.fingerprint == device.fingerprint


FULL_RETRY_S = 3600


def too_many_devices() -> Refusal:
    message = (
        "this key enrolled its part of the devices that devices.max allows; an operator can raise it or "
        "delete devices"
    )
    return Refusal(429, "too_many_devices", message, retry_after_s=FULL_RETRY_S)


def too_many_enrolments(wait_s: int, *, per_hour: int = 0) -> Refusal:
    message = "this key enrolled too many devices in a short time; repeat the request later"
    if per_hour:
        message = (
            f"this token enrolled {per_hour} devices within an hour, which is its limit: repeat the request later, "
            "or an operator can create a token with another --per-hour"
        )
    return Refusal(429, "too_many_enrolments", message, retry_after_s=wait_s)


def revoked_device_refusal() -> Refusal:
    return Refusal(410, "device_revoked", "this device was revoked; an operator can approve it again")


def token_used_up() -> Refusal:
    message = "all uses of this enrolment token are used up; an operator can create another token"
    return Refusal(403, "token_used_up", message)


def require_own_device(bearer: AuthenticatedKey, id: str) -> None:
    if bearer.device is not None and bearer.device != id:
        raise Refusal(403, "other_device", "a device key is valid only for its own device")


def require_may_report_for(device: Device, bearer: AuthenticatedKey) -> None:
    """
    Raise Refusal 403 if a device has used its own key, but this report arrives under another key.

    A fleet's shared key is on every laptop, so a stolen laptop could otherwise report as another device. A
    Tollhouse that the configuration names may report for its devices.
    """
    if device.key_used and bearer.device != device.id and not bearer.is_gateway:
        message = (
            "this device has used its own key: send with that key; if it was lost, an operator can "
            "reset the device"
        )
        raise Refusal(403, "device_key_needed", f"{message}: tollhouse devices reset ID")


def unknown_device_refusal() -> Refusal:
    message = "this device is not enrolled; enrol it or send a heartbeat first"
    return Refusal(404, "unknown_device", message)


def other_fingerprint_refusal() -> Refusal:
    message = "another device is enrolled with this id; if this one replaces it, an operator can reset it"
    return Refusal(409, "another_fingerprint", f"{message}: tollhouse devices reset ID")
