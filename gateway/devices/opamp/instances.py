"""
OpAMP instances: the device that an instance belongs to, what is stored of its messages, and the answers.

An instance is the device `opamp:<instance_uid>`. Under the key of a device that Tollhouse enrolled otherwise, it
is a part of that device. A collector that restarts with a new uid stays the same device, if its key, host and
service name are those of a disconnected OpAMP device.

Tollhouse only accepts status. It offers no configuration, packages or commands.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any
from uuid import UUID

from gateway.core.errors import Refusal
from gateway.devices import reports, states
from gateway.devices.fleet.heartbeat_facts import (
    OPAMP,
    Instances,
    decode_instances,
    is_collector,
    with_changed_instances,
)
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.machine_state import ONLINE
from gateway.devices.opamp.description import (
    HOST_ID,
    SERVICE,
    OpampAgentDescription,
    read_agent_description,
    read_health,
)
from gateway.devices.opamp.messages import (
    ACCEPTS_OPAMP_SETTINGS,
    ACCEPTS_STATUS,
    BAD_REQUEST,
    OFFERS_SETTINGS,
    REPORT_FULL_STATE,
    REPORTS_HEARTBEAT,
    UNAVAILABLE,
    ServerToAgent,
)
from gateway.devices.reports import DeviceReport
from gateway.people.authentication.access import missing_scope_refusal
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.clock import Clock, elapsed_s
from spool.devices.device import REVOKED, Device
from spool.registry.scopes import ENROLL, HEARTBEAT

# seconds between two readings of all devices, so that a mass restart does not read them for each agent
SEARCH_EVERY_S = 1.0
CONNECTED = "connected"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSender:
    """The sender of a message. `url` is the address that it used. A plain request has no `connection`."""

    bearer: AuthenticatedKey
    address: str
    url: str
    connection: object | None = None


@dataclass(slots=True, kw_only=True)
class _Instance:
    device: str
    key: str
    sequence: int = -1
    connection: object | None = field(default=None, repr=False)
    has_interval: bool = False  # whether this connection was offered the heartbeat interval


class OpampInstances:
    """
    The instances that reported to this gateway since its start. Another gateway, or a restarted one, asks an
    instance for its full state.
    """

    def __init__(self, devices: DeviceLifecycle, clock: Clock) -> None:
        self.devices = devices
        self._table = devices.table
        self._clock = clock
        self._instances: OrderedDict[bytes, _Instance] = OrderedDict()
        # device ids by key, host and service name
        self._machines: dict[tuple[str, str, str], set[str]] = {}
        self._read_version = -1
        self._read_again_at = 0.0

    async def answer_message(self, message: Any, sender: InstanceSender) -> Any:
        """Store what a message reports. Return the answer. Raises Refusal as `DeviceLifecycle` does."""
        uid: bytes = message.instance_uid
        bearer = sender.bearer
        description = None
        if message.HasField("agent_description"):
            description = read_agent_description(message.agent_description)
        answer = ServerToAgent(instance_uid=uid, capabilities=ACCEPTS_STATUS)
        id = self._find_device_id(uid, description, bearer)
        if id is None:
            answer.flags = REPORT_FULL_STATE
            return answer
        device = self._table.find(id)
        if device is not None and device.state != REVOKED:  # a revoked device is refused below
            reports.require_may_report_for(device, bearer)
        key = None
        if bearer.token is not None and not (
            description is not None and self._may_offer_key(message, bearer)
        ):
            raise missing_scope_refusal(HEARTBEAT)
        if description is not None or message.HasField("health"):
            key = await self._store_report(id, message, description, sender)
        else:
            self.devices.note_alive(id, bearer)
        if message.HasField("agent_disconnect"):
            self._store_disconnect(id, uid)
        instance = self._remember_instance(uid, id, sender)
        if description is None and message.sequence_num != instance.sequence + 1:
            answer.flags = REPORT_FULL_STATE
        instance.sequence = message.sequence_num
        self._add_connection_offer(answer, key, message.capabilities, instance, sender)
        return answer

    def is_revoked(self, instance_uid: bytes) -> bool:
        instance = self._instances.get(instance_uid)
        device = self._table.find(_device_id(instance_uid) if instance is None else instance.device)
        return device is not None and device.state == REVOKED

    def note_open_connection(self, instance_uid: bytes, bearer: AuthenticatedKey) -> None:
        """Note that the connection of an instance is open, even if the instance sends no heartbeats."""
        instance = self._instances.get(instance_uid)
        is_own = instance is not None and instance.key == bearer.name
        device = self._table.find(instance.device) if instance is not None and is_own else None
        now = self._clock.now()
        if device is not None and elapsed_s(device.last_seen, now) >= self.devices.interval_s:
            self._table.change_and_write_soon(
                device.id, states.last_seen_updater(now), expectations=bearer.expects
            )

    def note_closed_connection(self, instance_uid: bytes, connection: object) -> None:
        """Note that the connection of an instance ended, unless the instance has connected again."""
        instance = self._instances.get(instance_uid)
        if instance is not None and instance.connection is connection:
            instance.connection = None
            self._store_disconnect(instance.device, instance_uid)

    # -- the device of an instance --------------------------------------------------------------------------------

    def _find_device_id(
        self, instance_uid: bytes, description: OpampAgentDescription | None, bearer: AuthenticatedKey
    ) -> str | None:
        if bearer.device is not None:
            return bearer.device
        known = self._instances.get(instance_uid)
        if known is not None and known.key == bearer.name and self._table.find(known.device) is not None:
            return known.device
        id = _device_id(instance_uid)
        if self._table.find(id) is not None:
            return id
        if description is None:
            return None
        return self._find_device_of_earlier_instance(instance_uid, description, bearer) or id

    def _find_device_of_earlier_instance(
        self, instance_uid: bytes, description: OpampAgentDescription, bearer: AuthenticatedKey
    ) -> str | None:
        """
        Return the device of the same collector under an earlier uid. A revoked device is found as well, so that a
        new uid does not undo a revocation.
        """
        machine = (bearer.name, description.host_id_or_name, description.service)
        if not all(machine):
            return None
        found = map(self._table.find, self._devices_of_machine(machine))
        devices = [
            device
            for device in found
            if device is not None
            and _collector_identity(device) == machine
            and self._can_instance_take_over_device(device, instance_uid)
        ]
        own = [device for device in devices if _uid_text(instance_uid) in decode_instances(device.heartbeat)]
        return max(own or devices, key=lambda device: device.last_seen).id if devices else None

    def _can_instance_take_over_device(self, device: Device, instance_uid: bytes) -> bool:
        if device.key_used:  # the device then sends under its own key
            return False
        if device.state == REVOKED or self.devices.machine_state(device).link != ONLINE:
            return True
        instances = decode_instances(device.heartbeat)
        return _uid_text(instance_uid) in instances or not any(
            part.get(CONNECTED) for part in instances.values()
        )

    def _devices_of_machine(self, machine: tuple[str, str, str]) -> set[str]:
        now = self._clock.monotonic()
        if self._table.version != self._read_version and now >= self._read_again_at:
            machines = defaultdict[tuple[str, str, str], set[str]](set)
            for device in self._table.all():
                if is_collector(device.id):
                    machines[_collector_identity(device)].add(device.id)
            self._machines = dict(machines)
            self._read_version, self._read_again_at = self._table.version, now + SEARCH_EVERY_S
        return self._machines.get(machine, set())

    # -- storing --------------------------------------------------------------------------------------------------

    async def _store_report(
        self, id: str, message: Any, description: OpampAgentDescription | None, sender: InstanceSender
    ) -> str | None:
        """Enrol the device or store its heartbeat. Return its key if it gets one now."""
        name = _uid_text(message.instance_uid)
        is_part = not is_collector(id)
        health = read_health(message.health) if message.HasField("health") else None

        def instances_after_report(instances: Instances) -> Instances:
            part = instances.pop(name, {})
            named = {"service": part.get("service"), "version": part.get("version")}
            if description is not None:
                named = {"service": description.service, "version": description.version}
            if health is not None:
                part = health
            part = {**part, **{key: text for key, text in named.items() if text}, CONNECTED: True}
            return {**instances, name: part} if is_part else {name: part}

        report = DeviceReport(id=id, instances=instances_after_report)
        if description is not None and not is_part:
            report = replace(
                report,
                hostname=description.hostname,
                platform=description.platform,
                agent_version=description.agent_version,
                labels=description.labels,
            )
        key = None
        bearer = sender.bearer
        if description is not None and self._may_offer_key(message, bearer):
            _, key = await self.devices.enrol_or_update(
                replace(report, want_key=True), bearer, sender.address
            )
            if bearer.token is not None:
                return key
        device = await self.devices.store_heartbeat(report, bearer, sender.address)
        if not is_part:
            self._machines.setdefault(_collector_identity(device), set()).add(id)
        return key

    def _may_offer_key(self, message: Any, bearer: AuthenticatedKey) -> bool:
        is_willing = bool(message.capabilities & ACCEPTS_OPAMP_SETTINGS)
        is_own = bearer.device is not None or bearer.is_gateway
        return self.devices.settings.opamp_keys and is_willing and not is_own and ENROLL in bearer.scopes

    def _store_disconnect(self, id: str, instance_uid: bytes) -> None:
        """
        Note that an instance is not connected. The device stays enrolled, and is silent after three intervals.
        """
        name = _uid_text(instance_uid)

        def device_after_disconnect(device: Device) -> Device:
            if name not in decode_instances(device.heartbeat):
                return device
            heartbeat = with_changed_instances(
                device.heartbeat, lambda known: {**known, name: {**known[name], CONNECTED: False}}
            )
            return replace(device, heartbeat=heartbeat)

        self._table.change_and_write_soon(id, device_after_disconnect)

    def _remember_instance(self, instance_uid: bytes, id: str, sender: InstanceSender) -> _Instance:
        instance = self._instances.get(instance_uid)
        if instance is None or instance.device != id:
            instance = self._instances[instance_uid] = _Instance(device=id, key=sender.bearer.name)
        instance.key = sender.bearer.name
        self._instances.move_to_end(instance_uid)
        if len(self._instances) > self.devices.settings.max:
            self._instances.popitem(last=False)
        if instance.connection is not sender.connection:
            instance.connection, instance.has_interval = sender.connection, False
        return instance

    def _add_connection_offer(
        self, answer: Any, key: str | None, capabilities: int, instance: _Instance, sender: InstanceSender
    ) -> None:
        """
        Offer the device's key, and the heartbeat interval once for each connection.

        A client that accepts connection settings would replace its own headers by an offer without headers, so it
        gets the interval only together with its key.
        """
        if key is None:
            takes_interval = capabilities & REPORTS_HEARTBEAT and not capabilities & ACCEPTS_OPAMP_SETTINGS
            if sender.connection is None or instance.has_interval or not takes_interval:
                return
        settings = answer.connection_settings.opamp
        settings.heartbeat_interval_seconds = max(1, int(self.devices.interval_s))
        if key is not None:
            settings.destination_endpoint = sender.url
            settings.headers.headers.add(key="Authorization", value=key)
        answer.connection_settings.hash = sha256(settings.SerializeToString(deterministic=True)).digest()
        answer.capabilities = ACCEPTS_STATUS | OFFERS_SETTINGS
        instance.has_interval = True


def error_answer(instance_uid: bytes, refusal: Refusal) -> Any:
    answer = ServerToAgent(instance_uid=instance_uid)
    error = answer.error_response
    error.error_message = refusal.message
    error.type = BAD_REQUEST
    if refusal.status in (429, 503):
        error.type = UNAVAILABLE
        error.retry_info.retry_after_nanoseconds = (refusal.retry_after_s or 1) * 1_000_000_000
    return answer


def require_not_revoked(instances: OpampInstances, instance_uid: bytes) -> None:
    if instances.is_revoked(instance_uid):
        raise reports.revoked_device_refusal()


def _uid_text(instance_uid: bytes) -> str:
    return str(UUID(bytes=instance_uid))


def _device_id(instance_uid: bytes) -> str:
    return f"{OPAMP}:{_uid_text(instance_uid)}"


def _collector_identity(device: Device) -> tuple[str, str, str]:
    labels: Mapping[str, str] = device.labels
    return (device.enrolled_by, labels.get(HOST_ID) or device.hostname, labels.get(SERVICE, ""))
