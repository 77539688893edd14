"""
The heartbeats that a gateway sends to the next Tollhouse of a chain, about calls that wait at the gateway.

They have the form of an agent's heartbeats. The next Tollhouse may consider a call missing only if no record
from before the heartbeat waits. Calls that wait long make an assistant `unreachable` with the cause
`backlog`.
"""

from __future__ import annotations

from typing import Any

from gateway.devices.agent.link import BACKLOG, BACKLOG_S
from gateway.devices.fleet.assistant_states import FINE
from gateway.devices.fleet.heartbeat_facts import UNREACHABLE
from gateway.devices.fleet.uses import LOSING
from spool.devices.device import HEARD_EVERY_S, Device


def adjust_heartbeat_for_upstream(
    heartbeat: dict[str, Any],
    device: Device,
    oldest_waiting_since: float | None,
    *,
    record_hold_s: float,
    now: float,
) -> bool:
    """
    Change a stored heartbeat in place to the one for the next Tollhouse. `oldest_waiting_since` is the time from
    which the oldest record waits for delivery here, or None. Each record was open for `record_hold_s` before it
    waited. Return whether the heartbeat now states that calls wait.
    """
    assistants = heartbeat.get("assistants") or {}
    beaten_at = device.last_heartbeat or 0.0
    if beaten_at > now - record_hold_s or (
        oldest_waiting_since is not None and oldest_waiting_since <= beaten_at
    ):
        for fields in assistants.values():
            fields.pop("heard_at", None)
    if oldest_waiting_since is None or now - oldest_waiting_since <= BACKLOG_S:
        return False
    if (device.last_telemetry or 0.0) < oldest_waiting_since - record_hold_s - HEARD_EVERY_S:
        return False
    states_wait = False
    for name, fields in assistants.items():
        is_fine = fields.get("state") in FINE and fields.get("use") != LOSING
        if is_fine and device.newest_calls.get(name, 0.0) >= oldest_waiting_since - BACKLOG_S:
            fields.update(state=UNREACHABLE, cause=BACKLOG)
            spool = heartbeat.setdefault("spool", {})
            spool["oldest_age_s"] = max(spool.get("oldest_age_s") or 0.0, now - oldest_waiting_since)
            states_wait = True
    return states_wait
