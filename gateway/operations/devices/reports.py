"""
Receivers for devices: enrolment, heartbeat and ping.

Unknown fields are ignored, because an agent may be newer than its gateway. A 200 is sent after the commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.clusters.clusters import Clusters
from gateway.core.errors import BadPayload
from gateway.core.schemas import Schema, closed_object_schema, schema_with_description
from gateway.devices.fleet.heartbeat_facts import FACTS, valid_facts, valid_hardware_id, without_future_days
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.own_verdicts import OwnVerdicts
from gateway.devices.reports import DeviceReport
from gateway.devices.states import LEAVINGS
from gateway.http.address import WRITE, ApiAddress, BodyLimit
from gateway.http.answers import JSON
from gateway.http.requests import Result
from gateway.normalise.reading.content import may_be_name_of_content
from gateway.operations.requests.key_requests import KeyRequest
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.devices.device import REVOKED, Device, is_device_id
from spool.errors import Invalid
from spool.registry.field_notes import example, words
from spool.registry.keys import check_labels
from spool.registry.scopes import ENROLL, HEARTBEAT, PING

MAX_TEXT = 256
MAX_SOURCES = 64
MAX_SEQ = 2**53

Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Count = Annotated[int, Meta(ge=0, le=2**53)]


class DeviceReportServices(Protocol):
    """What these receivers need."""

    devices: DeviceLifecycle
    clusters: Clusters

    async def own_verdicts(self, device: Device, /) -> OwnVerdicts | None:
        """Return the verdicts that a device may know, or None."""


class NamedDevice(msgspec.Struct, kw_only=True):
    device_id: Annotated[str | None, words("The id of the device.")] = None


class SpoolDepth(msgspec.Struct, kw_only=True):
    records: Annotated[Count | None, words("The number of waiting records.")] = None
    oldest_age_s: Annotated[float | None, words("The age of the oldest waiting record in seconds.")] = None
    full: Annotated[bool | UnsetType, words("Whether the device can store no further record.")] = UNSET
    refused_since: Annotated[
        Text | UnsetType | None,
        words("When the device refused the first telemetry since its last stored record, or null."),
    ] = UNSET


class SourceSeen(msgspec.Struct, kw_only=True):
    last_seen: Annotated[Text | None, words("When the source last sent records.")] = None
    records: Annotated[Count | None, words("The number of records that the source sent.")] = None


class Report(NamedDevice, kw_only=True):
    """The body of an enrolment and of a heartbeat. Only the id of the device is required."""

    hostname: Annotated[Text | None, words("The host name.")] = None
    platform: Annotated[Text | None, words("The operating system.")] = None
    agent_version: Annotated[Text | None, words("The version of the agent.")] = None
    user: Annotated[Text | None, words("The user of the machine.")] = None
    fingerprint: Annotated[Text | None, words("A text that identifies the machine.")] = None
    labels: Annotated[dict[str, str], words("Labels as name and value.")] = {}
    want_key: Annotated[bool, words("Whether the device needs a key of its own.")] = False
    state: Annotated[
        Text | None, words("The state of a device that another Tollhouse reports: `revoked`, or empty.")
    ] = None
    reset: Annotated[bool, words("Whether the machine replaces the one with this id.")] = False
    sent_at: Annotated[Text | float | None, words("When the device sent the report.")] = None
    spool: Annotated[SpoolDepth | None, words("The records that wait on the device.")] = None
    sources: Annotated[
        dict[Text, SourceSeen], words("The state of each source on the device."), Meta(max_length=MAX_SOURCES)
    ] = {}
    # Facts of the machine. Values that do not fit are left out, see gateway.devices.fleet.heartbeat_facts.
    serial: Annotated[Any, words("The serial number of the machine.")] = None
    serial_hash: Annotated[Any, words("A hash of the serial number.")] = None
    os: Annotated[Any, words("The operating system and its version, such as `macos 26.1`.")] = None
    agent: Annotated[
        Any, words("The agent's service, its memory (`rss_mib`) and its start (`started_at`).")
    ] = None
    policy: Annotated[
        Any,
        words(
            "The applied policy: its `sha256`, when it was applied (`applied_at`), or the code of an `error`."
        ),
    ] = None
    assistants: Annotated[
        Any,
        words(
            "By coding assistant: `state`, `cause`, `version`, `configured`, `use`, hours, and `slots`: by UTC day, "
            "the used slots of five minutes, the lost ones, and the least number of lost calls. See Fleet."
        ),
    ] = None
    key_storage: Annotated[Any, words("Where the agent keeps its key: `tpm`, `keychain` or `file`.")] = None
    hardware_id: Annotated[
        Any, words("A hash of the id of the machine's hardware, which the device claims, or null.")
    ] = None
    seq: Annotated[Any, words("The number of the heartbeat.")] = None
    next: Annotated[
        Any,
        words("The value of `next` in the last answer to a heartbeat. An older value shows a copied disk."),
    ] = None
    leaving: Annotated[
        Any, words("How the agent leaves: `removed`, or `unenrolled` if its key ends as well.")
    ] = None


class ReportingDevice(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the device."), example("laptop-grace")]
    state: Annotated[str, words("The state of the device."), example("enrolled")]
    heartbeat_interval_s: Annotated[float, words("The seconds between two heartbeats."), example(60)]


class EnrolmentAnswer(msgspec.Struct, kw_only=True):
    device: ReportingDevice
    key: Annotated[
        str | UnsetType, words("A key of its own for the device, shown once."), example("thd_...")
    ] = UNSET


class HeartbeatAnswer(msgspec.Struct, kw_only=True):
    device: ReportingDevice
    next: Annotated[
        str | UnsetType,
        words("The token that the next heartbeat returns in its own `next`."),
        example("3.9c1f5e0b7a"),
    ] = UNSET
    verdicts: Annotated[
        OwnVerdicts | UnsetType, words("The verdicts on budgets of the device and its person.")
    ] = UNSET


def _report_address(path: str, scope: str, endpoint: str, summary: str, gives: type | Schema) -> ApiAddress:
    return ApiAddress(
        methods=("POST",),
        path=path,
        summary=summary,
        endpoint=endpoint,
        scope=scope,
        may_be_empty=True,
        limit=BodyLimit(
            "devices.max_body_bytes",
            lambda services: services.services_of_type(DeviceReportServices).devices.settings.max_body_bytes,
        ),
        gives={200: {JSON: gives}},
        refusals=(*WRITE, 404, 409, 410),
    )


@_report_address(
    "/v1/ai-control-plane/enroll",
    ENROLL,
    "devices/enroll",
    "Enrol a device; the first answer to `want_key` includes its own key",
    EnrolmentAnswer,
)
async def enroll_device(request: KeyRequest[DeviceReportServices, Report]) -> Result:
    lifecycle = request.services.devices
    facts = _to_device_report(request.body, request.bearer, lifecycle.now())
    device, key = await lifecycle.enrol_or_update(facts, request.bearer, request.http.remote or "")
    await request.services.clusters.store_device_cluster(device, request.bearer)
    answer = EnrolmentAnswer(device=_reporting_device(device, lifecycle), key=key or UNSET)
    return _stated_fields(answer)


@_report_address(
    "/v1/ai-control-plane/heartbeat",
    HEARTBEAT,
    "devices/heartbeat",
    "Send a heartbeat with the facts and the activity of a device",
    HeartbeatAnswer,
)
async def heartbeat_device(request: KeyRequest[DeviceReportServices, Report]) -> Result:
    lifecycle = request.services.devices
    facts = _to_device_report(request.body, request.bearer, lifecycle.now())
    device, word = await lifecycle.store_heartbeat_and_issue_token(
        facts, request.bearer, request.http.remote or ""
    )
    await request.services.clusters.store_device_cluster(device, request.bearer)
    # only the device's own key may read verdicts; another Tollhouse that forwards its heartbeat has no right
    # to them
    is_own = request.bearer.device == device.id
    verdicts = await request.services.own_verdicts(device) if is_own else None
    answer = HeartbeatAnswer(
        device=_reporting_device(device, lifecycle), next=word or UNSET, verdicts=verdicts or UNSET
    )
    return _stated_fields(answer)


@_report_address(
    "/v1/ai-control-plane/ping",
    PING,
    "devices/ping",
    "Report that a device is alive",
    closed_object_schema({"ok": schema_with_description({"const": True}, "Always true.")}),
)
async def ping_device(request: KeyRequest[DeviceReportServices, NamedDevice]) -> Result:
    request.services.devices.note_alive(_device_id(request.body, request.bearer), request.bearer)
    return {"ok": True}


def _device_id(body: NamedDevice, bearer: AuthenticatedKey) -> str:
    id = body.device_id if body.device_id is not None else bearer.named or bearer.device
    if id is None or not is_device_id(id):
        raise BadPayload("device_id is required: 1 to 128 letters, digits and any of . _ : @ -")
    return id


def _to_device_report(report: Report, bearer: AuthenticatedKey, now: float) -> DeviceReport:
    try:
        labels = check_labels(report.labels)
    except Invalid as error:
        raise BadPayload(f"labels: {error}.") from error
    for name in labels:
        if may_be_name_of_content(name):
            raise BadPayload(
                f"labels: {name} is a name for message content, which is never stored; choose another name."
            )
    claimed = valid_facts({"serial": report.serial, "serial_hash": report.serial_hash})
    return DeviceReport(
        id=_device_id(report, bearer),
        hostname=report.hostname or "",
        platform=report.platform or "",
        agent_version=report.agent_version or "",
        user=report.user or "",
        fingerprint=report.fingerprint or "",
        labels=labels,
        hardware_id=valid_hardware_id(report.hardware_id),
        seq=report.seq if type(report.seq) is int and 0 <= report.seq <= MAX_SEQ else None,
        word=report.next if isinstance(report.next, str) and len(report.next) <= MAX_TEXT else "",
        serial=claimed.get("serial", ""),
        serial_hash=claimed.get("serial_hash", ""),
        want_key=report.want_key,
        leaving=report.leaving if report.leaving in tuple(LEAVINGS) else "",
        revoked=report.state == REVOKED,
        reset=report.reset,
        sent_at=_parse_sent_at(report.sent_at),
        heartbeat=_heartbeat_json(report, now),
    )


def _parse_sent_at(sent_at: str | float | None) -> float | None:
    """
    Return epoch seconds for an RFC 3339 time or a number. Return None if the time has no offset, because then
    no clock difference can be measured.
    """
    if isinstance(sent_at, str):
        try:
            at = datetime.fromisoformat(sent_at)
        except ValueError:
            raise BadPayload("sent_at is not an RFC 3339 time.") from None
        return at.timestamp() if at.tzinfo else None
    return sent_at


def _heartbeat_json(report: Report, now: float) -> bytes:
    """Return the fields that only a heartbeat has, as JSON for the upstream."""
    fields: dict[str, object] = {}
    if report.sent_at is not None:
        fields["sent_at"] = report.sent_at
    if report.spool is not None:
        fields["spool"] = report.spool
    if report.sources:
        fields["sources"] = report.sources
    facts = {name: getattr(report, name) for name in FACTS}
    return msgspec.json.encode({**fields, **without_future_days(valid_facts(facts), now)})


def _reporting_device(device: Device, lifecycle: DeviceLifecycle) -> ReportingDevice:
    """Return the device as its reports are answered. A device that waits for approval continues to report."""
    interval_s = lifecycle.interval_s
    shown_interval = int(interval_s) if interval_s == int(interval_s) else interval_s
    return ReportingDevice(id=device.id, state=device.state, heartbeat_interval_s=shown_interval)


def _stated_fields(answer: msgspec.Struct) -> Mapping[str, object]:
    stated: Mapping[str, object] = msgspec.to_builtins(answer)
    return stated
