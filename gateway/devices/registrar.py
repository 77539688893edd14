"""
Who may enrol, and what becomes of a device: every rule of the control plane, whichever door asks.

Between finding a row and keeping the new one nothing waits, so two first contacts at once are one device.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.authentication.access import Bearer, lacking
from gateway.authentication.attempts import Buckets
from gateway.configuration.sections import DeviceSettings
from gateway.devices.keys import DeviceKeys
from gateway.devices.states import counts, state_of
from gateway.errors import Refusal
from gateway.intake.emails import Emails
from spool.clock import Clock
from spool.devices import ENROLLED, PENDING, REVOKED, Device, DeviceTable
from spool.errors import NotAllowed, NotThere
from spool.registry.audit import Change
from spool.registry.keys import checked_labels
from spool.registry.operators import Actor
from spool.registry.scopes import ENROLL

ENROLMENTS = 2000  # of a key at once, then one a second
ENROLMENTS_PER_S = 1.0
FULL_RETRY_S = 3600
HEARD_EVERY_S = 15.0  # how exactly the last telemetry is known

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a device says of itself; empty is unsaid. `heartbeat` is the part that only a heartbeat has, as JSON."""

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
        """What is said, as fields of a device."""
        names = ("hostname", "platform", "agent_version", "user", "fingerprint", "labels")
        return {name: value for name in names if (value := getattr(self, name))}


class Registrar:
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

    async def enrol(self, told: Told, bearer: Bearer, address: str) -> tuple[Device, str | None]:
        """The device, and its key when it wants one and is given one, this once."""
        told = self._private(told)
        device = self.table.find(told.id)
        change = None
        if device is None:
            device, change = self._new(told, bearer, address)
        else:
            device = await self._known(device, told, bearer, address)
        key = None
        if told.want_key and self._may_have_key(device, told):
            key = self.keys.key_of(device)
            if not device.has_key:
                device = replace(device, has_key=True)
        await self.table.keep(device, change)
        return device, key

    async def heartbeat(self, told: Told, bearer: Bearer, address: str) -> Device:
        """First contact enrols when the key may; otherwise Refusal 403 names the scope."""
        told = self._private(told)
        _own(bearer, told.id)
        device = self.table.find(told.id)
        change = None
        if device is None:
            if ENROLL not in bearer.scopes:
                raise lacking(ENROLL)
            device, change = self._new(told, bearer, address)
        else:
            device = await self._known(device, told, bearer, address)
        now = self._clock.now()
        offset = device.clock_offset_s if told.sent_at is None else told.sent_at - now
        device = device.told(last_heartbeat=now, last_seen=now, heartbeat=told.heartbeat, clock_offset_s=offset)
        await self.table.keep(device, change)
        return device

    def _private(self, told: Told) -> Told:
        user, labels = self._emails.protected(told.user), self._emails.protected_values(told.labels)
        return replace(told, user=user or "", labels=labels)

    def ping(self, id: str, bearer: Bearer) -> None:
        """Refusal 404 for a device that nobody enrolled."""
        _own(bearer, id)
        device = self.table.find(id)
        if device is None:
            raise Refusal(404, "unknown_device", "this device is not enrolled; enrol it or send a heartbeat first")
        if device.state == REVOKED:
            raise revoked()
        self.table.touch(replace(device, last_seen=self._clock.now()))

    async def first_contact(self, id: str, bearer: Bearer) -> Device | None:
        """Telemetry names an unknown device: enrolled if its key may, remembered as unenrolled if not."""
        if ENROLL in bearer.scopes:
            try:
                device, change = self._new(Told(id=id), bearer, "")
            except Refusal as refusal:
                _log.warning("a device was not enrolled: %s", refusal.message, extra={"action": "device_not_enrolled"})
            else:
                await self.table.keep(device, change)
                return device
        self.table.note_unenrolled(id, key=bearer.name, now=self._clock.now())
        return None

    def heard(self, device: Device) -> None:
        """Its telemetry came; not every second of it is worth a row on disk."""
        now = self._clock.now()
        if device.last_telemetry is None or now - device.last_telemetry >= min(HEARD_EVERY_S, self.interval_s):
            self.table.touch(replace(device, last_telemetry=now, last_seen=now))

    def _new(self, told: Told, bearer: Bearer, address: str) -> tuple[Device, Change]:
        policy = self.settings.policy
        if policy == "closed":
            raise Refusal(403, "enrolment_closed", "this house enrols no new devices (devices.policy)")
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
            id=told.id, state=state, enrolled_at=now, enrolled_by=bearer.name, last_seen=now, **told.facts()
        )
        actor = Actor(f"key {bearer.name}", address)
        return device, Change(actor=actor, action="device.enrol", target=told.id, after={"state": state})

    async def _known(self, device: Device, told: Told, bearer: Bearer, address: str) -> Device:
        """The row with what is said anew; Refusal for a revoked device and for another one under its name."""
        if device.state == REVOKED:
            raise revoked()
        if device.fingerprint and told.fingerprint and device.fingerprint != told.fingerprint:
            await self._flag(device, bearer, address)
            raise Refusal(
                409,
                "another_fingerprint",
                "another device is enrolled under this id; if this one takes its place, an operator resets it: "
                "tollhouse devices reset ID",
            )
        current = self.table.find(device.id) or device
        facts = {name: value for name, value in told.facts().items() if getattr(current, name) != value}
        now = self._clock.now()
        return current.told(facts=True, last_seen=now, **facts) if facts else replace(current, last_seen=now)

    async def _flag(self, device: Device, bearer: Bearer, address: str) -> None:
        change = None
        if device.flagged_at is None:  # a device that asks every minute fills no audit list
            actor = Actor(f"key {bearer.name}", address)
            change = Change(actor=actor, action="device.second_fingerprint", target=device.id)
        await self.table.keep(replace(device, flagged_at=self._clock.now()), change)

    @staticmethod
    def _may_have_key(device: Device, told: Told) -> bool:
        """
        Once. An answer that was lost may be asked for again by the same fingerprint until the key is first used.
        """
        if device.state != ENROLLED:
            return False
        return not device.has_key or bool(told.fingerprint and not device.key_used)

    # -- what operators ask ----------------------------------------------------------------------------------------

    async def approve(self, id: str, actor: Actor) -> Device:
        """A pending device, or a revoked one, is enrolled; keys from before a revocation stay dead."""
        device = self._named(id)
        if device.state == ENROLLED:
            raise NotAllowed(f"the device {id} is enrolled already")
        return await self._change(device, device.told(facts=True, state=ENROLLED, held=None), "device.approve", actor)

    async def revoke(self, id: str, actor: Actor) -> Device:
        """Its key is dead from the next check on; what it sent is kept."""
        device = self._named(id)
        if device.state == REVOKED:
            raise NotAllowed(f"the device {id} is revoked already")
        return await self._change(device, _without_key(device, state=REVOKED), "device.revoke", actor)

    async def reset(self, id: str, actor: Actor) -> Device:
        """Forget fingerprint and key: the next enrolment under this id may be another machine's."""
        device = self._named(id)
        after = _without_key(device, fingerprint="", flagged_at=None, held=None)
        return await self._change(device, after, "device.reset", actor)

    async def label(self, id: str, labels: Mapping[str, str | None], actor: Actor) -> Device:
        """Set labels over what the device says of itself; None takes one away."""
        device = self._named(id)
        merged = {**device.operator_labels, **labels}
        kept = checked_labels({name: value for name, value in merged.items() if value is not None})
        return await self._change(device, device.told(facts=True, operator_labels=kept), "device.label", actor)

    async def _change(self, before: Device, after: Device, action: str, actor: Actor) -> Device:
        change = Change(actor=actor, action=action, target=before.id, before=_shown(before), after=_shown(after))
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
    return device.told(facts=True, generation=generation, has_key=False, key_used=False, **changes)


def _own(bearer: Bearer, id: str) -> None:
    if bearer.device is not None and bearer.device != id:
        raise Refusal(403, "other_device", "a device's key is good for this device alone")


def _shown(device: Device) -> dict[str, object]:
    return {"state": device.state, "labels": dict(device.operator_labels), "generation": device.generation}
