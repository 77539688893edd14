"""Detectors for devices that share a disk or the id of their hardware."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from gateway.devices.states import SAME_HARDWARE
from gateway.money.insights.detector_facts import (
    InsightFacts,
    mark_as_needing_only_states,
    mark_impossible_in_demo,
)
from gateway.money.insights.findings import MAX_FINDINGS, MAX_ROWS, build_finding, format_day, printable_name
from spool.devices.device import ENROLLED, PENDING, Device
from spool.registry.insights import LOW, Finding


@mark_as_needing_only_states
@mark_impossible_in_demo("each laptop of a demo month has its own disk")
def copied_device(facts: InsightFacts) -> Sequence[Finding]:
    """Find devices whose disk seems to be in use on two machines, so that one key reports for both."""
    copied = [device for device in facts.devices if device.state == ENROLLED and device.copied_at is not None]
    return [
        _copied_device_finding(device) for device in sorted(copied, key=lambda item: item.id)[:MAX_FINDINGS]
    ]


def _copied_device_finding(device: Device) -> Finding:
    return build_finding(
        "copied_device",
        (device.id,),
        title=f"The device {printable_name(device.id)} seems to be copied",
        seen=(
            f"On {format_day(device.copied_at or 0.0)}, a heartbeat had an older word than the device "
            "had returned before. "
            "So two machines use the key of this device, or the machine was restored from a snapshot. The device "
            f"belongs to {printable_name(device.user, 'no named user')}."
        ),
        advice=(
            f"If the machine was restored, run `tollhouse devices approve {device.id}`. Otherwise delete the copy, and "
            f"run `tollhouse devices reset {device.id}`: its key ends, and the machine enrols again."
        ),
        category="reliability",
        effort=LOW,
        newest=device.copied_at,
    )


@mark_as_needing_only_states
@mark_impossible_in_demo("each laptop of a demo month has its own hardware")
def shared_hardware(facts: InsightFacts) -> Sequence[Finding]:
    """Find machines that report the same hardware id, such as copied virtual machines."""
    devices_of: defaultdict[str, list[str]] = defaultdict(list)
    for device in facts.devices:
        if device.hardware_id and device.state == ENROLLED:
            devices_of[device.hardware_id].append(device.id)
    shared = sorted((hardware_id, sorted(ids)) for hardware_id, ids in devices_of.items() if len(ids) > 1)
    return [_shared_hardware_finding(hardware_id, ids) for hardware_id, ids in shared[:MAX_FINDINGS]]


def _shared_hardware_finding(hardware_id: str, ids: Sequence[str]) -> Finding:
    return build_finding(
        "shared_hardware",
        (hardware_id,),
        title=f"{len(ids)} devices report the same hardware",
        seen=f"These devices are enrolled and have one hardware id: {', '.join(map(printable_name, ids[:MAX_ROWS]))}.",
        advice=(
            "Virtual machines that were copied have one id; give each its own UUID. If a machine was installed again, "
            "revoke its earlier device: `tollhouse devices revoke ID`."
        ),
        category="reliability",
        effort=LOW,
    )


@mark_as_needing_only_states
@mark_impossible_in_demo("each laptop of a demo month was installed only once")
def reinstalled_device(facts: InsightFacts) -> Sequence[Finding]:
    """Find machines that enrolled again with the hardware of another device, and wait for approval."""
    waiting = [
        device for device in facts.devices if device.state == PENDING and device.cause == SAME_HARDWARE
    ]
    return [_reinstalled_finding(sorted(waiting, key=lambda item: item.id))] if waiting else []


def _reinstalled_finding(devices: Sequence[Device]) -> Finding:
    count = len(devices)
    machines = "1 machine was" if count == 1 else f"{count} machines were"
    wait = "waits" if count == 1 else "wait"
    ids = ", ".join(map(printable_name, [device.id for device in devices[:MAX_ROWS]]))
    more = f" and {count - MAX_ROWS} more" if count > MAX_ROWS else ""
    return build_finding(
        "reinstalled_device",
        (),
        title=f"{machines} installed again and {wait} for approval, and so do the calls",
        seen=f"These devices have the hardware of devices that enrolled before, so they are pending: {ids}{more}.",
        advice=(
            "If you know the machine, approve the device (`tollhouse devices approve ID`) and revoke the earlier one. "
            "With a token for its serial number, a machine needs no approval."
        ),
        category="reliability",
        effort=LOW,
        newest=max(device.enrolled_at for device in devices),
    )
