"""The operator API for devices: list, approve, revoke, reset and label them."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.devices.fleet.assistant_states import AssistantState
from gateway.devices.fleet.facts import FACTS, decode_heartbeat
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.machine_state import LINKS, WORDS, MachineState
from gateway.devices.states import state_changes
from gateway.http.lists import Filter, List, MemoryRows, Sort, age_filter
from gateway.http.requests import Result
from gateway.operations.holders.operators import SenderServices
from gateway.operations.requests.address import call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.devices.device import Device, Unenrolled
from spool.errors import Invalid, NotThere
from spool.record import moment
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION


class Shown(msgspec.Struct, frozen=True):
    """A device with its state at the time of the request."""

    device: Device
    state: MachineState


class Admission(RequestBody):
    id: str


class Approval(RequestBody):
    """An empty JSON object, or the name of the key that reports for an OpAMP agent."""

    key: str = ""


class Labels(RequestBody):
    """Labels to change. A label with the value null is removed."""

    labels: dict[str, str | None]


def describe_device(row: Shown) -> dict[str, object]:
    device = row.device
    return {
        "id": device.id,
        "state": row.state.word,
        "link": row.state.link,
        "hostname": device.hostname,
        "platform": device.platform,
        "agent_version": device.agent_version,
        "user": device.user,
        "labels": dict(device.all_labels),
        "enrolled": moment(device.enrolled_at),
        "last_seen": moment(device.last_seen or None),
    }


def show_assistant(state: AssistantState) -> dict[str, object]:
    return {
        "name": state.name,
        "state": state.state,
        "cause": state.cause or None,
        "setting": state.setting,
        "use": state.use,
        "version": state.version or None,
        "newest_call": moment(state.newest),
    }


def describe_device_details(row: Shown) -> dict[str, object]:
    """Describe a single device: the fields of the list, and further fields."""
    device = row.device
    heartbeat = decode_heartbeat(device.heartbeat)
    return {
        **describe_device(row),
        "enrolled_by": device.enrolled_by,
        "token": device.token or None,
        "hardware_id": device.hardware_id or None,
        "cause": device.cause or None,
        "replaced_by": device.replaced_by or None,
        "copied": moment(device.copied_at),
        "left": moment(device.left_at),
        "last_heartbeat": moment(device.last_heartbeat),
        "last_telemetry": moment(device.last_telemetry),
        "clock_offset_s": device.clock_offset_s,
        "has_key": device.has_key,
        "second_fingerprint": moment(device.flagged_at),
        "spool": heartbeat.get("spool"),
        "sources": heartbeat.get("sources") or {},
        **{name: heartbeat.get(name) for name in FACTS if name != "assistants"},
        "assistants": [show_assistant(each) for each in row.state.assistants.each],
        "state_changes": [{"at": moment(at), "state": word} for at, word in state_changes(device)],
        "upstream": {
            "id": device.upstream_id,
            "sent": device.sent_version == device.version,
            "held": device.held,
        },
    }


def describe_name(name: Unenrolled) -> dict[str, object]:
    return {
        "name": name.name,
        "key": name.key,
        "count": name.count,
        "first_seen": moment(name.first_seen),
        "last_seen": moment(name.last_seen),
    }


DEVICES: List[Shown] = List(
    root="devices",
    show=describe_device,
    identity=Sort(value=lambda row: row.device.id),
    sorts={
        "id": Sort(value=lambda row: row.device.id),
        "state": Sort(value=lambda row: row.state.word),
        "hostname": Sort(value=lambda row: row.device.hostname),
        "platform": Sort(value=lambda row: row.device.platform),
        "agent_version": Sort(value=lambda row: row.device.agent_version),
        "user": Sort(value=lambda row: row.device.user),
        "enrolled": Sort(value=lambda row: row.device.enrolled_at),
        "last_seen": Sort(value=lambda row: row.device.last_seen),
    },
    default_sort=("id", "asc"),
    filters={
        "id": Filter(values=lambda row: (row.device.id,), is_open=True),
        "state": Filter(values=lambda row: (row.state.word,), valid_values=WORDS),
        "link": Filter(values=lambda row: (row.state.link,), valid_values=LINKS),
        "hostname": Filter(values=lambda row: (row.device.hostname,), is_open=True),
        "platform": Filter(values=lambda row: (row.device.platform,)),
        "agent_version": Filter(values=lambda row: (row.device.agent_version,)),
        "user": Filter(values=lambda row: (row.device.user,), is_open=True, names_people=True),
        "label": Filter(
            values=lambda row: [f"{name}={text}" for name, text in row.device.all_labels.items()],
            is_open=True,
        ),
        "no_report_for": age_filter(lambda row: row.device.quiet_since),
        "no_call_for": age_filter(lambda row: max(row.device.newest_calls.values(), default=0.0)),
    },
)

UNENROLLED: List[Unenrolled] = List(
    root="unenrolled",
    show=describe_name,
    identity=Sort(value=lambda name: name.name),
    sorts={
        "name": Sort(value=lambda name: name.name),
        "count": Sort(value=lambda name: name.count),
        "last_seen": Sort(value=lambda name: name.last_seen),
    },
    default_sort=("last_seen", "desc"),
    filters={"key": Filter(values=lambda name: (name.key,))},
)


@call("GET", "/devices", VIEW_OPERATION, "List devices", lists=DEVICES)
async def list_devices(request: OperatorRequest[SenderServices, None]) -> Result:
    request.services.require_devices()
    return await request.list(DEVICES, request.services.listed_devices)


@call("GET", "/unenrolled", VIEW_OPERATION, "List names of devices that are not enrolled", lists=UNENROLLED)
async def list_unenrolled(request: OperatorRequest[SenderServices, None]) -> Result:
    return await request.list(UNENROLLED, MemoryRows(_require_lifecycle(request).table.unenrolled_names()))


@call("GET", "/devices/{id}", VIEW_OPERATION, "Show a device")
async def show_device(request: OperatorRequest[SenderServices, None]) -> Result:
    lifecycle = _require_lifecycle(request)
    device = lifecycle.table.find(request.word("id"))
    if device is None:
        raise NotThere(f"there is no device {request.word('id')!r}")
    return _device_answer(lifecycle, device)


@call("POST", "/devices", OPERATE_SPOOL, "Enrol a device before it reports", status=201)
async def admit_device(request: OperatorRequest[SenderServices, Admission]) -> Result:
    lifecycle = _require_lifecycle(request)
    return _device_answer(lifecycle, await lifecycle.admit(request.body.id, request.actor))


@call("DELETE", "/devices/{id}", OPERATE_SPOOL, "Delete a device and end its key", required=("confirm",))
async def delete_device(request: OperatorRequest[SenderServices, None]) -> Result:
    id = request.word("id")
    if request.http.query.get("confirm") != id:
        raise Invalid("confirm must be the device's id")
    await _require_lifecycle(request).delete(id, request.actor)
    return {"deleted": id}


@call("POST", "/devices/{id}/approve", OPERATE_SPOOL, "Enrol a pending or revoked device")
async def approve_device(request: OperatorRequest[SenderServices, Approval]) -> Result:
    """With `key`, the key of this name reports for an OpAMP agent from now on, and no other key does."""
    lifecycle, key = _require_lifecycle(request), request.body.key
    names = [known.name for known in request.services.access.keys()]  # noqa: SIM118 - no mapping
    if key and key not in names:
        raise NotThere(f"there is no key {key!r}")
    return _device_answer(lifecycle, await lifecycle.approve(request.word("id"), request.actor, key=key))


@call("POST", "/devices/{id}/revoke", OPERATE_SPOOL, "Revoke a device, so that it is refused")
async def revoke_device(request: OperatorRequest[SenderServices, None]) -> Result:
    lifecycle = _require_lifecycle(request)
    return _device_answer(lifecycle, await lifecycle.revoke(request.word("id"), request.actor))


@call("POST", "/devices/{id}/reset", OPERATE_SPOOL, "Clear a device's fingerprint and key")
async def reset_device(request: OperatorRequest[SenderServices, None]) -> Result:
    lifecycle = _require_lifecycle(request)
    return _device_answer(lifecycle, await lifecycle.reset(request.word("id"), request.actor))


@call("PATCH", "/devices/{id}", OPERATE_SPOOL, "Label a device")
async def label_device(request: OperatorRequest[SenderServices, Labels]) -> Result:
    lifecycle = _require_lifecycle(request)
    body = request.body
    return _device_answer(lifecycle, await lifecycle.label(request.word("id"), body.labels, request.actor))


def _require_lifecycle(request: OperatorRequest[SenderServices, Any]) -> DeviceLifecycle:
    return request.services.require_devices()


def _device_answer(lifecycle: DeviceLifecycle, device: Device) -> Result:
    described = describe_device_details(Shown(device, lifecycle.state_of(device)))
    return {"device": {**described, **lifecycle.relatives(device)}}
