"""
The life cycle of devices: enrolment, heartbeats, approval, revocation and reset, whichever endpoint asks.

Nothing awaits between reading a device and keeping the new one, so two simultaneous first contacts are one device.

Device keys are `thd_<device>_<generation>_<HMAC in hex>`, derived from the installation's secret and kept nowhere. A
key is good while its device is not revoked and its generation is the device's: a reset ends it at once.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256

from gateway.devices import reports, states
from gateway.devices.reports import DeviceReport, is_another, is_from
from gateway.devices.states import counts, state_of
from gateway.people.authentication.access import Bearer, lacking
from gateway.service.attempts import Buckets
from gateway.service.configuration.sections import DeviceSettings
from gateway.service.errors import Refusal
from spool.clock import Clock, elapsed_s
from spool.devices.device import (
    ENROLLED,
    PENDING,
    REVOKED,
    Device,
    DeviceChange,
    TooManyDevices,
    is_device_id,
    of_known,
)
from spool.devices.table import DeviceTable
from spool.errors import AlreadyThere, Invalid, NotAllowed, NotThere, SpoolError
from spool.installation import derived
from spool.log.partial_reports import Expectation
from spool.people import People
from spool.registry.audit import AuditedChange
from spool.registry.bearers import device_is_good
from spool.registry.keys import check_labels
from spool.registry.operators import Actor
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST, PING
from spool.shares import may_add

ENROLMENTS = 2000  # of a key at once, then one a second
ENROLMENTS_PER_S = 1.0
FIRST_KEY_S = 3600.0  # how long after its enrolment a device without a fingerprint may ask for its first key
HEARD_EVERY_S = 15.0  # precision of the time of the last telemetry
FORGET_EVERY_S = 600.0
GRACE_S = 3600.0  # after a start, in which devices can report before any is forgotten

_log = logging.getLogger(__name__)

PREFIX = "thd_"
SCOPES = frozenset({INGEST, HEARTBEAT, PING})
NEWS_S = 10.0  # within which every gateway has heard of a new device, whatever its clock says


class DeviceLifecycle:
    """Applies every rule of the control plane to the device table."""

    def __init__(
        self,
        table: DeviceTable,
        *,
        settings: DeviceSettings,
        clock: Clock,
        secret: bytes,
        people: People | None = None,
    ) -> None:
        self.table = table
        self.settings = settings
        self.keys = DeviceKeys(table, secret=secret, clock=clock)
        self._clock = clock
        self._people = people or People.of_installation(secret)
        self._began = clock.monotonic()
        self._limits = Buckets(clock, burst=ENROLMENTS, per_s=ENROLMENTS_PER_S)

    def configure(self, settings: DeviceSettings, people: People) -> None:
        """Treat devices by these settings from the next report on."""
        self.settings = settings
        self._people = people

    @property
    def interval_s(self) -> float:
        return self.settings.heartbeat_interval

    def state_of(self, device: Device) -> str:
        return state_of(device, now=self._clock.now(), interval_s=self.interval_s)

    def counts(self) -> Mapping[str, int]:
        return counts(self.table.all(), now=self._clock.now(), interval_s=self.interval_s)

    # -- what devices ask ------------------------------------------------------------------------------------

    async def enrol(self, report: DeviceReport, bearer: Bearer, address: str) -> tuple[Device, str | None]:
        """Enrols; returns the device, and its key the one time that it may have it."""
        report = self._private(report)
        known = self.table.find(report.id)
        if bearer.is_gateway:
            known = await self._follow(known, report, bearer, address)
            if report.revoked:
                begun = states.begun(report.id, self._clock.now(), bearer.name, state=REVOKED)
                return known or begun, None
        reported, audited = await self._contact(known, report, bearer, address)
        may_have_key = False

        def enrolled(newest: Device | None) -> Device:
            nonlocal may_have_key
            device = reported(newest)
            may_have_key = report.want_key and self._may_have_key(newest or device, report)
            return replace(device, has_key=True) if may_have_key else device

        device = await self._keep(report.id, enrolled, bearer, audited)
        return device, self.keys.key_of(device) if may_have_key else None

    async def heartbeat(self, report: DeviceReport, bearer: Bearer, address: str) -> Device:
        """Keeps a heartbeat. A first contact enrols if the key may; else Refusal 403 names the scope."""
        report = self._private(report)
        reports.check_own(bearer, report.id)
        known = self.table.find(report.id)
        if known is None and ENROLL not in bearer.scopes:
            raise lacking(ENROLL)
        reported, audited = await self._contact(known, report, bearer, address)
        now = self._clock.now()

        def beaten(newest: Device | None) -> Device:
            device = reported(newest)
            offset = device.clock_offset_s if report.sent_at is None else report.sent_at - now
            return device.updated(
                last_heartbeat=now, last_seen=now, heartbeat=report.heartbeat, clock_offset_s=offset
            )

        return await self._keep(report.id, beaten, bearer, audited)

    def _private(self, report: DeviceReport) -> DeviceReport:
        user = self._people.carried(report.user)
        labels = self._people.carried_values(report.labels)
        return replace(report, user=user or "", labels=labels)

    def refused(self, device: Device, bearer: Bearer) -> Refusal:
        """Notes that a revoked device still asks, so that it is not forgotten; returns the refusal."""
        now = self._clock.now()
        if elapsed_s(device.last_seen, now) >= HEARD_EVERY_S:
            self.table.touch(device.id, states.seen(now), expects=bearer.expects)
        return reports.revoked()

    def ping(self, id: str, bearer: Bearer) -> None:
        """Notes that the device is alive. Refusal 404 if it is unknown, 403 if another key speaks for it."""
        reports.check_own(bearer, id)
        device = self.table.find(id)
        if device is None:
            raise reports.unknown()
        if device.state == REVOKED:
            raise self.refused(device, bearer)
        now = self._clock.now()

        def pinged(newest: Device) -> Device:
            reports.check_speaks_for(newest, bearer)
            return states.seen(now)(newest)

        self.table.touch(id, pinged, expects=bearer.expects)

    async def first_contact(self, id: str, bearer: Bearer) -> Device | None:
        """Enrols a device that telemetry names, if the key may; else notes it as unenrolled, None."""
        if ENROLL in bearer.scopes:
            try:
                device, audited = self._new(DeviceReport(id=id), bearer, "")
                return await self._keep(id, lambda newest: newest or device, bearer, audited)
            except Refusal as refusal:
                extra = {"action": "device_not_enrolled"}
                _log.warning("a device was not enrolled: %s", refusal.message, extra=extra)
        self.table.note_unenrolled(id, key=bearer.name, now=self._clock.now(), expects=bearer.expects)
        return None

    async def _keep(
        self, id: str, change: DeviceChange, bearer: Bearer, audited: AuditedChange | None = None
    ) -> Device:
        """Changes a row, or adds one if there is room. KeyEnded if the key has ended at another gateway."""
        most = self.settings.max
        try:
            return await self.table.update(id, change, audited, expects=bearer.expects, most=most)
        except TooManyDevices as error:
            raise reports.full() from error

    def heard(self, device: Device, bearer: Bearer) -> None:
        """Notes that telemetry of the device arrived, at most once in HEARD_EVERY_S."""
        now = self._clock.now()
        rest_s = min(HEARD_EVERY_S, self.interval_s)
        if device.last_telemetry is None or elapsed_s(device.last_telemetry, now) >= rest_s:
            seen = states.seen(now)
            self.table.touch(
                device.id, lambda known: replace(seen(known), last_telemetry=now), expects=bearer.expects
            )

    def _new(self, report: DeviceReport, bearer: Bearer, address: str) -> tuple[Device, AuditedChange]:
        policy = self.settings.policy
        if policy == "closed":
            message = "no new devices are enrolled here (devices.policy); an operator can: tollhouse devices admit ID"
            raise Refusal(403, "enrolment_closed", message)
        own = self.table.enrolled_by(bearer.name)
        if not may_add(own, len(self.table), 1, self.settings.max):
            raise reports.full()
        wait_s = self._limits.wait_s(bearer.name)
        if wait_s:
            message = "this key enrolled too many devices in a short time; repeat later"
            raise Refusal(429, "too_many_enrolments", message, retry_after_s=wait_s)
        self._limits.charge(bearer.name)
        now = self._clock.now()
        state = PENDING if policy == "approve" else ENROLLED
        device = states.begun(report.id, now, bearer.name, state=state, **report.facts())
        actor = Actor(f"key {bearer.name}", address)
        after = {"state": state}
        return device, AuditedChange(actor=actor, action="device.enrol", target=report.id, after=after)

    async def _contact(
        self, known: Device | None, report: DeviceReport, bearer: Bearer, address: str
    ) -> tuple[DeviceChange, AuditedChange | None]:
        """
        Returns what a report makes of its device, and the audit row if it is new. Refusal if it may not enrol,
        is revoked or another machine's; what is returned refuses, too, where that is so of a newer row.
        """
        if known is None:
            new, audited = self._new(report, bearer, address)
            return lambda newest: new if newest is None else self._reported(newest, report, bearer), audited
        if known.state == REVOKED:
            raise self.refused(known, bearer)
        if is_another(known, report):
            await self._flag(known, bearer, address)
        return of_known(lambda newest: self._reported(newest, report, bearer)), None

    def _reported(self, device: Device, report: DeviceReport, bearer: Bearer) -> Device:
        """
        Returns the device with new facts, if the report is from it; Refusal if it is revoked or another
        machine's, or under another key than the own one that it has used.

        The fleet's key lies on every laptop: it alone does not move another device's spend to another team.
        """
        if device.state == REVOKED:
            raise reports.revoked()
        if is_another(device, report):
            raise reports.another()
        reports.check_speaks_for(device, bearer)
        device = states.seen(self._clock.now())(device)
        if (device.fingerprint or device.has_key) and not is_from(device, report, bearer):
            return device
        facts = {name: value for name, value in report.facts().items() if getattr(device, name) != value}
        return device.updated(facts=True, **facts) if facts else device

    async def _follow(
        self, device: Device | None, report: DeviceReport, bearer: Bearer, address: str
    ) -> Device | None:
        """
        Returns the device after the Tollhouse that it reports to revoked it, enrolled it again, or reset it.

        A revocation by an operator here is stronger.
        """
        if device is None:
            return None
        actor = Actor(f"key {bearer.name}", address)
        change = partial(self._change, device.id, actor=actor, expects=bearer.expects)
        if report.revoked:
            if device.state == REVOKED:
                return device
            return await change(states.revoked_by(bearer.name), "device.revoke")
        now = self._clock.now()
        if device.state == REVOKED and device.revoked_by == bearer.name:
            device = await change(lambda known: states.approved(known, now), "device.approve")
        if report.reset and device.state != REVOKED:
            device = await change(lambda known: states.reset(known, now), "device.reset")
        return device

    async def _flag(self, device: Device, bearer: Bearer, address: str) -> None:
        change = None
        if device.flagged_at is None:  # a device that asks every minute fills no audit list
            actor = Actor(f"key {bearer.name}", address)
            change = AuditedChange(actor=actor, action="device.second_fingerprint", target=device.id)
        now = self._clock.now()
        flagged = of_known(lambda known: replace(known, flagged_at=now))
        await self.table.update(device.id, flagged, change, expects=bearer.expects)

    def _may_have_key(self, device: Device, report: DeviceReport) -> bool:
        """
        True if the key may be handed out: once, and until its first use again to the same fingerprint,
        because the answer may have been lost.

        A device that was known for a while without a fingerprint gives its key to nobody until an operator
        resets it: whoever asks first need not be the device.
        """
        if device.state != ENROLLED:
            return False
        if device.fingerprint:
            return report.fingerprint == device.fingerprint and not device.key_used
        return not device.has_key and self._clock.now() - device.enrolled_at < FIRST_KEY_S

    # -- what operators ask ----------------------------------------------------------------------------------

    async def admit(self, id: str, actor: Actor) -> Device:
        """Enrols a device before it reports, whatever the policy. It may ask for its key within an hour."""
        if not is_device_id(id):
            raise Invalid("a device's id has 1 to 128 letters, digits and any of . _ : @ -")
        device = replace(states.begun(id, self._clock.now(), actor.name), last_seen=0.0)

        def admitted(known: Device | None) -> Device:
            if known is not None:
                raise AlreadyThere(f"the device {id} is {known.state} already")
            return device

        admitted(self.table.find(id))
        change = AuditedChange(actor=actor, action="device.admit", target=id, after={"state": device.state})
        return await self.table.update(id, admitted, change, most=self.settings.max)

    async def delete(self, id: str, actor: Actor) -> None:
        """Deletes a device with its key; what it sent is kept, and it may enrol again."""
        device = self._named(id)
        change = AuditedChange(actor=actor, action="device.delete", target=id, before=_describe(device))
        await self.table.delete([id], [change])

    async def forget_silent(self) -> int:
        """Deletes the devices that were not heard for `devices.forget_after`; none soon after a start."""
        after_s = self.settings.forget_after
        if not after_s or self._clock.monotonic() - self._began < min(GRACE_S, after_s):
            return 0
        if self.table.is_shared:
            await self.table.follow(None)  # another gateway may have heard one since
        before = self._clock.now() - after_s
        gone = [device for device in self.table.all() if device.quiet_since < before]
        changes = [
            AuditedChange(
                actor=Actor("devices.forget_after", ""),
                action="device.forget",
                target=device.id,
                before=_describe(device),
            )
            for device in gone
        ]
        if gone:
            await self.table.delete([device.id for device in gone], changes)
        return len(gone)

    async def run(self) -> None:
        """Forgets silent devices as long as the server runs."""
        while True:
            await asyncio.sleep(FORGET_EVERY_S)
            try:
                count = await self.forget_silent()
                if count:
                    extra: dict[str, object] = {"action": "devices_forgotten", "count": count}
                    _log.info("silent devices were deleted", extra=extra)
            except SpoolError as error:
                extra = {"action": "devices_not_forgotten"}
                _log.warning("silent devices could not be deleted: %s", error, extra=extra)

    async def approve(self, id: str, actor: Actor) -> Device:
        """Enrols a pending or a revoked device. Keys from before a revocation stay invalid."""
        now = self._clock.now()

        def approved(device: Device) -> Device:
            if device.state == ENROLLED:
                raise NotAllowed(f"the device {id} is enrolled already")
            return states.approved(device, now)

        return await self._change(id, approved, "device.approve", actor)

    async def revoke(self, id: str, actor: Actor) -> Device:
        """Revokes a device: its key is invalid from now on; what it sent is kept."""

        def revoked(device: Device) -> Device:
            if device.state == REVOKED and not device.revoked_by:
                raise NotAllowed(f"the device {id} is revoked already")
            return states.revoked_by("")(device)

        return await self._change(id, revoked, "device.revoke", actor)

    async def reset(self, id: str, actor: Actor) -> Device:
        """Forgets fingerprint and key, so that another machine may enrol under this id."""
        now = self._clock.now()
        return await self._change(id, lambda device: states.reset(device, now), "device.reset", actor)

    async def label(self, id: str, labels: Mapping[str, str | None], actor: Actor) -> Device:
        """Sets labels that override the reported ones; None removes one."""

        def labelled(device: Device) -> Device:
            merged = {**device.operator_labels, **labels}
            kept = check_labels({name: value for name, value in merged.items() if value is not None})
            return device.updated(facts=True, operator_labels=kept)

        device = self._named(id)
        if labelled(device).operator_labels == device.operator_labels:
            return await self.table.update(id, of_known(lambda known: known))
        return await self._change(id, labelled, "device.label", actor)

    async def _change(
        self,
        id: str,
        change: Callable[[Device], Device],
        action: str,
        actor: Actor,
        *,
        expects: Collection[Expectation] = (),
    ) -> Device:
        before = self._named(id)
        shown = _describe(before), _describe(change(before))
        audited = AuditedChange(actor=actor, action=action, target=id, before=shown[0], after=shown[1])
        return await self.table.update(id, of_known(change), audited, expects=expects)

    def _named(self, id: str) -> Device:
        device = self.table.find(id)
        if device is None:
            raise NotThere(f"there is no device {id!r}")
        return device


def _describe(device: Device) -> dict[str, object]:
    return {"state": device.state, "labels": dict(device.operator_labels), "generation": device.generation}


class DeviceKeys:
    """`find` is what gateway.people.authentication.access asks on every request that brings such a key."""

    def __init__(self, table: DeviceTable, *, secret: bytes, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._secret = derived(secret, "device keys")

    def key_of(self, device: Device) -> str:
        return f"{PREFIX}{device.id}_{device.generation}_{self._mac(device.id, device.generation)}"

    def find(self, secret: str) -> Bearer | None:
        """
        Returns the bearer; None if the key is forged. Refusal 401 if it is no longer valid, 503 if it is so
        new that this gateway has not heard of it.
        """
        id, _, rest = secret.removeprefix(PREFIX).rpartition("_")
        id, _, number = id.rpartition("_")
        if not (number.isascii() and number.isdecimal() and len(number) < 12):
            return None
        if not hmac.compare_digest(rest.encode(), self._mac(id, int(number)).encode()):
            return None
        device = self._table.find(id)
        if self._table.is_shared and self._is_newer(device, int(number)):
            message = "this key was given out by another gateway a moment ago; repeat"
            raise Refusal(503, "keys_unavailable", message, retry_after_s=1)
        if (
            device is None
            or device.state == REVOKED
            or not device.has_key
            or device.generation != int(number)
        ):
            raise Refusal(
                401, "dead_device_key", "this device was revoked or reset, and its key is no longer good"
            )
        expects = (device_is_good(id, int(number)),) if self._table.is_shared else ()
        if not device.key_used:
            self._table.touch(id, lambda known: replace(known, key_used=True), expects=expects)
        return Bearer(f"device {id}", SCOPES, device=id, expects=expects)

    def _is_newer(self, device: Device | None, generation: int) -> bool:
        """True if a key, which is genuine, was given out after what is known here of its device."""
        if device is None:  # the first generation is the time of the enrolment
            return generation > self._clock.now() - NEWS_S
        is_given = device.has_key or device.state == REVOKED
        return generation > device.generation or (generation == device.generation and not is_given)

    def _mac(self, id: str, generation: int) -> str:
        return hmac.new(self._secret, f"{id}\0{generation}".encode(), sha256).hexdigest()
