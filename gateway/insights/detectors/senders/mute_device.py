"""Devices that are alive and say nothing of AI any more: their spend is missing, not gone."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.devices.states import is_mute
from gateway.insights.facts import Facts
from gateway.insights.findings import MAX_FINDINGS, day, finding, named
from spool.devices.device import ENROLLED, Device
from spool.registry.insights import LOW, Finding

NAME = "mute_device"
ALIVE_S = 86_400.0


def find(facts: Facts) -> Sequence[Finding]:
    mute = [
        device for device in facts.devices if _is_alive(device, facts.now) and is_mute(device, now=facts.now)
    ]
    return [_finding(device) for device in sorted(mute, key=lambda each: each.id)[:MAX_FINDINGS]]


def _is_alive(device: Device, now: float) -> bool:
    return device.state == ENROLLED and now - device.last_seen <= ALIVE_S


def _finding(device: Device) -> Finding:
    last = "never" if device.last_telemetry is None else f"on {day(device.last_telemetry)} for the last time"
    return finding(
        NAME,
        (device.id,),
        title=f"The device {named(device.id)} is alive and reports no AI calls",
        seen=f"Its heartbeats come; telemetry came {last}. It belongs to {named(device.user, 'nobody by name')}.",
        advice="See on the device whether its coding assistants still export to the local agent (`tollhouse doctor` "
        "there), or whether an update reset their settings.",
        category="coverage",
        effort=LOW,
    )
