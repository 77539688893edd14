"""The operator API for devices: list, approve, revoke, reset and label them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from gateway.core.fields import build_answer
from gateway.devices.fleet.assistant_states import AssistantState
from gateway.devices.fleet.heartbeat_facts import FACTS, decode_heartbeat
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.machine_state import LINKS, WORDS, MachineState
from gateway.devices.states import parse_state_changes
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort, age_filter
from gateway.http.requests import Result
from gateway.operations.answers import DeletedItem
from gateway.operations.holders.operators import SenderServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.devices.device import Device, UnenrolledName
from spool.errors import Invalid, NotThere
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION


class DeviceWithState(msgspec.Struct, frozen=True):
    """A device with its state at the time of the request."""

    device: Device
    state: MachineState


class Admission(RequestBody):
    id: Annotated[str, words("The id of the device, as it reports it.")]


class Labels(RequestBody):
    """Labels to change. A label with the value null is removed."""

    labels: Annotated[dict[str, str | None], words("Labels to change, by name. Null removes a label.")]


def describe_device(row: DeviceWithState) -> dict[str, object]:
    device = row.device
    return build_answer(
        DeviceItem,
        device,
        state=row.state.word,
        link=row.state.link,
        labels=dict(device.all_labels),
        enrolled=utc_iso(device.enrolled_at),
        last_seen=utc_iso(device.last_seen or None),
    )


def describe_assistant(state: AssistantState) -> dict[str, object]:
    return {
        "name": state.name,
        "state": state.state,
        "cause": state.cause or None,
        "setting": state.setting,
        "use": state.use,
        "version": state.version or None,
        "newest_call": utc_iso(state.newest),
    }


def describe_device_details(row: DeviceWithState) -> dict[str, object]:
    """Describe a single device: the list's fields, and further fields."""
    device = row.device
    heartbeat = decode_heartbeat(device.heartbeat)
    return {
        **describe_device(row),
        "enrolled_by": device.enrolled_by,
        "token": device.token or None,
        "hardware_id": device.hardware_id or None,
        "cause": device.cause or None,
        "replaced_by": device.replaced_by or None,
        "copied": utc_iso(device.copied_at),
        "left": utc_iso(device.left_at),
        "last_heartbeat": utc_iso(device.last_heartbeat),
        "last_telemetry": utc_iso(device.last_telemetry),
        "clock_offset_s": device.clock_offset_s,
        "has_key": device.has_key,
        "second_fingerprint": utc_iso(device.flagged_at),
        "spool": heartbeat.get("spool"),
        "sources": heartbeat.get("sources") or {},
        **{name: heartbeat.get(name) for name in FACTS if name != "assistants"},
        "assistants": [describe_assistant(each) for each in row.state.assistants.each],
        "state_changes": [{"at": utc_iso(at), "state": word} for at, word in parse_state_changes(device)],
        "upstream": {
            "id": device.upstream_id,
            "sent": device.sent_version == device.version,
            "held": device.held,
        },
    }


def describe_unenrolled(name: UnenrolledName) -> dict[str, object]:
    return {
        "name": name.name,
        "key": name.key,
        "count": name.count,
        "first_seen": utc_iso(name.first_seen),
        "last_seen": utc_iso(name.last_seen),
    }


DEVICES: ListDefinition[DeviceWithState] = ListDefinition(
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
        "no_report_for": age_filter(lambda row: row.device.last_contact_at),
        "no_call_for": age_filter(lambda row: max(row.device.newest_calls.values(), default=0.0)),
    },
)

UNENROLLED: ListDefinition[UnenrolledName] = ListDefinition(
    root="unenrolled",
    show=describe_unenrolled,
    identity=Sort(value=lambda name: name.name),
    sorts={
        "name": Sort(value=lambda name: name.name),
        "count": Sort(value=lambda name: name.count),
        "last_seen": Sort(value=lambda name: name.last_seen),
    },
    default_sort=("last_seen", "desc"),
    filters={"key": Filter(values=lambda name: (name.key,))},
)


class DeviceItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the device."), example("laptop-ada")]
    state: Annotated[str, words("The state of the device."), example("reporting")]
    link: Annotated[
        str,
        words(
            "`online`, `offline` after three missed reports, or `unknown` without an agent or after a start."
        ),
        example("offline"),
    ]
    hostname: Annotated[str, words("The host name."), example("ada-laptop")]
    platform: Annotated[str, words("The operating system."), example("linux")]
    agent_version: Annotated[str, words("The version of the agent."), example("")]
    user: Annotated[str, words("The person who uses the device."), example("ada")]
    labels: Annotated[dict[str, str], words("Labels as name and value."), example({})]
    enrolled: Annotated[str, words("When the device was enrolled."), example("2026-10-28T01:19:27.000Z")]
    last_seen: Annotated[
        str | None, words("When the last report of the device arrived."), example("2026-11-27T01:19:27.551Z")
    ]


class UnenrolledItem(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name that the device sends."), example("laptop-eve")]
    key: Annotated[str, words("The key that last sent the name."), example("checkout")]
    count: Annotated[int, words("How often telemetry had the name."), example(2)]
    first_seen: Annotated[
        str, words("When telemetry first had the name."), example("2026-11-26T09:12:40.000Z")
    ]
    last_seen: Annotated[str, words("When telemetry last had the name."), example("2026-11-27T01:20:02.000Z")]


class DeviceSpool(msgspec.Struct, kw_only=True):
    records: Annotated[int | UnsetType | None, words("The number of waiting records."), example(0)] = UNSET
    oldest_age_s: Annotated[
        float | UnsetType | None, words("The age of the oldest waiting record in seconds."), example(None)
    ] = UNSET
    full: Annotated[
        bool | UnsetType, words("Whether the device can store no further record."), example(False)
    ] = UNSET
    refused_since: Annotated[
        str | UnsetType | None,
        words("When the device refused the first telemetry since its last stored record, or null."),
        example(None),
    ] = UNSET


class DeviceStateChange(msgspec.Struct, kw_only=True):
    at: Annotated[str, words("When the state began."), example("2026-11-27T01:45:00.000Z")]
    state: Annotated[str, words("The state of the device from then on."), example("reporting")]


class DeviceUpstream(msgspec.Struct, kw_only=True):
    id: Annotated[str | None, words("The id of the device at your cost service."), example(None)]
    sent: Annotated[
        bool, words("Whether your cost service has the last change of the device."), example(False)
    ]
    held: Annotated[
        str | None, words("The rejection of the device by your cost service, or null."), example(None)
    ]


class FleetAssistant(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the assistant."), example("codex")]
    state: Annotated[str, words("The state of the assistant."), example("overridden")]
    cause: Annotated[
        str | None, words("Why the assistant has this state, or null."), example("other_endpoint")
    ]
    setting: Annotated[
        str,
        words("`configured`, `overridden`, `off`, `unset`, `unknown` or `absent`, as the agent sees it."),
        example("overridden"),
    ]
    use: Annotated[
        str,
        words(
            "Whether calls of the last use arrived: `none` (not used), `heard` (yes), `waiting` (may still arrive), "
            "`delayed` (on the machine), `losing` (no), or `unseen` (not comparable, or no agent and no recent call)."
        ),
        example("none"),
    ]
    version: Annotated[str | None, words("The version of the assistant."), example("0.169.0")]
    newest_call: Annotated[
        str | None, words("When the newest call of the assistant here ended, or null."), example(None)
    ]


class AgentFacts(msgspec.Struct, kw_only=True):
    service: Annotated[str | UnsetType, words("The service manager that runs the agent.")] = UNSET
    rss_mib: Annotated[float | UnsetType, words("The memory of the agent in MiB.")] = UNSET
    started_at: Annotated[str | UnsetType, words("When the agent started.")] = UNSET


class AppliedPolicy(msgspec.Struct, kw_only=True):
    sha256: Annotated[str | UnsetType, words("The digest of the bundle.")] = UNSET
    number: Annotated[int | UnsetType, words("The number of the bundle.")] = UNSET
    applied_at: Annotated[str | UnsetType, words("When the agent applied the bundle.")] = UNSET
    error: Annotated[str | UnsetType, words("Why the agent did not apply the policy.")] = UNSET


class DeviceDetails(DeviceItem, kw_only=True):
    enrolled_by: Annotated[str, words("Who enrolled the device."), example("automation")]
    token: Annotated[
        str | None, words("The id of the enrolment token that the device used, or null."), example(None)
    ]
    hardware_id: Annotated[
        str | None,
        words("A hash of the id of the machine's hardware, which the device claims, or null."),
        example(None),
    ]
    cause: Annotated[str | None, words("Why the device is pending, or null."), example(None)]
    replaced_by: Annotated[
        str | None, words("The id of the device that the same machine became, or null."), example(None)
    ]
    copied: Annotated[
        str | None, words("When a copy of the device's disk seems to have reported, or null."), example(None)
    ]
    left: Annotated[
        str | None, words("When the agent said that it was removed or unenrolled, or null."), example(None)
    ]
    last_heartbeat: Annotated[
        str | None, words("When the last heartbeat arrived."), example("2026-11-27T01:44:41.982Z")
    ]
    last_telemetry: Annotated[str | None, words("When the last telemetry arrived."), example(None)]
    clock_offset_s: Annotated[
        float | None,
        words("The seconds by which the device's clock is ahead of the server's, or null."),
        example(None),
    ]
    has_key: Annotated[bool, words("Whether the device has a key of its own."), example(True)]
    second_fingerprint: Annotated[
        str | None, words("When another machine reported under this id, or null."), example(None)
    ]
    spool: Annotated[DeviceSpool | None, words("The records that wait on the device, or null.")]
    sources: Annotated[
        dict[str, Any],
        words("By source, `records` that the agent passed on and when it `last_seen` one."),
        example({}),
    ]
    serial: Annotated[str | None, words("The serial number that the agent reported, or null."), example(None)]
    os: Annotated[str | None, words("The operating system that the agent reported, or null."), example(None)]
    agent: Annotated[AgentFacts | None, words("How the agent runs, or null."), example(None)]
    policy: Annotated[
        AppliedPolicy | None, words("The policy that the agent applied, or null."), example(None)
    ]
    key_storage: Annotated[
        str | None, words("Where the agent keeps its key: `tpm`, `keychain` or `file`."), example(None)
    ]
    assistants: Annotated[list[FleetAssistant], words("The coding assistants of the device."), example([])]
    state_changes: Annotated[list[DeviceStateChange], words("The last 50 states, the newest first.")]
    upstream: Annotated[DeviceUpstream, words("The state of the device at your cost service.")]
    replaces: Annotated[list[str], words("The ids of earlier devices of the same machine."), example([])]
    same_hardware: Annotated[
        list[str], words("The ids of other devices with the same hardware id."), example([])
    ]
    serial_hash: Annotated[
        str | None, words("A hash of the serial number that the device reported."), example(None)
    ]


class OneDevice(msgspec.Struct, kw_only=True):
    device: Annotated[DeviceDetails, words("The device, with the fields below.")]


@operator_call("GET", "/devices", VIEW_OPERATION, "List devices", lists=DEVICES, item=DeviceItem)
async def list_devices(request: OperatorRequest[SenderServices, None]) -> Result:
    request.services.require_devices()
    return await request.list_page(DEVICES, request.services.listed_devices)


@operator_call(
    "GET",
    "/unenrolled",
    VIEW_OPERATION,
    "List names of devices that are not enrolled",
    lists=UNENROLLED,
    item=UnenrolledItem,
)
async def list_unenrolled(request: OperatorRequest[SenderServices, None]) -> Result:
    return await request.list_page(
        UNENROLLED, MemoryRows(_require_lifecycle(request).table.unenrolled_names())
    )


@operator_call("GET", "/devices/{id}", VIEW_OPERATION, "Show a device", answers=OneDevice)
async def show_device(request: OperatorRequest[SenderServices, None]) -> Result:
    lifecycle = _require_lifecycle(request)
    device = lifecycle.table.find(request.path_parameter("id"))
    if device is None:
        raise NotThere(f"there is no device {request.path_parameter('id')!r}")
    return _device_answer(lifecycle, device)


@operator_call(
    "POST", "/devices", OPERATE_SPOOL, "Enrol a device before it reports", status=201, answers=OneDevice
)
async def admit_device(request: OperatorRequest[SenderServices, Admission]) -> Result:
    lifecycle = _require_lifecycle(request)
    return _device_answer(lifecycle, await lifecycle.admit_device(request.body.id, request.actor))


@operator_call(
    "DELETE",
    "/devices/{id}",
    OPERATE_SPOOL,
    "Delete a device and end its key",
    required=("confirm",),
    answers=DeletedItem,
)
async def delete_device(request: OperatorRequest[SenderServices, None]) -> Result:
    id = request.path_parameter("id")
    if request.http.query.get("confirm") != id:
        raise Invalid("confirm must be the device's id")
    await _require_lifecycle(request).delete_device(id, request.actor)
    return {"deleted": id}


@operator_call(
    "POST", "/devices/{id}/approve", OPERATE_SPOOL, "Enrol a pending or revoked device", answers=OneDevice
)
async def approve_device(request: OperatorRequest[SenderServices, None]) -> Result:
    lifecycle = _require_lifecycle(request)
    return _device_answer(
        lifecycle, await lifecycle.approve_device(request.path_parameter("id"), request.actor)
    )


@operator_call(
    "POST", "/devices/{id}/revoke", OPERATE_SPOOL, "Revoke a device, so that it is refused", answers=OneDevice
)
async def revoke_device(request: OperatorRequest[SenderServices, None]) -> Result:
    lifecycle = _require_lifecycle(request)
    return _device_answer(
        lifecycle, await lifecycle.revoke_device(request.path_parameter("id"), request.actor)
    )


@operator_call(
    "POST", "/devices/{id}/reset", OPERATE_SPOOL, "Clear a device's fingerprint and key", answers=OneDevice
)
async def reset_device(request: OperatorRequest[SenderServices, None]) -> Result:
    lifecycle = _require_lifecycle(request)
    return _device_answer(
        lifecycle, await lifecycle.reset_device(request.path_parameter("id"), request.actor)
    )


@operator_call("PATCH", "/devices/{id}", OPERATE_SPOOL, "Label a device", answers=OneDevice)
async def label_device(request: OperatorRequest[SenderServices, Labels]) -> Result:
    lifecycle = _require_lifecycle(request)
    body = request.body
    return _device_answer(
        lifecycle, await lifecycle.change_labels(request.path_parameter("id"), body.labels, request.actor)
    )


def _require_lifecycle(request: OperatorRequest[SenderServices, Any]) -> DeviceLifecycle:
    return request.services.require_devices()


def _device_answer(lifecycle: DeviceLifecycle, device: Device) -> Result:
    described = describe_device_details(DeviceWithState(device, lifecycle.machine_state(device)))
    return {"device": {**described, **lifecycle.related_device_ids(device)}}
