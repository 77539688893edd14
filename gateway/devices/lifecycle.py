"""
The life cycle of devices: enrolment, heartbeats, approval, revocation and reset, for all endpoints.

No await occurs between reading a device and storing the changed one, so two simultaneous first reports
create one device.

Device keys have the form `thd_<device>_<generation>_<HMAC in hex>`. They are derived from the installation's
secret and not stored. A key is valid while its device is not revoked and its generation equals the device's
generation. A reset changes the generation, so it makes the key invalid at once.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from operator import attrgetter

from gateway.configuration.sections import DeviceSettings
from gateway.core.errors import Refusal
from gateway.core.rate_limits import TokenBuckets
from gateway.devices import reports, states
from gateway.devices.agent.heard_calls import ReceivedCall
from gateway.devices.fleet.assistant_states import (
    corrected_call_end,
    set_clock_offset,
    updated_remembered_evidence_json,
)
from gateway.devices.fleet.heartbeat_facts import heartbeat_with_earlier_facts
from gateway.devices.fleet.matching import NOBODY, ExpectedMachines, serial_of_device
from gateway.devices.heartbeat_tokens import HeartbeatTokenCheck, HeartbeatTokenNumbers, HeartbeatTokens
from gateway.devices.machine_state import WORDS, MachineEvidence, MachineState, MachineStates, QuietDevices
from gateway.devices.reports import DeviceReport, has_other_fingerprint, is_from_device
from gateway.people.authentication.access import ended_token_refusal, missing_scope_refusal
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.clock import Clock, elapsed_s
from spool.devices.device import (
    ENROLLED,
    HEARD_EVERY_S,
    PENDING,
    REVOKED,
    Device,
    DeviceChange,
    TokenUsedUp,
    TooManyDevices,
    change_for_existing_device,
    intern_labels,
    is_device_id,
)
from spool.devices.table import DeviceTable
from spool.errors import AlreadyThere, Invalid, NotAllowed, NotThere
from spool.installation import derive_secret
from spool.log.partial_reports import ExpectedVersion
from spool.loops import failure_logger, for_each_item, repeat
from spool.people import People
from spool.registry.audit import AuditedChange
from spool.registry.enrolment_tokens import EnrolmentToken, EnrolmentTokenTable
from spool.registry.key_expectations import current_device_expectation
from spool.registry.keys import check_labels
from spool.registry.operators import Actor
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST, PING
from spool.shares import is_within_share
from spool.turns.fair_turns import pause_if_step_was_long

ENROLMENTS = 2000  # maximum enrolments at once; after that, one per second
ENROLMENTS_PER_S = 1.0
# enrolments per second under one token; the token's own limit of uses still applies
TOKEN_ENROLMENTS_PER_S = 50.0
# seconds in which a device without a fingerprint may request its first key
FIRST_KEY_S = 3600.0
FORGET_EVERY_S = 600.0
HOUR_S = 3600.0
NOTE_EVERY_S = 60.0  # seconds between two searches for devices with a changed state
DEVICES_PER_TURN = 200  # number of devices after which other work gets a turn
# with each further 2,000 devices, the interval of reports is a minute longer
DEVICES_PER_STEP, STEP_S = 2000, 60.0
# seconds; a larger change of the offset between two heartbeats is a changed clock, and not a slow request
CLOCK_MOVED_S = 60.0
GRACE_S = 3600.0  # seconds after a start in which no device is deleted

_log = logging.getLogger(__name__)

PREFIX = "thd_"
SCOPES = frozenset({INGEST, HEARTBEAT, PING})
NEWS_S = 10.0  # seconds after which every gateway knows a new device, in spite of clock differences


class DeviceLifecycle:
    def __init__(
        self,
        table: DeviceTable,
        *,
        settings: DeviceSettings,
        clock: Clock,
        secret: bytes,
        people: People | None = None,
        tokens: EnrolmentTokenTable | None = None,
    ) -> None:
        self.table = table
        self._tokens = tokens
        self.settings = settings
        self.keys = DeviceKeys(table, secret=secret, clock=clock)
        self._words = HeartbeatTokens(secret)
        # function that returns the machines of the inventory
        self.expected: Callable[[], ExpectedMachines] = lambda: NOBODY
        # receives each device whose heartbeat was stored, with this heartbeat
        self.heartbeat_stored: Callable[[Device], None] = lambda device: None
        # on an agent: receives the calls of the coding assistants of this machine
        self.called: Callable[[Sequence[ReceivedCall]], None] = lambda calls: None
        # on an agent: returns the login of a user of this machine, or "" for a service or if nobody may be named
        self.login_of: Callable[[int], str] = lambda user: ""
        # on an agent: returns why the verdicts for this device refuse its sessions, or ""
        self.budget_refusal: Callable[[], str] = lambda: ""
        self._states = MachineStates()
        self._quiet = QuietDevices()
        table.watchers.append(self._forget_cached_state)
        self.listening_since = clock.now()
        self._clock = clock
        self._people = people or People.for_installation(secret)
        self._began = clock.monotonic()
        self._limits = TokenBuckets(clock, burst=ENROLMENTS, per_s=ENROLMENTS_PER_S)
        self._token_limits = TokenBuckets(clock, burst=TOKEN_ENROLMENTS_PER_S, per_s=TOKEN_ENROLMENTS_PER_S)

    def configure(self, settings: DeviceSettings, people: People) -> None:
        self.settings = settings
        self._people = people

    @property
    def interval_s(self) -> float:
        """
        Return the seconds between two reports of a device. They grow in steps with the number of devices, so
        that at most 34 reports arrive per second: 5 minutes with 10,000 devices.
        """
        steps = -(-len(self.table) // DEVICES_PER_STEP)
        interval_s = self.settings.heartbeat_interval
        return interval_s if steps <= 1 else max(interval_s, steps * STEP_S)

    def now(self) -> float:
        return self._clock.now()

    def machine_state(self, device: Device) -> MachineState:
        machine = self.expected().find_machine(device)
        evidence = MachineEvidence(device, self.interval_s, machine, self.listening_since)
        return self._states.find_or_evaluate(evidence, self._clock.now())

    def _forget_cached_state(self, id: str) -> None:
        """Forget the computed state of a changed device, which keeps the earlier row in memory."""
        self._states.forget_unless_unchanged(id, self.table.find(id))
        self._quiet.forget_device(id)

    def device_counts_by_state(self) -> Mapping[str, int]:
        """Return the number of devices by state, including empty states."""
        devices = self.table.all()
        self._states.forget_all_but({device.id for device in devices})
        words = Counter(self.machine_state(device).word for device in devices)
        return {word: words[word] for word in WORDS}

    # -- requests of devices --------------------------------------------------------------------------------------

    async def enrol_or_update(
        self, report: DeviceReport, bearer: AuthenticatedKey, address: str
    ) -> tuple[Device, str | None]:
        """
        Enrol a device or update it by its report. Return the device, and its key if the key is issued now,
        which happens only once.
        """
        report = self._apply_privacy_rules(report)
        enrolled_before = self.table.find(report.id)
        if bearer.is_gateway:
            enrolled_before = await self._adopt_upstream_state(enrolled_before, report, bearer, address)
            if report.revoked:
                begun = states.new_device(report.id, self._clock.now(), bearer.name, state=REVOKED)
                return enrolled_before or begun, None
        enrolled_before = await self._enrol_if_expected(enrolled_before, report, bearer, address)
        reported, audited = await self._build_change_by_report(enrolled_before, report, bearer, address)
        may_have_key = False

        def device_after_enrolment(newest_device: Device | None) -> Device:
            nonlocal may_have_key
            device = reported(newest_device)
            may_have_key = report.want_key and self._may_receive_key(newest_device or device, report)
            if not may_have_key:
                return device
            # a device that has a key and no token was already known, so it gets no token
            token = device.token or ("" if device.has_key else bearer.token or "")
            return replace(device, has_key=True, token=token, left_at=None)

        device = await self._update_device(report.id, device_after_enrolment, bearer, audited)
        await self._mark_earlier_device_as_replaced(device, bearer, address)
        return device, self.keys.issue_key(device) if may_have_key else None

    async def store_heartbeat_and_issue_token(
        self, report: DeviceReport, bearer: AuthenticatedKey, address: str
    ) -> tuple[Device, str | None]:
        """
        Store a heartbeat. The first report enrols the device if the key may enrol devices. Otherwise Refusal
        403 names the missing scope. Return the device, and the rotating token (`gateway.devices.heartbeat_tokens`) that
        its next heartbeat must return.
        """
        report = self._apply_privacy_rules(report)
        reports.require_own_device(bearer, report.id)
        device_before = self.table.find(report.id)
        if device_before is None and ENROLL not in bearer.scopes:
            raise missing_scope_refusal(ENROLL)
        device_before = await self._enrol_if_expected(device_before, report, bearer, address)
        reported, audited = await self._build_change_by_report(device_before, report, bearer, address)
        now = self._clock.now()
        if report.leaving and audited is None:
            audited = AuditedChange(
                actor=_bearer_actor(bearer, address), action="device.leave", target=report.id
            )

        turn = HeartbeatTokenCheck(HeartbeatTokenNumbers())

        def device_after_heartbeat(newest_device: Device | None) -> Device:
            nonlocal turn
            device = reported(newest_device)
            turn = HeartbeatTokenCheck(HeartbeatTokenNumbers.from_device(device))
            is_own = is_from_device(device, report, bearer)
            # another machine's heartbeat must not use up the device's heartbeat tokens (`words`)
            if is_own:
                turn = self._words.check_token(device, report)
                words = str(turn.numbers) if any(turn.numbers) else ""
                device = replace(device, words=words, left_at=None)
            offset = device.clock_offset_s if report.sent_at is None else report.sent_at - now
            heartbeat = heartbeat_with_earlier_facts(device.heartbeat, report.heartbeat)
            is_moved = abs((offset or 0.0) - (device.clock_offset_s or 0.0)) > CLOCK_MOVED_S
            device = set_clock_offset(device, offset, now=now)
            uses = updated_remembered_evidence_json(device, heartbeat, now=now, is_clock_moved=is_moved)
            device = device.with_changes_and_next_version(
                last_heartbeat=now, last_seen=now, heartbeat=heartbeat, uses=uses
            )
            return (
                states.device_after_leaving(device, report.leaving, now)
                if is_own and report.leaving
                else device
            )

        device = await self._update_device(report.id, device_after_heartbeat, bearer, audited)
        self.heartbeat_stored(device)
        if turn.is_copy and device.copied_at is None:
            device = await self._mark_device_as_copied(device, bearer, address)
        return device, self._words.make_token(device.id, turn.numbers.issued) if turn.is_next else None

    async def _mark_device_as_copied(self, device: Device, bearer: AuthenticatedKey, address: str) -> Device:
        """
        Mark a device as copied, because its heartbeat returned an older rotating token
        (`gateway.devices.heartbeat_tokens`). Its reports are still accepted, because nobody knows which of the two
        machines is the copy.
        """
        now = self._clock.now()
        change = AuditedChange(actor=_bearer_actor(bearer, address), action="device.copied", target=device.id)
        copied = change_for_existing_device(lambda known: replace(known, copied_at=now))
        return await self.table.update(device.id, copied, change, expected_versions=bearer.expects)

    def _apply_privacy_rules(self, report: DeviceReport) -> DeviceReport:
        user = self._people.text_for_record(report.user)
        labels = intern_labels(self._people.texts_for_record(report.labels))
        return replace(report, user=user or "", labels=labels)

    def note_revoked_and_build_refusal(self, device: Device, bearer: AuthenticatedKey) -> Refusal:
        """
        Note that a revoked device still sends, so that it is not deleted as offline. Return the refusal.
        """
        now = self._clock.now()
        if elapsed_s(device.last_seen, now) >= HEARD_EVERY_S:
            self.table.change_and_write_soon(
                device.id, states.last_seen_updater(now), expectations=bearer.expects
            )
        return reports.revoked_device_refusal()

    def note_alive(self, id: str, bearer: AuthenticatedKey) -> None:
        """
        Note that a device is alive. Raises Refusal 404 if it is unknown, and 403 if it must use its own key.
        """
        reports.require_own_device(bearer, id)
        device = self.table.find(id)
        if device is None:
            raise reports.unknown_device_refusal()
        if device.state == REVOKED:
            raise self.note_revoked_and_build_refusal(device, bearer)
        now = self._clock.now()

        def device_after_ping(newest_device: Device) -> Device:
            reports.require_may_report_for(newest_device, bearer)
            return states.last_seen_updater(now)(newest_device)

        self.table.change_and_write_soon(id, device_after_ping, expectations=bearer.expects)

    async def enrol_or_list_device(self, id: str, bearer: AuthenticatedKey) -> Device | None:
        """
        Enrol a device that telemetry names, if the key may enrol devices. Otherwise list it as unenrolled and
        return None.
        """
        if ENROLL in bearer.scopes:
            try:
                device, audited = self._new_device(DeviceReport(id=id), bearer, "")
                return await self._update_device(id, lambda newest: newest or device, bearer, audited)
            except Refusal as refusal:
                extra = {"action": "device_not_enrolled"}
                _log.warning("a device was not enrolled: %s", refusal.message, extra=extra)
        self.table.store_unenrolled_name(
            id, key=bearer.name, now=self._clock.now(), expected_versions=bearer.expects
        )
        return None

    async def _update_device(
        self, id: str, change: DeviceChange, bearer: AuthenticatedKey, audited: AuditedChange | None = None
    ) -> Device:
        """Change a device. Raises KeyEnded if another gateway has ended the key."""
        max_devices = self.settings.max
        token = self._require_unended_enrolment_token(bearer)
        paid_by = None if token is None else (token.id, token.max_devices)
        try:
            return await self.table.update(
                id, change, audited, expected_versions=bearer.expects, max_devices=max_devices, token=paid_by
            )
        except TooManyDevices as error:
            raise reports.too_many_devices() from error
        except TokenUsedUp as error:
            raise reports.token_used_up() from error

    def _require_unended_enrolment_token(self, bearer: AuthenticatedKey) -> EnrolmentToken | None:
        """
        Return the enrolment token of a request, or None if it has a key. Raises Refusal 401 if the token
        ended while the request arrived.
        """
        if bearer.token is None or self._tokens is None:
            return None
        token = self._tokens.find(bearer.token)
        if token is None or token.ended_at <= self._clock.now():
            raise ended_token_refusal()
        return token

    def note_telemetry(self, device: Device, calls: Mapping[str, float], bearer: AuthenticatedKey) -> None:
        """
        Note that a device sent telemetry, at most once every HEARD_EVERY_S. `calls` are the ends of each
        assistant's newest call by the device's clock.
        """
        now = self._clock.now()
        rest_s = min(HEARD_EVERY_S, self.interval_s)
        ends = {name: corrected_call_end(device, ended, now=now) for name, ended in calls.items()}
        newest = device.newest_calls
        is_new = any(name not in newest or ended - newest[name] >= rest_s for name, ended in ends.items())
        is_known = device.last_telemetry is not None and elapsed_s(device.last_telemetry, now) < rest_s
        if is_new or not is_known:
            self.table.change_and_write_soon(
                device.id, states.telemetry_updater(now, calls), expectations=bearer.expects
            )

    def _new_device(
        self, report: DeviceReport, bearer: AuthenticatedKey, address: str
    ) -> tuple[Device, AuditedChange]:
        policy = self.settings.policy
        if policy == "closed":
            message = (
                "new devices cannot enrol here (devices.policy); an operator can admit one: tollhouse "
                "devices admit ID"
            )
            raise Refusal(403, "enrolment_closed", message)
        token = self._require_unended_enrolment_token(bearer)
        if token is None:
            self._require_key_may_enrol(bearer)
        limits, name = (self._limits, bearer.name) if token is None else (self._token_limits, token.id)
        if wait_s := limits.wait_s(name):
            raise reports.too_many_enrolments(wait_s)
        if token is not None and (wait_s := self._wait_s_of_hourly_limit(token)):
            raise reports.too_many_enrolments(wait_s, per_hour=token.per_hour)
        limits.charge(name)
        now = self._clock.now()
        state = PENDING if policy == "approve" else ENROLLED
        facts = report.facts()
        if policy == "expected" and not self._is_machine_expected(report, token):
            state, facts["cause"] = PENDING, states.NOT_EXPECTED
        if token is not None:
            labels = dict(token.labels)
            facts |= {"token": token.id, "serial": token.serial, "operator_labels": labels}
        if _is_machine_doubtful(token, self._active_devices_with_hardware(report.hardware_id, report.id)):
            state, facts["cause"] = PENDING, states.SAME_HARDWARE
        device = states.new_device(report.id, now, bearer.name, state=state, **facts)
        actor = _bearer_actor(bearer, address)
        after = {"state": state}
        return device, AuditedChange(actor=actor, action="device.enrol", target=report.id, after=after)

    def _wait_s_of_hourly_limit(self, token: EnrolmentToken) -> int:
        """Return the seconds until a token may enrol a further device. A restart does not change them."""
        if not token.per_hour or self.table.count_token_uses(token.id) < token.per_hour:
            return 0
        now = self._clock.now()
        recent = sorted(
            device.generation
            for device in self.table.all()
            if device.token == token.id and 0 <= now - device.generation < HOUR_S
        )
        return 0 if len(recent) < token.per_hour else math.ceil(recent[-token.per_hour] + HOUR_S - now)

    def related_device_ids(self, device: Device) -> Mapping[str, Sequence[str]]:
        replaced = [
            earlier.id
            for earlier in self.table.devices_with_hardware(device.hardware_id)
            if earlier.replaced_by == device.id
        ]
        same = [other.id for other in self._active_devices_with_hardware(device.hardware_id, device.id)]
        return {"replaces": replaced, "same_hardware": same}

    def _active_devices_with_hardware(self, hardware_id: str, id: str) -> list[Device]:
        devices = self.table.devices_with_hardware(hardware_id)
        here = (device for device in devices if device.state != REVOKED and device.left_at is None)
        return [device for device in here if device.id != id]

    async def _mark_earlier_device_as_replaced(
        self, device: Device, bearer: AuthenticatedKey, client_address: str
    ) -> None:
        """
        Mark the earlier device of the same machine as replaced. Only a token made for its serial
        number does this, because a hardware id is no secret. A repeat of the enrolment repeats this, so that
        a crash cannot leave both devices.
        """
        token = None if bearer.token is None or self._tokens is None else self._tokens.find(bearer.token)
        if device.state != ENROLLED:
            return
        for earlier in self._active_devices_with_hardware(device.hardware_id, device.id):
            if _is_token_for_device(token, earlier):
                change = states.revoker_of_replaced_device(device.id)
                actor = _bearer_actor(bearer, client_address)
                await self._change_with_audit(
                    earlier.id, change, "device.replace", actor, expected_versions=bearer.expects
                )

    def _is_machine_expected(self, report: DeviceReport, token: EnrolmentToken | None) -> bool:
        """
        Return whether the inventory expects a device. Its serial number is only a claim, unless a token was
        made for that number. Without an agent, the device id is the serial number.
        """
        serial = (token.serial if token is not None else "") or report.serial
        expected = self.expected()
        is_claimed = expected.has_machine(
            serial=serial, hostname=report.hostname, serial_hash=report.serial_hash
        )
        return is_claimed or expected.has_machine(serial=report.id, hostname="")

    async def _enrol_if_expected(
        self, device: Device | None, report: DeviceReport, bearer: AuthenticatedKey, address: str
    ) -> Device | None:
        if device is None or device.state != PENDING or device.cause != states.NOT_EXPECTED:
            return device
        if not is_from_device(device, report, bearer) or not self._is_machine_expected(
            report, self._require_unended_enrolment_token(bearer)
        ):
            return device
        now, actor = self._clock.now(), _bearer_actor(bearer, address)
        change = partial(states.approved_device, now=now)
        return await self._change_with_audit(
            device.id, change, "device.approve", actor, expected_versions=bearer.expects
        )

    def _require_key_may_enrol(self, bearer: AuthenticatedKey) -> None:
        """
        Raise Refusal 403 if only tokens may enrol a further device, and another Refusal above the limit of
        devices.
        """
        if self.settings.require_token and not bearer.is_gateway:
            message = (
                "new devices need an enrolment token here (devices.require_token); an operator can create one: "
                "tollhouse devices tokens create"
            )
            raise Refusal(403, "token_required", message)
        if not is_within_share(self.table.count_enrolled(bearer.name), len(self.table), 1, self.settings.max):
            raise reports.too_many_devices()

    def _require_token_fits(
        self, device: Device | None, report: DeviceReport, bearer: AuthenticatedKey
    ) -> None:
        """
        Check that an enrolment token may be used for a device. Raises Refusal for the token of another
        machine, and for a device that the token did not enrol and that sends another fingerprint.
        """
        token = self._require_unended_enrolment_token(bearer)
        if token is None:
            return
        serials = {serial.strip().casefold() for serial in (token.serial, report.serial) if serial.strip()}
        if token.serial and len(serials) > 1:
            message = "this enrolment token is for a machine with another serial number"
            raise Refusal(403, "other_serial", message)
        if (
            device is None
            or device.token == token.id
            or device.state == REVOKED
            or has_other_fingerprint(device, report)
        ):
            return  # other rules decide about the fingerprints of these devices
        if not is_from_device(device, report, bearer) and not self._may_receive_key(device, report):
            raise reports.other_fingerprint_refusal()

    async def _build_change_by_report(
        self, device_before: Device | None, report: DeviceReport, bearer: AuthenticatedKey, address: str
    ) -> tuple[DeviceChange, AuditedChange | None]:
        """
        Return the change that a report makes to its device, and the audit row for a new device.

        Raises Refusal if the device may not enrol, is revoked or belongs to another machine. When applied,
        the change raises the same refusals if the row was updated meanwhile.
        """
        self._require_token_fits(device_before, report, bearer)
        if device_before is None:
            new, audited = self._new_device(report, bearer, address)
            return (
                lambda newest: new if newest is None else self._device_after_report(newest, report, bearer),
                audited,
            )
        if device_before.state == REVOKED:
            raise self.note_revoked_and_build_refusal(device_before, bearer)
        if has_other_fingerprint(device_before, report):
            await self._flag_second_fingerprint(device_before, bearer, address)
        return change_for_existing_device(
            lambda newest: self._device_after_report(newest, report, bearer)
        ), None

    def _device_after_report(self, device: Device, report: DeviceReport, bearer: AuthenticatedKey) -> Device:
        """
        Return the device after a report. Raises Refusal if the device is revoked or belongs to another
        machine. Also raises Refusal if the device has used its own key and the report arrives under another
        key. A fleet's shared key is on every laptop, so it must not move another device's spend to another
        team.
        """
        if device.state == REVOKED:
            raise reports.revoked_device_refusal()
        if has_other_fingerprint(device, report):
            raise reports.other_fingerprint_refusal()
        reports.require_may_report_for(device, bearer)
        device = states.last_seen_updater(self._clock.now())(device)
        if (device.fingerprint or device.has_key) and not is_from_device(device, report, bearer):
            return device
        facts = {name: value for name, value in report.facts().items() if getattr(device, name) != value}
        return device.with_changes_and_next_version(changes_enrolment=True, **facts) if facts else device

    async def _adopt_upstream_state(
        self, device: Device | None, report: DeviceReport, bearer: AuthenticatedKey, address: str
    ) -> Device | None:
        """
        Apply the device's state, revoked or reset, that the Tollhouse below reports for it.

        A revocation by an operator of this gateway takes precedence.
        """
        if device is None:
            return None
        actor = Actor(f"key {bearer.name}", address)
        change = partial(self._change_with_audit, device.id, actor=actor, expected_versions=bearer.expects)
        if report.revoked:
            if device.state == REVOKED:
                return device
            return await change(states.device_revoker(bearer.name), "device.revoke")
        now = self._clock.now()
        if device.state == REVOKED and device.revoked_by == bearer.name:
            device = await change(lambda known: states.approved_device(known, now), "device.approve")
        if report.reset and device.state != REVOKED:
            device = await change(lambda known: states.device_after_reset(known, now), "device.reset")
        return device

    async def _flag_second_fingerprint(self, device: Device, bearer: AuthenticatedKey, address: str) -> None:
        change = None
        # A device that retries every minute would fill the audit list.
        if device.flagged_at is None:
            actor = Actor(f"key {bearer.name}", address)
            change = AuditedChange(actor=actor, action="device.second_fingerprint", target=device.id)
        now = self._clock.now()
        flagged = change_for_existing_device(lambda known: replace(known, flagged_at=now))
        await self.table.update(device.id, flagged, change, expected_versions=bearer.expects)

    def _may_receive_key(self, device: Device, report: DeviceReport) -> bool:
        """
        Return whether the device may receive its key.

        The key is issued once. Until its first use, it is issued again to the same fingerprint, because the
        answer may have been lost. A device that has long been known without a fingerprint gets no key until
        an operator resets it, because another machine may be requesting the key.
        """
        if device.state != ENROLLED:
            return False
        if device.fingerprint:
            return report.fingerprint == device.fingerprint and not device.key_used
        return not device.has_key and self._clock.now() - device.enrolled_at < FIRST_KEY_S

    # -- requests of operators ------------------------------------------------------------------------------------

    async def admit_device(self, id: str, actor: Actor) -> Device:
        """Admit a device, which may then request its key within an hour, under any policy."""
        if not is_device_id(id):
            raise Invalid("a device id must have 1 to 128 letters, digits and any of . _ : @ -")
        device = replace(states.new_device(id, self._clock.now(), actor.name), last_seen=0.0)

        def admitted_device(known_device: Device | None) -> Device:
            if known_device is not None:
                raise AlreadyThere(f"the device {id} is already {known_device.state}")
            return device

        admitted_device(self.table.find(id))
        change = AuditedChange(actor=actor, action="device.admit", target=id, after={"state": device.state})
        return await self.table.update(id, admitted_device, change, max_devices=self.settings.max)

    async def delete_device(self, id: str, actor: Actor) -> None:
        """Delete a device. Its records stay, and it may enrol again."""
        device = self._require_device(id)
        change = AuditedChange(actor=actor, action="device.delete", target=id, before=_audited_fields(device))
        await self._store_uses_of_tokens([device], actor)
        await self.table.delete([id], [change])

    async def _store_uses_of_tokens(self, devices: Collection[Device], actor: Actor) -> None:
        """Add the uses of enrolment tokens by devices that are deleted or reset, so that they still count."""
        uses = Counter(device.token for device in devices if device.token)
        if uses and self._tokens is not None:
            await self._tokens.add_uses_of_deleted_devices(uses, actor=actor)

    async def delete_silent_devices(self) -> int:
        """
        Delete devices that have not reported for `devices.forget_after`, and return their number. Nothing is
        deleted shortly after a start, because devices could not report before.
        """
        after_s = self.settings.forget_after
        if not after_s or self._clock.monotonic() - self._began < min(GRACE_S, after_s):
            return 0
        if self.table.is_shared:
            # read changes first, because another gateway may have received a report in the meantime
            await self.table.read_changes_of_other_processes(None)
        silent_since = self._clock.now() - after_s
        silent = [device for device in self.table.all() if device.last_contact_at < silent_since]
        actor = Actor("devices.forget_after", "")
        changes = [
            AuditedChange(
                actor=actor, action="device.forget", target=device.id, before=_audited_fields(device)
            )
            for device in silent
        ]
        if silent:
            await self._store_uses_of_tokens(silent, actor)
            await self.table.delete([device.id for device in silent], changes)
        return len(silent)

    async def end_keys_of_left_devices(self) -> None:
        """End the keys of devices that left a week ago and did not return."""
        now = self._clock.now()
        actor = Actor("devices that left", "")
        over = [device.id for device in self.table.all() if states.has_expired_key(device, now)]

        async def end_key(id: str) -> None:
            await self._change_with_audit(id, states.expired_key_remover(now), "device.end_key", actor)

        log = failure_logger(
            "the key of a device that left could not be ended", action="device_key_not_ended"
        )
        await for_each_item(over, end_key, log)

    async def store_changed_states(self) -> None:
        basis = self.interval_s, self.expected()
        evaluated = 0

        async def store_changed_state(device: Device) -> None:
            nonlocal evaluated
            evaluated += 1
            if evaluated % DEVICES_PER_TURN == 1:
                await pause_if_step_was_long()
            state = self.machine_state(device)
            if states.last_recorded_state(device) == state.word:
                self._quiet.add_device(device, state)
            else:
                self.table.change_and_write_soon(device.id, self._with_current_state_recorded)

        devices = self._quiet.devices_to_evaluate(self.table.all(), basis, self._clock.now())
        log = failure_logger(
            "the state of a device could not be stored",
            action="device_states_not_stored",
            name=attrgetter("id"),
        )
        await for_each_item(devices, store_changed_state, log)

    def _with_current_state_recorded(self, device: Device) -> Device:
        return states.state_recorder(self.machine_state(device).word, self._clock.now())(device)

    async def store_changed_states_repeatedly(self) -> None:
        await repeat(
            self.store_changed_states,
            every_s=NOTE_EVERY_S,
            failed="changed states of devices could not be stored",
            action="device_states_not_stored",
        )

    async def clean_up_repeatedly(self) -> None:
        async def wait_and_clean_up() -> None:
            await asyncio.sleep(FORGET_EVERY_S)
            await self.end_keys_of_left_devices()
            count = await self.delete_silent_devices()
            if count:
                extra = {"action": "devices_forgotten", "count": count}
                _log.info("offline devices were deleted", extra=extra)

        await repeat(
            wait_and_clean_up,
            every_s=0.0,
            failed="offline devices could not be deleted",
            action="devices_not_forgotten",
        )

    async def approve_device(self, id: str, actor: Actor) -> Device:
        """Approve a device. A device key from before a revocation stays invalid."""
        now = self._clock.now()

        def device_after_approval(device: Device) -> Device:
            if device.state == ENROLLED and device.copied_at is None:
                raise NotAllowed(f"the device {id} is already enrolled")
            return states.approved_device(device, now)

        return await self._change_with_audit(id, device_after_approval, "device.approve", actor)

    async def revoke_device(self, id: str, actor: Actor) -> Device:
        """Revoke a device. Its key becomes invalid at once, and its records stay."""

        def revoked_device(device: Device) -> Device:
            if device.state == REVOKED and not device.revoked_by:
                raise NotAllowed(f"the device {id} is already revoked")
            return states.device_revoker("")(device)

        return await self._change_with_audit(id, revoked_device, "device.revoke", actor)

    async def revoke_token(self, id_or_name: str, actor: Actor, *, devices: bool) -> tuple[int, int]:
        """
        Revoke tokens. With `devices`, the devices that the tokens enrolled are revoked as well.

        Return the numbers of tokens and devices.
        """
        if self._tokens is None:
            raise NotThere("no token has this id or name")
        ids = {token.id for token in await self._tokens.revoke(id_or_name, actor=actor)}
        if not devices:
            return len(ids), 0
        if self.table.is_shared:
            # read changes first, because another gateway may have enrolled the device just before
            await self.table.read_changes_of_other_processes(None)
        enrolled = [device for device in self.table.all() if device.token in ids and device.state != REVOKED]
        await asyncio.gather(
            *(
                self._change_with_audit(device.id, states.device_revoker(""), "device.revoke", actor)
                for device in enrolled
            )
        )
        return len(ids), len(enrolled)

    async def reset_device(self, id: str, actor: Actor) -> Device:
        """Reset a device. Another machine may then enrol with this id."""
        now = self._clock.now()
        await self._store_uses_of_tokens([self._require_device(id)], actor)
        return await self._change_with_audit(
            id, lambda device: states.device_after_reset(device, now), "device.reset", actor
        )

    async def change_labels(self, id: str, labels: Mapping[str, str | None], actor: Actor) -> Device:
        """Change the labels of a device. None removes a label. The labels override reported ones."""

        def device_with_labels(device: Device) -> Device:
            merged = {**device.operator_labels, **labels}
            checked_labels = check_labels(
                {name: value for name, value in merged.items() if value is not None}
            )
            return device.with_changes_and_next_version(
                changes_enrolment=True, operator_labels=checked_labels
            )

        device = self._require_device(id)
        if device_with_labels(device).operator_labels == device.operator_labels:
            return await self.table.update(id, change_for_existing_device(lambda known: known))
        return await self._change_with_audit(id, device_with_labels, "device.label", actor)

    async def _change_with_audit(
        self,
        id: str,
        change: Callable[[Device], Device],
        action: str,
        actor: Actor,
        *,
        expected_versions: Collection[ExpectedVersion] = (),
    ) -> Device:
        before = self._require_device(id)
        descriptions = _audited_fields(before), _audited_fields(change(before))
        audited = AuditedChange(
            actor=actor, action=action, target=id, before=descriptions[0], after=descriptions[1]
        )
        return await self.table.update(
            id, change_for_existing_device(change), audited, expected_versions=expected_versions
        )

    def _require_device(self, id: str) -> Device:
        device = self.table.find(id)
        if device is None:
            raise NotThere(f"there is no device {id!r}")
        return device


def _bearer_actor(bearer: AuthenticatedKey, address: str) -> Actor:
    return Actor(bearer.name if bearer.token else f"key {bearer.name}", address)


def _is_machine_doubtful(token: EnrolmentToken | None, other_devices: Sequence[Device]) -> bool:
    """
    Return whether it is doubtful which of several machines enrols. A token for one serial number decides it.
    Pending devices are only claims, so they do not delay such a token.
    """
    if any(_is_token_for_device(token, other) for other in other_devices):
        return False
    names_machine = token is not None and bool(token.serial)
    return any(not names_machine or other.state != PENDING for other in other_devices)


def _is_token_for_device(token: EnrolmentToken | None, device: Device) -> bool:
    if token is None or not token.serial:
        return False
    return serial_of_device(device).strip().casefold() == token.serial.casefold()


def _audited_fields(device: Device) -> dict[str, object]:
    labels = dict(device.operator_labels)
    return {"state": device.state, "labels": labels, "generation": device.generation}


class DeviceKeys:
    """
    The keys of devices. `gateway.people.authentication.access` calls `bearer_of_key` for every request with such a
    key.
    """

    def __init__(self, table: DeviceTable, *, secret: bytes, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._secret = derive_secret(secret, "device keys")

    def issue_key(self, device: Device) -> str:
        return f"{PREFIX}{device.id}_{device.generation}_{self._key_mac(device.id, device.generation)}"

    def bearer_of_key(self, secret: str) -> AuthenticatedKey | None:
        """
        Return the bearer of a device key, or None if the key is forged.

        Raises Refusal 401 if the key is no longer valid, and 503 if it is so new that this gateway may not
        know its device yet.
        """
        id, _, rest = secret.removeprefix(PREFIX).rpartition("_")
        id, _, number = id.rpartition("_")
        if not (number.isascii() and number.isdecimal() and len(number) < 12):
            return None
        if not hmac.compare_digest(rest.encode(), self._key_mac(id, int(number)).encode()):
            return None
        device = self._table.find(id)
        if self._table.is_shared and self._is_newer_than_known(device, int(number)):
            message = "another gateway issued this key a moment ago; repeat the request"
            raise Refusal(503, "keys_unavailable", message, retry_after_s=1)
        if (
            device is None
            or device.state == REVOKED
            or not device.has_key
            or device.generation != int(number)
        ):
            raise Refusal(
                401, "dead_device_key", "this device was revoked or reset, so its key is no longer valid"
            )
        expects = (current_device_expectation(id, int(number)),) if self._table.is_shared else ()
        if not device.key_used:
            self._table.change_and_write_soon(
                id, lambda known: replace(known, key_used=True), expectations=expects
            )
        return AuthenticatedKey(f"device {id}", SCOPES, device=id, expects=expects)

    def _is_newer_than_known(self, device: Device | None, generation: int) -> bool:
        # the first generation of a new device equals the time of its enrolment
        if device is None:
            return generation > self._clock.now() - NEWS_S
        is_given = device.has_key or device.state == REVOKED
        return generation > device.generation or (generation == device.generation and not is_given)

    def _key_mac(self, id: str, generation: int) -> str:
        return hmac.new(self._secret, f"{id}\0{generation}".encode(), sha256).hexdigest()
