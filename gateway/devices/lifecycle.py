"""
The life cycle of devices: enrolment, heartbeats, approval, revocation and reset, whichever endpoint asks.

Nothing awaits between reading a device and keeping the new one, so two simultaneous first contacts are one
device.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.attempts import Buckets
from gateway.authentication.access import Bearer, lacking
from gateway.configuration.sections import DeviceSettings
from gateway.devices.keys import DeviceKeys
from gateway.devices.states import counts, state_of
from gateway.errors import Refusal
from gateway.normalise.reading.emails import Emails
from spool.clock import Clock
from spool.devices import ENROLLED, PENDING, REVOKED, Device, DeviceTable
from spool.errors import NotAllowed, NotThere
from spool.registry.audit import AuditedChange
from spool.registry.keys import checked_labels
from spool.registry.operators import Actor
from spool.registry.scopes import ENROLL

ENROLMENTS = 2000  # of a key at once, then one a second
ENROLMENTS_PER_S = 1.0
FULL_RETRY_S = 3600
FIRST_KEY_S = 3600.0  # how long after its enrolment a device without a fingerprint may ask for its first key
HEARD_EVERY_S = 15.0  # precision of the time of the last telemetry

_log = logging.getLogger(__name__)


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
    sent_at: float | None = None
    heartbeat: bytes = b""

    def facts(self) -> dict[str, Any]:
        """Returns the reported values as fields of a device."""
        names = ("hostname", "platform", "agent_version", "user", "fingerprint", "labels")
        return {name: value for name in names if (value := getattr(self, name))}


class DeviceLifecycle:
    """Applies every rule of the control plane to the device table."""

    def __init__(
        self, table: DeviceTable, *, settings: DeviceSettings, clock: Clock, secret: bytes, emails: Emails | None = None
    ) -> None:
        self.table = table
        self.settings = settings
        self.keys = DeviceKeys(table, secret=secret)
        self._clock = clock
        self._emails = emails or Emails("hash", secret=secret)
        self._limits = Buckets(clock, burst=ENROLMENTS, per_s=ENROLMENTS_PER_S)

    @property
    def interval_s(self) -> float:
        return self.settings.heartbeat_interval

    def state_of(self, device: Device) -> str:
        return state_of(device, now=self._clock.now(), interval_s=self.interval_s)

    def counts(self) -> Mapping[str, int]:
        return counts(self.table.all(), now=self._clock.now(), interval_s=self.interval_s)

    # -- what devices ask ------------------------------------------------------------------------------------------

    async def enrol(self, report: DeviceReport, bearer: Bearer, address: str) -> tuple[Device, str | None]:
        """Enrols; returns the device, and its key the one time that it may have it."""
        report = self._private(report)
        known = self.table.find(report.id)
        change = None
        if known is None:
            device, change = self._new(report, bearer, address)
        else:
            device = await self._known(known, report, bearer, address)
        key = None
        if report.want_key and self._may_have_key(known or device, report):
            key = self.keys.key_of(device)
            if not device.has_key:
                device = replace(device, has_key=True)
        await self.table.keep(device, change)
        return device, key

    async def heartbeat(self, report: DeviceReport, bearer: Bearer, address: str) -> Device:
        """Keeps a heartbeat. A first contact enrols if the key may; else Refusal 403 names the scope."""
        report = self._private(report)
        _own(bearer, report.id)
        device = self.table.find(report.id)
        change = None
        if device is None:
            if ENROLL not in bearer.scopes:
                raise lacking(ENROLL)
            device, change = self._new(report, bearer, address)
        else:
            device = await self._known(device, report, bearer, address)
        now = self._clock.now()
        offset = device.clock_offset_s if report.sent_at is None else report.sent_at - now
        device = device.updated(last_heartbeat=now, last_seen=now, heartbeat=report.heartbeat, clock_offset_s=offset)
        await self.table.keep(device, change)
        return device

    def _private(self, report: DeviceReport) -> DeviceReport:
        user, labels = self._emails.protected(report.user), self._emails.protected_values(report.labels)
        return replace(report, user=user or "", labels=labels)

    def ping(self, id: str, bearer: Bearer) -> None:
        """Notes that the device is alive. Refusal 404 if it is not enrolled."""
        _own(bearer, id)
        device = self.table.find(id)
        if device is None:
            raise Refusal(404, "unknown_device", "this device is not enrolled; enrol it or send a heartbeat first")
        if device.state == REVOKED:
            raise revoked()
        self.table.touch(replace(device, last_seen=self._clock.now()))

    async def first_contact(self, id: str, bearer: Bearer) -> Device | None:
        """Enrols a device that telemetry names, if the key may; else notes it as unenrolled, None."""
        if ENROLL in bearer.scopes:
            try:
                device, change = self._new(DeviceReport(id=id), bearer, "")
            except Refusal as refusal:
                _log.warning("a device was not enrolled: %s", refusal.message, extra={"action": "device_not_enrolled"})
            else:
                await self.table.keep(device, change)
                return device
        self.table.note_unenrolled(id, key=bearer.name, now=self._clock.now())
        return None

    def heard(self, device: Device) -> None:
        """Notes that telemetry of the device arrived, at most once in HEARD_EVERY_S."""
        now = self._clock.now()
        if device.last_telemetry is None or now - device.last_telemetry >= min(HEARD_EVERY_S, self.interval_s):
            self.table.touch(replace(device, last_telemetry=now, last_seen=now))

    def _new(self, report: DeviceReport, bearer: Bearer, address: str) -> tuple[Device, AuditedChange]:
        policy = self.settings.policy
        if policy == "closed":
            raise Refusal(403, "enrolment_closed", "no new devices are enrolled here (devices.policy)")
        if len(self.table) >= self.settings.max:
            message = "there are as many devices as devices.max allows; an operator can raise it"
            raise Refusal(429, "too_many_devices", message, retry_after_s=FULL_RETRY_S)
        wait_s = self._limits.wait_s(bearer.name)
        if wait_s:
            message = "this key enrolled too many devices in a short time; repeat later"
            raise Refusal(429, "too_many_enrolments", message, retry_after_s=wait_s)
        self._limits.charge(bearer.name)
        now = self._clock.now()
        state = PENDING if policy == "approve" else ENROLLED
        device = Device(
            id=report.id, state=state, enrolled_at=now, enrolled_by=bearer.name, last_seen=now, **report.facts()
        )
        actor = Actor(f"key {bearer.name}", address)
        return device, AuditedChange(actor=actor, action="device.enrol", target=report.id, after={"state": state})

    async def _known(self, device: Device, report: DeviceReport, bearer: Bearer, address: str) -> Device:
        """
        Returns the device with new facts, if the report is from it; Refusal if it is revoked or another machine's.

        The fleet's key lies on every laptop: it alone does not move another device's spend to another team.
        """
        if device.state == REVOKED:
            raise revoked()
        if device.fingerprint and report.fingerprint and device.fingerprint != report.fingerprint:
            await self._flag(device, bearer, address)
            raise Refusal(
                409,
                "another_fingerprint",
                "another device is enrolled under this id; if this one takes its place, an operator resets it: "
                "tollhouse devices reset ID",
            )
        current = self.table.find(device.id) or device
        if (device.fingerprint or device.has_key) and not _is_from(device, report, bearer):
            return replace(current, last_seen=self._clock.now())
        facts = {name: value for name, value in report.facts().items() if getattr(current, name) != value}
        now = self._clock.now()
        return current.updated(facts=True, last_seen=now, **facts) if facts else replace(current, last_seen=now)

    async def _flag(self, device: Device, bearer: Bearer, address: str) -> None:
        change = None
        if device.flagged_at is None:  # a device that asks every minute fills no audit list
            actor = Actor(f"key {bearer.name}", address)
            change = AuditedChange(actor=actor, action="device.second_fingerprint", target=device.id)
        await self.table.keep(replace(device, flagged_at=self._clock.now()), change)

    def _may_have_key(self, device: Device, report: DeviceReport) -> bool:
        """
        Whether the key may be handed out: once, and until its first use again to the same fingerprint,
        because the answer may have been lost.

        A device that was known for a while without a fingerprint gives its key to nobody until an operator resets it:
        whoever asks first need not be the device.
        """
        if device.state != ENROLLED:
            return False
        if device.fingerprint:
            return report.fingerprint == device.fingerprint and not device.key_used
        return not device.has_key and self._clock.now() - device.enrolled_at < FIRST_KEY_S

    # -- what operators ask ----------------------------------------------------------------------------------------

    async def approve(self, id: str, actor: Actor) -> Device:
        """Enrols a pending or a revoked device. Keys from before a revocation stay invalid."""
        device = self._named(id)
        if device.state == ENROLLED:
            raise NotAllowed(f"the device {id} is enrolled already")
        after = device.updated(facts=True, state=ENROLLED, held=None, enrolled_at=self._clock.now())
        return await self._change(device, after, "device.approve", actor)

    async def revoke(self, id: str, actor: Actor) -> Device:
        """Revokes a device: its key is invalid from now on; what it sent is kept."""
        device = self._named(id)
        if device.state == REVOKED:
            raise NotAllowed(f"the device {id} is revoked already")
        return await self._change(device, _without_key(device, state=REVOKED), "device.revoke", actor)

    async def reset(self, id: str, actor: Actor) -> Device:
        """Forgets fingerprint and key, so that another machine may enrol under this id."""
        device = self._named(id)
        after = _without_key(device, fingerprint="", flagged_at=None, held=None, enrolled_at=self._clock.now())
        return await self._change(device, after, "device.reset", actor)

    async def label(self, id: str, labels: Mapping[str, str | None], actor: Actor) -> Device:
        """Sets labels that override the reported ones; None removes one."""
        device = self._named(id)
        merged = {**device.operator_labels, **labels}
        kept = checked_labels({name: value for name, value in merged.items() if value is not None})
        return await self._change(device, device.updated(facts=True, operator_labels=kept), "device.label", actor)

    async def _change(self, before: Device, after: Device, action: str, actor: Actor) -> Device:
        change = AuditedChange(actor=actor, action=action, target=before.id, before=_shown(before), after=_shown(after))
        await self.table.keep(after, change)
        return after

    def _named(self, id: str) -> Device:
        device = self.table.find(id)
        if device is None:
            raise NotThere(f"there is no device {id!r}")
        return device


def revoked() -> Refusal:
    return Refusal(410, "device_revoked", "this device was revoked; an operator can approve it again")


def _without_key(device: Device, **changes: Any) -> Device:
    generation = device.generation + device.has_key
    return device.updated(facts=True, generation=generation, has_key=False, key_used=False, **changes)


def _is_from(device: Device, report: DeviceReport, bearer: Bearer) -> bool:
    """Whether the device itself reports: under its own key, or with its fingerprint."""
    if bearer.device is not None:
        return bearer.device == device.id
    return bool(device.fingerprint) and report.fingerprint == device.fingerprint


def _own(bearer: Bearer, id: str) -> None:
    if bearer.device is not None and bearer.device != id:
        raise Refusal(403, "other_device", "a device's key is good for this device alone")


def _shown(device: Device) -> dict[str, object]:
    return {"state": device.state, "labels": dict(device.operator_labels), "generation": device.generation}
